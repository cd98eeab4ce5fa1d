"""Statistics: the days of the service that a run loads, the time of a reading, the reading of a window, and rates.

Days are whole days in UTC; both ends of a window are included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, partial
from math import ceil, erfc, sqrt
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail.hooks.mail import MailHook
    from airflow_provider_mail.warehouse.request import Coverage, MarkGone
    from airflow_provider_mail.warehouse.table import Table

_log = logging.getLogger(__name__)

CLOCK_TOLERANCE = 60.0
"""Difference in seconds between the clocks of worker and service above which a warning is logged."""


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
        return interval[0].astimezone(UTC).date(), (interval[1].astimezone(UTC) - timedelta(microseconds=1)).date()
    day = _moment(context).astimezone(UTC).date()
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
    if previous is None or (last := previous.astimezone(UTC).date()) >= start:
        return
    days = (_moment(context).astimezone(UTC).date() - last).days
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


def _day(value: str | date) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


class Observation:
    """One reading of data from the service; to be created before the first request is sent.

    Its time is when the request was sent, so the data is never older, by the clock of the database, which all loads of
    a table share: a row with a wrong time would hide newer ones. For a retried request, it is the time of the last
    attempt. Files have the service's time (the ``Date`` header of its responses).

    :param hook: its client sends the requests, and no others meanwhile. A connection whose ``extra`` has
        ``"test_clock": true`` is to a service for tests, whose clock is moved: then its time is that of the reading.
    """

    def __init__(self, hook: MailHook, sql_hook: DbApiHook | None = None) -> None:
        self._clock = hook.get_conn().service_clock
        self._has_test_clock = hook.has_test_clock
        self._sql_hook = sql_hook
        self._clock.restart()

    @cached_property
    def at(self) -> datetime:
        """The time at which the request was sent, in UTC; to be read after the first response."""
        from airflow_provider_mail.warehouse.database import database_time
        from airflow_provider_mail.warehouse.request import FUTURE_TOLERANCE

        asked_at = self._clock.asked_at
        if asked_at is not None and self._has_test_clock:
            return asked_at
        now = None if self._sql_hook is None else database_time(self._sql_hook)
        # Measured at once: what follows may take long, and a later load would seem to be older.
        elapsed = timedelta(seconds=self._clock.seconds_since_asked())
        if now is None and asked_at is None:
            _log.warning("Neither the service nor a database has a clock: observed_at is the time of this worker")
        if asked_at is not None and abs(self._clock.offset) > CLOCK_TOLERANCE:
            _log.warning("The clocks of service and worker differ by %.0f s", abs(self._clock.offset))
        if now is None and asked_at is not None:
            return asked_at
        at = (now or datetime.now(UTC)) - elapsed
        if asked_at is not None and abs(asked_at - at) > FUTURE_TOLERANCE:
            _log.warning(
                "Check the clocks: the service's is %.0f s ahead of the database's, whose time is observed_at",
                (asked_at - at).total_seconds(),
            )
        return at

    def now(self) -> datetime:
        """Return the present time by the same clock: no observation can be later."""
        now = self.at + timedelta(seconds=self._clock.seconds_since_asked())
        # In a test, the database has rows of its own time, too.
        return max(now, datetime.now(UTC)) if self._has_test_clock else now


@dataclass(frozen=True)
class Statistics:
    """The statistics of a window.

    :param records: what they are made of; a second reading adds to them.
    :param rows: returns the rows; may be called repeatedly.
    :param read_again: reads a second time, and yields the rows that the first reading lacks; from then on, ``rows``
        has them, too.
    """

    table: Table
    records: Sequence[Any]
    rows: Callable[[], Iterator[tuple[Any, ...]]]
    covers: Coverage | None = None
    mark_gone: MarkGone | None = None
    missing_days: tuple[date, ...] = ()
    read_again: Callable[[], Iterator[tuple[Any, ...]]] | None = None


def account(hook: MailHook) -> dict[str, Any]:
    """Return the values of the columns that tell accounts apart."""
    return {"mail_conn_id": hook.mail_conn_id, "team_name": hook.team_name or ""}


def _origin(hook: MailHook, observation: Observation) -> dict[str, Any]:
    """Return what every row says of its reading."""
    return {**account(hook), "observed_at": observation.at}


def read_campaign_stats(
    hook: MailHook,
    observation: Observation,
    start_day: date,
    end_day: date,
    mail_name: str | None = None,
    type: str | None = None,
) -> Statistics:
    """Read the statistics of the campaigns sent in a window.

    :param end_day: its last day, included.
    """
    from airflow_provider_mail.api.campaigns import GetCampaignStats
    from airflow_provider_mail.api.flows.second_source import existing_of
    from airflow_provider_mail.api.flows.statistics import campaign_stats
    from airflow_provider_mail.warehouse.request import Coverage, MarkGone
    from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_STATS, campaign_stats_row

    fields: dict[str, Any] = {"mail_name": mail_name or None, "type": type or None}
    request = GetCampaignStats(start_date=start_day, end_date=end_day, **fields)
    # In the order of the key, in which databases stage, compare and insert rows several times faster.
    records = sorted(campaign_stats(hook.get_conn(), request, compact=True), key=attrgetter("mail_name"))
    origin = _origin(hook, observation)

    day = timedelta(days=1)

    def rows(selected: Sequence[Any] = records) -> Iterator[tuple[Any, ...]]:
        return map(partial(campaign_stats_row, **origin), selected)

    def read_again() -> Iterator[tuple[Any, ...]]:
        known = {record.mail_name for record in records}
        more = [
            record for record in campaign_stats(hook.get_conn(), request, compact=True) if record.mail_name not in known
        ]
        records.extend(more)
        yield from rows(more)

    def exists(names: Sequence[str]) -> Collection[str]:
        lacking = {*names} - {record.mail_name for record in records}
        return existing_of(hook.get_conn(), request, len(records), lacking, start_day + day, end_day - day)

    is_filtered = mail_name or type
    if not is_filtered and end_day - start_day <= day:
        _log.warning(
            "mail_loads records no day of %s to %s, since the service's first and last day may not be whole days in "
            "UTC: read more days (lookback_days, start_day, end_day) if you look there for days that are missing",
            start_day,
            end_day,
        )
    if is_filtered or end_day - start_day <= day:
        return Statistics(CAMPAIGN_STATS, records, rows, read_again=read_again)
    covers = Coverage.days(
        CAMPAIGN_STATS["mail_send_date"],
        start_day + day,
        end_day - day,
        **account(hook),
        observed_at=observation.at,
    )
    mark_gone = MarkGone(observation.at, lambda: [covers.whole], exists)
    return Statistics(CAMPAIGN_STATS, records, rows, covers, mark_gone, read_again=read_again)


def read_transactional_stats(hook: MailHook, observation: Observation, start_day: date, end_day: date) -> Statistics:
    """Read the daily statistics of transactional mail.

    :param end_day: its last day, included.
    """
    from airflow_provider_mail.api.flows.statistics import missing_days, transactional_stats
    from airflow_provider_mail.api.transactional import GetTransactionalStats
    from airflow_provider_mail.warehouse.request import Coverage
    from airflow_provider_mail.warehouse.tables.stats import TRANSACTIONAL_STATS, transactional_stats_row

    request = GetTransactionalStats(start_date=start_day, end_date=end_day)
    records = transactional_stats(hook.get_conn(), request)
    origin = _origin(hook, observation)
    covers = Coverage.days(
        TRANSACTIONAL_STATS["stats_date"],
        start_day,
        end_day,
        **account(hook),
        observed_at=observation.at,
        only={record.stats_date for record in records},
    )
    return Statistics(
        TRANSACTIONAL_STATS,
        records,
        lambda: (transactional_stats_row(record, **origin) for record in records),
        covers,
        missing_days=tuple(missing_days(request, records, today())),
    )


def fallen_to_zero(hook: DbApiHook, statistics: Statistics, name: str) -> int:
    """Count the records without a sent mail of which a table has sent mails."""
    from airflow_provider_mail.warehouse.database import StoredTable
    from airflow_provider_mail.warehouse.request import OneOf
    from airflow_provider_mail.warehouse.rows import batched, moment

    table = statistics.table
    key, sent_at = table.key[-1], "mail_send_date" if "mail_send_date" in table.names else None
    # A name may be used again: a campaign is that of a name and a send time.
    zeros = {
        getattr(record, key): getattr(record, sent_at or key) for record in statistics.records if not record.sent_count
    }
    stored = StoredTable(hook, table, name)
    # The load names a column that the table lacks.
    if not zeros or not {*table.key, "sent_count"} <= stored.existing_columns():
        return 0
    account = dict(zip(table.names, next(iter(statistics.rows())), strict=True))
    count = 0
    for keys in batched(zeros, 500):
        where = {**{column: account[column] for column in table.key[:-1]}, key: OneOf(keys)}
        for value, before, *when in stored.rows([key, "sent_count", *([sent_at] if sent_at else [])], where):
            value = date.fromisoformat(value) if table[key].type.name == "date" and isinstance(value, str) else value
            count += before > 0 and (not when or moment(when[0]) == zeros[value])
    return count


@dataclass(frozen=True, slots=True)
class Rate:
    """A count as a share of the mails that were sent, compared with a limit.

    :param limit: the largest acceptable share.
    :param confidence: the probability with which the true share is below ``upper``, and with which it is above
        ``lower``.
    """

    name: str
    count: int
    sent: int
    limit: float
    confidence: float

    @property
    def share(self) -> float:
        """The observed share; 0 if nothing was sent."""
        return self.count / self.sent if self.sent else 0.0

    @property
    def lower(self) -> float:
        return wilson_bounds(self.count, self.sent, self.confidence)[0]

    @property
    def upper(self) -> float:
        return wilson_bounds(self.count, self.sent, self.confidence)[1]

    @property
    def verdict(self) -> str:
        """``ok`` if the true share is below the limit, ``exceeded`` if it is above, else ``not shown``."""
        if self.upper <= self.limit:
            return "ok"
        return "exceeded" if self.lower > self.limit else "not shown"

    def __str__(self) -> str:
        needed = mails_needed(self.limit, self.confidence)
        few = (
            ""
            if needed is None or self.sent >= needed
            else (f". So few mails cannot show it: {needed:,} are needed. Enlarge the first stage, or the limit")
        )
        return (
            f"{self.name}: {self.count:,} of {self.sent:,} ({self.share:.2%}), the true share lies between "
            f"{self.lower:.2%} and {self.upper:.2%}; the limit is {self.limit:.2%}{few}"
        )


def mails_needed(limit: float, confidence: float) -> int | None:
    """Return how many mails without any count show that a limit is kept; ``None`` if no number does.

    Solves ``z² / (n + z²) = limit``, the upper bound of Wilson's interval of 0 counts.
    """
    if limit <= 0:
        return None
    from statistics import NormalDist

    return ceil(NormalDist().inv_cdf(confidence) ** 2 * (1 - limit) / limit)


def wilson_bounds(count: int, total: int, confidence: float) -> tuple[float, float]:
    """Return the bounds of Wilson's score interval of a share, each with the given confidence.

    Unlike the quotient plus or minus its error, they are right for few mails and for counts near zero.

    :param count: at most ``total``.
    :param total: 0 gives the bounds 0 and 1.
    :param confidence: of each bound, such as 0.95.
    """
    if not total:
        return 0.0, 1.0
    from statistics import NormalDist

    z = NormalDist().inv_cdf(confidence)
    share, weight = count / total, z * z / total
    center = share + weight / 2
    margin = z * sqrt(share * (1 - share) / total + weight / (4 * total))
    return max(0.0, (center - margin) / (1 + weight)), min(1.0, (center + margin) / (1 + weight))


def two_proportion_test(count_a: int, sent_a: int, count_b: int, sent_b: int) -> tuple[float, float]:
    """Return z and the p-value of the two-proportion z-test with a pooled standard error, two-sided.

    The p-value is the probability that equal true shares lead to a difference at least as large as the observed one. z
    is positive if the share of ``a`` is the larger one. It is 0, and the p-value 1, if nothing was sent, or if both
    shares are 0 or 1.

    :param count_a: at most ``sent_a``.
    :param count_b: at most ``sent_b``.
    """
    pooled = (count_a + count_b) / (sent_a + sent_b or 1)
    if not (sent_a and sent_b and 0 < pooled < 1):
        return 0.0, 1.0
    error = sqrt(pooled * (1 - pooled) * (1 / sent_a + 1 / sent_b))
    z = (count_a / sent_a - count_b / sent_b) / error
    # 1 - cdf(z) has no correct digit for a large z.
    return z, erfc(abs(z) / sqrt(2))
