"""The service's clock, derived from the ``Date`` headers of its responses, and when the next request may be sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

RESOLUTION = 1.0
"""Resolution of the ``Date`` header in seconds."""

NEW_SECONDS = 15 * 60.0
"""Seconds after its creation or send time during which the state of a campaign is not final: the specification does not
say which state a new campaign shows."""

SLOW = 2.0
"""Seconds. The ``Date`` of a response that takes longer may be much later than its data."""

MAX_OFFSET = 10 * 366 * 86_400.0
"""Seconds. A header that is further away from the local time (such as 1970) is ignored."""

_MAX_RETRY_AFTER = 1e9
"""Seconds. Larger values of ``Retry-After``, such as infinity, are ignored."""


class ServiceClock:
    """The service's time: that of the last response with a ``Date`` header, and what has passed since.

    So it stays right when the local clock is set. Without such a response it is the local time. The header has a
    resolution of one second, and time passes between the request and its response: the offset is the smallest that
    explains the header, so it is 0 for clocks that agree.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._local_start: float | None = None
        self.asked_at: datetime | None = None
        """When the first request since `restart` was sent, by the service's clock: its data is not older.

        Accurate to a second when the local clock is wrong. ``None``: no response had a plausible ``Date`` header.
        """
        self.restart()

    def restart(self) -> None:
        self.asked_at = None
        self._asked_monotonic = self._began = time.monotonic()

    def observe(self, headers: Mapping[str, str], sent: float, received: float) -> None:
        """Update the offset from a response. One without a plausible ``Date`` header is ignored.

        :param headers: of the response, with lower-case names or case-insensitive.
        :param sent: local Unix time at which the request was sent.
        :param received: local Unix time at which its response had been read.
        """
        date = http_date(headers.get("date", ""))
        if date is None:
            return
        header_time = date.timestamp()
        # The service set the header between `sent` and `received`, at some fraction of the second that it shows.
        smallest, largest = header_time - received, header_time + RESOLUTION - sent
        offset = min(max(0.0, smallest), largest)
        if abs(offset) > MAX_OFFSET:
            return
        self._offset, self._local_start = offset, _local_start()
        # With a wrong local clock, only the header is known: it is later than the request if the response was slow.
        asked_time = sent if offset == 0.0 else min(header_time, header_time + SLOW - (received - sent))
        asked_at = datetime.fromtimestamp(asked_time, UTC)
        if self.asked_at is None:
            # The local clock may be set in the meantime, the monotonic one is not.
            now = time.monotonic()
            self._asked_monotonic = max(self._began, now - max(0.0, received - sent))
        self.asked_at = min(asked_at, self.asked_at or asked_at)

    def seconds_since_asked(self) -> float:
        """Return how long ago the first request since `restart` was sent; since `restart` without a ``Date`` header."""
        return time.monotonic() - self._asked_monotonic

    @property
    def offset(self) -> float:
        """Seconds by which the service's clock is ahead of the local one."""
        was_set = 0.0 if self._local_start is None else _local_start() - self._local_start
        return self._offset - was_set if abs(was_set) > RESOLUTION else self._offset

    def time(self) -> float:
        return time.time() + self.offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)

    def latest(self) -> datetime:
        """Return the latest possible time of the service: it is known with a resolution of one second."""
        return self.now() + timedelta(seconds=RESOLUTION)


def _local_start() -> float:
    """Return when the monotonic clock was 0 by the local one; it changes when that is set."""
    return time.time() - time.monotonic()


def http_date(text: str) -> datetime | None:
    """Parse the date of an HTTP header such as ``Date`` or ``Retry-After``; ``None`` when it is not a date."""
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


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
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    @property
    def paused(self) -> bool:
        """Whether all requests are paused now, even those with a slot."""
        return self._clock() < self._paused_until
