"""The days of the service that a run loads: whole days in UTC, both ends included."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

_log = logging.getLogger(__name__)


def window(
    context: Context, start_day: str | date | None, end_day: str | date | None, lookback_days: int
) -> tuple[date, date]:
    """Compute the first and last day of the window.

    :param context: the context of the task.
    :param start_day: the first day, ``YYYY-MM-DD``. Default: ``lookback_days`` before the first day of the run.
    :param end_day: the last day, included. Default: the last day of the run.
    :param lookback_days: number of days before the run; not applied to a given ``start_day``.
    :raises AirflowFailException: naming the argument that is wrong.
    """
    first, last = interval_days(context)
    try:
        start = _day("start_day", start_day) if start_day else first - timedelta(days=lookback_days)
    except OverflowError:
        raise AirflowFailException(f"lookback_days: {lookback_days} days reach back before the year 1") from None
    end = _day("end_day", end_day) if end_day else last
    if end < start:
        raise AirflowFailException(f"end_day: {end} is before start_day {start}")
    if start > today():
        raise AirflowFailException(f"start_day: {start} is in the future (days are in UTC)")
    if not start_day and not has_interval(context):
        _warn_of_gap(context, start)
    return start, end


def has_interval(context: Context) -> bool:
    """Return whether the run has a data interval that is not empty.

    :param context: the task's context.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    return start is not None and end is not None and end > start


def _warn_of_gap(context: Context, start: date) -> None:
    """Log which days lie between the window of the run before, which has no interval either, and this one."""
    gap = start
    with suppress(Exception):  # asked of the API server when it is used
        if before := context.get("prev_data_interval_end_success"):
            gap = _utc(before).date()
    if gap < start:
        _log.warning(
            "No run reads the days from %s to %s: the runs of this DAG have no data interval, and the one before was "
            "of %s. Schedule it with CronDataIntervalTimetable, so that a run loads all days since the one before, or "
            "raise lookback_days by %s",
            gap,
            start - timedelta(days=1),
            gap,
            (start - gap).days,
        )


def interval_days(context: Context) -> tuple[date, date]:
    """Return the first and last day of the run's data interval: ``[D, D+1)`` is day D.

    A run without an interval, or with an empty one, has its own day so far and the day before.

    :param context: the task's context.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and has_interval(context):
        return _utc(start).date(), (_utc(end) - timedelta(microseconds=1)).date()
    moment = end or context["dag_run"].run_after
    day = _utc(moment).date()
    return day - timedelta(days=1), day


def today() -> date:
    """Return the present day in UTC."""
    return datetime.now(UTC).date()


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _day(name: str, value: str | date) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        # Python parses other forms, too; only this one is the document's.
        if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", str(value)):
            return date.fromisoformat(str(value))
    except ValueError:
        pass
    raise AirflowFailException(f"{name}: {value!r} is not a date of the form YYYY-MM-DD")
