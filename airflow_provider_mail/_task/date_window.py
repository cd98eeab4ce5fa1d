"""The days of the service that a run loads: whole days in UTC, both ends included."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


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
        start = _day(start_day) if start_day else first - timedelta(days=lookback_days)
    except OverflowError:
        raise AirflowFailException(f"lookback_days: {lookback_days} days reach back before the year 1") from None
    end = _day(end_day) if end_day else last
    if end < start:
        raise AirflowFailException(f"end_day: {end} is before start_day {start}")
    if start > today():
        raise AirflowFailException(f"start_day: {start} is in the future (days are in UTC)")
    return start, end


def interval_days(context: Context) -> tuple[date, date]:
    """Return the first and last day of the run's data interval: ``[D, D+1)`` is day D.

    A run without an interval, or with an empty one, has its own day so far and the day before.

    :param context: the task's context.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and end > start:
        return _utc(start).date(), (_utc(end) - timedelta(microseconds=1)).date()
    moment = end or context["dag_run"].run_after
    day = _utc(moment).date()
    return day - timedelta(days=1), day


def today() -> date:
    """Return the present day in UTC."""
    return datetime.now(UTC).date()


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _day(value: str | date) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)
