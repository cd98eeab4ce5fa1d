"""One poll for all waits that share something inside a triggerer, from the first one to come to the last to go."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailConnectError, MailError
from airflow_provider_mail.api.flows.wait_campaign import PollDecision, StatusLog, WaitStatus
from airflow_provider_mail.hooks.mail import MailHook

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""A trigger that fires before the scheduler has noted the deferral can fail the task: nothing is looked at earlier."""

SHORTEST_INTERVAL = 0.1
"""Nobody may poll without a pause, whatever a sensor's `poke_interval` says."""

LONGEST_SLEEP = 60.0
"""Seconds, at most, after which the poll task looks at its schedule again."""


RECONNECT_SECONDS = 60.0
"""While polls fail with temporary errors, the connection is read again so often: its host may have been changed."""

Judge: TypeAlias = Callable[[Any, float, float], PollDecision]
"""What a poll's result means to a wait, after those before it: given the result, the Unix time of the poll, and the
seconds by which the service's clock is ahead."""


@dataclass(eq=False, kw_only=True)
class PollSubscription(ABC):
    """One trigger's part in a shared poll.

    :param due: monotonic time before which it need not be polled.
    """

    due: float = 0.0

    @abstractmethod
    def deliver(self, result: Any, at: float, offset: float) -> None:
        """Take the result of one poll, or the `MailError` with which it failed.

        :param at: Unix time of the poll.
        :param offset: seconds by which the service's clock is ahead.
        """


@dataclass(eq=False, kw_only=True)
class WaitPart(PollSubscription):
    """The part of a trigger that waits for something: judged here, the trigger wakes only for what concerns it.

    A thousand triggers that woke for every poll would cost more than the poll itself.
    """

    judge: Judge
    verdict: PollDecision | None = None
    """The last one."""
    error: Exception | None = None
    """A programming error in ``judge``, to be raised by the trigger."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the wait is over, or its status is to be logged."""
    _log: StatusLog = field(default_factory=StatusLog)

    def deliver(self, result: Any, at: float, offset: float) -> None:
        """Judge the result; wake the trigger when that is due."""
        try:
            verdict = self.judge(result, at, offset)
        except Exception as error:
            # It must not end the poll, on which others depend.
            self.error, self.due = error, inf
            self.changed.set()
            return
        waiting = verdict.outcome is WaitStatus.WAITING
        self.verdict = verdict
        self.due = time.monotonic() + verdict.pause if waiting else inf
        if not waiting or self._log.is_due(verdict, at):
            self.changed.set()


P = TypeVar("P", bound=PollSubscription)


class SharedPoller(ABC, Generic[P]):
    """Polls through one client. After errors it reads the connection again, which may have been fixed.

    :param interval: seconds from one poll to the next.
    """

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        self._mail_conn_id = mail_conn_id
        self._interval = interval
        self._parts: set[P] = set()
        self._joined = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._client: AsyncMailClient | None = None
        self._connected_at = 0.0
        self._offset = 0.0

    @abstractmethod
    async def look(self, client: AsyncMailClient, due: Collection[P]) -> Mapping[P, object]:
        """One look for each part; an error that concerns all of them may be raised."""

    def join(self, part: P) -> None:
        """Let the polls concern one part more."""
        self._parts.add(part)
        self._joined.set()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll_on(), name=f"mail-watch-{self._mail_conn_id}")

    def leave(self, part: P) -> bool:
        """Let them concern one less; tells whether that was the last."""
        self._parts.discard(part)
        return not self._parts

    async def end(self) -> None:
        """Stop polling; returns when nothing is left of it."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])

    async def _poll_on(self) -> None:
        try:
            next_poll = time.monotonic()
            while True:
                await self._until_due(next_poll)
                started, at = time.monotonic(), time.time()
                due = [part for part in self._parts if part.due <= started]
                looks = await self._looks(due)
                for part in due:
                    part.deliver(looks[part], at, self._offset)
                # A poll may take longer than the interval: who has seen enough must have left before the next one.
                next_poll = max(started + self._interval, time.monotonic() + SHORTEST_INTERVAL)
        finally:
            await self._close()

    async def _until_due(self, next_poll: float) -> None:
        """Sleep until the next poll is due; look again when a part joins."""
        while True:
            self._joined.clear()
            first = min(part.due for part in self._parts)
            left = max(first, next_poll) - time.monotonic()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LONGEST_SLEEP)):
                    await self._joined.wait()

    async def _looks(self, due: Collection[P]) -> Mapping[P, object]:
        found: Mapping[P, object]
        try:
            if self._client is None:
                self._connected_at = time.monotonic()
                self._client = await MailHook(self._mail_conn_id).get_async_conn()
            found = await self.look(self._client, due)
        except MailError as error:
            found = dict.fromkeys(due, error)
        except Exception as error:
            # Whatever it is, polling must go on: a wait that nobody tells anything would never end.
            log.exception("polling for connection %r failed", self._mail_conn_id)
            words = f"{type(error).__name__}: {error}"
            found = dict.fromkeys(due, MailConnectError(f"connection {self._mail_conn_id!r}: {words}"))
        if self._client is not None:
            self._offset = self._client.service_clock.offset
        errors = [look for look in found.values() if isinstance(look, MailError)]
        refused = any(not error.temporary for error in errors)
        all_failed = bool(errors) and len(errors) == len(found)
        if refused or (all_failed and time.monotonic() - self._connected_at >= RECONNECT_SECONDS):
            await self._close()
        return found

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


@asynccontextmanager
async def joined(kind: type[SharedPoller[P]], mail_conn_id: str, interval: float, part: P) -> AsyncIterator[None]:
    """Take part in the running loop's polls of a connection; those that concern the part are delivered to it.

    The poll is begun by the first to come and ended by the last to go.

    :param kind: what is polled.
    :param interval: seconds from one poll to the next; parts with different intervals have different polls.
    """
    interval = max(interval, SHORTEST_INTERVAL)
    part.due = max(part.due, time.monotonic() + min(interval, SETTLE_SECONDS))
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    key = kind, mail_conn_id, interval
    if key not in watches:
        watches[key] = kind(mail_conn_id, interval)
    watch = watches[key]
    watch.join(part)
    try:
        yield
    finally:
        if watch.leave(part):
            del watches[key]
            await watch.end()


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, SharedPoller[Any]]] = WeakKeyDictionary()
