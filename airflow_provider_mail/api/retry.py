"""What may be repeated, and when: one rule for every operation and both clients (effects: see :mod:`.base`)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from airflow_provider_mail.api.base import Effect
from airflow_provider_mail.api.errors import MailError, MailRateLimitError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """Bounds of repeating one request inside a client.

    :param attempts: how often a request is sent at most.
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
        if not error.temporary or attempt >= self.attempts:
            return None
        if error.may_have_taken_effect and not effect.repeatable:
            return None
        asked = error.retry_after if isinstance(error, MailRateLimitError) else None
        if asked is not None:
            if asked > self.retry_after_cap_seconds:
                return None
            pause = asked
        else:
            pause = draw() * min(self.cap_seconds, self.base_seconds * 2 ** (attempt - 1))
        return pause if elapsed + pause <= self.total_seconds else None


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What ``Retry-After`` asks for: seconds, or the time until a date; ``None`` when absent or unreadable."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


class Throttle:
    """Spaces the requests of one client evenly and lets a 429 slow down all of them, across threads and tasks.

    :param per_second: requests a second at most; ``None`` for no limit.
    """

    def __init__(self, per_second: float | None) -> None:
        self._interval = 1.0 / per_second if per_second else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Take the next place in the row; returns the seconds to wait for it."""
        now = time.monotonic()
        with self._lock:
            start = max(now, self._next)
            self._next = start + self._interval
        return start - now

    def hold(self, seconds: float) -> None:
        """Let nobody send for so many seconds."""
        until = time.monotonic() + seconds
        with self._lock:
            self._next = max(self._next, until)
