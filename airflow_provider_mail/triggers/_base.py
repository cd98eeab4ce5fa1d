"""Base class of the triggers of all waits."""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitSubscription
    from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget


LAST_LOOK_SECONDS = 60.0
"""Time limit in seconds of the poll after the deadline."""


class BaseWaitTrigger(BaseTrigger):
    """Fires once: when the awaited state is reached, when it can no longer be reached, or at the deadline.

    The arguments are stored unencrypted in Airflow's database: they contain a connection id and no secret. They do not
    change between versions, so that waits survive an upgrade.

    The event is plain JSON, which ``_task.waiting`` parses: ``status``, ``name`` of the awaited object,
    ``message`` and ``result``.

    :param poke_interval: seconds between polls; all waits with the same connection and interval share them.
    :param end_time: Unix time of the deadline, by the service's clock if its responses show one: the clocks of the
        worker and the triggerer may differ. It survives restarts of the triggerer. ``None`` for no deadline.
    """

    poller_module: ClassVar[str] = "airflow_provider_mail._polling.pollers"
    """The module of the poller, which imports everything that :meth:`subscription` needs."""

    identity: ClassVar[str] = "mail_name"
    """The argument that names the awaited object."""

    def __init__(
        self,
        *,
        conn_id: str,
        poke_interval: float,
        end_time: float | None,
        poll_error_timeout: float,
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.poke_interval = poke_interval
        self.end_time = end_time
        self.poll_error_timeout = poll_error_timeout

    @property
    def target(self) -> Hashable:
        """What is polled: waits for the same target share their polls."""
        return self.conn_id

    @abstractmethod
    def subscription(self, errors: PollErrorBudget) -> tuple[type[SharedPoller[Any]], WaitSubscription]:
        """Return the poller to subscribe to, and the subscription."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return path_and_arguments(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # In a thread: importing the client takes long enough to block every other trigger.
        await asyncio.to_thread(import_module, self.poller_module)
        decision = (await self._wait()).for_connection(self.conn_id)
        name = getattr(self, self.identity)
        yield TriggerEvent(
            {"status": decision.status.value, "name": name, "message": decision.message, "result": decision.result}
        )
        await self._log_line(decision.message)

    async def _wait(self) -> PollDecision:
        from airflow_provider_mail._polling.shared_poller import EXTRA_POLL_SECONDS, SETTLE_SECONDS, subscribe
        from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget, WaitStatus, status_line

        # The task polled successfully before it deferred, so a rejection may be temporary.
        errors = PollErrorBudget(polled_before=True, timeout=self.poll_error_timeout)
        poller_type, subscription = self.subscription(errors)
        asked_at = 0.0
        async with subscribe(poller_type, self.target, self.poke_interval, subscription) as poller:
            while True:
                now = time.time() + (subscription.offset or 0.0)
                left = None if self.end_time is None else max(self.end_time - now, 0.0)
                if left:
                    # Only the last poll may show that, by the service's clock, the deadline has not passed yet.
                    subscription.last_look = False
                if left == 0.0 and not subscription.last_look:
                    # The awaited state may have been reached since the last poll, or while no triggerer ran.
                    if time.monotonic() - subscription.polled_at > EXTRA_POLL_SECONDS:
                        subscription.due = min(subscription.due, time.monotonic() + SETTLE_SECONDS)
                        poller.poll_soon()
                        left, asked_at = LAST_LOOK_SECONDS, time.monotonic()
                    subscription.last_look = True
                try:
                    async with asyncio.timeout(left):
                        await subscription.changed.wait()
                except TimeoutError:
                    if not subscription.last_look:
                        continue
                    latest = subscription.decision
                    if latest is None or subscription.polled_at < asked_at:
                        # An earlier poll does not show what has happened since.
                        not_polled = f"the last poll for {getattr(self, self.identity)!r} did not end"
                        latest = PollDecision(WaitStatus.WAITING, not_polled, is_seen=False)
                    return latest.at_deadline()
                subscription.changed.clear()
                if subscription.error is not None:
                    raise subscription.error
                decision = subscription.decision
                assert decision is not None
                if decision.status is not WaitStatus.WAITING:
                    return decision
                await self._log_line(status_line(decision, self.poke_interval, self.end_time))

    async def _log_line(self, text: str) -> None:
        # In a thread: when a thousand waits end together, the triggerer reads their log lines too slowly for the event
        # loop.
        await asyncio.to_thread(self.log.info, "%s", text)


def path_and_arguments(trigger: BaseTrigger) -> tuple[str, dict[str, Any]]:
    """Return the class path of a trigger and its arguments, by which Airflow identifies it.

    :param trigger: a trigger that keeps each argument in an attribute of the same name.
    """
    trigger_type = type(trigger)
    arguments = {name: getattr(trigger, name) for name in inspect.signature(trigger_type).parameters}
    return f"{trigger_type.__module__}.{trigger_type.__qualname__}", arguments
