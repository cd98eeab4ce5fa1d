"""What the waits without a worker slot share, and what their outcome means to the task that waited."""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_mail.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow_provider_mail._polling.shared_poller import SharedPoller, WaitPart
    from airflow_provider_mail.api.flows.wait_campaign import PollDecision


class BaseWaitTrigger(BaseTrigger):
    """Fires once: when what is waited for is there, when it will not come, or when the time is up.

    Its arguments are stored unencrypted in Airflow's database: they hold a connection id and no secret. They stay the
    same from version to version, so that waits survive an upgrade.

    Its event is made by :func:`event_of` and read by :func:`mail_stats_of`.

    :param mail_conn_id: the connection.
    :param poke_interval: seconds from one poll to the next; all waits with the same connection and interval share it.
    :param end_time: Unix time at which the wait is given up, whatever was restarted in between; ``None`` for never.
    :param max_poll_errors: more failed polls in a row than this are needed to give the wait up.
    :param poll_error_timeout: seconds for which polls must have failed in a row, besides, to give the wait up.
    """

    watch: ClassVar[str]
    """The module that makes the requests, and with it all that :meth:`waiting` imports."""

    event_keys: ClassVar[tuple[str, str]] = ("mail_name", "mail_stats")
    """The keys of the event that hold the name of what was waited for and the result."""

    added: ClassVar[dict[str, Any]] = {"poll_error_timeout": 600.0}
    """Arguments that came after the first release, with their defaults: stored only when they are something else, so
    that a triggerer that is not upgraded yet can load the trigger."""

    def __init__(
        self,
        *,
        mail_conn_id: str,
        poke_interval: float,
        end_time: float | None,
        max_poll_errors: int,
        poll_error_timeout: float,
    ) -> None:
        super().__init__()
        self.mail_conn_id = mail_conn_id
        self.poke_interval = poke_interval
        self.end_time = end_time
        self.max_poll_errors = max_poll_errors
        self.poll_error_timeout = poll_error_timeout

    @property
    @abstractmethod
    def awaited(self) -> str:
        """The name of what is waited for."""

    @abstractmethod
    def waiting(self) -> tuple[type[SharedPoller[Any]], WaitPart]:
        """What is polled, and the part that this trigger has in it.

        The task looked before it deferred, so a refusal is news and may pass.
        """

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments."""
        kind = type(self)
        arguments = {name: getattr(self, name) for name in inspect.signature(kind).parameters}
        for name, default in self.added.items():
            if arguments[name] == default:
                del arguments[name]
        return f"{kind.__module__}.{kind.__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields exactly one event."""
        # In a thread: importing what makes requests takes long enough to hold up every other trigger.
        await asyncio.to_thread(import_module, self.watch)
        yield TriggerEvent(event_of(self.mail_conn_id, self.awaited, await self._wait(), self.event_keys))

    async def _wait(self) -> PollDecision:
        from airflow_provider_mail._polling.shared_poller import joined
        from airflow_provider_mail.api.flows.wait_campaign import PollDecision, WaitStatus, status_line

        watch, part = self.waiting()
        async with joined(watch, self.mail_conn_id, self.poke_interval, part):
            while True:
                left = None if self.end_time is None else max(self.end_time - time.time(), 0.0)
                try:
                    async with asyncio.timeout(left):
                        await part.changed.wait()
                except TimeoutError:
                    known = part.verdict.message if part.verdict else f"{self.awaited!r} was not polled"
                    return PollDecision(WaitStatus.TIMEOUT, f"the time is up: {known}")
                part.changed.clear()
                if part.error is not None:
                    raise part.error
                assert part.verdict is not None
                self.log.info("%s", status_line(part.verdict, self.poke_interval, self.end_time))
                if part.verdict.outcome is not WaitStatus.WAITING:
                    return part.verdict


def event_of(
    mail_conn_id: str, awaited: str, verdict: PollDecision, keys: tuple[str, str] = BaseWaitTrigger.event_keys
) -> dict[str, Any]:
    """The end of a wait as plain JSON: ``status``, ``message``, the name and the result.

    :param mail_conn_id: the connection, which the message of an error names.
    :param awaited: the name of what was waited for.
    :param verdict: the decision that ended the wait.
    :param keys: the keys of name and result.
    """
    message, where = verdict.message, f"connection {mail_conn_id!r}"
    if verdict.outcome in ("refused", "error") and where not in message:
        message = f"{where}: {message}"
    name, result = keys
    return {"status": verdict.outcome.value, name: awaited, "message": message, result: verdict.mail_stats}


def mail_stats_of(event: dict[str, Any] | None, *, time_up: type[AirflowException]) -> dict[str, Any]:
    """Return the result of a wait, such as the ``mailStats`` of a sent campaign, from a trigger's event.

    Earlier versions stored the result of a sender's wait as ``mail_stats``, too: both keys are read.

    :param event: the event, from a trigger of this version or an earlier one.
    :param time_up: raised when the wait timed out.
    :raises AirflowFailException: when the campaign failed or the service rejected the request: a retry cannot help.
    :raises AirflowException: when the polls failed, or the event is not one of these triggers'.
    """
    given = event.keys() if isinstance(event, dict) else set()
    if not event or not {"status", "message"} <= given or given.isdisjoint({"result", "mail_stats"}):
        raise AirflowException(f"not an event of a mail trigger: {event!r}")
    status, message, result = event["status"], event["message"], event.get("result", event.get("mail_stats"))
    if status == "complete" and isinstance(result, dict):
        return result
    if status in ("failed", "refused"):
        raise AirflowFailException(message)
    if status == "timeout":
        raise time_up(message)
    if status == "error":
        raise AirflowException(message)
    raise AirflowException(f"not an event of a mail trigger: {event!r}")
