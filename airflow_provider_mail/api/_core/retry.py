"""What may be repeated, and when: one rule for every operation and both clients; effects: see `Effect`."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_provider_mail.api._core.clock import http_date
from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api.errors import MailError, MailRateLimitError, MailServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """Bounds of repeating one request inside a client.

    :param attempts: how often a request is sent at most; 1 repeats nothing. Else a 429 does not count: it was not
        carried out, and that others were faster says nothing about this request. Time bounds these, as pauses grow.
    :param total_seconds: no further attempt begins later than this after the first.
    :param base_seconds: the longest pause after the first failure; it doubles with each failure.
    :param cap_seconds: the longest pause of all.
    :param retry_after_cap_seconds: the longest ``Retry-After`` that is honoured; what asks for more is given up.
    """

    attempts: int = 5
    total_seconds: float = 300.0
    base_seconds: float = 0.5
    cap_seconds: float = 30.0
    retry_after_cap_seconds: float = 120.0

    def pause_before_repeat(
        self, effect: Effect, error: MailError, attempt: int, elapsed: float, draw: Callable[[], float] = random.random
    ) -> float | None:
        """Seconds to wait before sending again, or ``None`` when the error is final.

        :param attempt: how often the request was sent, from 1.
        :param elapsed: seconds since it was first sent.
        :param draw: a random number from 0 to 1 (full jitter: many clients that fail together do not return together).
        """
        if not error.temporary or (error.may_have_taken_effect and not effect.repeatable):
            return None
        if attempt >= self.attempts and (self.attempts == 1 or not isinstance(error, MailRateLimitError)):
            return None
        asked = error.retry_after if isinstance(error, MailServiceError) else None
        if asked is not None and asked > self.retry_after_cap_seconds:
            return None
        # Jitter on top of what was asked for, too: whoever was told the same must not return together.
        jitter = draw() * min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 64))
        pause = (asked or 0.0) + jitter
        return pause if elapsed + pause <= self.total_seconds else None


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
