"""Statistics in a real Airflow: backfilled days are one load, a day again is the same day, a wait holds no worker.

`MAIL_BACKFILL_DAYS=90` makes the backfill a quarter of a year long (at most 100 days).
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection, Iterator, Mapping
from zoneinfo import ZoneInfo

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.warehouse.table import LOAD_COLUMNS
from tests.real.airflow.statistics import COUNTS, Row, stored
from tests.support.airflow import RunningAirflow
from tests.support.one_airflow import PARALLELISM
from tests.support.postgres import Database
from tests.support.processes import wait_until

CAMPAIGNS, TRANSACTIONAL = "campaign/mail/stats/get", "transactional/mail/stats/get"
DAY, SECOND = datetime.timedelta(days=1), datetime.timedelta(seconds=1)
BACKFILL_DAYS = int(os.environ.get("MAIL_BACKFILL_DAYS", "6"))
AT_ONCE = PARALLELISM
EUROPE_CHANGES, AMERICA_CHANGES = datetime.date(2024, 3, 31), datetime.date(2024, 11, 3)
DAY_COUNTS = {
    "sent_count": "sentCount",
    "open_count": "openCount",
    "click_count": "clickCount",
    "bounce_count": "bounceCount",
    "unsent_count": "unsentCount",
    "unsubscribe_count": "unsubscribeCount",
}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.add_sender("news@example.com")
        yield emulator
        assert emulator.crashes() == []


@pytest.fixture(scope="module", autouse=True)
def connections(airflow: RunningAirflow, emulator: Emulator, warehouse: Database) -> None:
    airflow.set_mail_connection("mail_default", emulator)
    airflow.set_connection("warehouse", warehouse.airflow_connection)


# --- what the service and the warehouse hold ---


def days_of(first: datetime.date, last: datetime.date) -> list[datetime.date]:
    """Both ends included."""
    return [first + number * DAY for number in range((last - first).days + 1)]


def fill(emulator: Emulator, prefix: str, first: datetime.date, last: datetime.date) -> None:
    """Mail of each day, different from that of every other, and campaigns at the ends of each."""
    for number, day in enumerate(days_of(first, last)):
        counts = {"openCount": 5 + number, "clickCount": number, "bounceCount": number % 3, "unsentCount": number % 4}
        emulator.set_transactional_day(day, sentCount=100 + number, **counts)
        for hour, minute in ((0, 0), (1, 30), (12, 0), (22, 30), (23, 59)):
            moment = datetime.datetime(day.year, day.month, day.day, hour, minute, tzinfo=datetime.UTC)
            name = f"{prefix} {moment:%Y-%m-%d %H:%M}"
            emulator.add_campaign(name, send_date=moment, sent=1000 + 10 * number + hour)


def campaigns_in_service(emulator: Emulator, first: datetime.date, last: datetime.date) -> dict[str, Row]:
    """The counts of the campaigns that were sent in these days, as the columns of the table call them."""
    return {
        campaign["mailName"]: {ours: campaign["mailStats"][theirs] for ours, theirs in COUNTS.items()}
        for campaign in emulator.campaigns()
        if first <= datetime.datetime.fromisoformat(campaign["sendDate"]).astimezone(datetime.UTC).date() <= last
    }


def freeze_where_no_count_grows(emulator: Emulator, first: datetime.date, last: datetime.date) -> None:
    """Stop the service's clock where one second more changes no campaign's counts."""
    moment, counts = datetime.datetime.now(datetime.UTC), None
    while True:
        emulator.clock.freeze(moment)
        then, counts = counts, campaigns_in_service(emulator, first, last)
        if counts == then:
            emulator.clock.freeze(moment - SECOND)
            return
        moment += SECOND


def without_time(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows but for when the service was asked, and by which run they were written."""
    of_a_run = {"observed_at", *(column.name for column in LOAD_COLUMNS)}
    return {key: {name: row[name] for name in row if name not in of_a_run} for key, row in rows.items()}


def only(names: Collection[str], rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows with these columns alone."""
    return {key: {name: row[name] for name in names} for key, row in rows.items()}


def asked(warehouse: Database, table: str) -> dict[str, datetime.datetime]:
    """When each day was last read whole."""
    with warehouse.connect() as connection:
        return dict(connection.execute("SELECT part, observed_at FROM mail_loads WHERE table_name = %s", (table,)))


# --- what people do ---


def backfill(airflow: RunningAirflow, dag_id: str, first: datetime.datetime, last: datetime.datetime) -> list[str]:
    """`airflow backfill create`; the ids of the runs."""
    airflow.unpause(dag_id)
    airflow.run_command(
        *("backfill", "create", "--dag-id", dag_id, "--max-active-runs", str(AT_ONCE)),
        *("--from-date", first.isoformat(), "--to-date", last.isoformat()),
    )
    return [run["dag_run_id"] for run in airflow.api.runs(dag_id)]


def most_at_once(runs: Collection[Row]) -> int:
    """So many of them were under way at the same time."""
    edges = sorted([(run["start_date"], 1) for run in runs] + [(run["end_date"], -1) for run in runs])
    under_way = most = 0
    for _, change in edges:
        under_way += change
        most = max(most, under_way)
    return most


def load_whole(airflow: RunningAirflow, tables: str, first: datetime.date, last: datetime.date) -> tuple[str, str]:
    """One load of all these days; the run and how it ended."""
    conf = {"first": first.isoformat(), "last": last.isoformat(), "tables": tables}
    run_id = airflow.start_run("whole_range", conf=conf)
    return run_id, airflow.wait_for_run("whole_range", run_id)


def clear(airflow: RunningAirflow, dag_id: str, run_id: str) -> None:
    """Have all tasks of a run done again."""
    body = {"dag_run_id": run_id, "dry_run": False, "only_failed": False, "reset_dag_runs": True}
    airflow.api.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)


@pytest.mark.timeout(900 + 10 * BACKFILL_DAYS)
def test_a_backfill_is_one_load_of_the_whole_range(
    airflow: RunningAirflow, emulator: Emulator, warehouse: Database
) -> None:
    emulator.clock.freeze(datetime.datetime(2024, 12, 1, tzinfo=datetime.UTC))
    first = EUROPE_CHANGES - BACKFILL_DAYS // 2 * DAY
    last = first + (BACKFILL_DAYS - 1) * DAY
    # Mail on more days than are asked for.
    fill(emulator, "spring", min(first, EUROPE_CHANGES) - 5 * DAY, max(last, EUROPE_CHANGES) + 5 * DAY)
    fill(emulator, "autumn", AMERICA_CHANGES - 5 * DAY, AMERICA_CHANGES + 5 * DAY)

    # Days of the DAG's own zone, the days when the clocks change in the middle.
    backfills = {
        "utc": ("UTC", first, last),
        "berlin": ("Europe/Berlin", EUROPE_CHANGES - DAY, EUROPE_CHANGES + DAY),
        "new_york": ("America/New_York", AMERICA_CHANGES - DAY, AMERICA_CHANGES + DAY),
    }
    runs = {}
    for name, (zone, first_run, last_run) in backfills.items():
        ends = [datetime.datetime.combine(day, datetime.time(), ZoneInfo(zone)) for day in (first_run, last_run)]
        runs[name] = backfill(airflow, f"daily_{name}", *ends)
        assert len(runs[name]) == (last_run - first_run).days + 1

    for name, run_ids in runs.items():
        for run_id in run_ids:
            assert airflow.wait_for_run(f"daily_{name}", run_id) == "success"
    done = airflow.api.runs("daily_utc")
    assert {run["run_type"] for run in done} == {"backfill"}
    at_once = most_at_once(done)
    assert 1 < at_once <= AT_ONCE
    began, ended = min(run["start_date"] for run in done), max(run["end_date"] for run in done)
    print(f"\n{len(done)} runs from {began} to {ended}, {at_once} at once")

    # The same in UTC: two days are read again in the first, and local days are parts of two days in the others.
    ranges = {
        "utc": (first - 2 * DAY, last),
        "berlin": (EUROPE_CHANGES - 2 * DAY, EUROPE_CHANGES + DAY),
        "new_york": (AMERICA_CHANGES - DAY, AMERICA_CHANGES + 2 * DAY),
    }
    for name, (first_day, last_day) in ranges.items():
        whole = f"whole_{name}"
        assert load_whole(airflow, whole, first_day, last_day)[1] == "success"
        campaigns, days = (without_time(stored(warehouse, f"{name}_{kind}")) for kind in ("campaigns", "days"))
        assert campaigns == without_time(stored(warehouse, f"{whole}_campaigns"))
        assert days == without_time(stored(warehouse, f"{whole}_days"))
        # Both could be wrong in the same way.
        assert only(COUNTS, campaigns) == campaigns_in_service(emulator, first_day, last_day)
        assert len(campaigns) == 5 * len(days)
        assert list(map(str, days_of(first_day, last_day))) == sorted(days)
        assert len({row["sent_count"] for row in days.values()}) == len(days)


def test_a_day_again_changes_nothing_but_when_the_service_was_asked(
    airflow: RunningAirflow, emulator: Emulator, warehouse: Database
) -> None:
    dag_id, tables = "mail_daily_statistics", ("mail_campaign_stats", "mail_transactional_stats")
    emulator.clock.freeze(datetime.datetime.now(datetime.UTC))
    today = emulator.clock.now().date()
    fill(emulator, "daily", today - 5 * DAY, today - DAY)
    freeze_where_no_count_grows(emulator, today - 5 * DAY, today)

    def table_rows() -> list[dict[str, Row]]:
        return [stored(warehouse, table) for table in tables]

    airflow.unpause(dag_id)
    wait_until(lambda: len(airflow.api.runs(dag_id)) >= 2, what="yesterday's run and today's")
    runs = [run["dag_run_id"] for run in airflow.api.runs(dag_id)]
    for run_id in runs:
        assert airflow.wait_for_run(dag_id, run_id) == "success"
    before, asked_before = table_rows(), [asked(warehouse, table) for table in tables]
    assert only(COUNTS, before[0]) == campaigns_in_service(emulator, today - 5 * DAY, today)

    emulator.clock.advance(seconds=1)  # an observation's time is the service's
    clear(airflow, dag_id, runs[-1])
    assert airflow.wait_for_run(dag_id, runs[-1]) == "success"

    again = table_rows()
    assert [without_time(rows) for rows in again] == [without_time(rows) for rows in before]
    for then, rows, table, earlier in zip(before, again, tables, asked_before, strict=True):
        renewed = {day for day, at in asked(warehouse, table).items() if at > earlier[day]}
        assert len(renewed) >= 5
        for key, row in rows.items():
            # Of a day that was read whole nothing is written again; the first and the last may not have been.
            day = row["mail_send_date"].astimezone(datetime.UTC).date() if "mail_name" in row else row["stats_date"]
            kept = then[key]["observed_at"] == row["observed_at"]
            assert kept or (str(day) not in renewed and then[key]["observed_at"] < row["observed_at"])
    for task_id, rows in zip(("campaigns", "transactional"), again, strict=True):
        loaded = airflow.xcom(dag_id, runs[-1], task_id)
        assert (loaded["inserted"], loaded["changed"], loaded["unchanged"]) == (0, 0, loaded["records"])
        assert 0 < loaded["records"] <= len(rows)
        assert airflow.task(dag_id, runs[-1], task_id)["try_number"] == 2

    # Opens came late.
    emulator.clock.advance(hours=12)
    yesterday = str(today - DAY)
    emulator.set_transactional_day(yesterday, sentCount=104, openCount=90)
    clear(airflow, dag_id, runs[-1])
    assert airflow.wait_for_run(dag_id, runs[-1]) == "success"

    campaigns, days = table_rows()
    assert only(COUNTS, campaigns) == campaigns_in_service(emulator, today - 5 * DAY, today)
    assert without_time(campaigns) != without_time(again[0])
    assert airflow.xcom(dag_id, runs[-1], "campaigns")["changed"] > 0
    assert airflow.xcom(dag_id, runs[-1], "transactional")["changed"] == 1
    late = dict.fromkeys(DAY_COUNTS, 0) | {"sent_count": 104, "open_count": 90}
    assert only(DAY_COUNTS, days) == only(DAY_COUNTS, again[1]) | {yesterday: late}


@pytest.mark.ci
def test_a_short_answer_is_a_failed_task_and_the_old_rows(
    airflow: RunningAirflow, emulator: Emulator, warehouse: Database
) -> None:
    first, last = datetime.date(2024, 6, 1), datetime.date(2024, 6, 3)
    emulator.clock.freeze(datetime.datetime(2024, 6, 4, tzinfo=datetime.UTC))
    fill(emulator, "short", first, last)
    assert load_whole(airflow, "short", first, last)[1] == "success"
    before = stored(warehouse, "short_campaigns")

    emulator.clock.advance(days=1)
    fault = emulator.faults.add("short_stats", CAMPAIGNS, count=None, missing=1)
    run_id, end = load_whole(airflow, "short", first, last)
    emulator.faults.remove(fault)

    assert end == "failed"
    assert airflow.task("whole_range", run_id, "campaigns")["state"] == "failed"
    airflow.wait_for_log(
        "whole_range", run_id, "campaigns", "records came for 2024-06-01, the service says there are 5"
    )
    assert stored(warehouse, "short_campaigns") == before

    clear(airflow, "whole_range", run_id)
    assert airflow.wait_for_run("whole_range", run_id) == "success"
    after = stored(warehouse, "short_campaigns")
    assert only(COUNTS, after) == campaigns_in_service(emulator, first, last)
    assert only(COUNTS, after) != only(COUNTS, before)


def test_waiting_for_final_statistics_holds_no_worker(
    airflow: RunningAirflow, emulator: Emulator, warehouse: Database
) -> None:
    dag_id, mail_name = "mail_final_statistics", "not sent yet"
    emulator.clock.freeze(datetime.datetime.now(datetime.UTC))
    run_id = airflow.start_run(dag_id, conf={"mail_name": mail_name})

    # There is nothing to see yet, so it waits for as long as we look at how it waits.
    waiting = airflow.wait_for_task(dag_id, run_id, "final", "deferred")
    assert waiting["pid"]
    slots = airflow.slots()
    assert (slots["running"], slots["queued"], slots["occupied"], slots["deferred"]) == (0, 0, 0, 1)
    wait_until(
        lambda: waiting["pid"] not in {process.pid for process in airflow.components["scheduler"].session()},
        what="end of the worker's process",
    )
    ((classpath, _),) = airflow.triggers()
    assert classpath == "airflow_provider_mail.triggers.stats.MailStatsSettledTrigger"
    looks = emulator.journal.count(CAMPAIGNS)
    wait_until(lambda: emulator.journal.count(CAMPAIGNS) > looks, what="a look by the triggerer")
    assert airflow.task(dag_id, run_id, "final")["state"] == "deferred"
    assert airflow.slots()["occupied"] == 0

    looks = emulator.journal.count(CAMPAIGNS)
    emulator.add_campaign(mail_name, sent=500)
    emulator.set_campaign_stats(mail_name, sentCount=500, openCount=120, clickCount=7, hardBounce=2)
    assert airflow.wait_for_run(dag_id, run_id) == "success"

    # Three observations and the load.
    assert emulator.journal.count(CAMPAIGNS) >= looks + 3 + 1
    ended = airflow.task(dag_id, run_id, "final")
    assert (ended["state"], ended["try_number"]) == ("success", 1)
    final = airflow.xcom(dag_id, run_id, "final")
    counted = campaigns_in_service(emulator, datetime.date.min, datetime.date.max)[mail_name]
    assert final == {"mail_name": mail_name, "mail_send_date": final["mail_send_date"], **counted}
    assert counted["open_count"] == 120
    row = stored(warehouse, "mail_campaign_stats")[mail_name]
    assert {name: row[name] for name in COUNTS} == counted
    assert row["mail_send_date"] == datetime.datetime.fromisoformat(final["mail_send_date"])
    wait_until(lambda: airflow.triggers() == [], what="no trigger is left")
