"""The days of the service that a run loads: whole days in UTC, both ends included."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

_log = logging.getLogger(__name__)


def window(
    context: Context, start_day: str | date | None, end_day: str | date | None, lookback_days: int
) -> tuple[date, date]:
    """Compute the first and last day of the window.

    :param start_day: the first day, ``YYYY-MM-DD``. Default: ``lookback_days`` before the first day of the run.
    :param end_day: the last day, included. Default: the last day of the run.
    :param lookback_days: number of days before the run; not applied to a given ``start_day``.
    :raises AirflowFailException: naming the argument that is wrong.
    """
    first, last = interval_days(context)
    try:
        start = _day(start_day) if start_day else first - timedelta(days=lookback_days)
    except OverflowError:
        raise AirflowFailException(f"lookback_days: {lookback_days} days reach back before the year 1") from None
    end = _day(end_day) if end_day else last
    if end < start:
        raise AirflowFailException(f"end_day: {end} is before start_day {start}")
    if start > today():
        raise AirflowFailException(f"start_day: {start} is in the future (days are in UTC)")
    if not start_day and not end_day and _interval(context) is None:
        _warn_of_gap(context, start, end)
    return start, end


def interval_days(context: Context) -> tuple[date, date]:
    """Return the first and last day of the run's data interval: ``[D, D+1)`` is day D.

    For a run without an interval, or with an empty one, these are the day before the run and the day of the run.
    """
    if interval := _interval(context):
        return _utc(interval[0]).date(), (_utc(interval[1]) - timedelta(microseconds=1)).date()
    day = _utc(_moment(context)).date()
    return day - timedelta(days=1), day


def _interval(context: Context) -> tuple[datetime, datetime] | None:
    """Return the run's data interval; ``None`` if it has none, or an empty one."""
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    return (start, end) if start is not None and end is not None and end > start else None


def _moment(context: Context) -> datetime:
    return context.get("data_interval_end") or context["dag_run"].run_after


def _warn_of_gap(context: Context, start: date, end: date) -> None:
    """Log a warning if the schedule leaves days between this window and the run before that no run loads."""
    previous = _previous_run(context)
    if previous is None or (last := _utc(previous).date()) >= start:
        return
    days = (_utc(_moment(context)).date() - last).days
    _log.warning(
        "The data interval of this run is empty, so it reads %s to %s, and no run reads all of the days since the "
        "one before, %s to %s. Set schedule=CronDataIntervalTimetable(..., timezone='UTC'), whose runs have the whole "
        "interval (docs/statistics.md), or lookback_days to %s or more",
        start,
        end,
        last,
        start - timedelta(days=1),
        days - 1,
    )


def _previous_run(context: Context) -> datetime | None:
    """Return the time of the scheduled run before this one; ``None`` without a cron expression or time delta."""
    timetable: Any = getattr(context.get("dag"), "timetable", None)
    moment = _moment(context)
    delta = getattr(timetable, "delta", None) or getattr(timetable, "_delta", None)
    if isinstance(delta, timedelta):
        return moment - delta
    expression = getattr(timetable, "expression", None) or getattr(timetable, "_expression", None)
    zone = getattr(timetable, "timezone", None) or getattr(timetable, "_timezone", None)
    if not isinstance(expression, str) or zone is None:
        return None
    try:
        from croniter import croniter  # type: ignore[import-untyped]

        zone = ZoneInfo(zone) if isinstance(zone, str) else zone
        # In local time without a zone, so that daylight saving time does not shift the result.
        previous: datetime = croniter(expression, moment.astimezone(zone).replace(tzinfo=None)).get_prev(datetime)
    except (ImportError, ValueError, KeyError):
        return None
    return previous.replace(tzinfo=zone)


def today() -> date:
    """Return the present day in UTC."""
    return datetime.now(UTC).date()


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _day(value: str | date) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)
