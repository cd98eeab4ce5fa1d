"""When the next request may be sent: the ``Retry-After`` header and the throttle of a client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from airflow_provider_mail.api._core.clock import http_date

_NONSENSE = 1e9
"""Seconds; also keeps infinity away from whoever reckons with the number."""


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What ``Retry-After`` asks for: seconds, or the time until a date; ``None`` when absent or unreadable."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value)
    return seconds if 0 <= seconds < _NONSENSE else None


def _seconds_until(date: str) -> float | None:
    until = http_date(date)
    return None if until is None else max(0.0, (until - datetime.now(UTC)).total_seconds())


class Throttle:
    """Spaces the requests of one client evenly and lets a 429 slow down all of them, across threads and tasks.

    :param per_second: requests a second at most; ``None`` for no limit.
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / per_second if per_second else 0.0
        self._clock = clock
        self._next = 0.0
        self._held_until = 0.0
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Take the next place in the row; returns the seconds to wait for it."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next, self._held_until)
            self._next = start + self._interval
        return start - now

    def hold(self, seconds: float) -> None:
        """Let nobody send for so many seconds."""
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)

    @property
    def held(self) -> bool:
        """Whether nobody may send now, whatever place they have."""
        return self._clock() < self._held_until
