"""Statistics in a real Airflow: days that are backfilled, at once, in reverse or one by one, are those of the service.

`MAIL_BACKFILL_DAYS=90` makes the backfill a quarter of a year long (at most 100 days).
"""

from __future__ import annotations

import datetime
import os
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from psycopg import sql
from psycopg.rows import dict_row

from mail_emulator import Emulator
from tests.real.airflow.test_main_job import COUNTS
from tests.support.airflow import RunningAirflow
from tests.support.one_airflow import ON_SQLITE, PARALLELISM
from tests.support.postgres import Database

DAY = datetime.timedelta(days=1)
BACKFILL_DAYS = int(os.environ.get("MAIL_BACKFILL_DAYS", "6"))
EUROPE_CHANGES, AMERICA_CHANGES = datetime.date(2024, 3, 31), datetime.date(2024, 11, 3)
FIRST = EUROPE_CHANGES - BACKFILL_DAYS // 2 * DAY
LAST = FIRST + (BACKFILL_DAYS - 1) * DAY
BACKFILLS = {
    "utc": ("UTC", FIRST, LAST, -2, 0),
    "berlin": ("Europe/Berlin", EUROPE_CHANGES - DAY, EUROPE_CHANGES + DAY, -1, 0),
    "new_york": ("America/New_York", AMERICA_CHANGES - DAY, AMERICA_CHANGES + DAY, 0, 1),
}
"""The zones of the DAGs; their first and last day; and how many days away the same is in UTC.

Two days are read again in the first, and local days are parts of two days in the others. The second is backfilled in
reverse; the runs of the third depend on the past.
"""

ORDER = {"berlin": ["--run-backwards"], "new_york": ["--reprocess-behavior", "completed"]}
"""Options of the backfills; Airflow demands the second where tasks depend on the past."""


@pytest.fixture(scope="module")
def service(emulator: Emulator) -> Emulator:
    """Mail of each day, different from that of every other, and campaigns at its ends; on more days than are read."""
    emulator.clock.freeze(datetime.datetime(2024, 12, 1, tzinfo=datetime.UTC))
    days = days_of(min(FIRST, EUROPE_CHANGES) - 5 * DAY, max(LAST, EUROPE_CHANGES) + 5 * DAY)
    for number, day in enumerate([*days, *days_of(AMERICA_CHANGES - 5 * DAY, AMERICA_CHANGES + 5 * DAY)]):
        counts = {"openCount": 5 + number, "clickCount": number, "bounceCount": number % 3}
        emulator.set_transactional_day(day, sentCount=day.toordinal() % 1000, **counts)
        for hour, minute in ((0, 0), (1, 30), (12, 0), (22, 30), (23, 59)):
            moment = datetime.datetime.combine(day, datetime.time(hour, minute), datetime.UTC)
            emulator.add_campaign(f"{moment}", send_date=moment, sent=1000 + 10 * number + hour)
    return emulator


def days_of(first: datetime.date, last: datetime.date) -> list[datetime.date]:
    """Both ends included."""
    return [first + number * DAY for number in range((last - first).days + 1)]


def stored(warehouse: Database, table: str) -> list[dict[str, Any]]:
    with warehouse.connect() as connection:
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        return connection.cursor(row_factory=dict_row).execute(query).fetchall()


@pytest.mark.skipif(ON_SQLITE, reason="Airflow's own command finds the file locked by the scheduler")
@pytest.mark.timeout(900 + 10 * BACKFILL_DAYS)
def test_a_backfill_loads_each_day_once(airflow: RunningAirflow, service: Emulator, warehouse: Database) -> None:
    for name, (zone, first, last, _, _) in BACKFILLS.items():
        ends = (datetime.datetime.combine(day, datetime.time(), ZoneInfo(zone)).isoformat() for day in (first, last))
        airflow.unpause(f"daily_{name}")
        limits = ("--max-active-runs", str(PARALLELISM), "--from-date", next(ends), "--to-date", next(ends))
        airflow.run_command("backfill", "create", "--dag-id", f"daily_{name}", *limits, *ORDER.get(name, ()))
    for name, (_, first, last, _, _) in BACKFILLS.items():
        runs = airflow.api.runs(f"daily_{name}")
        assert [run["run_type"] for run in runs] == ["backfill"] * len(days_of(first, last))
        assert {airflow.wait_for_run(f"daily_{name}", run["dag_run_id"]) for run in runs} == {"success"}

    for name, (_, first, last, before, after) in BACKFILLS.items():
        days = days_of(first + before * DAY, last + after * DAY)
        rows = stored(warehouse, f"{name}_campaigns")
        assert {row["mail_name"]: {ours: row[ours] for ours in COUNTS} for row in rows} == {
            campaign["mailName"]: {ours: campaign["mailStats"][theirs] for ours, theirs in COUNTS.items()}
            for campaign in service.campaigns()
            if datetime.datetime.fromisoformat(campaign["sendDate"]).date() in days
        }
        rows = stored(warehouse, f"{name}_days")
        assert {row["stats_date"]: row["sent_count"] for row in rows} == {day: day.toordinal() % 1000 for day in days}
