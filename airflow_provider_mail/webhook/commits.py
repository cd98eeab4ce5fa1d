"""Group commit: the pushes that arrive while a transaction commits share the next one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_mail.webhook.inbox import Inbox, Push

_log = logging.getLogger(__name__)

_MAX_PUSHES = 200
_MAX_BYTES = 16 * 2**20
"""The limits of one transaction, which only bound its memory: a push beyond them waits for the next one."""


STORE_SECONDS = 30
"""How long a push waits for the database. Senders give up sooner or later, and what comes later is stored anyway."""

_Waiting = tuple[Push, Callable[[BaseException | None], None]]
"""A push, and what tells its request how it ended."""


class Overloaded(Exception):
    """More waits to be written than `max_pending` bytes."""


class NotStored(Exception):
    """The database did not confirm the transaction; the push may be stored or not."""


class GroupCommit:
    """Writes pushes to the inbox from one thread with one connection.

    :param inbox: the inbox.
    :param max_pending: bytes that may wait to be written; a push beyond them is turned away.
    """

    def __init__(self, inbox: Inbox, *, max_pending: int) -> None:
        self._inbox = inbox
        self._max_pending = max_pending
        self._pending = 0
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._connection: Any = None
        self._thread: threading.Thread | None = None

    async def store(self, push: Push) -> None:
        """Return once the push is durable.

        :param push: the push.
        :raises Overloaded: too much waits already.
        :raises NotStored: the database did not confirm it.
        """
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException | None) -> None:
            if stored.done():  # the request was cancelled
                return
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(error)

        def tell(error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(end, error)

        with self._changed:
            # One push always fits, however small the limit is.
            if self._pending and self._pending + len(push.body) > self._max_pending:
                raise Overloaded
            self._start()
            self._pending += len(push.body)
            self._waiting.append((push, tell))
            self._changed.notify()
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await stored
        except TimeoutError:
            raise NotStored from None

    def close(self) -> None:
        """Write what waits and end the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        if self._ended:
            raise Overloaded
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mail-inbox", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while group := self._next_group():
                error: BaseException | None = None
                try:
                    self._write([push for push, _ in group])
                except Exception as failure:
                    # The message of a driver may quote the body.
                    _log.error("The inbox could not store %d pushes: %s", len(group), type(failure).__name__)
                    error = NotStored()
                with self._changed:
                    self._pending -= sum(len(push.body) for push, _ in group)
                for _, tell in group:
                    tell(error)
        finally:
            self._disconnect()

    def _write(self, pushes: Sequence[Push]) -> None:
        kept = self._connection is not None
        try:
            self._connection = self._connection or self._inbox.open()
            self._inbox.insert(self._connection, pushes)
        except Exception:
            self._disconnect()
            if not kept:
                raise
            # The server may have closed it while it was idle. What it stored nevertheless is stored twice, as if the
            # service had sent it again.
            self._write(pushes)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None

    def _next_group(self) -> list[_Waiting]:
        """Wait for pushes and take them; none when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            group: list[_Waiting] = []
            size = 0
            while self._waiting and len(group) < _MAX_PUSHES and (not group or size < _MAX_BYTES):
                group.append(self._waiting.popleft())
                size += len(group[-1][0].body)
            return group
