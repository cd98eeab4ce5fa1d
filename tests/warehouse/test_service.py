"""Whatever happens to the loads, the table ends up saying what the service says."""

from __future__ import annotations

import datetime
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.coverage import LOADS
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Coverage
from airflow_provider_mail.warehouse.table import BIGINT, TIMESTAMP, Column, Table, text
from tests.support.mariadb import OTHERS
from tests.support.processes import FORK, PATIENCE, fork
from tests.support.sampling import EVERYTHING, examples
from tests.warehouse.conftest import ALL, Warehouse
from tests.warehouse.standins import SAMPLE, FilesWarehouse, loads_of

pytestmark = pytest.mark.not_unit

FIRST = datetime.date(2026, 3, 1)
DAYS = 4
CAMPAIGNS = 8
SECOND = datetime.timedelta(seconds=1)

CAMPAIGN_TABLE = Table(
    comment="Campaigns",
    key=("mail_conn_id", "mail_name"),
    columns=(
        Column("mail_conn_id", text(50), "Account"),
        Column("mail_name", text(50), "Name"),
        Column("mail_send_date", TIMESTAMP, "When it was sent"),
        Column("open_count", BIGINT, "Opens"),
        Column("observed_at", TIMESTAMP, "When the service was seen to say so", observed=True),
    ),
)

Rows = list[tuple[Any, ...]]


class Lost(Exception):
    """The service went away in the middle of the rows."""


@dataclass(frozen=True)
class Reading:
    """What the service said of some days, and when; of all campaigns of those, or of one of them only."""

    first: int
    last: int
    only: int | None
    observed_at: datetime.datetime
    rows: Rows

    @property
    def covers(self) -> Coverage | None:
        """The days that it knows whole."""
        if self.only is not None:
            return None
        first, last = (FIRST + datetime.timedelta(days=day) for day in (self.first, self.last))
        return Coverage.days(
            CAMPAIGN_TABLE["mail_send_date"], first, last, mail_conn_id="a", observed_at=self.observed_at
        )


@dataclass
class Service:
    """Campaigns on some days, whose counts grow; two campaigns on each day."""

    now: datetime.datetime = datetime.datetime(2026, 4, 1, tzinfo=datetime.UTC)
    counts: dict[int, int] = field(default_factory=dict)

    def grow(self, campaign: int) -> None:
        """Somebody opens it; the first time it is sent."""
        self.counts[campaign] = self.counts.get(campaign, -1) + 1

    def read(self, first: int, last: int, only: int | None = None) -> Reading:
        """Ask for days, both included."""
        self.now += SECOND
        rows = [
            ("a", f"campaign {number}", self.sent_at(number), count, self.now)
            for number, count in sorted(self.counts.items())
            if first <= number % DAYS <= last and only in (None, number)
        ]
        return Reading(first, last, only, self.now, rows)

    def sent_at(self, campaign: int) -> datetime.datetime:
        day = FIRST + datetime.timedelta(days=campaign % DAYS)
        return datetime.datetime.combine(day, datetime.time(campaign), datetime.UTC)


class Expected:
    """Of each campaign what was observed last, by a load that was not lost."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[datetime.datetime, tuple[Any, ...]]] = {}
        self._days: dict[str, datetime.datetime] = {}

    def add(self, reading: Reading) -> None:
        for row in reading.rows:
            name, values = row[1], row[:-1]
            if name not in self._seen or self._seen[name][0] <= reading.observed_at:
                self._seen[name] = reading.observed_at, values
        for part in reading.covers.parts if reading.covers else ():
            self._days[part] = max(self._days.get(part, reading.observed_at), reading.observed_at)

    def check(self, warehouse: Warehouse) -> None:
        """Compare with the table, and with what it says of when it was observed."""
        found = warehouse.rows(CAMPAIGN_TABLE)
        assert [row[:-1] for row in found] == [values for _, (_, values) in sorted(self._seen.items())]
        for row in found:
            assert row[-1] <= self._seen[row[1]][0]
        if self._days:
            assert warehouse.rows(LOADS, "mail_loads") == [
                ("things", "a", part, at) for part, at in sorted(self._days.items())
            ]


def load(warehouse: Warehouse, reading: Reading, rows: Any = None) -> None:
    warehouse.load(CAMPAIGN_TABLE, reading.rows if rows is None else rows, covers=reading.covers)


def cut_off(warehouse: Warehouse, reading: Reading, after: int) -> None:
    """A load whose rows end in an error."""

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from reading.rows[:after]
        raise Lost

    with pytest.raises(Lost):
        load(warehouse, reading, rows())


def disconnected(warehouse: Warehouse, reading: Reading, after: int) -> None:
    """A load whose connection is ended by the server in the middle of the rows."""
    if not (warehouse.is_postgres or warehouse.is_mysql) or isinstance(warehouse, FilesWarehouse):
        cut_off(warehouse, reading, after)  # there is no server, or no connection yet
        return

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from reading.rows[:after]
        if warehouse.is_mysql:
            for (number,) in warehouse.query(OTHERS):
                with suppress(Exception):  # it may have gone by itself
                    warehouse.execute(f"KILL {number}")
        else:
            warehouse.query(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
                "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        yield from reading.rows[after:]

    with pytest.raises(WarehouseError):
        load(warehouse.another(), reading, rows())


def at_once(warehouse: Warehouse, readings: list[Reading]) -> None:
    start = threading.Barrier(len(readings))

    def run(reading: Reading) -> None:
        mine = warehouse.another()
        start.wait(PATIENCE)
        load(mine, reading)

    with ThreadPoolExecutor(len(readings)) as pool:
        list(pool.map(run, readings))


WINDOW = st.tuples(st.integers(0, DAYS - 1), st.integers(0, DAYS - 1)).map(sorted)
ONLY = st.none() | st.none() | st.integers(0, CAMPAIGNS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.lists(st.integers(0, CAMPAIGNS - 1), min_size=1, max_size=5)),
        st.tuples(st.just("load"), WINDOW, ONLY),
        st.tuples(st.just("repeat"), WINDOW, ONLY),
        st.tuples(st.just("read"), WINDOW, ONLY),  # to be loaded later, when others have been
        st.tuples(st.just("two at once"), WINDOW, WINDOW, st.booleans()),
        st.tuples(st.sampled_from([cut_off, disconnected]), WINDOW, st.integers(0, 4)),
    ),
    min_size=2,
    max_size=12,
)
SEQUENCES = {
    "sqlite": 30,
    "portable_sqlite": 8,
    "psycopg3": 10,
    "psycopg2": 3,
    "mysql": 6,
    "duckdb": 2,
    "databricks": 2,
}
"""How many are tried; of databases that are loaded in the same way, most with the quicker one."""


@pytest.mark.parametrize("kind", [*ALL, *SAMPLE])
def test_any_sequence_of_loads(kind: str, make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse(kind)
    warehouse.load(CAMPAIGN_TABLE, [], covers=Service().read(0, 0).covers)

    @given(steps=STEPS, late=st.randoms(use_true_random=False))
    @settings(max_examples=examples(SEQUENCES.get(kind, 4)))
    def check(steps: list[Any], late: random.Random) -> None:
        warehouse.execute("DELETE FROM things", *(f"DELETE FROM {loads}" for loads in loads_of(warehouse)))
        run(warehouse, steps, late)

    check()


def run(warehouse: Warehouse, steps: list[Any], late: random.Random) -> None:
    service, expected = Service(), Expected()
    waiting: list[Reading] = []
    for what, *details in [*steps, ("end",)]:
        if what == "grow":
            for campaign in details[0]:
                service.grow(campaign)
        elif what in ("load", "repeat", "read"):
            (first, last), only = details
            reading = service.read(first, last, only)
            if what == "read":
                waiting.append(reading)
                continue
            for _ in range(2 if what == "repeat" else 1):
                load(warehouse, reading)
            expected.add(reading)
        elif what == "two at once":
            *windows, quick = details
            readings = [service.read(*window) for window in windows]
            if not quick:
                service.grow(0)
            at_once(warehouse, readings)
            for reading in readings:
                expected.add(reading)
        elif what != "end":
            (first, last), after = details
            what(warehouse, service.read(first, last), after)
        late.shuffle(waiting)
        while waiting and (what == "end" or late.random() < 0.3):
            reading = waiting.pop()
            load(warehouse, reading)
            expected.add(reading)
    expected.check(warehouse)
    # What is loaded after the last change is what the service says.
    whole = service.read(0, DAYS - 1)
    load(warehouse, whole)
    assert [row[:-1] for row in warehouse.rows(CAMPAIGN_TABLE)] == [row[:-1] for row in whole.rows]


@pytest.mark.parametrize("kind", ALL)
def test_killed_processes(kind: str, make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse, service, chance = make_warehouse(kind), Service(), random.Random(kind)
    for campaign in range(CAMPAIGNS):
        service.grow(campaign)
    load(warehouse, service.read(0, DAYS - 1))
    for _ in range(4 if EVERYTHING else 2):
        lost = [service.read(0, DAYS - 1)]
        for campaign in range(CAMPAIGNS):
            service.grow(campaign)
        lost.append(service.read(0, DAYS - 1))
        kill_among(warehouse, lost, chance.choice([0, 3, CAMPAIGNS, CAMPAIGNS + 5]), chance.random() / 20)
        found = [row[3] for row in warehouse.rows(CAMPAIGN_TABLE)]
        assert found in ([row[3] for row in reading.rows] for reading in lost)  # one of them whole
        # One day now, and all of them: neither waits for the dead, and neither is overwritten by what they left.
        day = service.read(1, 1)
        load(warehouse, day)
        assert {row[1]: row[3] for row in day.rows}.items() <= {
            row[1]: row[3] for row in warehouse.rows(CAMPAIGN_TABLE)
        }.items()
        service.grow(0)
        whole = service.read(0, DAYS - 1)
        load(warehouse, whole)
        assert [row[:-1] for row in warehouse.rows(CAMPAIGN_TABLE)] == [row[:-1] for row in whole.rows]


def kill_among(warehouse: Warehouse, readings: list[Reading], after: int, wait: float) -> None:
    """Load in another process, and kill that some moments after it has come to this many rows."""
    reached = FORK.Event()

    def work() -> None:
        count = 0
        for reading in readings:

            def rows(reading: Reading = reading) -> Iterator[tuple[Any, ...]]:
                nonlocal count
                for row in reading.rows:
                    count += 1
                    if count > after:
                        reached.set()
                    yield row

            load(warehouse.another(), reading, rows())
        threading.Event().wait(60)

    process = fork(work)
    try:
        assert reached.wait(PATIENCE)
        threading.Event().wait(wait)
    finally:
        assert process.pid
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL
