"""A load: all rows or none, twice the same as once, in every database."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Between, LoadResult
from airflow_provider_mail.warehouse.table import BIGINT, TEXT, TIMESTAMP, Column, Table
from tests.warehouse.conftest import Warehouse, default_adapter
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, TOKYO, thing

AWKWARD = "tab\there, line\nthere, return\rthere, back\\slash, \\N, quote'\", {}, %s, ?, ; -- Ünïcödé 漢字 🎉"


def test_values_come_back_as_they_went_in(warehouse: Warehouse, table: Table) -> None:
    rows = [
        thing(
            table,
            -(2**63),
            account=AWKWARD[:50],
            name=AWKWARD,
            size=2**31 - 1,
            ratio=0.1 + 0.2,
            good=True,
            day=datetime.date(2024, 2, 29),
            sold_at=NOON.replace(microsecond=123456),
            extra={"a": [1, 2.5, None, "\\n\n"], "b": {}, "漢": "🎉"},
        ),
        thing(table, 2**63 - 1, account="b", name="", size=0, ratio=-1e300, good=False, extra=[]),
        thing(table, 0, account="c"),
        thing(table, 0, account="d", name="\\N", ratio=3, extra="text", sold_at=NOON.astimezone(TOKYO)),
    ]
    warehouse.load(table, rows)
    assert sorted(warehouse.rows(table)) == sorted(rows)


def test_loading_again_changes_nothing(warehouse: Warehouse, table: Table) -> None:
    rows = [thing(table, number, name=f"name {number}", extra={"n": number}) for number in range(2000)]
    first = warehouse.load(table, iter(rows))
    second = warehouse.load(table, reversed(rows))
    assert warehouse.rows(table) == rows
    if not warehouse.is_portable:
        assert first == LoadResult(2000, inserted=2000, changed=0, unchanged=0, outdated=0, deleted=0)
        assert second == LoadResult(2000, inserted=0, changed=0, unchanged=2000, outdated=0, deleted=0)


def test_only_what_says_something_else_counts_as_changed(native: Warehouse) -> None:
    native.load(THINGS, [thing(THINGS, n, name="old", extra={"a": 1, "b": None}) for n in range(4)])
    result = native.load(
        THINGS,
        [
            thing(THINGS, 1, name="old", extra={"b": None, "a": 1}, at=LATER),
            thing(THINGS, 2, name=None, extra={"a": 1, "b": None}, at=LATER),
            thing(THINGS, 9, at=LATER),
        ],
    )
    assert result == LoadResult(3, inserted=1, changed=1, unchanged=1, outdated=0, deleted=0)
    # What was seen again was seen later, changed or not.
    assert [(row[1], row[2], row[-1]) for row in native.rows(THINGS)] == [
        (0, "old", NOON),
        (1, "old", LATER),
        (2, None, LATER),
        (3, "old", NOON),
        (9, None, LATER),
    ]


def test_an_older_observation_never_replaces_a_newer_one(native: Warehouse) -> None:
    native.load(THINGS, [thing(THINGS, 1, name="new", at=LATER)])
    result = native.load(THINGS, [thing(THINGS, 1, name="old", at=NOON), thing(THINGS, 2, name="old", at=NOON)])
    assert result == LoadResult(2, inserted=1, changed=0, unchanged=0, outdated=1, deleted=0)
    assert native.rows(THINGS) == [thing(THINGS, 1, name="new", at=LATER), thing(THINGS, 2, name="old", at=NOON)]


@pytest.mark.not_unit
def test_an_unchanged_row_without_time_of_observation_is_not_written(make_warehouse: Callable[..., Warehouse]) -> None:
    postgres = make_warehouse("psycopg3")
    postgres.load(PLAIN, [thing(PLAIN, 1, name="same"), thing(PLAIN, 2, name="old")])
    before = dict(postgres.query("SELECT number, xmin::text FROM things"))
    postgres.load(PLAIN, [thing(PLAIN, 1, name="same"), thing(PLAIN, 2, name="new")])
    after = dict(postgres.query("SELECT number, xmin::text FROM things"))
    assert after[1] == before[1]
    assert after[2] != before[2]


def test_the_last_of_several_rows_with_one_key_wins(warehouse: Warehouse, table: Table) -> None:
    # Far apart too, further than any batch.
    rows = [thing(table, number % 700, name=f"{number}") for number in range(3000)]
    warehouse.load(table, rows)
    assert warehouse.rows(table) == sorted({row[1]: row for row in rows}.values())


def test_no_rows(warehouse: Warehouse, table: Table) -> None:
    assert warehouse.load(table, []).rows == 0
    assert warehouse.rows(table) == []
    warehouse.load(table, [thing(table, 1)])
    warehouse.load(table, [])
    assert len(warehouse.rows(table)) == 1


def test_a_table_of_keys_only(warehouse: Warehouse) -> None:
    table = Table((Column("id", BIGINT, ""),), ("id",), "")
    for _ in range(2):
        warehouse.load(table, [(1,), (2,), (2,)])
    assert warehouse.rows(table) == [(1,), (2,)]


def test_a_table_of_key_and_time_of_observation(native: Warehouse) -> None:
    table = Table(
        (Column("id", BIGINT, ""), Column("seen_at", TIMESTAMP, "", observed=True)),
        ("id",),
        "",
    )
    native.load(table, [(1, NOON)])
    assert native.load(table, [(1, LATER)]).unchanged == 1
    assert native.rows(table) == [(1, LATER)]


# A failed load


def failing(table: Table, after: int, error: BaseException) -> Iterator[tuple[Any, ...]]:
    for number in range(after):
        yield thing(table, number, name="new")
    raise error


@pytest.mark.parametrize("error", [RuntimeError("the service went away"), KeyboardInterrupt()], ids=["error", "signal"])
def test_when_the_rows_fail_the_old_ones_stay(warehouse: Warehouse, table: Table, error: BaseException) -> None:
    warehouse.load(table, [thing(table, number, name="old") for number in range(10)])
    with pytest.raises(type(error)) as caught:
        warehouse.load(table, failing(table, 2000, error), replace_where={"account": "a"})
    assert caught.value is error  # as it was, for whoever has to judge it
    assert {row[2] for row in warehouse.rows(table)} == {"old"}
    assert len(warehouse.rows(table)) == 10


def test_a_failed_load_leaves_no_table_behind(native: Warehouse, table: Table) -> None:
    with pytest.raises(RuntimeError):
        native.load(table, failing(table, 10, RuntimeError()))
    assert native.load(table, []).inserted == 0
    native.execute("DROP TABLE things")


def test_a_row_of_the_wrong_length(warehouse: Warehouse) -> None:
    with pytest.raises(WarehouseError, match="row 2 has 3 values for 10 columns"):
        warehouse.load(THINGS, [thing(THINGS, 1), ("a", 2, "x")])


def test_the_garbage_collector_is_left_as_it_was(make_warehouse: Callable[..., Warehouse]) -> None:
    """Less often while a load lasts; what the process has frozen stays frozen, and its threshold comes back."""
    sqlite, before, during = make_warehouse("sqlite"), gc.get_threshold(), []

    def rows(error: Exception | None = None) -> Iterator[tuple[Any, ...]]:
        during.append(gc.get_threshold())
        yield thing(THINGS, 1)
        if error:
            raise error

    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        sqlite.load(THINGS, rows())
        assert gc.get_threshold() == before
        with pytest.raises(RuntimeError):
            sqlite.load(THINGS, rows(RuntimeError()))
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() >= frozen * 0.99  # what is frozen may still be freed
    finally:
        gc.unfreeze()
    assert during == [(10_000, *before[1:])] * 2


@default_adapter
def test_two_loads_at_once_give_the_threshold_back_once(make_warehouse: Callable[..., Warehouse]) -> None:
    sqlite, before = make_warehouse("sqlite"), gc.get_threshold()

    def outer() -> Iterator[tuple[Any, ...]]:
        make_warehouse("portable_sqlite").load(THINGS, [], "others")
        assert gc.get_threshold() != before
        yield thing(THINGS, 1)

    sqlite.load(THINGS, outer())
    assert gc.get_threshold() == before


@pytest.mark.parametrize("threshold", [0, 50_000])
def test_a_threshold_of_the_process_is_respected(make_warehouse: Callable[..., Warehouse], threshold: int) -> None:
    before, during = gc.get_threshold(), []

    def rows() -> Iterator[tuple[Any, ...]]:
        during.append(gc.get_threshold()[0])
        yield thing(THINGS, 1)

    gc.set_threshold(threshold)
    try:
        make_warehouse("sqlite").load(THINGS, rows())
        assert (during, gc.get_threshold()[0]) == ([threshold], threshold)
    finally:
        gc.set_threshold(*before)


# Replacing a window


def test_rows_of_the_window_that_are_not_given_again_are_deleted(warehouse: Warehouse, table: Table) -> None:
    days = [datetime.date(2026, 3, day) for day in range(1, 6)]
    old = [thing(table, number, name="old", day=day) for number, day in enumerate(days)]
    warehouse.load(table, [*old, thing(table, 1, account="other", day=days[1])])
    new = [thing(table, 2, name="new", day=days[2])]
    result = warehouse.load(table, new, replace_where={"account": "a", "day": Between(days[1], days[3])})
    assert warehouse.rows(table) == [old[0], *new, old[4], thing(table, 1, account="other", day=days[1])]
    assert result.deleted == (None if warehouse.is_portable else 2)


def test_replacing_by_nothing_and_by_time(warehouse: Warehouse, table: Table) -> None:
    warehouse.load(table, [thing(table, 1, sold_at=NOON), thing(table, 2, sold_at=LATER)])
    warehouse.load(table, [], replace_where={"sold_at": Between(NOON, NOON.astimezone(TOKYO))})
    assert [row[1] for row in warehouse.rows(table)] == [2]


def test_what_is_older_than_wanted_is_deleted_in_the_same_transaction(warehouse: Warehouse) -> None:
    rows = [thing(THINGS, number, at=at) for number, at in ((1, NOON), (2, LATER))]
    warehouse.load(THINGS, [*rows, thing(THINGS, 3, account="window", at=NOON)])
    warehouse.load(THINGS, [thing(THINGS, 4, at=LATER)], expire_before=LATER)
    assert [row[1] for row in warehouse.rows(THINGS)] == [2, 4]
    warehouse.load(THINGS, [thing(THINGS, 5, account="window", at=NOON)])
    # What the load brings itself is no older load's.
    mine = thing(THINGS, 5, account="window", at=NOON, name="again")
    warehouse.load(THINGS, [mine], replace_where={"account": "window"}, expire_before=LATER)
    assert [row[1] for row in warehouse.rows(THINGS)] == [2, 4, 5]
    with pytest.raises(RuntimeError):
        warehouse.load(THINGS, failing(THINGS, 2, RuntimeError()), expire_before=LATER + (LATER - NOON))
    assert [row[1] for row in warehouse.rows(THINGS)] == [2, 4, 5]


def test_replacing_spares_what_was_observed_later(native: Warehouse) -> None:
    native.load(THINGS, [thing(THINGS, 1, at=NOON), thing(THINGS, 2, at=LATER)])
    native.load(THINGS, [thing(THINGS, 3, at=NOON)], replace_where={"account": "a"})
    assert [row[1] for row in native.rows(THINGS)] == [2, 3]


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
def test_windows_that_cannot_be(native: Warehouse, window: dict[str, Any], message: str) -> None:
    native.load(THINGS, [thing(THINGS, 1)])
    with pytest.raises(ValueError, match=message):
        native.load(THINGS, [], replace_where=window)
    assert len(native.rows(THINGS)) == 1


def test_text_is_not_cut(native: Warehouse) -> None:
    table = Table((Column("id", BIGINT, ""), Column("words", TEXT, "")), ("id",), "")
    long = "漢" * 500_000
    native.load(table, [(1, long)])
    assert native.rows(table) == [(1, long)]
