"""Waiting for final statistics without a worker slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import date
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_mail.triggers.campaigns import event_of

if TYPE_CHECKING:
    from airflow_provider_mail.api.waiting import Verdict


class MailStatsSettledTrigger(BaseTrigger):
    """Fires when the statistics of a campaign are final, when they have disappeared, or when the time is up.

    Its arguments are stored unencrypted in Airflow's database: they hold a connection id and no secret. They stay the
    same from version to version, so that waits survive an upgrade. What it has observed itself does not survive a
    restart of the triggerer: it then goes on from ``memory``.

    Its event is that of :class:`~airflow_provider_mail.triggers.campaigns.MailCampaignTrigger`, with the final record
    as ``mail_stats``.

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's exact name.
    :param start_day: first day, ``YYYY-MM-DD``, on which the campaign may have been sent.
    :param end_day: last such day; ``None`` for the day of the look.
    :param observations: final after so many looks in a row that found the same counts; ``None``: by age alone.
    :param apart: seconds from one observation to the next, at least.
    :param age: final so many seconds after the send time; ``None``: never for that reason.
    :param memory: what was seen before, see :attr:`airflow_provider_mail.api.settling.SettlingStats.memory`.
    :param poke_interval: seconds from one poll to the next; all waits with the same connection and interval share it.
    :param end_time: Unix time at which the wait is given up, whatever was restarted in between; ``None`` for never.
    :param max_poll_errors: so many failed polls in a row are borne.
    """

    def __init__(
        self,
        *,
        mail_conn_id: str,
        mail_name: str,
        start_day: str,
        end_day: str | None = None,
        observations: int | None = None,
        apart: float = 0.0,
        age: float | None = None,
        memory: dict[str, Any] | None = None,
        poke_interval: float = 60.0,
        end_time: float | None = None,
        max_poll_errors: int = 10,
    ) -> None:
        super().__init__()
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.start_day = start_day
        self.end_day = end_day
        self.observations = observations
        self.apart = apart
        self.age = age
        self.memory = memory
        self.poke_interval = poke_interval
        self.end_time = end_time
        self.max_poll_errors = max_poll_errors

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments."""
        return (
            "airflow_provider_mail.triggers.stats.MailStatsSettledTrigger",
            {
                "mail_conn_id": self.mail_conn_id,
                "mail_name": self.mail_name,
                "start_day": self.start_day,
                "end_day": self.end_day,
                "observations": self.observations,
                "apart": self.apart,
                "age": self.age,
                "memory": self.memory,
                "poke_interval": self.poke_interval,
                "end_time": self.end_time,
                "max_poll_errors": self.max_poll_errors,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields exactly one event."""
        # In a thread: importing what makes requests takes long enough to hold up every other trigger.
        await asyncio.to_thread(import_module, "airflow_provider_mail.hooks.stats_watch")
        yield TriggerEvent(event_of(self.mail_conn_id, self.mail_name, await self._wait()))

    async def _wait(self) -> Verdict:
        from airflow_provider_mail.api.settling import SettlingStats
        from airflow_provider_mail.api.waiting import Outcome, Verdict
        from airflow_provider_mail.hooks import campaign_watch
        from airflow_provider_mail.hooks.stats_watch import StatsPart, stats_looks

        # The task looked before it deferred, so a refusal is news and may pass.
        settling = SettlingStats(
            self.mail_name,
            observations=self.observations,
            apart=self.apart,
            age=self.age,
            memory=self.memory,
            looked=True,
            max_poll_errors=self.max_poll_errors,
        )
        start_day = date.fromisoformat(self.start_day)
        end_day = date.fromisoformat(self.end_day) if self.end_day else None
        soonest = time.time() + min(self.poke_interval, campaign_watch.SETTLE_SECONDS)
        part = StatsPart(
            not_before=max(settling.not_before, soonest),
            mail_name=self.mail_name,
            days=settling.days(start_day, end_day, time.time()),
        )
        verdict = Verdict(Outcome.WAITING, f"statistics of campaign {self.mail_name!r} were not looked at yet")
        async with stats_looks(self.mail_conn_id, self.poke_interval, part):
            while verdict.outcome is Outcome.WAITING:
                left = None if self.end_time is None else max(self.end_time - time.time(), 0.0)
                try:
                    async with asyncio.timeout(left):
                        look, at = await part.looks.get()
                except TimeoutError:
                    return Verdict(Outcome.TIMEOUT, f"the time is up: {verdict.message}")
                verdict = settling.judge(look, at)
                self.log.info("%s", verdict.message)
                part.not_before, part.days = settling.not_before, settling.days(start_day, end_day, time.time())
        return verdict
