"""Keeps the results of statements that read a whole large table."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from airflow_provider_mail.plugin.places import SECONDS

T = TypeVar("T")

KEEP_SECONDS = 600.0
_MOST = 64


class Remembered(Generic[T]):
    """The results of a function for ten minutes, in each process of the API server.

    :param clock: returns seconds, as ``time.monotonic`` does, which is the default.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._results: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        # A request that comes while a result is being computed waits for it.
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return a result; compute it if it is not known or too old.

        :param key: what the result depends on.
        :raises TimeoutError: another thread computes for too long.
        """
        # Not longer than reading takes at most: the thread that computes may hang.
        if not self._lock.acquire(timeout=SECONDS):
            raise TimeoutError
        try:
            cached = self._results.get(key)
            if cached is not None and self._clock() - cached[0] < KEEP_SECONDS:
                return cached[1]
            result = compute()
            self._results[key] = (self._clock(), result)
            self._results.move_to_end(key)
            while len(self._results) > _MOST:
                self._results.popitem(last=False)
            return result
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._results.clear()
