"""The hours and days at which mail may go out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

__all__ = ["Opening", "SendWindow"]

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

MAX_DAYS = 400
"""A window that does not open for so many days never opens."""

DAY = timedelta(days=1)


@lru_cache(maxsize=10_000)
def is_zone(text: str) -> bool:
    """Return whether a text is the name of a time zone."""
    try:
        return bool(text and ZoneInfo(text))
    except (OSError, ValueError, KeyError):
        return False


class Opening(NamedTuple):
    """One day on which a window is open.

    :param opens: the first moment, in UTC.
    :param closes: the first moment after it, in UTC.
    """

    opens: datetime
    closes: datetime


@dataclass(frozen=True, kw_only=True)
class SendWindow:
    """The hours and days at which mail may go out, by the clocks of a time zone.

    On the day of a change to or from daylight saving time, an hour that does not exist or exists twice is never taken
    for open when a clock on the wall could show a time outside of the window.

    :param start: the time at which it opens, ``HH:MM``. Default: 09:00.
    :param end: the time at which it closes, ``24:00`` for the end of the day; on the next day if it is earlier than
        ``start``. Default: 18:00.
    :param weekdays: the days on which it opens, of ``mon``, ``tue``, ``wed``, ``thu``, ``fri``, ``sat``, ``sun``.
        Default: Monday to Friday.
    :param time_zone: a name of the IANA database, such as ``Europe/Berlin``. Default: UTC.
    :param holidays: called with a day in that zone; true for one on which nothing is sent. Default: no day is.
    :raises ValueError: naming the argument that is wrong.
    """

    start: str = "09:00"
    end: str = "18:00"
    weekdays: Collection[str] = WEEKDAYS[:5]
    time_zone: str = "UTC"
    holidays: Callable[[date], bool] | None = None

    def __post_init__(self) -> None:
        for name, example in (("start", "'09:00'"), ("end", "'18:00'"), ("time_zone", "'Europe/Berlin'")):
            if not isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name}: text such as {example} is needed, not {type(value).__name__}")
        if self.holidays is not None and not callable(self.holidays):
            raise ValueError(
                "holidays: a function of a day is needed, such as holidays=days.__contains__ for a set of days, not "
                f"{type(self.holidays).__name__}"
            )
        for name in ("start", "end"):
            try:
                _since_midnight(getattr(self, name))
            except ValueError:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not a time such as '09:00'") from None
        if self.start in (self.end, "24:00"):
            raise ValueError(f"end: must be another time than start, {self.start}; a day begins at 00:00")
        if (
            not isinstance(self.weekdays, Sequence | Set)
            or not self.weekdays
            or not all(day in WEEKDAYS for day in self.weekdays)
            or isinstance(self.weekdays, str)
        ):
            raise ValueError(f"weekdays: must be a list of some of {', '.join(WEEKDAYS)}")
        if not is_zone(self.time_zone):
            raise ValueError(f"time_zone: {self.time_zone!r} is not the name of a time zone")

    def opening(self, moment: datetime) -> Opening:
        """Return the opening that contains a moment, or else the next one.

        :param moment: with a time zone.
        :raises ValueError: the window does not open for more than a year.
        """
        over_midnight = DAY if _since_midnight(self.end) <= _since_midnight(self.start) else timedelta()
        first = moment.astimezone(ZoneInfo(self.time_zone)).date() - over_midnight
        for day in (first + number * DAY for number in range(MAX_DAYS)):
            if WEEKDAYS[day.weekday()] not in self.weekdays or (self.holidays is not None and self.holidays(day)):
                continue
            # A time that exists twice, or not at all, may mean two moments.
            opening = Opening(max(self._moments(day, self.start)), min(self._moments(day + over_midnight, self.end)))
            if opening.opens < opening.closes and moment < opening.closes:
                return opening
        raise ValueError(f"send_window: does not open on any of the {MAX_DAYS} days from {first}")

    def _moments(self, day: date, text: str) -> list[datetime]:
        """Return the moments, in UTC, that a time of a day may mean."""
        local = datetime.combine(day, time()) + _since_midnight(text)
        zone = ZoneInfo(self.time_zone)
        return [local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]


def _since_midnight(text: str) -> timedelta:
    if text == "24:00":
        return DAY
    moment = datetime.strptime(text, "%H:%M")
    return timedelta(hours=moment.hour, minutes=moment.minute)
