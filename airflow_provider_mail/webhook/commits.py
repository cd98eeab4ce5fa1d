"""Group commit: the pushes that arrive while a transaction commits share the next one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.time_limit import Reading, Threads
from airflow_provider_mail.webhook.inbox import Inbox, Push

_log = logging.getLogger(__name__)

_MAX_PUSHES = 200
_MAX_BYTES = 16 * 2**20
"""The limits of one transaction, which only bound its memory: a push beyond them waits for the next one."""


STORE_SECONDS = 25
"""How long a push waits for the database. After that the sender gets an error, even if the push is stored later."""

WRITE_SECONDS = 15
"""How long one transaction may take: less than a push waits, so that a new connection can store those behind it."""

FAILED_SECONDS = 60
"""How long a failed write counts as a failure: a probe may succeed where a write does not, as on a full disk."""

_CHECK_SECONDS = 1.0
"""Time between checks whether a transaction takes longer."""

_Waiting = tuple[Push, Future[None]]
"""A push, and the result that its request waits for."""


class Overloaded(Exception):
    """More than `max_pending` bytes wait to be written."""


class NotStored(Exception):
    """The database did not confirm the transaction; the push may be stored or not."""


@dataclass
class Room:
    """Counts the bytes of a body while it arrives.

    :param take: counts bytes, given how many this body has already.
    """

    take: Callable[[int, int], None]
    size: int = 0

    def add(self, count: int) -> None:
        """Count more bytes.

        :raises Overloaded: too much waits already.
        """
        self.take(count, self.size)
        self.size += count


@dataclass(eq=False)
class _Writer:
    """A connection with which a thread writes groups of pushes, one after the other, until it is given up."""

    inbox: Inbox
    group: Sequence[_Waiting] = ()
    since: float = 0.0
    """When the transaction of the group began."""
    is_given_up: bool = False
    reading: Reading[None] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _connection: Any = None

    def write(self) -> None:
        pushes = [push for push, _ in self.group]
        was_connected = self._connection is not None
        try:
            if not was_connected:
                self._connection = self._stack.enter_context(self.inbox.connection())
            self.inbox.insert(self._connection, pushes)
        except Exception:
            self.disconnect()
            if not was_connected or self.is_given_up:
                raise
            # The server may have closed the connection while it was idle. Pushes that it stored nevertheless are stored
            # twice, as if the service had sent them again.
            self.write()

    def disconnect(self) -> None:
        self._connection = None
        with suppress(Exception):
            self._stack.close()


class GroupCommit:
    """Writes pushes to the inbox from one thread with one connection; both are replaced when the database hangs.

    :param max_pending: bytes that may arrive and wait to be written; a push beyond them is turned away.
    """

    def __init__(self, inbox: Inbox, *, max_pending: int) -> None:
        self._inbox = inbox
        self._max_pending = max_pending
        self._pending = 0
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._writer: _Writer | None = None
        self._threads = Threads()
        self._failed_at: float | None = None

    @contextmanager
    def room(self) -> Iterator[Room]:
        """Count the bytes of a body that arrives, until it is stored or turned away."""
        room = Room(self._take)
        try:
            yield room
        finally:
            self._give_back(room.size)

    async def store(self, push: Push) -> None:
        """Return once the push is durable.

        :raises Overloaded: too much waits already.
        :raises NotStored: the database did not confirm it.
        """
        stored: Future[None] = Future()
        with self._changed:
            self._start()
            self._take(len(push.body), 0)
            self._waiting.append((push, stored))
            self._changed.notify_all()
        result = asyncio.wrap_future(stored)
        until = time.monotonic() + STORE_SECONDS
        try:
            while not result.done():
                self.give_up_hanging()
                if (remaining := until - time.monotonic()) <= 0:
                    raise NotStored
                await asyncio.wait([result], timeout=min(remaining, _CHECK_SECONDS))
            result.result()
        finally:
            result.cancel()

    def failed_lately(self) -> bool:
        """Return whether the latest transaction failed, or hung, less than a minute ago."""
        self.give_up_hanging()
        return self._failed_at is not None and time.monotonic() - self._failed_at < FAILED_SECONDS

    def give_up_hanging(self) -> None:
        """Give up a transaction that takes too long, together with its connection and its thread."""
        with self._changed:
            writer = self._writer
            if writer is None or not writer.group or time.monotonic() - writer.since < WRITE_SECONDS:
                return
            group = self._end_group(writer)
            self._writer, writer.is_given_up = None, True
            self._failed_at = time.monotonic()
            if self._waiting:
                with suppress(Overloaded):
                    self._start()
        _log.error(
            "The inbox did not answer for %d s: %d pushes are not confirmed, and its connection is given up",
            WRITE_SECONDS,
            len(group),
        )
        if writer.reading:
            writer.reading.end()
        _notify(group, is_stored=False)

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            reading = self._writer.reading if self._writer else None
        if reading is not None:
            with suppress(TimeoutError):
                reading.result.exception(STORE_SECONDS)
            reading.end()

    def _take(self, count: int, own: int) -> None:
        with self._changed:
            # One push always fits, however small the limit is.
            if self._pending > own and self._pending + count > self._max_pending:
                raise Overloaded
            self._pending += count

    def _give_back(self, count: int) -> None:
        with self._changed:
            self._pending -= count

    def _start(self) -> None:
        if self._ended:
            raise Overloaded
        if self._writer is None:
            writer = _Writer(self._inbox)
            try:
                writer.reading = self._threads.start(lambda: self._run(writer), WRITE_SECONDS)
            except TimeoutError:
                raise Overloaded from None
            self._writer = writer

    def _run(self, writer: _Writer) -> None:
        try:
            while self._next_group(writer):
                error: BaseException | None = None
                try:
                    writer.write()
                except Exception as failure:
                    error = failure
                with self._changed:
                    group = self._end_group(writer)
                    if group:
                        self._failed_at = time.monotonic() if error else None
                if error is not None and group:
                    # The message of a driver may quote the body.
                    message = error if isinstance(error, WarehouseError) else safe_message(error)
                    _log.error("The inbox could not store %d pushes: %s", len(group), message)
                _notify(group, is_stored=error is None)
        finally:
            writer.disconnect()

    def _end_group(self, writer: _Writer) -> Sequence[_Waiting]:
        """Take the group of a writer from it; the group is empty if the writer was given up."""
        group, writer.group = writer.group, ()
        self._give_back(sum(len(push.body) for push, _ in group))
        return group

    def _next_group(self, writer: _Writer) -> bool:
        """Wait for pushes and pass them to the writer; return false when closed or given up."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended or writer.is_given_up)
            if writer.is_given_up:
                return False
            group: list[_Waiting] = []
            size = 0
            while self._waiting and len(group) < _MAX_PUSHES and (not group or size < _MAX_BYTES):
                group.append(self._waiting.popleft())
                size += len(group[-1][0].body)
            writer.group, writer.since = group, time.monotonic()
            return bool(group)


def _notify(group: Sequence[_Waiting], *, is_stored: bool) -> None:
    for _, stored in group:
        with suppress(InvalidStateError):  # the request was cancelled
            if is_stored:
                stored.set_result(None)
            else:
                stored.set_exception(NotStored())
