"""The time of the next request: the ``Retry-After`` header and the throttle of a client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from airflow_provider_mail.api._core.clock import http_date

_MAX_RETRY_AFTER = 1e9
"""Seconds. Larger values, such as infinity, are ignored."""


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that ``Retry-After`` asks for, as a number or a date; ``None`` when absent or unreadable.

    :param headers: of the response, with lower-case names or case-insensitive.
    """
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value)
    return seconds if 0 <= seconds < _MAX_RETRY_AFTER else None


def _seconds_until(date: str) -> float | None:
    until = http_date(date)
    return None if until is None else max(0.0, (until - datetime.now(UTC)).total_seconds())


class Throttle:
    """Space the requests of one client evenly, and pause all of them after a 429, across threads and tasks.

    :param per_second: maximum number of requests per second; ``None`` for no limit.
    :param clock: returns monotonic seconds.
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / per_second if per_second else 0.0
        self._clock = clock
        self._next_slot = 0.0
        self._paused_until = 0.0
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Reserve the next slot and return the seconds to wait for it."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next_slot, self._paused_until)
            self._next_slot = start + self._interval
        return start - now

    def pause(self, seconds: float) -> None:
        """Pause all requests of this client.

        :param seconds: duration, from now.
        """
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    @property
    def paused(self) -> bool:
        """Whether all requests are paused now, even those with a slot."""
        return self._clock() < self._paused_until
