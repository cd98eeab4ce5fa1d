"""Which days the loads of statistics read: whole days in UTC, both ends included."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.sdk import DAG
from airflow.timetables.base import TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.timetables.trigger import CronTriggerTimetable

from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.loading import CAMPAIGN_STATS, LOADS, TRANSACTIONAL_STATS, UTC, executed, windows

pytestmark = pytest.mark.usefixtures("warehouse")


def at(text: str, zone: str = "UTC") -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


@functools.cache
def task(lookback_days: int, start_day: str | None) -> MailCampaignStatsToSqlOperator:
    days: Any = {"lookback_days": lookback_days, "start_day": start_day}
    return MailCampaignStatsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", **days)


def window(context: Any, lookback_days: int = 0, start_day: str | None = None) -> tuple[datetime.date, datetime.date]:
    return task(lookback_days, start_day).window(context)


@pytest.mark.parametrize(
    ("zone", "start", "end", "days"),
    [
        ("UTC", "2026-03-01", "2026-03-08", "2026-03-01 2026-03-07"),
        ("UTC", "2026-03-01 06:00", "2026-03-02 06:00", "2026-03-01 2026-03-02"),
        # A day in Berlin is parts of two days of the service; so are those of 23 and of 25 hours.
        ("Europe/Berlin", "2026-02-03", "2026-02-04", "2026-02-02 2026-02-03"),
        ("Europe/Berlin", "2026-03-29", "2026-03-30", "2026-03-28 2026-03-29"),
        ("Europe/Berlin", "2026-10-25", "2026-10-26", "2026-10-24 2026-10-25"),
        # In UTC nothing lies between these two: the hour is there twice.
        ("Europe/Berlin", "2026-10-25 02:00", "2026-10-25 03:00", "2026-10-25 2026-10-25"),
        ("America/New_York", "2026-11-01", "2026-11-02", "2026-11-01 2026-11-02"),
        # An empty interval: the day before and the day itself, as far as it is.
        ("UTC", "2026-03-02", "2026-03-02", "2026-03-01 2026-03-02"),
        ("Europe/Berlin", "2026-03-02", "2026-03-02", "2026-02-28 2026-03-01"),
    ],
)
def test_days_of_an_interval(zone: str, start: str, end: str, days: str) -> None:
    interval = {"data_interval_start": at(start, zone), "data_interval_end": at(end, zone)}
    assert " ".join(map(str, window(interval))) == days


@pytest.mark.parametrize(
    ("schedule", "zone"),
    [("@daily", "Europe/Berlin"), ("@weekly", "America/New_York"), ("30 1 * * *", "Pacific/Kiritimati"),
     ("30 1 * * *", "Asia/Kolkata")],
)  # fmt: skip
def test_no_day_is_between_two_runs(schedule: str, zone: str) -> None:
    """A year of runs, with its changes of clocks: each day is in some window, and no window is longer than needed."""
    timetable = CronDataIntervalTimetable(schedule, zone)
    covered: set[datetime.date] = set()
    interval = timetable.infer_manual_data_interval(run_after=pendulum.instance(at("2025-01-01")))
    while interval.end < at("2026-01-01"):
        first, last = window({"data_interval_start": interval.start, "data_interval_end": interval.end})
        assert (last - first).days <= (interval.end - interval.start).days + 1
        covered |= {first + datetime.timedelta(days=number) for number in range((last - first).days + 1)}
        following = timetable.next_dagrun_info(
            last_automated_data_interval=interval, restriction=TimeRestriction(earliest=None, latest=None, catchup=True)
        )
        assert following is not None
        interval = following.data_interval
    assert max(covered) - min(covered) == datetime.timedelta(days=len(covered) - 1)
    assert len(covered) >= 356


@pytest.mark.parametrize(
    ("schedule", "lookback_days", "gap"),
    [
        ("@monthly", 30, False),
        # Local midnight before and after the clocks change: one day.
        (CronTriggerTimetable("@daily", timezone="Europe/Berlin"), 0, False),
    ],
)
def test_days_that_no_run_reads_are_named(
    caplog: pytest.LogCaptureFixture, schedule: Any, lookback_days: int, gap: bool
) -> None:
    """Airflow 3 gives runs of a cron schedule an empty data interval, which says nothing of the days since the last."""
    moment = at("2026-04-01")
    dag = DAG("loads", schedule=schedule, start_date=at("2026-01-01"))
    context: Any = {"dag": dag, "data_interval_start": moment, "data_interval_end": moment}
    assert f"{window(context, lookback_days)[1]}" == "2026-04-01"
    for words in ("2026-03-01 to 2026-03-23", "schedule=CronDataIntervalTimetable"):
        assert (words in caplog.text) is gap
    caplog.clear()
    # The remedies: a start_day, a look-back, and an interval.
    window(context, start_day="2026-03-01")
    window(context, lookback_days=30)
    window(context | {"data_interval_start": at("2026-03-01")})
    assert caplog.text == ""


def test_the_window_of_a_run(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    timetable, days = CronDataIntervalTimetable("@daily", "Europe/Berlin"), ("2024-03-30", "2024-03-31")
    with new_dag(schedule=timetable, start_date=at("2024-01-01"), params={"first": "2024-01-30"}) as dag:
        operator = functools.partial(MailCampaignStatsToSqlOperator, sql_conn_id="warehouse")
        given = operator(task_id="given", start_day="{{ params.first }}", end_day="2024-02-02")
        given >> operator(task_id="back") >> operator(task_id="exact", lookback_days=0)

    done = run(dag, logical_date=at("2024-03-31 22:00"))

    assert windows(emulator) == [("2024-01-30", "2024-02-02"), ("2024-03-23", days[1]), days]
    returned = done.result.xcom("exact")
    assert (returned["start_day"], returned["end_day"]) == days


@pytest.mark.parametrize("table", ["mail_campaign_stats", "mail_transactional_stats"])
def test_the_window_without_an_interval(emulator: Emulator, table: str) -> None:
    operator, _ = LOADS[table]
    executed(operator(task_id=TASK, sql_conn_id="warehouse"), at=at("2026-03-02 23:59"))
    paths = {"mail_campaign_stats": CAMPAIGN_STATS, "mail_transactional_stats": TRANSACTIONAL_STATS}
    assert windows(emulator, paths[table]) == [("2026-02-22", "2026-03-02")]


def test_a_named_campaign_may_be_sent_later(emulator: Emulator, warehouse: SqlDatabase) -> None:
    """Long after the run began: the window ends today, unless its end is given."""
    today = datetime.datetime.now(UTC).date()
    emulator.add_campaign("spring", send_date=datetime.datetime.now(UTC))
    evening = datetime.datetime.combine(today, datetime.time(23, 50), UTC) - datetime.timedelta(days=2)
    days = [f"{today - datetime.timedelta(days=before)}" for before in (3, 2, 0)]
    given = {"task_id": TASK, "sql_conn_id": "warehouse", "lookback_days": 0, "mail_name": "spring"}
    for options, records in (({"end_day": days[1]}, 0), ({}, 1), ({"start_day": days[2], "end_day": days[2]}, 1)):
        assert executed(MailCampaignStatsToSqlOperator(**given, **options), at=evening)["records"] == records
    assert windows(emulator) == [(days[0], days[1]), (days[0], days[2]), (days[2], days[2])]


def test_a_window_that_the_service_rejects(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.faults.add("code_before", CAMPAIGN_STATS, count=None, code=400, message="at most 92 days")
    days = {"start_day": "2024-01-01", "end_day": "{{ '2024-12-31' }}"}
    done = run(lambda: MailCampaignStatsToSqlOperator(task_id=TASK, sql_conn_id="warehouse", retries=2, **days))
    assert (done.state, done.tries, warehouse.tables()) == ("failed", 1, set())
    assert "at most 92 days; start_day 2024-01-01, end_day 2024-12-31: 366 days may be too many" in done.log
