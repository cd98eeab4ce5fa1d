"""Which days the loads of statistics ask for: whole days in UTC, both ends included."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.sdk import DAG
from airflow.timetables.base import TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.timetables.trigger import CronTriggerTimetable

from airflow_provider_mail._task import date_window
from airflow_provider_mail._task.date_window import interval_days
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)
from tests.tasks.conftest import TASK, Run, SqlDatabase

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
KIRITIMATI = ZoneInfo("Pacific/Kiritimati")  # UTC+14
CAMPAIGNS, TRANSACTIONAL = "campaign/mail/stats/get", "transactional/mail/stats/get"
both = pytest.mark.parametrize(
    ("operator", "path"),
    [(MailCampaignStatsToSqlOperator, CAMPAIGNS), (MailTransactionalStatsToSqlOperator, TRANSACTIONAL)],
    ids=["campaigns", "transactional"],
)

pytestmark = pytest.mark.usefixtures("warehouse")


def utc(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=datetime.UTC)  # type: ignore[arg-type]


def local(zone: ZoneInfo, *parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=zone)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        (utc(2026, 3, 1), utc(2026, 3, 2), ("2026-03-01", "2026-03-01")),
        (utc(2026, 3, 1), utc(2026, 3, 8), ("2026-03-01", "2026-03-07")),
        (utc(2026, 3, 1, 6), utc(2026, 3, 1, 12), ("2026-03-01", "2026-03-01")),
        (utc(2026, 3, 1, 6), utc(2026, 3, 2, 6), ("2026-03-01", "2026-03-02")),
        (utc(2024, 2, 29), utc(2024, 3, 1), ("2024-02-29", "2024-02-29")),
        # A day in Berlin is parts of two days of the service; so is the one that has 23 hours.
        (local(BERLIN, 2026, 2, 3), local(BERLIN, 2026, 2, 4), ("2026-02-02", "2026-02-03")),
        (local(BERLIN, 2026, 3, 29), local(BERLIN, 2026, 3, 30), ("2026-03-28", "2026-03-29")),
        (local(BERLIN, 2026, 10, 25), local(BERLIN, 2026, 10, 26), ("2026-10-24", "2026-10-25")),
        # In UTC nothing lies between these two: the hour is there twice.
        (local(BERLIN, 2026, 10, 25, 2), local(BERLIN, 2026, 10, 25, 3), ("2026-10-25", "2026-10-25")),
        # West of Greenwich too, on the day of 23 hours and on that of 25.
        (local(NEW_YORK, 2026, 3, 8), local(NEW_YORK, 2026, 3, 9), ("2026-03-08", "2026-03-09")),
        (local(NEW_YORK, 2026, 11, 1), local(NEW_YORK, 2026, 11, 2), ("2026-11-01", "2026-11-02")),
        (local(KIRITIMATI, 2026, 5, 2), local(KIRITIMATI, 2026, 5, 3), ("2026-05-01", "2026-05-02")),
        # An empty interval: the day before and the day itself, as far as it is.
        (utc(2026, 3, 2), utc(2026, 3, 2), ("2026-03-01", "2026-03-02")),
        (utc(2026, 3, 2, 13), utc(2026, 3, 2, 13), ("2026-03-01", "2026-03-02")),
        (local(BERLIN, 2026, 3, 2), local(BERLIN, 2026, 3, 2), ("2026-02-28", "2026-03-01")),
    ],
)
def test_days_of_an_interval(start: datetime.datetime, end: datetime.datetime, days: tuple[str, str]) -> None:
    context: Any = {"data_interval_start": start, "data_interval_end": end}
    assert tuple(day.isoformat() for day in interval_days(context)) == days


@pytest.mark.parametrize(
    ("schedule", "lookback_days", "gap"),
    [
        ("@monthly", 7, "2026-03-01 to 2026-03-23"),
        (CronTriggerTimetable("@monthly", timezone="America/New_York"), 7, "2026-03-01 to 2026-03-23"),
        (datetime.timedelta(days=31), 7, "2026-03-01 to 2026-03-23"),
        ("@monthly", 30, None),
        ("@weekly", 7, None),
        ("@daily", 0, None),
        (None, 0, None),
        # Local midnight before and after the clocks change: one day.
        (CronTriggerTimetable("@daily", timezone="Europe/Berlin"), 0, None),
    ],
)
def test_days_that_no_run_reads_are_named(
    caplog: pytest.LogCaptureFixture, schedule: Any, lookback_days: int, gap: str | None
) -> None:
    """Airflow 3 gives runs of a cron schedule an empty data interval, which says nothing of the days since the last."""
    at = utc(2026, 4, 1)
    dag = DAG("loads", schedule=schedule, start_date=utc(2026, 1, 1))
    context: Any = {"dag": dag, "data_interval_start": at, "data_interval_end": at}

    _, last = date_window.window(context, None, None, lookback_days)

    assert f"{last}" == "2026-04-01"
    assert (gap is None) is (caplog.text == "")
    if gap:
        assert gap in caplog.text
        assert "schedule=CronDataIntervalTimetable" in caplog.text
        caplog.clear()
        # The remedies: a start_day, a look-back, and an interval.
        date_window.window(context, "2026-03-01", None, 0)
        date_window.window(context, None, None, 30)
        date_window.window(context | {"data_interval_start": utc(2026, 3, 1)}, None, None, 0)
        assert caplog.text == ""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Asia/Kolkata"])
@pytest.mark.parametrize("schedule", ["@daily", "@weekly", "0 2 * * *", "30 1 * * *"])
def test_no_day_falls_between_two_runs_when_the_clocks_change(schedule: str, zone: str) -> None:
    """A year of runs, one after the other: each day of the service is in some window, and no window is longer."""
    timetable = CronDataIntervalTimetable(schedule, zone)
    covered: set[datetime.date] = set()
    interval = timetable.infer_manual_data_interval(run_after=pendulum.instance(utc(2026, 1, 1)))
    while interval.end < utc(2027, 1, 1):
        context: Any = {"data_interval_start": interval.start, "data_interval_end": interval.end}
        first, last = interval_days(context)
        assert (last - first).days <= (interval.end - interval.start).days + 1
        covered |= {first + datetime.timedelta(days=number) for number in range((last - first).days + 1)}
        following = timetable.next_dagrun_info(
            last_automated_data_interval=interval, restriction=TimeRestriction(earliest=None, latest=None, catchup=True)
        )
        assert following is not None
        interval = following.data_interval
    days = sorted(covered)
    assert days[-1] - days[0] == datetime.timedelta(days=len(days) - 1)
    assert len(days) >= 356


@pytest.mark.parametrize("interval", [{}, {"data_interval_start": None, "data_interval_end": None}])
def test_days_of_a_run_without_an_interval(interval: dict[str, Any]) -> None:
    run = SimpleNamespace(run_after=utc(2026, 3, 2, 23, 59))
    context: Any = {"dag_run": run, **interval}
    assert tuple(day.isoformat() for day in interval_days(context)) == ("2026-03-01", "2026-03-02")


def asked(emulator: Emulator, path: str) -> list[tuple[str, str]]:
    return [(entry["body"]["startDate"], entry["body"]["endDate"]) for entry in emulator.journal.entries(path)]


@both
@pytest.mark.parametrize(
    ("timetable", "when", "days"),
    [
        (CronDataIntervalTimetable("@daily", "UTC"), utc(2024, 3, 2), ("2024-03-01", "2024-03-01")),
        (CronDataIntervalTimetable("@weekly", "UTC"), utc(2024, 3, 10), ("2024-03-03", "2024-03-09")),
        (CronDataIntervalTimetable("@daily", "Europe/Berlin"), utc(2024, 3, 31, 22), ("2024-03-30", "2024-03-31")),
        (CronTriggerTimetable("@daily", timezone="UTC"), utc(2024, 3, 2), ("2024-03-01", "2024-03-02")),
    ],
    ids=["day", "week", "Berlin", "moment"],
)
def test_the_window_of_a_run(
    run: Run,
    new_dag: Callable[..., DAG],
    emulator: Emulator,
    operator: Any,
    path: str,
    timetable: Any,
    when: datetime.datetime,
    days: tuple[str, str],
) -> None:
    with new_dag(schedule=timetable, start_date=utc(2024, 1, 1)) as dag:
        operator(task_id="exact", sql_conn_id="warehouse", lookback_days=0)
        operator(task_id="back", sql_conn_id="warehouse", lookback_days=3) >> dag.get_task("exact")

    done = run(dag, logical_date=when)

    assert done.state == "success", done.log
    earlier = (datetime.date.fromisoformat(days[0]) - datetime.timedelta(days=3)).isoformat()
    assert asked(emulator, path) == [(earlier, days[1]), days]
    returned = done.result.xcom("exact")
    assert (returned["start_day"], returned["end_day"]) == days


@both
def test_a_run_by_hand_takes_its_day_and_the_day_before(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, operator: Any, path: str
) -> None:
    done = run(lambda: operator(task_id=TASK, sql_conn_id="warehouse"), logical_date=utc(2026, 3, 10, 9))

    assert done.state == "success", done.log
    # Seven days earlier, unless told otherwise.
    assert asked(emulator, path) == [("2026-03-02", "2026-03-10")]
    assert (done.returned["start_day"], done.returned["end_day"]) == ("2026-03-02", "2026-03-10")


@both
def test_days_can_be_given(run: Run, new_dag: Callable[..., DAG], emulator: Emulator, operator: Any, path: str) -> None:
    with new_dag(params={"first": "2024-01-30"}) as dag:
        operator(task_id=TASK, sql_conn_id="warehouse", start_day="{{ params.first }}", end_day="2024-02-02")

    assert run(dag).result.task(TASK).state == "success"
    assert asked(emulator, path) == [("2024-01-30", "2024-02-02")]


@both
@pytest.mark.parametrize(
    ("days", "words"),
    [
        ({"start_day": "2024-02-02", "end_day": "2024-02-01"}, "end_day: 2024-02-01 is before start_day 2024-02-02"),
        ({"start_day": "2126-01-01", "end_day": "2126-01-02"}, "start_day: 2126-01-01 is in the future"),
        ({"start_day": "2126-01-01"}, "is before start_day 2126-01-01"),
        ({"start_day": "{{ '01.02.2024' }}"}, "start_day: is not a date of the form YYYY-MM-DD"),
        ({"end_day": "{{ '2024-02-30' }}"}, "end_day: is not a date of the form YYYY-MM-DD"),
        ({"start_day": "{{ '2024-02-01T00:00:00' }}"}, "start_day: is not a date"),
        ({"start_day": "{{ '20240201' }}"}, "start_day: is not a date of the form YYYY-MM-DD"),
        ({"start_day": "{{ '2024-W05-4' }}"}, "start_day: is not a date of the form YYYY-MM-DD"),
        ({"start_day": "{{ 'yesterday' }}"}, "start_day: is not a date of the form YYYY-MM-DD"),
        ({"lookback_days": 10**6}, "lookback_days: 1000000 days reach back before the year 1"),
        ({"table": "no such: name"}, "`table` must be a name"),
    ],
)
def test_days_that_cannot_be(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, operator: Any, path: str, days: dict[str, str], words: str
) -> None:
    done = run(lambda: operator(task_id=TASK, sql_conn_id="warehouse", retries=2, **days))

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count() == 0
    assert warehouse.tables() == set()


@both
def test_a_window_that_the_service_refuses(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, operator: Any, path: str
) -> None:
    emulator.faults.add("code_before", path, count=None, code=400, message="at most 92 days")
    days = {"start_day": "2024-01-01", "end_day": "2024-12-31"}

    done = run(lambda: operator(task_id=TASK, sql_conn_id="warehouse", retries=2, **days))

    assert (done.state, done.tries) == ("failed", 1)
    assert "at most 92 days; start_day 2024-01-01, end_day 2024-12-31: 366 days may be too many" in done.log
    assert warehouse.tables() == set()


def test_looking_forward_is_a_mistake_in_the_dag_file() -> None:
    with pytest.raises(ValueError, match="lookback_days: must be a whole number, at least 0"):
        MailCampaignStatsToSqlOperator(task_id="a", sql_conn_id="warehouse", lookback_days=-1)


def test_a_campaign_that_is_asked_for_by_name_may_have_gone_out_after_midnight(
    run: Run,
    new_dag: Callable[..., DAG],
    emulator: Emulator,
    warehouse: SqlDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(date_window, "today", lambda: datetime.date(2024, 3, 5))
    emulator.add_campaign("spring", send_date=utc(2024, 3, 4, 0, 10))
    with new_dag(schedule=CronTriggerTimetable("50 23 * * *", timezone="UTC"), start_date=utc(2024, 1, 1)) as dag:
        load = {"sql_conn_id": "warehouse", "lookback_days": 0}
        MailCampaignStatsToSqlOperator(task_id="named", mail_name="spring", **load)
        MailCampaignStatsToSqlOperator(task_id="ended", mail_name="spring", end_day="2024-03-03", **load)

    done = run(dag, logical_date=utc(2024, 3, 3, 23, 50))

    assert sorted(asked(emulator, CAMPAIGNS)) == [("2024-03-02", "2024-03-03"), ("2024-03-02", "2024-03-05")]
    assert (done.result.xcom("named")["records"], done.result.xcom("ended")["records"]) == (1, 0)
    assert warehouse.query("SELECT mail_name FROM mail_campaign_stats") == [("spring",)]
