"""Waiting for a sender's checks without a worker slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_mail.triggers.campaigns import event_of

if TYPE_CHECKING:
    from airflow_provider_mail.api.waiting import Verdict


class MailSenderTrigger(BaseTrigger):
    """Fires when all four checks of a sender are good, or when the time is up.

    Its arguments are stored unencrypted in Airflow's database: they hold a connection id and no secret. They stay the
    same from version to version, so that waits survive an upgrade.

    Its event is that of :class:`~airflow_provider_mail.triggers.campaigns.MailCampaignTrigger`, with the checks as
    ``mail_stats``.

    :param mail_conn_id: the connection.
    :param sender_email: the sender entry.
    :param selector: of its DKIM entry: have the service check at each look.
    :param poke_interval: seconds from one poll to the next; all waits with the same connection and interval share it.
    :param end_time: Unix time at which the wait is given up; ``None`` for never.
    :param max_poll_errors: so many failed polls in a row are borne.
    """

    def __init__(
        self,
        *,
        mail_conn_id: str,
        sender_email: str,
        selector: str | None = None,
        poke_interval: float = 300.0,
        end_time: float | None = None,
        max_poll_errors: int = 10,
    ) -> None:
        super().__init__()
        self.mail_conn_id = mail_conn_id
        self.sender_email = sender_email
        self.selector = selector
        self.poke_interval = poke_interval
        self.end_time = end_time
        self.max_poll_errors = max_poll_errors

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments."""
        return (
            "airflow_provider_mail.triggers.senders.MailSenderTrigger",
            {
                "mail_conn_id": self.mail_conn_id,
                "sender_email": self.sender_email,
                "selector": self.selector,
                "poke_interval": self.poke_interval,
                "end_time": self.end_time,
                "max_poll_errors": self.max_poll_errors,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields exactly one event."""
        # In a thread: importing what makes requests takes long enough to hold up every other trigger.
        await asyncio.to_thread(import_module, "airflow_provider_mail.hooks.sender_watch")
        yield TriggerEvent(event_of(self.mail_conn_id, self.sender_email, await self._wait()))

    async def _wait(self) -> Verdict:
        from airflow_provider_mail.api.senders import SenderWait
        from airflow_provider_mail.api.waiting import Outcome, Verdict
        from airflow_provider_mail.hooks import campaign_watch
        from airflow_provider_mail.hooks.sender_watch import SenderPart, sender_looks

        # The task looked before it deferred, so a refusal is news and may pass.
        wait = SenderWait(self.sender_email, looked=True, max_poll_errors=self.max_poll_errors)
        soonest = time.time() + min(self.poke_interval, campaign_watch.SETTLE_SECONDS)
        part = SenderPart(not_before=soonest, sender_email=self.sender_email, selector=self.selector)
        verdict = Verdict(Outcome.WAITING, f"sender {self.sender_email!r} was not looked at yet")
        async with sender_looks(self.mail_conn_id, self.poke_interval, part):
            while verdict.outcome is Outcome.WAITING:
                left = None if self.end_time is None else max(self.end_time - time.time(), 0.0)
                try:
                    async with asyncio.timeout(left):
                        look, _ = await part.looks.get()
                except TimeoutError:
                    return Verdict(Outcome.TIMEOUT, f"the time is up: {verdict.message}")
                verdict = wait.judge(look)
                self.log.info("%s", verdict.message)
        return verdict
