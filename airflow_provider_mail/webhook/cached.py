"""Caches what the receiver reads from the database, so that requests with guessed tokens cause no queries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.time_limit import Threads, aread

T = TypeVar("T")

_log = logging.getLogger(__name__)

READ_SECONDS = 5
"""How long a request waits for a result of the database; the longest wait is this plus `commits.STORE_SECONDS`."""

_FAILED_SECONDS = 1


class Cached(Generic[T]):
    """The result of a function that reads the database.

    :param seconds: the age at which it is called again.
    :param problem: what its failure means, for the log.
    """

    def __init__(self, read: Callable[[], T], seconds: float, problem: str) -> None:
        self._read = read
        self._seconds = seconds
        self._problem = problem
        self._threads = Threads()
        self._attempt: asyncio.Future[T] | None = None
        self._until = 0.0
        self._is_failing = False
        self.last: T | None = None
        """The latest result; ``None`` before there is one."""

    async def get(self) -> T:
        """Return the result.

        :raises Exception: the database does not answer.
        """
        # A request that is cancelled must not cancel the attempt that others wait for.
        return await asyncio.shield(self.start())

    def start(self) -> asyncio.Future[T]:
        """Return the attempt to read whose result is valid now. While the database hangs, all requests share one."""
        now = time.monotonic()
        if self._attempt is None or (self._attempt.done() and now >= self._until):
            self._attempt = asyncio.ensure_future(self._fresh())
            self._until = now + self._seconds
            self._attempt.add_done_callback(self._note)
        return self._attempt

    async def _fresh(self) -> T:
        return await aread(self._threads.start(self._read, READ_SECONDS))

    def _note(self, attempt: asyncio.Future[T]) -> None:
        if attempt.cancelled():
            return
        if (error := attempt.exception()) is None:
            self._is_failing, self.last = False, attempt.result()
            return
        self._until = time.monotonic() + _FAILED_SECONDS
        if not self._is_failing:
            self._is_failing = True
            has_safe_message = isinstance(error, WarehouseError | MailConfigError)
            reason = f"no answer within {READ_SECONDS} s" if isinstance(error, TimeoutError) else safe_message(error)
            _log.error("%s: %s", self._problem, error if has_safe_message else reason)
