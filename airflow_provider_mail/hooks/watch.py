"""One poll for all waits that share something inside a triggerer, from the first one to come to the last to go."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.errors import MailConnectError, MailError
from airflow_provider_mail.hooks.mail import MailHook

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""A trigger that fires before the scheduler has noted the deferral can fail the task: nothing is looked at earlier."""

SHORTEST_INTERVAL = 0.1
"""Nobody may poll without a pause, whatever a sensor's `poke_interval` says."""


@dataclass(eq=False, kw_only=True)
class Part:
    """One trigger's part in a poll.

    :param not_before: Unix time before which there is nothing to see; may be changed between two looks.
    """

    not_before: float = 0.0
    looks: asyncio.Queue[tuple[Any, float]] = field(default_factory=asyncio.Queue)
    """What each look found, or the `MailError` with which it failed, and the Unix time at which it began."""


P = TypeVar("P", bound=Part)


class Watch(ABC, Generic[P]):
    """Polls through one client; after a refusal it reads the connection anew, which may be mended.

    :param interval: seconds from one poll to the next.
    """

    def __init__(self, mail_conn_id: str, interval: float) -> None:
        self._mail_conn_id = mail_conn_id
        self._interval = interval
        self._parts: set[P] = set()
        self._joined = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._client: AsyncMailClient | None = None

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
                next_poll, now = time.monotonic() + self._interval, time.time()
                due = [part for part in self._parts if part.not_before <= now]
                looks = await self._looks(due)
                for part in due:
                    part.looks.put_nowait((looks[part], now))
                # A poll may take longer than the interval: who has seen enough must have left before the next one.
                next_poll = max(next_poll, time.monotonic() + SHORTEST_INTERVAL)
        finally:
            await self._close()

    async def _until_due(self, next_poll: float) -> None:
        """Sleep until a poll is due and concerns somebody, who may come while we sleep."""
        while True:
            self._joined.clear()
            first = min(part.not_before for part in self._parts)
            left = max(first - time.time(), next_poll - time.monotonic())
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._joined.wait()

    async def _looks(self, due: Collection[P]) -> Mapping[P, object]:
        found: Mapping[P, object]
        try:
            if self._client is None:
                self._client = await MailHook(self._mail_conn_id).get_async_conn()
            found = await self.look(self._client, due)
        except MailError as error:
            found = dict.fromkeys(due, error)
        except Exception as error:
            # Whatever it is, polling must go on: a wait that nobody tells anything would never end.
            log.exception("polling for connection %r failed", self._mail_conn_id)
            words = f"{type(error).__name__}: {error}"
            found = dict.fromkeys(due, MailConnectError(f"connection {self._mail_conn_id!r}: {words}"))
        if any(isinstance(look, MailError) and not look.temporary for look in found.values()):
            await self._close()
        return found

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


@asynccontextmanager
async def joined(kind: type[Watch[P]], mail_conn_id: str, interval: float, part: P) -> AsyncIterator[None]:
    """Take part in the running loop's polls of a connection; those that concern the part put a look in its queue.

    The poll is begun by the first to come and ended by the last to go.

    :param kind: what is polled.
    :param interval: seconds from one poll to the next; parts with different intervals have different polls.
    """
    interval = max(interval, SHORTEST_INTERVAL)
    part.not_before = max(part.not_before, time.time() + min(interval, SETTLE_SECONDS))
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


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Watch[Any]]] = WeakKeyDictionary()
