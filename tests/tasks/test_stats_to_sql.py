"""Statistics in the warehouse: what the service says, whole, restated, and the same however often it is loaded.

How a response that is short is completed is shown by `tests/api/test_stats.py`.
"""

from __future__ import annotations

import datetime
import functools
import re
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

from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from mail_emulator import Emulator
from tests.support.env import ROOT
from tests.tasks.conftest import Connect, Run, SqlDatabase
from tests.tasks.loading import (
    CAMPAIGN_STATS,
    GET_CAMPAIGNS,
    TRANSACTIONAL_STATS,
    UTC,
    changed_records,
    error_of,
    executed,
    load_task,
    remove_campaigns,
    windows,
)

DAY = datetime.date(2024, 3, 2)
STATS, DAYS, SNAPSHOTS = "mail_campaign_stats", "mail_transactional_stats", "mail_campaign_stats_snapshots"
ALL = {"first": 0, "last": 9}


def day(number: int) -> str:
    return (DAY + datetime.timedelta(days=number)).isoformat()


def task(first: int = 0, last: int | None = None, *, path: str = CAMPAIGN_STATS, **arguments: Any) -> Any:
    days = {"start_day": day(first), "end_day": day(first if last is None else last)}
    return load_task({CAMPAIGN_STATS: STATS, TRANSACTIONAL_STATS: DAYS}[path], **days, **arguments)


def load(first: int = 0, last: int | None = None, **arguments: Any) -> dict[str, Any]:
    return executed(task(first, last, **arguments))


def names(warehouse: SqlDatabase) -> list[str]:
    return [name for (name,) in warehouse.query(f"SELECT mail_name FROM {STATS} ORDER BY mail_name")]


def last_read(warehouse: SqlDatabase, table: str = STATS) -> dict[str, Any]:
    """When each day was last read whole."""
    if "mail_loads" not in warehouse.tables():
        return {}
    return dict(warehouse.query(f"SELECT part, observed_at FROM mail_loads WHERE table_name = '{table}' ORDER BY part"))


def marked(warehouse: SqlDatabase) -> list[str]:
    return [name for (name,) in warehouse.query("SELECT mail_name FROM mail_campaign_stats WHERE gone_at IS NOT NULL")]


@pytest.fixture
def march(emulator: Emulator) -> Emulator:
    """Three campaigns on each of ten days, and the time a day after the last."""
    emulator.clock.set(datetime.datetime(2024, 3, 12, tzinfo=UTC))
    emulator.clock.freeze()
    emulator.add_campaigns(30, first_day=DAY, per_day=3)
    return emulator


# --- what is in the tables; each column is in `tests/warehouse/test_stats.py` ---


def test_the_rows_of_campaigns(run: Run, emulator: Emulator, warehouse: SqlDatabase, connect: Connect) -> None:
    connect(team_name="Marketing", sandbox=True)  # reading sends nothing
    sent_at = datetime.datetime(2024, 3, 2, 23, 59, 59, tzinfo=UTC)
    for name, sent, opened in (("Frühling 春", 200, 50), ("empty", 0, 0)):
        emulator.add_campaign(name, send_date=sent_at, sent=sent)
        emulator.set_campaign_stats(name, sentCount=sent, openCount=opened)

    done = run(task)

    columns = "mail_conn_id, mail_name, team_name, sent_count, open_count, open_rate"
    assert warehouse.query(f"SELECT {columns} FROM {STATS} ORDER BY sent_count") == [
        ("mail_default", "empty", "Marketing", 0, 0, 0.0),
        ("mail_default", "Frühling 春", "Marketing", 200, 50, 25.0),
    ]
    assert done.returned == {
        "table": "mail_campaign_stats", "start_day": "2024-03-02", "end_day": "2024-03-02",
        "records": 2, "inserted": 2, "changed": 0, "unchanged": 0, "outdated": 0,
    }  # fmt: skip
    assert warehouse.tables() == {STATS}  # a single day may not be whole, so it is not recorded
    (entry,) = emulator.journal.entries(CAMPAIGN_STATS)
    assert "sandboxMode" not in entry["body"]


def test_a_missing_day_is_not_zero(run: Run, march: Emulator, warehouse: SqlDatabase) -> None:
    march.set_transactional_day(DAY, sentCount=40)
    assert load(0, 3, path=TRANSACTIONAL_STATS)["missing_days"] == 0
    before = last_read(warehouse, DAYS)
    march.clock.advance(seconds=1)
    march.settings.stats_empty_days = False
    march.set_transactional_day(DAY + datetime.timedelta(days=1), sentCount=50)
    march.faults.add("short_stats", TRANSACTIONAL_STATS, count=1, missing=1)  # read again, and complete

    done = run(lambda: task(0, 4, path=TRANSACTIONAL_STATS))

    assert (done.returned["records"], done.returned["missing_days"]) == (2, 3)
    assert "leaves out 3 days, whose rows are kept: 2024-03-04, 2024-03-05, 2024-03-06" in done.log
    march.faults.add("short_stats", TRANSACTIONAL_STATS, count=None, missing=99)
    later = last_read(warehouse, DAYS)
    assert [date for date in later if later[date] > before[date]] == [day(0), day(1)]
    assert load(0, 1, path=TRANSACTIONAL_STATS)["missing_days"] == 2
    rows = warehouse.query(f"SELECT stats_date, sent_count FROM {DAYS} ORDER BY 1")
    assert rows == [(day(0), 40), (day(1), 50), (day(2), 0), (day(3), 0)]


def test_filtered_statistics_are_no_whole_day(march: Emulator, warehouse: SqlDatabase) -> None:
    march.add_campaign("spring", send_date=datetime.datetime(2024, 3, 2, tzinfo=UTC))
    march.add_campaign("spring test", send_date=datetime.datetime(2024, 3, 2, tzinfo=UTC), type="ABTest")
    assert load(**ALL, mail_name="spring", type="ABTest")["records"] == 1
    assert names(warehouse) == ["spring test"]
    for filters in ({"mail_name": "campaign"}, {"type": "MailList"}):
        load(**ALL, **filters)
    assert warehouse.tables() == {STATS}


# --- snapshots ---


def test_snapshots_keep_the_last_counts_of_a_day(march: Emulator, warehouse: SqlDatabase) -> None:
    """Days are those in UTC: the last observation is at one o'clock on the seventh in Tokyo."""
    name = "campaign-000000"
    for moment, opens in (("03T01Z", 5), ("03T23Z", 8), ("04T01Z", 8), ("07T01+09:00", 20)):
        march.clock.set(datetime.datetime.fromisoformat(f"2024-03-{moment}"))
        march.set_campaign_stats(name, sentCount=40, openCount=opens)
        assert load(mail_name=name, snapshots=True)["snapshots_table"] == SNAPSHOTS
    rows = warehouse.query(f"SELECT observed_day, sent_count, open_count, open_rate FROM {SNAPSHOTS} ORDER BY 1")
    days = (("03", 8, 20.0), ("04", 8, 20.0), ("06", 20, 50.0))
    assert rows == [(f"2024-03-{day}", 40, opens, rate) for day, opens, rate in days]


def test_snapshots_are_loaded_first(march: Emulator, warehouse: SqlDatabase) -> None:
    """Tomorrow the service returns the latest counts again, but not those of today."""
    warehouse.execute("CREATE TABLE mail_campaign_stats (mail_conn_id TEXT, mail_name TEXT)")
    assert "table mail_campaign_stats on connection 'warehouse'" in error_of(lambda: task(snapshots=True))
    assert warehouse.query(f"SELECT count(*) FROM {SNAPSHOTS}") == [(3,)]


# --- campaigns that are gone ---


def test_a_deleted_campaign_is_marked(march: Emulator, warehouse: SqlDatabase) -> None:
    """But not on the first and the last day, which may not be whole, and not by a load with a filter."""
    assert load(**ALL)["gone"] == 0
    remove_campaigns(march, "campaign-000000", "campaign-000013", "campaign-000029")
    assert load(**ALL, mail_name="campaign")["records"] == 27
    assert load(0)["records"] == 2
    assert marked(warehouse) == []
    assert [load(**ALL)["gone"] for _ in range(2)] == [1, 0]
    assert marked(warehouse) == ["campaign-000013"]
    assert len(names(warehouse)) == 30
    page = (ROOT / "docs" / "loads.md").read_text()
    (query,) = re.findall(r"^SELECT mail_conn_id, SUM\(sent_count\).*$", page, re.MULTILINE)
    assert warehouse.query(query) == warehouse.query(
        f"SELECT mail_conn_id, SUM(sent_count) FROM {STATS} WHERE mail_name <> 'campaign-000013' GROUP BY mail_conn_id"
    )


def test_a_campaign_that_left_the_window_is_not_gone(march: Emulator, warehouse: SqlDatabase) -> None:
    """Its send day moved, or its name was given to a campaign of another day: the service still has the name."""
    load(**ALL)
    left = ["campaign-000010", "campaign-000013", "campaign-000016"]
    remove_campaigns(march, *left)
    for name in left[:2]:
        march.add_campaign(name, send_date=datetime.datetime(2024, 4, 2, tzinfo=UTC))
    assert load(**ALL)["gone"] == 1
    assert marked(warehouse) == left[2:]
    assert {entry["body"].get("mailName") for entry in march.journal.entries(GET_CAMPAIGNS)} == set(left)


# --- responses that are wrong ---


def every(**values: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda records: [record.update(values) for record in records]


WRONG_RECORDS: list[tuple[str, Callable[[list[dict[str, Any]]], object], str]] = [
    (CAMPAIGN_STATS, every(mailSendDate=1_700_000_000_000), "mailSendDate 2023-11-14T22:13:20Z"),
    (CAMPAIGN_STATS, lambda found: found[1].update(mailName=found[0]["mailName"]), "two records of one mailName"),
    (TRANSACTIONAL_STATS, every(statsDate="2024-03-03"), "a record has the statsDate 2024-03-03"),
    (TRANSACTIONAL_STATS, lambda found: found.append({**found[0], "sentCount": 7}), "two different records"),
]


@pytest.mark.parametrize(("path", "change", "words"), WRONG_RECORDS)
def test_wrong_records_are_not_loaded(
    march: Emulator, warehouse: SqlDatabase, path: str, change: Callable[[list[Any]], object], words: str
) -> None:
    with changed_records(march, path, change):
        assert words in error_of(lambda: task(path=path))
    assert warehouse.tables() == set()


# --- which days are read: whole days in UTC, both ends included ---


def at(text: str, zone: str = "UTC") -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


@functools.cache
def windowed(lookback_days: int, start_day: str | None) -> Any:
    return load_task(STATS, lookback_days=lookback_days, start_day=start_day, end_day=None)


def window(context: Any, lookback_days: int = 0, start_day: str | None = None) -> tuple[datetime.date, datetime.date]:
    days: tuple[datetime.date, datetime.date] = windowed(lookback_days, start_day).window(context)
    return days


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


@pytest.mark.parametrize(("schedule", "zone"), [("@weekly", "America/New_York"), ("30 1 * * *", "Asia/Kolkata")])
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
        ("@monthly", 7, True),
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


def test_the_window_of_a_run(run: Run, new_dag: Callable[..., DAG], emulator: Emulator, warehouse: SqlDatabase) -> None:
    timetable, days = CronDataIntervalTimetable("@daily", "Europe/Berlin"), ("2024-03-30", "2024-03-31")
    with new_dag(schedule=timetable, start_date=at("2024-01-01"), params={"first": "2024-01-30"}) as dag:
        operator = functools.partial(MailCampaignStatsToSqlOperator, sql_conn_id="warehouse")
        given = operator(task_id="given", start_day="{{ params.first }}", end_day="2024-02-02")
        given >> operator(task_id="back") >> operator(task_id="exact", lookback_days=0)

    done = run(dag, logical_date=at("2024-03-31 22:00"))

    assert windows(emulator) == [("2024-01-30", "2024-02-02"), ("2024-03-23", days[1]), days]
    returned = done.result.xcom("exact")
    assert (returned["start_day"], returned["end_day"]) == days


@pytest.mark.parametrize(("table", "path"), [(STATS, CAMPAIGN_STATS), (DAYS, TRANSACTIONAL_STATS)])
def test_the_window_without_an_interval(emulator: Emulator, warehouse: SqlDatabase, table: str, path: str) -> None:
    executed(load_task(table, start_day=None, end_day=None), at=at("2026-03-02 23:59"))
    assert windows(emulator, path) == [("2026-02-22", "2026-03-02")]


def test_a_named_campaign_may_be_sent_later(emulator: Emulator, warehouse: SqlDatabase) -> None:
    """Long after the run began: the window ends today, unless its end is given."""
    today = datetime.datetime.now(UTC).date()
    emulator.add_campaign("spring", send_date=datetime.datetime.now(UTC))
    evening = datetime.datetime.combine(today, datetime.time(23, 50), UTC) - datetime.timedelta(days=2)
    days = [f"{today - datetime.timedelta(days=before)}" for before in (3, 2, 0)]
    for start, end, records in ((None, days[1], 0), (None, None, 1), (days[2], days[2], 1)):
        named = load_task(STATS, mail_name="spring", lookback_days=0, start_day=start, end_day=end)
        assert executed(named, at=evening)["records"] == records
    assert windows(emulator) == [(days[0], days[1]), (days[0], days[2]), (days[2], days[2])]


def test_a_window_that_the_service_rejects(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.faults.add("code_before", CAMPAIGN_STATS, count=None, code=400, message="at most 92 days")
    done = run(lambda: load_task(STATS, start_day="2024-01-01", end_day="{{ '2024-12-31' }}", retries=2))
    assert (done.state, done.tries, warehouse.tables()) == ("failed", 1, set())
    assert "at most 92 days; start_day 2024-01-01, end_day 2024-12-31: 366 days may be too many" in done.log


@pytest.mark.parametrize("has_interval", [True, False])
def test_a_backfill_records_each_day(march: Emulator, warehouse: SqlDatabase, has_interval: bool) -> None:
    """As the page says: two days are read again, and the runs end a day later."""
    for number in range(1, 8):
        moment = at(day(number))
        interval = {"data_interval_start": at(day(number - 1)) if has_interval else moment}
        context: Any = {"dag_run": SimpleNamespace(run_after=moment), "data_interval_end": moment, **interval}
        load_task(STATS, lookback_days=2, start_day=None, end_day=None).execute(context)
    assert {day(number) for number in range(6)} <= {*last_read(warehouse)}


def test_a_load_that_records_no_day_says_so(
    march: Emulator, warehouse: SqlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    for last, is_warned in ((1, True), (2, False)):
        caplog.clear()
        load(0, last)
        assert ("mail_loads records no day of" in caplog.text) is is_warned
