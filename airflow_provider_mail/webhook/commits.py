"""Group commit: the pushes that arrive while a transaction commits share the next one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import islice
from queue import SimpleQueue
from typing import Any

from airflow_provider_mail.warehouse.time_limit import Threads
from airflow_provider_mail.webhook.inbox import Inbox, Push, problem_of

_log = logging.getLogger(__name__)

_MAX_PUSHES = 200
_MAX_BYTES = 16 * 2**20
"""The limits of one transaction, which only bound its memory: a push beyond them waits for the next one."""

STORE_SECONDS = 25
"""How long a push waits for the database. After that the sender gets an error; what is being written may be stored."""

WRITE_SECONDS = 15
"""How long one transaction may take: less than a push waits, so that a new connection can store those behind it."""

FAILED_SECONDS = 60
"""How long a failed write counts as a failure: a probe may succeed where a write does not, as on a full disk."""


class Overloaded(Exception):
    """More than `max_pending` bytes arrive and wait already."""


class NotStored(Exception):
    """The database did not confirm the transaction; the push may be stored or not."""


class _Writer:
    """A connection in a thread of its own, since drivers block. It ends with the first transaction that fails."""

    def __init__(self, inbox: Inbox, threads: Threads) -> None:
        self._inbox = inbox
        self._groups: SimpleQueue[tuple[Sequence[Push], Future[None]] | None] = SimpleQueue()
        self.reading = threads.start(self._run, WRITE_SECONDS)

    def write(self, pushes: Sequence[Push]) -> Future[None]:
        stored: Future[None] = Future()
        stored.set_running_or_notify_cancel()
        self._groups.put((pushes, stored))
        return stored

    def close(self) -> None:
        self._groups.put(None)

    def _run(self) -> None:
        connection: Any = None
        with ExitStack() as stack:
            while group := self._groups.get():
                pushes, stored = group
                try:
                    connection = connection or stack.enter_context(self._inbox.connection())
                    self._inbox.insert(connection, pushes)
                except Exception as error:
                    stored.set_exception(error)
                    return
                stored.set_result(None)


class GroupCommit:
    """Writes pushes to the inbox, one transaction at a time, over one connection, which is replaced when it fails.

    It belongs to one event loop.

    :param max_pending: bytes that may arrive and wait to be written; a push beyond them is turned away.
    """

    def __init__(self, inbox: Inbox, *, max_pending: int) -> None:
        self._inbox = inbox
        self._max_pending = max_pending
        self._pending = 0
        self._waiting: dict[asyncio.Future[None], Push] = {}
        self._task: asyncio.Task[None] | None = None
        self._writer: _Writer | None = None
        self._threads = Threads()
        self._is_closed = False
        self._failed_at = float("-inf")
        self._failed_size = 0

    @contextmanager
    def room(self) -> Iterator[Callable[[int], None]]:
        """Count the bytes of a body, from its arrival until it is stored or turned away.

        :return: a context manager with the function that counts more bytes, or raises `Overloaded`.
        """
        size = 0

        def add(count: int) -> None:
            nonlocal size
            # One push always fits, however small the limit is.
            if self._pending > size and self._pending + count > self._max_pending:
                raise Overloaded
            self._pending += count
            size += count

        try:
            yield add
        finally:
            self._pending -= size

    async def store(self, push: Push) -> None:
        """Return once the push is durable.

        :raises Overloaded: this is closed.
        :raises NotStored: the database did not confirm it.
        """
        if self._is_closed:
            raise Overloaded
        stored = asyncio.get_running_loop().create_future()
        self._waiting[stored] = push
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await stored
        except TimeoutError:
            raise NotStored from None
        finally:
            self._waiting.pop(stored, None)  # the sender will send it again

    def failed_lately(self) -> bool:
        """Return whether a transaction failed less than a minute ago, and none as large succeeded since.

        On a full disk small pushes may be stored for a while, and large ones fail.
        """
        return time.monotonic() - self._failed_at < FAILED_SECONDS

    async def close(self) -> None:
        """Store what waits, then end."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STORE_SECONDS)
        if self._writer is not None:
            self._writer.close()

    async def _write_all(self) -> None:
        while self._waiting:
            group: list[asyncio.Future[None]] = []
            pushes: list[Push] = []
            size = 0
            for stored, push in islice(self._waiting.items(), _MAX_PUSHES):
                if size >= _MAX_BYTES:
                    break
                group.append(stored)
                pushes.append(push)
                size += len(push.body)
            for stored in group:
                del self._waiting[stored]
            if is_stored := await self._write(pushes):
                if size >= self._failed_size:
                    self._failed_at = float("-inf")
            else:
                self._failed_size = max(size, self._failed_size if self.failed_lately() else 0)
                self._failed_at = time.monotonic()
            for stored in group:
                if not stored.done():  # otherwise its request has ended
                    stored.set_result(None) if is_stored else stored.set_exception(NotStored())
        self._task = None

    async def _write(self, pushes: Sequence[Push]) -> bool:
        """Write a group in one transaction; return whether the database confirmed it."""
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                try:
                    await self._attempt(pushes)
                except Exception:
                    # The server may have closed the connection while it was idle. Pushes that it stored nevertheless
                    # are stored twice, as if the service had sent them again.
                    await self._attempt(pushes)
            return True
        except Exception as error:
            _log.error("The inbox could not store %d pushes: %s", len(pushes), problem_of(error, WRITE_SECONDS))
            return False

    async def _attempt(self, pushes: Sequence[Push]) -> None:
        self._writer = writer = self._writer or _Writer(self._inbox, self._threads)
        try:
            await asyncio.wrap_future(writer.write(pushes))
        except BaseException:
            writer.close()
            writer.reading.end()
            self._writer = None
            raise
