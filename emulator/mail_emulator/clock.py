"""The emulator's virtual clock, which runs with real time until it is moved."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime, timedelta

_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = 0, 253_370_764_800_000
"""From 1970 to 9999, at whose end Python's times end."""


class VirtualClock:
    """Virtual time in milliseconds since the Unix epoch: ``base + (real - origin) * rate``.

    :param base_ms: virtual time at ``origin``. Default: real time.
    :param origin: real time in seconds since the epoch. Default: now.
    """

    def __init__(self, base_ms: float | None = None, origin: float | None = None, rate: float = 1.0) -> None:
        self._origin = time.time() if origin is None else origin
        self._base_ms = self._origin * 1000 if base_ms is None else base_ms
        self.rate = rate

    def now_ms(self) -> int:
        return int(min(self._base_ms + (time.time() - self._origin) * 1000 * self.rate, _LAST_MS))

    def now(self) -> datetime:
        return from_ms(self.now_ms())

    def set(self, moment: datetime) -> None:
        """Jump to a time, forward or back; the rate stays."""
        self._base_ms, self._origin = to_ms(moment), time.time()

    def advance(self, seconds: float) -> None:
        """Move the clock, within the years from 1970 to 9998."""
        if not _FIRST_MS <= self.now_ms() + seconds * 1000 < _LAST_MS:
            raise ValueError("seconds: the clock must stay in the years from 1970 to 9998")
        self._base_ms += seconds * 1000

    def run(self, rate: float = 1.0) -> None:
        """Run at a multiple of real time."""
        if not 0 <= rate < math.inf:
            raise ValueError("the rate of the clock must be a finite number that is not negative")
        self._base_ms, self._origin, self.rate = self.now_ms(), time.time(), rate

    def state(self) -> tuple[float, float, float]:
        """Return the constructor arguments of a clock that continues from here."""
        return self._base_ms, self._origin, self.rate


def to_ms(moment: datetime) -> int:
    """Convert a time to milliseconds since the epoch; ValueError without a time zone."""
    if moment.tzinfo is None:
        raise ValueError("a moment for the emulator must be a datetime with a time zone")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    """Convert milliseconds since the epoch to a datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def iso(ms: int) -> str:
    """Return the specification's timestamp form, ``YYYY-MM-DDThh:mm:ssZ``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


def parse_iso(text: str) -> int | None:
    """Return the milliseconds of a timestamp in the specification's form; None for any other text."""
    moment = _parse(text, "%Y-%m-%dT%H:%M:%SZ") if _TIMESTAMP.fullmatch(text) else None
    return None if moment is None else to_ms(moment)


def parse_date(text: str) -> datetime | None:
    """Return midnight UTC of a ``YYYY-MM-DD``; None for an invalid date."""
    return _parse(text, "%Y-%m-%d") if _DATE.fullmatch(text) else None


def _parse(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        return None
