"""Whatever happens to the loads of a table, it is what the newest whole reading of the service said."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from airflow_provider_mail.warehouse.dialects.staged import Staged
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from airflow_provider_mail.warehouse.request import LOADS, Between, Coverage, MarkGone, RemovalRule
from airflow_provider_mail.warehouse.tables.resources import CONTACTS, contacts_history
from tests.support.sampling import EVERYTHING, examples
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    ALL,
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)
from tests.warehouse.lists import contact, list_of, recorded, stays
from tests.warehouse.tables import MARKED, NOON, thing

COUNT, DAYS = 14, 3
"""So many rows that the fraction counts, on so many days."""
SECOND = datetime.timedelta(seconds=1)
Rows = dict[int, int]
"""Numbers of rows, and the version of each."""


class Lost(Exception):
    """The service fails among the rows."""


class Killed(BaseException):
    """The process ends before the commit."""


LAST_STEP = "_check_removal"
"""What a load does last, when all rows are written."""


@dataclass(frozen=True)
class Reading:
    """What the service had on some days, at one time: all of them, or one row alone."""

    at: datetime.datetime
    days: range
    rows: Rows
    is_whole: bool = True
    short: frozenset[int] = frozenset()
    """Rows that the first response lacks; the second one has them."""

    @property
    def covers(self) -> Coverage:
        dates = [NOON.date() + datetime.timedelta(day) for day in self.days]
        parts = {f"day {day}": {"account": "a", "day": date} for day, date in zip(self.days, dates, strict=True)}
        return Coverage("a", self.at, parts, {"account": "a", "day": Between(dates[0], dates[-1])})


@dataclass
class Model:
    """Of each row its version, when it was read last, and since when it is gone; of each day when it was read last.

    A reading is ignored for days that were read later.

    :param deletes: whether a row that is gone is deleted.
    """

    deletes: bool
    rows: dict[int, tuple[int, datetime.datetime, datetime.datetime | None]] = field(default_factory=dict)
    days: dict[int, datetime.datetime] = field(default_factory=dict)

    def living(self, days: range = range(DAYS)) -> Rows:
        return {
            number: version
            for number, (version, _, gone) in self.rows.items()
            if gone is None and number % DAYS in days
        }

    def load(self, reading: Reading, rows: Rows, *, is_recorded: bool) -> None:
        late = {day for day, moment in self.days.items() if moment > reading.at}
        days = set(reading.days) - (late if reading.is_whole else set())
        for number, version in rows.items():
            _, seen, gone = self.rows.get(number, (0, reading.at, None))
            if number % DAYS in days and (gone or seen) <= reading.at:
                self.rows[number] = version, reading.at, None
        for number, (version, seen, gone) in [*self.rows.items()] if reading.is_whole else []:
            if number % DAYS in days and number not in rows and gone is None and seen <= reading.at:
                self.rows[number] = version, seen, reading.at
        if self.deletes:
            self.rows = {number: row for number, row in self.rows.items() if row[2] is None}
        if is_recorded:
            self.days |= {day: reading.at for day in reading.days if self.days.get(day, NOON) < reading.at}


def exceeds(before: int, after: int, *, allow_empty: bool, max_fraction: float) -> bool:
    """Whether so many rows may not be removed."""
    return (before >= 10 and (before - after) / before > max_fraction) if after else (before > 0 and not allow_empty)


NUMBERS = st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=COUNT, unique=True)
WINDOW = st.tuples(st.integers(0, DAYS - 1), st.integers(0, DAYS - 1)).map(sorted)
SHORT = st.just(frozenset()) | st.frozensets(st.integers(0, COUNT - 1))
PERMISSION = st.fixed_dictionaries({"allow_empty": st.booleans(), "max_fraction": st.sampled_from([0.5, 0.5, 1.0])})


class Loading(RuleBasedStateMachine):
    """One table of an account, in an empty database."""

    deletes = False

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__()
        self.warehouse = warehouse
        self.now = NOON
        self.service: Rows = dict.fromkeys(range(COUNT), 0)
        self.model = Model(self.deletes)
        self.held: list[Reading] = []
        self.readings: dict[datetime.datetime, Rows] = {}
        """All that the history is made of."""

    # What the service does

    @rule(numbers=NUMBERS)
    def change(self, numbers: list[int]) -> None:
        """Rows appear, or change: a version is never there again."""
        self.service |= dict.fromkeys(numbers, int((self.now - NOON).total_seconds()))
        self.now += SECOND

    @rule(numbers=NUMBERS)
    def disappear(self, numbers: list[int]) -> None:
        self.gone = {number: self.service.pop(number) for number in numbers if number in self.service}

    @rule()
    def come_back(self) -> None:
        self.service = {**getattr(self, "gone", {}), **self.service}

    def read(self, window: list[int], short: frozenset[int] = frozenset(), only: int | None = None) -> Reading:
        self.now += SECOND
        days = range(DAYS) if self.deletes else range(window[0], window[1] + 1)
        rows = {number: version for number, version in self.service.items() if number % DAYS in days}
        if only is not None and not self.deletes:
            rows = {number: version for number, version in rows.items() if number == only}
            return Reading(self.now, days, rows, is_whole=False)
        return Reading(self.now, days, dict(sorted(rows.items())), short=short)

    # What happens to loads

    @rule(window=WINDOW, short=SHORT, permission=PERMISSION, times=st.integers(1, 2))
    def load(self, window: list[int], short: frozenset[int], permission: Any, times: int) -> None:
        reading = self.read(window, short)
        for _ in range(times):
            self._load(reading, permission)

    @rule(window=WINDOW, only=st.integers(0, COUNT - 1))
    def load_one(self, window: list[int], only: int) -> None:
        self._load(self.read(window, only=only), {})

    @rule(window=WINDOW, short=SHORT, only=st.none() | st.none() | st.integers(0, COUNT - 1))
    def hold(self, window: list[int], short: frozenset[int], only: int | None) -> None:
        self.held.append(self.read(window, short, only))

    @rule(number=st.integers(0, 9), permission=PERMISSION)
    def load_late(self, number: int, permission: Any) -> None:
        if self.held:
            self._load(self.held.pop(number % len(self.held)), permission)

    @rule(windows=st.tuples(WINDOW, WINDOW), short=SHORT, permission=PERMISSION, is_older=st.booleans())
    def two_at_once(self, windows: Any, short: frozenset[int], permission: Any, is_older: bool) -> None:
        """The second load begins and ends while the rows of the first arrive, from either response."""
        readings = [self.read(windows[0], short), self.read(windows[1])]
        first, second = readings if is_older else reversed(readings)
        self._load(first, permission, meanwhile=lambda: self._load(second, permission))

    @rule(window=WINDOW, end=st.sampled_from([Lost, Killed]), after=st.integers(0, COUNT))
    def fail(self, window: list[int], end: Any, after: int) -> None:
        reading = self.read(window)

        def rows() -> Iterator[tuple[Any, ...]]:
            yield from self._rows(reading, [*reading.rows][:after] if end is Lost else reading.rows)
            if end is Lost:
                raise Lost

        with (
            pytest.raises(end),
            patch.object(Staged, LAST_STEP, side_effect=Killed) if end is Killed else nullcontext(),
        ):
            self._put(reading, rows(), None)

    # How the load is made and compared

    def _load(self, reading: Reading, permission: dict[str, Any], meanwhile: Callable[[], None] | None = None) -> None:
        first = {number: version for number, version in reading.rows.items() if number not in reading.short}
        again: list[bool] = []

        def rows(numbers: Rows, *, is_first: bool) -> Iterator[tuple[Any, ...]]:
            if meanwhile and is_first == (reading.at.second % 2 == 0 or not self.model.living(reading.days)):
                meanwhile()
            yield from self._rows(reading, numbers)

        def read_again() -> Iterator[tuple[Any, ...]]:
            again.append(True)
            yield from rows({n: reading.rows[n] for n in reading.rows if n not in first}, is_first=False)

        limit, is_loaded = None, True
        if permission:
            limit = RemovalRule(**permission, read_again=read_again)
        try:
            self._put(reading, rows(first, is_first=True), limit)
        except UnconfirmedError:
            is_loaded = False
        read = reading.rows if again else first
        after = copy.deepcopy(self.model)
        is_recorded = reading.is_whole and bool(read or permission.get("allow_empty", True))
        after.load(reading, read, is_recorded=is_recorded)
        if permission and again:
            sizes = [len(model.living(reading.days)) for model in (self.model, after)]
            forbidden = exceeds(*sizes, **permission)
            if self._has_history and reading.at not in self.readings:
                before = [rows for moment, rows in sorted(self.readings.items()) if moment < reading.at]
                forbidden = forbidden or exceeds(len(before[-1]) if before else 0, len(read), **permission)
            assert is_loaded != forbidden
        else:  # one response removes nothing, where there is a rule
            assert is_loaded
            assert not permission or self.model.living().keys() <= after.living().keys()
        if is_loaded:
            self.model = after
            if is_recorded:
                self.readings.setdefault(reading.at, read)

    _has_history = False

    def _rows(self, reading: Reading, numbers: Any) -> Iterator[tuple[Any, ...]]:
        for number in numbers:
            day = NOON.date() + datetime.timedelta(days=number % DAYS)
            yield thing(MARKED, number, name=str(reading.rows[number]), day=day, at=reading.at)

    def _put(self, reading: Reading, rows: Iterator[Any], limit: RemovalRule | None) -> None:
        if not reading.is_whole:
            self.warehouse.load(MARKED, rows)
            return
        covers = reading.covers
        gone = MarkGone(reading.at, lambda: [covers.whole])
        self.warehouse.load(MARKED, rows, covers=covers, mark_gone=gone, removal=limit)

    @invariant()
    def is_as_read(self) -> None:
        found = self.warehouse.rows(MARKED)
        assert {row[1]: (row[2], row[-1]) for row in found} == {
            number: (str(version), gone) for number, (version, _, gone) in self.model.rows.items()
        }
        assert all(row[-2] <= self.model.rows[row[1]][1] for row in found)
        moments = {row[3]: row[4] for row in self.warehouse.rows(LOADS, "mail_loads")}
        assert moments == {f"day {day}": moment for day, moment in self.model.days.items()}

    def teardown(self) -> None:
        """What is loaded last is what the service says."""
        self._load(self.read([0, DAYS - 1]), {"allow_empty": True, "max_fraction": 1.0})
        self.is_as_read()
        assert self.model.living() == self.service


class ListLoading(Loading):
    """A list of contacts, with its history."""

    deletes = True
    _has_history = True

    def _rows(self, reading: Reading, numbers: Any) -> Iterator[tuple[Any, ...]]:
        for number in numbers:
            yield contact(list_of("a"), number, reading.at, str(reading.rows[number]))

    def _put(self, reading: Reading, rows: Iterator[Any], limit: RemovalRule | None) -> None:
        where = list_of("a")
        covers = Coverage.one("news", where, mail_conn_id="a", observed_at=reading.at)
        history = contacts_history("contacts_history", where, reading.at, "news")
        options: dict[str, Any] = {"replace_where": where, "covers": covers, "removal": limit, "history": history}
        self.warehouse.load(CONTACTS, rows, "contacts", **options)

    @invariant()
    def is_as_read(self) -> None:
        found = {row[3]: row[5] for row in self.warehouse.rows(CONTACTS, "contacts")}
        assert found == {f"c{number:02}": str(version) for number, version in self.model.living().items()}
        moments = {row[4] for row in self.warehouse.rows(LOADS, "mail_loads")}
        assert moments == set(self.model.days.values())
        assert recorded(self.warehouse) == stays(self.readings)


def in_empty_tables(machine: type[Loading], warehouse: Warehouse) -> Loading:
    for table in (*TABLES, "mail_loads"):
        with suppress(Exception):  # it is not there yet
            warehouse.execute(f"DELETE FROM {table}")
    return machine(warehouse)


def create_tables(machine: Loading) -> None:
    machine._put(machine.read([0, DAYS - 1]), iter(()), None)


EXAMPLES = {"sqlite": (25, 25), "psycopg3": (3, 3), "psycopg2": (0, 2)}
"""How many of each machine are tried; of databases that are loaded in the same way, most with the quicker one."""
TABLES = ("things", "contacts", "contacts_history", "contacts_history_readings")


@pytest.mark.parametrize("kind", ALL)
def test_a_table_is_what_the_newest_whole_reading_said(kind: str, make_warehouse: Callable[..., Warehouse]) -> None:  # noqa: F811
    warehouse = make_warehouse(kind)
    for machine, count in zip((Loading, ListLoading), EXAMPLES.get(kind, (2, 2)), strict=True):
        if number := examples(count or EVERYTHING):
            create_tables(machine(warehouse))
            options = settings(max_examples=number, stateful_step_count=12)
            run_state_machine_as_test(lambda machine=machine: in_empty_tables(machine, warehouse), settings=options)


@pytest.mark.parametrize("machine", [Loading, ListLoading])
def test_older_readings_that_come_late(
    machine: type[Loading],
    make_warehouse: Callable[..., Warehouse],  # noqa: F811
) -> None:
    """They split the stay of what they lack, and bring nothing back that is gone."""
    warehouse = make_warehouse("sqlite")
    create_tables(machine(warehouse))
    table = in_empty_tables(machine, warehouse)
    everything, short, permission = [0, DAYS - 1], frozenset[int](), {"allow_empty": True, "max_fraction": 1.0}
    table.load(everything, short, permission, 1)

    table.disappear([3])
    table.hold(everything, short, None)
    table.come_back()
    table.load(everything, short, permission, 1)
    table.load_late(0, permission)
    table.is_as_read()

    table.hold(everything, short, 3)
    table.disappear([3])
    table.load(everything, short, permission, 1)
    table.load_late(0, {})
    table.is_as_read()
    table.teardown()
