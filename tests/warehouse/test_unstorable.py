"""Values that no database, or not this one, can keep: row, column and cause are named, and never the value."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.errors import UnstorableError, WarehouseError
from airflow_provider_mail.warehouse.load import MarkGone
from airflow_provider_mail.warehouse.table import BIGINT, Column, Table
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, CAMPAIGN_STATS, TRANSACTIONAL_STATS
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing

COUNTED = Table((Column("id", BIGINT, ""), Column("count", BIGINT, "", nullable=True, least=0)), ("id",), "")
HALF = "planted \ud800"
LARGE = 2**63


def refused(warehouse: Warehouse, table: Table, rows: list[Any]) -> str:
    with pytest.raises(WarehouseError) as caught:
        warehouse.load(table, rows)
    assert "planted" not in str(caught.value)
    assert warehouse.rows(table) == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": HALF}, "row 301, column name: holds half a surrogate pair, which is no character"),
        ({"extra": {"a": HALF}}, "row 301, column extra: field 'a' holds half a surrogate pair"),
        ({"extra": {"a": ["x", {"b": HALF}]}}, "column extra: field 'a' item 1 field 'b' holds half a surrogate pair"),
        ({"extra": {HALF: "x"}}, "row 301, column extra: the name of a field holds half a surrogate pair"),
        ({"extra": {"a": float("nan")}}, "row 301, column extra: field 'a' holds NaN or infinity"),
        ({"size": 2**31}, "row 301, column size: is too large for integer"),
        ({"number": LARGE}, "row 301, column number: is too large for bigint"),
    ],
)
def test_row_column_and_cause_are_named(warehouse: Warehouse, values: dict[str, Any], words: str) -> None:
    warehouse.load(THINGS, [])
    rows = [thing(THINGS, number, name="näme", extra={"a": "ä"}) for number in range(600)]
    given = dict(zip(THINGS.names, rows[300], strict=True)) | values
    rows[300] = tuple(given.values())
    assert words in refused(warehouse, THINGS, rows)


@pytest.mark.parametrize("values", [{"name": "planted \0"}, {"extra": {"a": "planted \0"}}])
def test_postgres_keeps_no_nul(native: Warehouse, values: dict[str, Any]) -> None:
    rows = [thing(THINGS, 1, name="x"), thing(THINGS, 2, **values)]
    if native.is_postgres:
        native.load(THINGS, [])
        field = "field 'a' " if "extra" in values else ""
        message = f"row 2, column {next(iter(values))}: {field}holds the character NUL, which the database cannot keep"
        assert message in refused(native, THINGS, rows)
    else:
        native.load(THINGS, rows)
        assert native.rows(THINGS) == rows


def test_a_backslash_is_no_nul(native: Warehouse) -> None:
    rows = [thing(THINGS, 1, name=r"\u0000", extra={"a": r"\u0000"})]
    native.load(THINGS, rows)
    assert native.rows(THINGS) == rows


def test_a_negative_count_is_the_service_s_error(warehouse: Warehouse) -> None:
    warehouse.load(COUNTED, [])
    words = "row 2, column count: is less than 0, which cannot be true: the service's error"
    assert words in refused(warehouse, COUNTED, [(1, 0), (2, -1)])
    warehouse.load(COUNTED, [(1, 0), (2, None)])


def test_no_count_of_the_service_can_be_negative() -> None:
    for table in (CAMPAIGN_STATS, CAMPAIGN_SNAPSHOTS, TRANSACTIONAL_STATS):
        counts = [column for column in table.columns if column.type == BIGINT]
        assert counts
        assert {column.least for column in counts} == {0}


@given(st.integers(1), st.text(), st.text())
def test_the_error_travels_between_processes(row: int, column: str, reason: str) -> None:
    error = UnstorableError.of(row, column, reason)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.row, again.column, again.reason) == (str(error), row, column, reason)


def test_rows_that_cannot_be_stored_are_set_aside(warehouse: Warehouse) -> None:
    rejected: list[tuple[int, str]] = []
    rows = [thing(THINGS, number, name=HALF if number in (7, 300) else "x") for number in range(600)]
    result = warehouse.load(THINGS, rows, on_unstorable=lambda _, error: rejected.append((error.row, error.column)))
    assert result.rows == 600
    assert rejected == [(8, "name"), (301, "name")]
    assert [row[1] for row in warehouse.rows(THINGS)] == [number for number in range(600) if number not in (7, 300)]


def test_rows_behind_many_that_are_set_aside_are_loaded(warehouse: Warehouse) -> None:
    rows = [thing(THINGS, number, name=HALF if number < 900 else "x") for number in range(1000)]
    warehouse.load(THINGS, rows, on_unstorable=lambda *_: None)
    assert len(warehouse.rows(THINGS)) == 100


def test_then_nothing_is_deleted_or_marked(warehouse: Warehouse) -> None:
    def load(at: Any, last: str, **options: Any) -> None:
        rows = [thing(MARKED, 1, at=at), thing(MARKED, 2, name=last, at=at)]
        warehouse.load(MARKED, rows, on_unstorable=lambda *_: None, **options)

    load(NOON, "old")
    load(LATER, HALF, mark_gone=MarkGone(LATER, lambda: [{"account": "a"}]))
    load(LATER, HALF, replace_where={"account": "a"})
    assert [(row[2], row[-1]) for row in warehouse.rows(MARKED)] == [(None, None), ("old", None)]


def test_too_many_fail_the_load(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1000
    if warehouse.kind != "sqlite":
        monkeypatch.setattr("airflow_provider_mail.warehouse.rows.MAX_REJECTED", most := 20)
    warehouse.load(THINGS, [])
    unstorable = [thing(THINGS, number, name=HALF) for number in range(most + 1)]
    with pytest.raises(WarehouseError, match=f"more than {most} rows cannot be stored; row {most + 1}, column name: "):
        warehouse.load(THINGS, unstorable, on_unstorable=lambda *_: None)
    assert warehouse.rows(THINGS) == []


def test_decimals_are_stored_with_all_their_digits(native: Warehouse) -> None:
    row = thing(THINGS, 1, extra={"n": [Decimal("0.1234567890123456789"), Decimal("12345678901234567.25"), 0.5]})
    native.load(THINGS, [row])
    assert native.load(THINGS, [row]).unchanged == 1
    ((text,),) = native.query(f"SELECT CAST(extra AS {'CHAR' if native.is_mysql else 'VARCHAR'}) FROM things")
    assert "[0.1234567890123456789,12345678901234567.25,0.5]" in text.replace(" ", "")


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_a_value_that_is_nested_deep(native: Warehouse, brackets: str) -> None:
    """MariaDB accepts 31 levels. One more must not end the load of the other rows."""

    def nested(depth: int) -> Any:
        value: Any = "x"
        for _ in range(depth):
            value = [value] if brackets == "[]" else {"a": value}
        return value

    rejected: list[tuple[int, str]] = []
    rows = [thing(THINGS, number, extra=nested(depth)) for number, depth in enumerate((0, 31, 32, 40))]
    native.load(THINGS, rows, on_unstorable=lambda _, error: rejected.append((error.row, error.column)))
    assert rejected == ([(3, "extra"), (4, "extra")] if native.is_mysql else [])
    assert native.rows(THINGS) == rows[: 2 if native.is_mysql else 4]
    if native.is_mysql:
        with pytest.raises(WarehouseError, match="row 4, column extra: is nested more than 31 deep"):
            native.load(THINGS, rows[:2] + rows[:1] + rows[3:])
