"""Statistics in a real Airflow: backfilled days are one load.

`MAIL_BACKFILL_DAYS=90` makes the backfill a quarter of a year long (at most 100 days).
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from zoneinfo import ZoneInfo

import pytest

from airflow_provider_mail.warehouse.table import LOAD_COLUMNS
from mail_emulator import Emulator
from tests.real.airflow.statistics import COUNTS, Row, stored
from tests.support.airflow import RunningAirflow
from tests.support.one_airflow import PARALLELISM
from tests.support.postgres import Database

DAY = datetime.timedelta(days=1)
BACKFILL_DAYS = int(os.environ.get("MAIL_BACKFILL_DAYS", "6"))
EUROPE_CHANGES, AMERICA_CHANGES = datetime.date(2024, 3, 31), datetime.date(2024, 11, 3)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.clock.freeze(datetime.datetime(2024, 12, 1, tzinfo=datetime.UTC))
        yield emulator
        assert emulator.crashes() == []


@pytest.fixture(scope="module", autouse=True)
def connections(airflow: RunningAirflow, emulator: Emulator, warehouse: Database) -> None:
    airflow.set_mail_connection("mail_default", emulator)
    airflow.set_connection("warehouse", warehouse.airflow_connection)


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


def without_time(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows without the time of the request, and the run that wrote them."""
    of_a_run = {"observed_at", *(column.name for column in LOAD_COLUMNS)}
    return {key: {name: row[name] for name in row if name not in of_a_run} for key, row in rows.items()}


def backfill(airflow: RunningAirflow, dag_id: str, first: datetime.datetime, last: datetime.datetime) -> None:
    """`airflow backfill create`."""
    airflow.unpause(dag_id)
    airflow.run_command(
        *("backfill", "create", "--dag-id", dag_id, "--max-active-runs", str(PARALLELISM)),
        *("--from-date", first.isoformat(), "--to-date", last.isoformat()),
    )


@pytest.mark.timeout(900 + 10 * BACKFILL_DAYS)
def test_a_backfill_is_one_load_of_the_whole_range(
    airflow: RunningAirflow, emulator: Emulator, warehouse: Database
) -> None:
    first = EUROPE_CHANGES - BACKFILL_DAYS // 2 * DAY
    last = first + (BACKFILL_DAYS - 1) * DAY
    # Mail on more days than are requested.
    fill(emulator, "spring", min(first, EUROPE_CHANGES) - 5 * DAY, max(last, EUROPE_CHANGES) + 5 * DAY)
    fill(emulator, "autumn", AMERICA_CHANGES - 5 * DAY, AMERICA_CHANGES + 5 * DAY)

    # Days of the DAG's own zone, the days when the clocks change in the middle; and the same in UTC: two days are read
    # again in the first, and local days are parts of two days in the others.
    backfills = {
        "utc": ("UTC", (first, last), (first - 2 * DAY, last)),
        "berlin": (
            "Europe/Berlin", (EUROPE_CHANGES - DAY, EUROPE_CHANGES + DAY),
            (EUROPE_CHANGES - 2 * DAY, EUROPE_CHANGES + DAY),
        ),
        "new_york": (
            "America/New_York", (AMERICA_CHANGES - DAY, AMERICA_CHANGES + DAY),
            (AMERICA_CHANGES - DAY, AMERICA_CHANGES + 2 * DAY),
        ),
    }  # fmt: skip
    for name, (zone, days, _) in backfills.items():
        backfill(
            airflow,
            f"daily_{name}",
            *(datetime.datetime.combine(day, datetime.time(), ZoneInfo(zone)) for day in days),
        )
    for name, (_, days, _) in backfills.items():
        runs = airflow.api.runs(f"daily_{name}")
        assert [run["run_type"] for run in runs] == ["backfill"] * len(days_of(*days))
        assert {airflow.wait_for_run(f"daily_{name}", run["dag_run_id"]) for run in runs} == {"success"}

    for name, (_, _, (first_day, last_day)) in backfills.items():
        whole = f"whole_{name}"
        conf = {"first": first_day.isoformat(), "last": last_day.isoformat(), "tables": whole}
        assert airflow.wait_for_run("whole_range", airflow.start_run("whole_range", conf=conf)) == "success"
        campaigns, days = (without_time(stored(warehouse, f"{name}_{kind}")) for kind in ("campaigns", "days"))
        assert campaigns == without_time(stored(warehouse, f"{whole}_campaigns"))
        assert days == without_time(stored(warehouse, f"{whole}_days"))
        # Both could be wrong in the same way.
        counts = {key: {column: row[column] for column in COUNTS} for key, row in campaigns.items()}
        assert counts == campaigns_in_service(emulator, first_day, last_day)
        assert sorted(days) == list(map(str, days_of(first_day, last_day)))
        assert len({row["sent_count"] for row in days.values()}) == len(days)
