"""Waits for a database: readings with a time limit, whose connections other threads can end."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")

CONNECT_SECONDS = 5
"""Limit for connecting, and for the acknowledgement of sent data, with drivers that support one."""


class Reading(Generic[T]):
    """A function that runs in a daemon thread, which does not keep the process from exiting.

    :param function: reads a database. The connections that it opens with
        :func:`~airflow_provider_mail.warehouse.database.connected` have time limits.
    :param seconds: the limit of each of its statements, where the database has one.
    """

    def __init__(self, function: Callable[[], T], seconds: float) -> None:
        self.seconds = seconds
        self.result: Future[T] = Future()
        self.address = ""
        """Host and port of the database that it connects to; empty before it does."""
        self._cuts: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._is_ended = False
        arguments = (self._run, function)
        threading.Thread(target=copy_context().run, args=arguments, name="mail-database", daemon=True).start()

    def _run(self, function: Callable[[], T]) -> None:
        self.result.set_running_or_notify_cancel()
        _current.set(self)
        try:
            result = function()
        except BaseException as error:
            self.result.set_exception(error)
        else:
            self.result.set_result(result)

    def end(self) -> None:
        with self._lock:
            self._is_ended = True
            for cut in self._cuts:
                with suppress(Exception):  # the connection was lost before
                    cut()

    @contextmanager
    def uses(self, connection: Any) -> Iterator[None]:
        """Let `end` cut a connection, until the context ends."""
        with _cutting(connection) as cut:
            with self._lock:
                if self._is_ended:
                    raise TimeoutError
                self._cuts.append(cut)
            try:
                yield
            finally:
                with self._lock:
                    self._cuts.remove(cut)


MAX_THREADS = 8


class Threads:
    """Threads for one purpose, of which only some may hang, including abandoned ones whose driver has not returned."""

    def __init__(self, most: int = MAX_THREADS) -> None:
        self._most = most
        self.readings: list[Reading[Any]] = []

    def start(self, function: Callable[[], T], seconds: float) -> Reading[T]:
        """Run a function in a new thread.

        :raises TimeoutError: too many threads hang already.
        """
        self.readings = [started for started in self.readings if not started.result.done()]
        if len(self.readings) >= self._most:
            raise TimeoutError
        reading = Reading(function, seconds)
        self.readings.append(reading)
        return reading


_current: ContextVar[Reading[Any] | None] = ContextVar("mail_reading", default=None)


def current_reading() -> Reading[Any] | None:
    """Return the reading that this thread runs; ``None`` if there is no time limit."""
    return _current.get()


def read_within(function: Callable[[], T], seconds: float) -> T:
    """Run a function that reads a database; after too long, cut its connections and raise `TimeoutError`."""
    reading = Reading(function, seconds)
    try:
        return reading.result.result(seconds)
    finally:
        reading.end()


async def aread(reading: Reading[T]) -> T:
    """Return the result of a reading, or raise its error.

    :param reading: cut when it takes longer than its seconds, or when the caller is cancelled.
    """
    try:
        async with asyncio.timeout(reading.seconds):
            return await asyncio.wrap_future(reading.result)
    finally:
        reading.end()


@contextmanager
def _cutting(connection: Any) -> Iterator[Callable[[], object]]:
    """Yield the function that makes a call of the driver return in which another thread waits."""
    if hasattr(connection, "interrupt"):  # SQLite, DuckDB
        yield connection.interrupt
        return
    try:
        # A descriptor of our own: the driver closes its own one at any time.
        shared = socket.socket(fileno=os.dup(connection.fileno()))
    except Exception:  # a driver that does not show it
        yield lambda: None
        return
    with shared:
        yield lambda: shared.shutdown(socket.SHUT_RDWR)


LONGEST_PAUSE = 0.1
"""Seconds."""


def pause() -> None:
    """Sleep between two attempts at a database that is busy."""
    time.sleep(random.uniform(LONGEST_PAUSE / 2, LONGEST_PAUSE))
