"""A load: all rows or none, twice the same as once, in every database."""

from __future__ import annotations

import datetime
import gc
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.context import set_current_context

from airflow_provider_mail import warehouse as warehouse_package
from airflow_provider_mail.warehouse import dialects
from airflow_provider_mail.warehouse.dialects import DIALECTS
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Between, LoadResult, current_task_run
from airflow_provider_mail.warehouse.read import StoredTable
from airflow_provider_mail.warehouse.request import OneOf
from airflow_provider_mail.warehouse.table import BIGINT, TEXT, TIMESTAMP, Column, Table, TaskRun
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, NOON, THINGS, TOKYO, thing

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
    ]  # fmt: skip
    warehouse.load(THINGS, rows)
    assert sorted(warehouse.rows(THINGS)) == sorted(rows)


def test_text_is_not_cut(native: Warehouse) -> None:
    table = Table((Column("id", BIGINT, ""), Column("words", TEXT, "")), ("id",), "")
    native.load(table, [(1, long := "漢" * 500_000)])
    assert native.rows(table) == [(1, long)]


def test_loading_again_changes_nothing(warehouse: Warehouse, table: Table) -> None:
    """Of several rows with one key the last one counts, also when they are far apart, further than any batch."""
    given = [thing(table, number % 350, name=f"name {number}", extra={"n": number}) for number in range(1000)]
    last = given[650:]
    first, second = warehouse.load(table, iter(given)), warehouse.load(table, reversed(last))
    assert warehouse.rows(table) == sorted(last, key=lambda row: row[1])
    if not warehouse.is_portable:
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


def test_a_table_of_keys_only(warehouse: Warehouse) -> None:
    table = Table((Column("id", BIGINT, ""),), ("id",), "")
    for _ in range(2):
        warehouse.load(table, [(1,), (2,), (2,)])
    assert warehouse.rows(table) == [(1,), (2,)]


def test_a_table_of_key_and_time_of_observation(native: Warehouse) -> None:
    table = Table((Column("id", BIGINT, ""), Column("seen_at", TIMESTAMP, "", observed=True)), ("id",), "")
    assert [native.load(table, [(1, at)]).unchanged for at in (NOON, LATER)] == [0, 1]
    assert native.rows(table) == [(1, LATER)]


# A failed load


def failing(after: int, error: BaseException) -> Iterator[tuple[Any, ...]]:
    for number in range(after):
        yield thing(THINGS, number, name="new", at=LATER)
    raise error


@pytest.mark.parametrize("error", [RuntimeError("the service went away"), KeyboardInterrupt()], ids=["error", "signal"])
def test_when_the_rows_fail_the_old_ones_stay(warehouse: Warehouse, error: BaseException) -> None:
    warehouse.load(THINGS, [thing(THINGS, number, name="old") for number in range(10)])
    with pytest.raises(type(error)) as caught:
        warehouse.load(THINGS, failing(600, error), replace_where={"account": "a"})
    assert caught.value is error  # unchanged, for the caller to decide
    assert {row[2] for row in warehouse.rows(THINGS)} == {"old"}
    assert len(warehouse.rows(THINGS)) == 10


def test_a_row_of_the_wrong_length(way: Warehouse) -> None:
    with pytest.raises(WarehouseError, match="row 2 has 3 values for 10 columns"):
        way.load(THINGS, [thing(THINGS, 1), ("a", 2, "x")])


@pytest.mark.parametrize(("threshold", "most"), [(700, 20_000), (0, 0), (50_000, 50_000)])
def test_garbage_is_collected_less_often_during_a_load(
    make_warehouse: Callable[..., Warehouse], threshold: int, most: int
) -> None:
    """What the process has frozen stays frozen, and its threshold comes back: once, after two loads at once."""
    sqlite, before, during = make_warehouse("sqlite"), gc.get_threshold(), []

    def rows(error: Exception | None = None) -> Iterator[tuple[Any, ...]]:
        during.append(gc.get_threshold()[0])
        sqlite.another().load(THINGS, [], "others")
        during.append(gc.get_threshold()[0])
        yield thing(THINGS, 1)
        if error:
            raise error

    gc.set_threshold(threshold)
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        sqlite.load(THINGS, rows())
        with pytest.raises(RuntimeError):
            sqlite.load(THINGS, rows(RuntimeError()))
        assert gc.get_threshold()[0] == threshold
        assert gc.get_freeze_count() >= frozen * 0.99  # what is frozen may still be freed
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    assert during == [most] * 4


# Replacing a window


def test_a_window_is_replaced(warehouse: Warehouse, table: Table) -> None:
    days = [datetime.date(2026, 3, day) for day in range(1, 6)]
    old = [thing(table, number, name="old", day=day, sold_at=NOON) for number, day in enumerate(days)]
    other = thing(table, 1, account="other", day=days[1], sold_at=LATER)
    warehouse.load(table, [*old, other])
    new = [thing(table, 2, name="new", day=days[2])]
    result = warehouse.load(table, new, replace_where={"account": "a", "day": Between(days[1], days[3])})
    assert warehouse.rows(table) == [old[0], *new, old[4], other]
    assert result.deleted == (None if warehouse.is_portable else 2)
    warehouse.load(table, [], replace_where={"sold_at": Between(NOON, NOON.astimezone(TOKYO))})
    assert warehouse.rows(table) == [*new, other]


def test_what_is_older_than_wanted_is_deleted(way: Warehouse) -> None:
    """In the same transaction; what the load brings itself is no older load's."""
    rows = [thing(THINGS, number, at=at) for number, at in ((1, NOON), (2, LATER))]
    way.load(THINGS, [*rows, thing(THINGS, 3, account="window", at=NOON)])
    way.load(THINGS, [thing(THINGS, 4, at=LATER)], expire_before=LATER)
    assert [row[1] for row in way.rows(THINGS)] == [2, 4]
    mine = thing(THINGS, 5, account="window", at=NOON)
    for name in ("first", "again"):
        named = (*mine[:2], name, *mine[3:])
        way.load(THINGS, [named], replace_where={"account": "window"}, expire_before=LATER)
    assert [row[1:3] for row in way.rows(THINGS)] == [(2, None), (4, None), (5, "again")]
    with pytest.raises(RuntimeError):
        way.load(THINGS, failing(2, RuntimeError()), expire_before=LATER + (LATER - NOON))
    assert [row[1] for row in way.rows(THINGS)] == [2, 4, 5]


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({}, "would replace the whole table"),
        ({"colour": "red"}, "no column colour"),
        ({"number": "1"}, "compares column number with a value that is not bigint"),
        ({"number": None}, "compares column number"),
        ({"day": Between(datetime.date(2026, 3, 1), None)}, "compares column day"),
        ({"sold_at": datetime.datetime(2026, 3, 1)}, "without a zone"),
    ],
)
def test_windows_that_cannot_be(sqlite: Warehouse, window: dict[str, Any], message: str) -> None:
    sqlite.load(THINGS, [thing(THINGS, 1)])
    with pytest.raises(ValueError, match=message):
        sqlite.load(THINGS, [], replace_where=window)
    assert len(sqlite.rows(THINGS)) == 1


@pytest.mark.parametrize("map_index", [None, -1, 4])
def test_the_try_that_loads(map_index: int | None) -> None:
    ti = SimpleNamespace(run_id="run", dag_id="dag", task_id="task", map_index=map_index, try_number=3)
    with set_current_context({"ti": ti}):  # type: ignore[typeddict-item]
        assert current_task_run() == TaskRun("run", "dag", "task", -1 if map_index is None else map_index, 3)
    assert current_task_run() == TaskRun()


def test_rows_are_read_changed_and_deleted_by_their_values(native: Warehouse) -> None:
    native.load(THINGS, [thing(THINGS, n, sold_at=NOON if n else LATER) for n in range(5)])
    stored = StoredTable(native.hook, THINGS, "things")
    found = stored.rows(["number"], {"number": Between(0, 3), "sold_at": NOON, "name": None})
    assert sorted(found) == [(1,), (2,), (3,)]
    assert stored.update({"number": 2}, {"name": "changed", "size": 7}) == 1
    assert stored.delete([{"sold_at": LATER}, {"number": OneOf((4, 9))}]) == 2
    changed = {1: {}, 2: {"name": "changed", "size": 7}, 3: {}}
    assert native.rows(THINGS) == [thing(THINGS, n, sold_at=NOON, **values) for n, values in changed.items()]


@pytest.mark.parametrize("kind", [*DIALECTS, "oracle"])
def test_only_the_dialect_of_the_database_is_imported(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    package = f"{dialects.__name__}."
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(dialects, name.removeprefix(package))
    for module in ("load", "read"):  # what everything loads and reads with
        monkeypatch.delitem(sys.modules, f"{warehouse_package.__name__}.{module}", raising=False)
        monkeypatch.delattr(warehouse_package, module, raising=False)
        import_module(f"{warehouse_package.__name__}.{module}")
    own = {path.partition(".")[0] for path in DIALECTS.values()} | {"portable"}

    def imported() -> set[str]:
        return {name for name in own if package + name in sys.modules}

    assert imported() == set()
    hook: Any = SimpleNamespace(conn_type=kind, dialect_name=kind)
    dialect = dialects.dialect_of(hook)
    assert imported() == {dialect.__module__.removeprefix(package)}
