"""One poll per interval for all triggers in a triggerer that wait on the same connection."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Collection, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider_mail.api._core.pacing import RESOLUTION
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.waits import PollDecision, StatusLog, Wait, WaitStatus

SETTLE_SECONDS = 5.0
"""Minimum seconds before the first poll: a trigger that fires before the scheduler has recorded the deferral can fail
the task."""

SHORTEST_INTERVAL = 0.1
"""Minimum seconds between polls, regardless of a sensor's ``poke_interval``."""

EXTRA_POLL_SECONDS = 10.0
"""Minimum seconds between a poll and one that `SharedPoller.poll_soon` causes, however often it is called."""

EXTRA_POLLS = 2
"""Polls that a call of `SharedPoller.poll_soon` causes: the service may list later what it has pushed."""

JOINED_LATE_SECONDS = 60.0
"""A subscriber that joins within this many seconds after `SharedPoller.poll_soon` gets extra polls, too: the event that
caused the call may have happened while its task deferred."""

LONGEST_SLEEP = 60.0
"""Maximum seconds after which the poll task checks its schedule again."""


@dataclass(eq=False, kw_only=True, slots=True)
class PollSubscription(ABC):
    """The subscription of one trigger to a shared poller.

    :param due: monotonic time before which the subscriber need not be polled for.
    """

    due: float = 0.0

    @abstractmethod
    def deliver(self, result: Any, at: float, offset: float) -> None:
        """Receive the result of one poll.

        :param offset: seconds by which the service's clock is ahead.
        """


W = TypeVar("W", bound=Wait)


@dataclass(eq=False, kw_only=True, slots=True)
class WaitSubscription(PollSubscription, Generic[W]):
    """The subscription of a trigger with a wait: the wait decides here, within the poll.

    Waking a thousand triggers for every poll would cost more than the poll itself.
    """

    wait: W
    decision: PollDecision | None = None
    """The latest one."""
    error: Exception | None = None
    """A programming error of the wait, for the trigger to raise."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the wait is over, its status is to be logged, the service's clock is known, or the poll was the last."""
    polled_at: float = -inf
    """Monotonic time of the latest poll."""
    offset: float | None = None
    """Seconds by which the service's clock was ahead of the local one at the first poll that succeeded."""
    last_look: bool = False
    """Whether the deadline has passed, so that the next poll ends the wait."""
    _log: StatusLog = field(default_factory=StatusLog)

    def deliver(self, result: Any, at: float, offset: float) -> None:
        try:
            decision = self.wait.decide(result, at, offset)
        except Exception as error:
            # It must not end the poll for the other subscribers.
            self.error, self.due = error, inf
            self.changed.set()
            return
        waiting = decision.status is WaitStatus.WAITING
        self.decision = decision
        self.polled_at = time.monotonic()
        self.due = self.polled_at + decision.pause if waiting else inf
        deadline_moved = False
        if self.offset is None and not isinstance(result, MailError):
            self.offset, deadline_moved = offset, abs(offset) > RESOLUTION
        if not waiting or self.last_look or self._log.is_due(decision, at) or deadline_moved:
            self.changed.set()


S = TypeVar("S", bound=PollSubscription)
T = TypeVar("T")


class SharedPoller(ABC, Generic[S]):
    """Polls for all its subscribers, once per interval."""

    def __init__(self, target: Any, interval: float) -> None:
        self._target = target
        self._interval = interval
        self._subscriptions: set[S] = set()
        self._changed = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._extra_polls = 0
        self._last_poll = self._asked_at = -inf

    @abstractmethod
    async def poll_for(self, due: Collection[S]) -> None:
        """Poll once, and deliver the result or the `MailError` to each subscription."""

    async def close(self) -> None:
        """Close what the polls use. Default: nothing is kept open between them."""

    def add(self, subscription: S) -> None:
        """Add a subscription; the first one starts the poll."""
        self._subscriptions.add(subscription)
        if time.monotonic() - self._asked_at < JOINED_LATE_SECONDS:
            self._extra_polls = EXTRA_POLLS
        self._changed.set()
        if self._polling is None:
            self._polling = asyncio.create_task(self._run(), name=f"mail-poller-{self._target}")

    def remove(self, subscription: S) -> bool:
        self._subscriptions.discard(subscription)
        return not self._subscriptions

    def poll_soon(self) -> None:
        """Poll before the interval has passed, since something may have changed.

        A subscription's ``due`` is kept: failed polls still back off.
        """
        self._extra_polls, self._asked_at = EXTRA_POLLS, time.monotonic()
        self._changed.set()

    async def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])

    async def _run(self) -> None:
        try:
            next_poll = time.monotonic()
            while True:
                await self._sleep_until_due(next_poll)
                started = time.monotonic()
                self._extra_polls, self._last_poll = max(self._extra_polls - 1, 0), started
                await self.poll_for(
                    [subscription for subscription in self._subscriptions if subscription.due <= started]
                )
                # A poll may take longer than the interval: subscribers that are done must leave before the next one.
                next_poll = max(started + self._interval, time.monotonic() + SHORTEST_INTERVAL)
        finally:
            await self.close()

    async def _sleep_until_due(self, next_poll: float) -> None:
        while True:
            self._changed.clear()
            first = min(subscription.due for subscription in self._subscriptions)
            planned = min(next_poll, self._last_poll + EXTRA_POLL_SECONDS) if self._extra_polls else next_poll
            left = max(first, planned) - time.monotonic()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LONGEST_SLEEP)):
                    await self._changed.wait()


async def result_or_error(request: Awaitable[T]) -> T | MailError:
    """Await what a poll asks for; return the `MailError` instead of raising it."""
    try:
        return await request
    except MailError as error:
        return error


@asynccontextmanager
async def subscribe(
    poller_type: type[SharedPoller[S]], target: Hashable, interval: float, subscription: S
) -> AsyncIterator[SharedPoller[S]]:
    """Subscribe to the shared poller of a target in the running event loop, until the context ends.

    The first subscriber starts the poller, the last one stops it.
    """
    interval = max(interval, SHORTEST_INTERVAL)
    subscription.due = max(subscription.due, time.monotonic() + min(interval, SETTLE_SECONDS))
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    key = poller_type, target, interval
    if key not in pollers:
        pollers[key] = poller_type(target, interval)
    poller = pollers[key]
    poller.add(subscription)
    try:
        yield poller
    finally:
        if poller.remove(subscription):
            del pollers[key]
            await poller.stop()


_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, SharedPoller[Any]]] = WeakKeyDictionary()
