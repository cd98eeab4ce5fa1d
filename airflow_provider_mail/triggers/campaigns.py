"""Waiting for a campaign without a worker slot, and what the outcome means to the task that waited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow_provider_mail.api.waiting import Look, Verdict


class MailCampaignTrigger(BaseTrigger):
    """Fires when a campaign has gone out, has failed, or when the time is up.

    Its arguments are stored unencrypted in Airflow's database: they hold a connection id and no secret. They stay the
    same from version to version, so that waits survive an upgrade.

    Its event is made by :func:`event_of` and read by :func:`mail_stats_of`.

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's exact name.
    :param poke_interval: seconds from one poll to the next; all waits with the same connection and interval share it.
    :param end_time: Unix time at which the wait is given up, whatever was restarted in between; ``None`` for never.
    :param not_before: Unix time before which there is nothing to see, such as the send time.
    :param seen: whether the campaign has been there before.
    :param max_poll_errors: so many failed polls in a row are borne.
    :param cancel_on_kill: cancel the campaign when the task that waits is marked failed or successful. Needs Airflow
        3.3; earlier ones do not tell a trigger.
    """

    def __init__(
        self,
        *,
        mail_conn_id: str,
        mail_name: str,
        poke_interval: float = 60.0,
        end_time: float | None = None,
        not_before: float = 0.0,
        seen: bool = False,
        max_poll_errors: int = 10,
        cancel_on_kill: bool = False,
    ) -> None:
        super().__init__()
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.poke_interval = poke_interval
        self.end_time = end_time
        self.not_before = not_before
        self.seen = seen
        self.max_poll_errors = max_poll_errors
        self.cancel_on_kill = cancel_on_kill

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments."""
        return (
            "airflow_provider_mail.triggers.campaigns.MailCampaignTrigger",
            {
                "mail_conn_id": self.mail_conn_id,
                "mail_name": self.mail_name,
                "poke_interval": self.poke_interval,
                "end_time": self.end_time,
                "not_before": self.not_before,
                "seen": self.seen,
                "max_poll_errors": self.max_poll_errors,
                # Only when it is wanted: a triggerer that is not upgraded yet does not know it.
                **({"cancel_on_kill": True} if self.cancel_on_kill else {}),
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields exactly one event."""
        # In a thread: importing what makes requests takes long enough to hold up every other trigger.
        watch = await asyncio.to_thread(import_module, "airflow_provider_mail.hooks.campaign_watch")
        async with watch.campaign_looks(
            self.mail_conn_id, self.poke_interval, self.mail_name, self.not_before
        ) as looks:
            final = await self._wait(looks)
        yield TriggerEvent(event_of(self.mail_conn_id, self.mail_name, final))

    async def on_kill(self) -> None:
        """Airflow's word for a task that was ended while it was deferred; it also comes when it was not."""
        if not self.cancel_on_kill:
            return
        # What it imports was imported to wait.
        from airflow_provider_mail.hooks.killing import cancel_if_ended

        came_of_it = await cancel_if_ended(self.task_instance, self.mail_conn_id, self.mail_name)
        self.log.info("campaign %r %s", self.mail_name, came_of_it)

    async def _wait(self, looks: asyncio.Queue[tuple[Look, float]]) -> Verdict:
        from airflow_provider_mail.api.waiting import CampaignWait, Outcome, Verdict

        # The task looked before it deferred, so a refusal is news and may pass.
        wait = CampaignWait(self.mail_name, seen=self.seen, looked=True, max_poll_errors=self.max_poll_errors)
        verdict = Verdict(Outcome.WAITING, f"campaign {self.mail_name!r} was not looked at yet")
        while verdict.outcome is Outcome.WAITING:
            left = None if self.end_time is None else max(self.end_time - time.time(), 0.0)
            try:
                async with asyncio.timeout(left):
                    look, _ = await looks.get()
            except TimeoutError:
                return Verdict(Outcome.TIMEOUT, f"the time is up: {verdict.message}")
            verdict = wait.judge(look)
            self.log.info("%s", verdict.message)
        return verdict


def event_of(mail_conn_id: str, mail_name: str, verdict: Verdict) -> dict[str, Any]:
    """A wait's end as plain JSON: ``status``, ``mail_name``, ``message``, ``mail_stats``."""
    message, where = verdict.message, f"connection {mail_conn_id!r}"
    if verdict.outcome in ("refused", "error") and where not in message:
        message = f"{where}: {message}"
    return {
        "status": verdict.outcome.value,
        "mail_name": mail_name,
        "message": message,
        "mail_stats": verdict.mail_stats,
    }


def mail_stats_of(event: dict[str, Any] | None, *, time_up: type[AirflowException]) -> dict[str, Any]:
    """The ``mailStats`` of a campaign that has gone out, from the event of :class:`MailCampaignTrigger`.

    :param event: what the trigger yielded.
    :param time_up: raised when the time was up.
    :raises AirflowFailException: when the campaign failed or the service refused to say: a retry would not mend it.
    :raises AirflowException: when the polls failed, or the event is none of the trigger's.
    """
    if not isinstance(event, dict) or not {"status", "message", "mail_stats"} <= event.keys():
        raise AirflowException(f"not an event of MailCampaignTrigger: {event!r}")
    status, message = event["status"], event["message"]
    if status == "complete" and isinstance(event["mail_stats"], dict):
        return event["mail_stats"]
    if status in ("failed", "refused"):
        raise AirflowFailException(message)
    if status == "timeout":
        raise time_up(message)
    if status == "error":
        raise AirflowException(message)
    raise AirflowException(f"not an event of MailCampaignTrigger: {event!r}")
