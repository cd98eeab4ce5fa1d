"""A load: all rows or none, twice the same as once, in every database; and what is noted of it."""

from __future__ import annotations

import datetime
import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail.warehouse import database, dialects
from airflow_provider_mail.warehouse.database import DIALECTS
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import LOADS, Between, Coverage, LoadResult, MarkGone
from airflow_provider_mail.warehouse.table import (
    JSON,
    LOAD_COLUMNS,
    TEXT,
    TIMESTAMP,
    Column,
    Table,
    TaskRun,
    text,
)
from tests.warehouse.conftest import ALL, COPY, Warehouse, in_each_dialect
from tests.warehouse.tables import LATER, MARKED, NOON, PLAIN, THINGS, TOKYO, thing

AWKWARD = "tab\there, line\nthere, return\rthere, back\\slash, \\N, quote'\", {}, %s, ?, ; -- Ünïcödé 漢字 🎉"


def test_values_come_back_as_they_went_in(warehouse: Warehouse) -> None:
    rows = [
        thing(
            THINGS, -(2**63), account=AWKWARD[:50], name=AWKWARD, size=2**31 - 1, ratio=0.1 + 0.2, good=True,
            day=datetime.date(2024, 2, 29), sold_at=NOON.replace(microsecond=123456),
            extra={"a": [1, 2.5, None, "\\n\n"], "b": {}, "漢": "🎉"},
        ),
        thing(THINGS, 2**63 - 1, account="b", name="", size=0, ratio=-1e300, good=False, extra=[]),
        thing(THINGS, 0, account="c"),
        thing(THINGS, 0, account="d", name="\\N", ratio=3, extra="text", sold_at=NOON.astimezone(TOKYO)),
        thing(THINGS, 0, account="e", name="漢" * 500_000),
    ]  # fmt: skip
    warehouse.load(THINGS, rows)
    assert sorted(warehouse.rows(THINGS)) == sorted(rows)


@in_each_dialect
def test_loading_again_changes_nothing(warehouse: Warehouse, table: Table) -> None:
    """Of several rows with one key the last one counts, also when they are far apart, further than any batch."""
    given = [thing(table, number % 350, name=f"name {number}", extra={"n": number}) for number in range(1000)]
    last = given[650:]
    first, second = warehouse.load(table, iter(given)), warehouse.load(table, reversed(last))
    assert warehouse.rows(table) == sorted(last, key=lambda row: row[1])
    assert first == LoadResult(1000, inserted=350, changed=0, unchanged=0, outdated=0, deleted=0)
    assert second == LoadResult(350, inserted=0, changed=0, unchanged=350, outdated=0, deleted=0)


def test_only_what_says_something_else_counts_as_changed(native: Warehouse) -> None:
    later = LATER + datetime.timedelta(hours=1)
    rows = [thing(THINGS, n, name="old", extra={"a": 1, "b": None}) for n in range(4)]
    native.load(THINGS, [*rows, thing(THINGS, 5, name="new", at=later)])
    again = [
        thing(THINGS, 1, name="old", extra={"b": None, "a": 1}, at=LATER),
        thing(THINGS, 2, name=None, extra={"a": 1, "b": None}, at=LATER),
        thing(THINGS, 5, name="old", at=LATER),
        thing(THINGS, 9, at=LATER),
    ]
    result = native.load(THINGS, again)
    assert result == LoadResult(4, inserted=1, changed=1, unchanged=1, outdated=1, deleted=0)
    # What was seen again was seen later, changed or not.
    assert {row[1]: (row[2], row[-1]) for row in native.rows(THINGS)} == {
        0: ("old", NOON), 1: ("old", LATER), 2: (None, LATER), 3: ("old", NOON), 5: ("new", later), 9: (None, LATER),
    }  # fmt: skip


# A failed load


def failing(after: int, error: BaseException) -> Iterator[tuple[Any, ...]]:
    for number in range(after):
        yield thing(THINGS, number, name="new", at=LATER)
    raise error


def test_when_the_rows_fail_the_old_ones_stay(warehouse: Warehouse) -> None:
    old = [thing(THINGS, number, name="old") for number in range(10)]
    warehouse.load(THINGS, old)
    for error in (RuntimeError("the service went away"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            warehouse.load(THINGS, failing(600, error), replace_where={"account": "a"})
        assert caught.value is error  # unchanged, for the caller to decide
        assert warehouse.rows(THINGS) == old


def test_a_row_of_the_wrong_length(sqlite: Warehouse) -> None:
    with pytest.raises(WarehouseError, match="row 2 has 3 values for 10 columns"):
        sqlite.load(THINGS, [thing(THINGS, 1), ("a", 2, "x")])


@pytest.mark.parametrize(("threshold", "most"), [(700, 20_000), (0, 0)])
def test_garbage_is_collected_less_often_during_a_load(sqlite: Warehouse, threshold: int, most: int) -> None:
    """The threshold of the process comes back: once, after two loads at once."""
    before, during = gc.get_threshold(), []

    def rows() -> Iterator[tuple[Any, ...]]:
        sqlite.another().load(THINGS, [], "others")
        during.append(gc.get_threshold()[0])
        yield from failing(1, RuntimeError())

    gc.set_threshold(threshold)
    try:
        with pytest.raises(RuntimeError):
            sqlite.load(THINGS, rows())
        assert gc.get_threshold()[0] == threshold
    finally:
        gc.set_threshold(*before)
    assert during == [most]


# Replacing a window


@in_each_dialect
def test_a_window_is_replaced(warehouse: Warehouse, table: Table) -> None:
    days = [datetime.date(2026, 3, day) for day in range(1, 6)]
    old = [thing(table, number, name="old", day=day, sold_at=NOON) for number, day in enumerate(days)]
    other = thing(table, 1, account="other", day=days[1], sold_at=LATER)
    warehouse.load(table, [*old, other])
    new = [thing(table, 2, name="new", day=days[2])]
    result = warehouse.load(table, new, replace_where={"account": "a", "day": Between(days[1], days[3])})
    assert warehouse.rows(table) == [old[0], *new, old[4], other]
    assert result.deleted == 2
    warehouse.load(table, [], replace_where={"sold_at": Between(NOON, NOON.astimezone(TOKYO))})
    assert warehouse.rows(table) == [*new, other]


def test_what_is_older_than_wanted_is_deleted(sqlite: Warehouse) -> None:
    """In the same transaction; what the load brings itself is no older load's."""
    rows = [thing(THINGS, number, at=at) for number, at in ((1, NOON), (2, LATER))]
    sqlite.load(THINGS, [*rows, thing(THINGS, 3, account="window", at=NOON)])
    sqlite.load(THINGS, [thing(THINGS, 4, at=LATER)], expire_before=LATER)
    assert [row[1] for row in sqlite.rows(THINGS)] == [2, 4]
    mine = thing(THINGS, 5, account="window", at=NOON)
    for name in ("first", "again"):
        named = (*mine[:2], name, *mine[3:])
        sqlite.load(THINGS, [named], replace_where={"account": "window"}, expire_before=LATER)
    assert [row[1:3] for row in sqlite.rows(THINGS)] == [(2, None), (4, None), (5, "again")]
    with pytest.raises(RuntimeError):
        sqlite.load(THINGS, failing(2, RuntimeError()), expire_before=LATER + (LATER - NOON))
    assert [row[1] for row in sqlite.rows(THINGS)] == [2, 4, 5]


@pytest.mark.parametrize("kind", [*DIALECTS, "oracle"])
def test_only_the_dialect_of_the_database_is_imported(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    package = f"{dialects.__name__}."
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(dialects, name.removeprefix(package))
    # What everything loads and reads with.
    monkeypatch.delitem(sys.modules, database.__name__)
    import_module(database.__name__)
    own = {path.partition(".")[0] for path in DIALECTS.values()} | {"base"}

    def imported() -> set[str]:
        return {name for name in own if package + name in sys.modules}

    assert imported() == set()
    hook: Any = SimpleNamespace(conn_type=kind, dialect_name=kind)
    reader = database.reader_of(hook)
    assert imported() == {"base", reader.__module__.removeprefix(package)}


# When, and by which run of Airflow, each row was last written

OF_A = {"account": "a"}
ODD = 'manual__it\'s \\ "50%"\t{x}'
"""A name of a run that users may choose."""


def written(warehouse: Warehouse, table: Table = MARKED, name: str = "things") -> dict[int, tuple[Any, ...]]:
    """The times and runs, by number of the thing."""
    shown = Table((*table.columns, *LOAD_COLUMNS), table.key, "", load_columns=())
    return {row[1]: row[-2:] for row in warehouse.rows(shown, name)}


def load_as(
    run_id: str | None, warehouse: Warehouse, table: Table, rows: Any, map_index: int | None = 3, **options: Any
) -> LoadResult:
    """Load rows as the second try of a mapped task, or outside of a task."""
    index = -1 if map_index is None else map_index
    task_run = TaskRun() if run_id is None else TaskRun(run_id, "crm", "load", index, 2)
    return warehouse.load(table, rows, task_run=task_run, **options)


@pytest.mark.parametrize("kind", ALL)
def test_what_a_load_writes_has_its_time_and_its_run(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)

    def reads(run_id: str | None, at: datetime.datetime, **names: str) -> None:
        rows = [thing(MARKED, int(number[1:]), name=name, at=at) for number, name in names.items()]
        covers = Coverage.one("a", OF_A, mail_conn_id="m", observed_at=at)
        load_as(run_id, warehouse, MARKED, rows, covers=covers, mark_gone=MarkGone(at, lambda: [OF_A]))

    reads(None, NOON, _1="same", _2="old", _3="leaves")
    first = written(warehouse)
    ((at, run_id),) = set(first.values())
    assert run_id is None
    assert abs(at - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=20)

    reads(ODD, LATER, _1="same", _2="new", _4="joins")
    second = written(warehouse)
    assert second[2] == second[3] == second[4]
    assert second[2][0] > at
    assert second[2][1] == ODD
    assert second[1] == first[1]  # an unchanged row is as the first load left it
    load_as("older", warehouse, MARKED, [thing(MARKED, 2, at=NOON)])
    assert written(warehouse) == second


@pytest.mark.parametrize("kind", ALL)
def test_a_table_of_an_earlier_version_gets_the_columns(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)

    def reads(at: datetime.datetime, *rows: tuple[Any, ...]) -> None:
        covers = Coverage.one("a", OF_A, mail_conn_id="m", observed_at=at)
        load_as("now", warehouse, THINGS, rows, covers=covers)

    reads(NOON, thing(THINGS, 1, name="same"), thing(THINGS, 2, name="old"))
    for name, table in (("things", THINGS), ("mail_loads", LOADS)):
        warehouse.execute(*(f"ALTER TABLE {name} DROP COLUMN {column}" for column in table.load_names))
    reads(LATER, thing(THINGS, 1, name="same", at=LATER), thing(THINGS, 2, name="new", at=LATER))
    found = written(warehouse, THINGS)
    assert found[2][1] == "now"
    assert found[1] == (None, None)


def test_mail_loads_has_the_task_and_the_rows(sqlite: Warehouse) -> None:
    for number, (run_id, map_index) in enumerate([(None, None), (ODD, 3), ("plain", None)], 1):
        at = NOON + datetime.timedelta(hours=number)
        covers = Coverage("m", at, {"one": {**OF_A, "number": 1}, "other": {**OF_A, "number": 2}}, OF_A)
        load_as(run_id, sqlite, THINGS, [thing(THINGS, n, at=at) for n in range(number)], map_index, covers=covers)
        columns = ("part", *LOADS.load_names[1:])
        found = sqlite.query(f"SELECT {', '.join(columns)} FROM mail_loads ORDER BY part")
        of_task = (run_id, "crm", "load", map_index or -1, 2) if run_id else (None,) * 5
        assert found == [(part, *of_task, number) for part in ("one", "other")]


# Tables whose rows are never updated: the first one with a key stays, whatever comes later

HAPPENED = Table(
    comment="What has happened",
    key=("account", "name"),
    columns=(
        Column("account", text(50), "Whose"),
        Column("name", text(20), "Its name"),
        Column("kind", TEXT, "Its kind"),
        Column("note", TEXT, "A note", nullable=True),
        Column("raw", JSON, "The whole", nullable=True),
        Column("happened_at", TIMESTAMP, "When", nullable=True),
    ),
    insert_only=True,
    counted_by="kind",
)


def row(name: str, note: str | None = None, kind: str = "k") -> tuple[Any, ...]:
    return "me", name, kind, note, {"note": note}, NOON


def result(rows: int, unchanged: int = 0, **inserted_by: int) -> LoadResult:
    return LoadResult(rows, sum(inserted_by.values()), 0, unchanged, 0, inserted_by=inserted_by)


@pytest.mark.parametrize("kind", ALL)
def test_the_first_row_with_a_key_stays(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    loaded = warehouse.load(HAPPENED, [row("b", "first", "x"), row("a"), row("b", "second", "y")])
    assert loaded == result(3, unchanged=1, k=1, x=1)
    before = written(warehouse, HAPPENED)
    loaded = warehouse.load(HAPPENED, [row("c", kind="y"), row("a", "later"), row("B"), row("b", "third", "x")])
    assert loaded == result(4, unchanged=2, k=1, y=1)
    assert loaded.existing == {("me", "a"), ("me", "b")}
    assert before.items() <= written(warehouse, HAPPENED).items()
    assert warehouse.rows(HAPPENED) == sorted([row("a"), row("b", "first", "x"), row("c", kind="y"), row("B")])
    assert warehouse.load(HAPPENED, [row("a", "later")]) == result(1, unchanged=1)
    assert warehouse.load(HAPPENED, []) == result(0)
    assert warehouse.load(replace(HAPPENED, counted_by=None), [row("d"), row("a")]) == LoadResult(2, 1, 0, 1, 0)


def test_a_load_in_the_middle_of_another_comes_first(warehouse: Warehouse) -> None:
    """Each key is stored and counted once."""
    counts: list[LoadResult] = []

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from map(row, "ab")
        counts.append(warehouse.another().load(HAPPENED, [row("b", "first"), row("c", "first")]))
        yield from map(row, "cd")

    warehouse.load(HAPPENED, [])
    counts.append(warehouse.load(HAPPENED, rows()))
    assert counts == [result(2, k=2), result(4, unchanged=2, k=2)]
    assert warehouse.rows(HAPPENED) == [row("a"), row("b", "first"), row("c", "first"), row("d")]


def test_a_row_that_another_program_inserts_meanwhile_stays(
    postgres: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.load(HAPPENED, [])
    copy, others = getattr(*COPY), iter(["INSERT INTO things VALUES ('me', 'a', 'k', 'other')"])

    def copy_later(cursor: Any, statement: str, blocks: Any) -> None:
        if statement.startswith("COPY airflow_provider_mail_stage"):
            postgres.execute(*others)
        copy(cursor, statement, blocks)

    monkeypatch.setattr(*COPY, copy_later)
    assert postgres.load(HAPPENED, [row("a"), row("b")]) == result(2, unchanged=1, k=1)
    assert [(name, note) for _, name, _, note, *_ in postgres.rows(HAPPENED)] == [("a", "other"), ("b", None)]


# Rows that did not change are not written again, and `mail_loads` tells when they were last seen

DAY, NEXT = NOON.date(), NOON.date() + datetime.timedelta(days=1)


def day_of(*days: datetime.date, at: datetime.datetime) -> Coverage:
    """Everything of account "a" that was made on these days, which follow each other."""
    parts = {day.isoformat(): {"account": "a", "day": day} for day in days}
    return Coverage("mail_default", at, parts, {"account": "a", "day": Between(days[0], days[-1])})


def noted(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return [(row[3], row[4]) for row in warehouse.rows(LOADS, "mail_loads")]


def test_days_of_an_account() -> None:
    made: dict[str, Any] = {"mail_conn_id": "m", "team_name": "t", "observed_at": NOON}
    days = Coverage.days(THINGS["sold_at"], DAY, NEXT, **made)
    end = datetime.datetime(2026, 3, 1, 23, 59, 59, 999999, tzinfo=datetime.UTC)
    assert list(days.parts) == ["2026-03-01", "2026-03-02"]
    begin = end.replace(hour=0, minute=0, second=0, microsecond=0)
    assert days.parts["2026-03-01"] == {"mail_conn_id": "m", "team_name": "t", "sold_at": Between(begin, end)}
    assert days.whole == {
        "mail_conn_id": "m",
        "team_name": "t",
        "sold_at": Between(begin, end + datetime.timedelta(days=1)),
    }
    only = Coverage.days(THINGS["day"], DAY, NEXT, only=[NEXT], **made)
    assert only.parts == {"2026-03-02": {"mail_conn_id": "m", "team_name": "t", "day": Between(NEXT, NEXT)}}
    assert only.whole == {"mail_conn_id": "m", "team_name": "t", "day": Between(DAY, NEXT)}
    assert not Coverage.days(THINGS["day"], NEXT, DAY, **made).parts


@pytest.mark.parametrize("column", ["sold_at", "day"])
def test_days_that_follow_each_other_are_one_window(column: str) -> None:
    last = DAY + datetime.timedelta(days=9)
    days = Coverage.days(THINGS[column], DAY, last, mail_conn_id="m", team_name="", observed_at=NOON)
    parts = [*days.parts]
    assert days.windows(reversed(parts)) == [days.whole]
    one, other = ({**days.parts[parts[first]]} for first in (1, 5))
    other[column] = Between(other[column].low, days.parts[parts[7]][column].high)
    assert days.windows([parts[1], *parts[5:8]]) == [one, other]
    assert days.windows([]) == []


def test_names_of_parts_are_bounded_and_different() -> None:
    long = ["l" * 250, *(f"list {'x' * 300} {number}" for number in range(2))]
    made = [Coverage.one(name, {"account": "a"}, mail_conn_id="m", observed_at=NOON) for name in long]
    names = [next(iter(coverage.parts)) for coverage in made]
    assert ([len(name) for name in names], len(set(names)), names[0]) == ([250] * 3, 3, long[0])


def test_only_what_changed_gets_the_time_of_the_observation(native: Warehouse) -> None:
    """Of the parts that were read whole; rows outside of them are observed by themselves."""
    rows = [thing(THINGS, n, name="old", day=DAY) for n in range(3)]
    others = [thing(THINGS, 3, day=NEXT), thing(THINGS, 4), thing(THINGS, 5, account="b", day=DAY)]
    native.load(THINGS, [*rows, *others], covers=day_of(DAY, at=NOON))
    again = [(*row[:-1], LATER) for row in [rows[0], thing(THINGS, 1, name="new", day=DAY), rows[2], *others]]
    result = native.load(THINGS, again, covers=day_of(DAY, at=LATER))
    assert result == LoadResult(6, inserted=0, changed=1, unchanged=5, outdated=0, deleted=0)
    assert {row[1]: row[-1] for row in native.rows(THINGS)} == {0: NOON, 1: LATER, 2: NOON} | dict.fromkeys(
        (3, 4, 5), LATER
    )
    assert noted(native) == [("2026-03-01", LATER)]


@pytest.mark.parametrize("table", [THINGS, PLAIN], ids=["covered", "without a time of observation"])
def test_unchanged_rows_are_not_written(postgres: Warehouse, table: Any) -> None:
    sql = "SELECT number, ctid::text, xmin::text, xmax::text FROM things ORDER BY number"
    written = []
    for at, name in ((NOON, "old"), (LATER, "new")):
        covers = {"covers": day_of(DAY, at=at)} if table is THINGS else {}
        rows = [thing(table, n, name=name if n == 1 else "old", day=DAY, at=at) for n in range(3)]
        postgres.load(table, rows, **covers)
        written.append(postgres.query(sql))
    assert [old == new for old, new in zip(*written, strict=True)] == [True, False, True]


@in_each_dialect
def test_another_table_called_mail_loads(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE mail_loads (id INTEGER)")
    words = r"table \S*mail_loads on connection 'warehouse': it has no column table_name"
    with pytest.raises(WarehouseError, match=words):
        warehouse.load(THINGS, [], covers=day_of(DAY, at=NOON))
