"""Values that no database, or not this one, can keep: row, column and cause are named, and never the value."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.errors import UnstorableError, WarehouseError
from airflow_provider_mail.warehouse.load import MarkGone
from airflow_provider_mail.warehouse.table import BIGINT, Column, Table
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, CAMPAIGN_STATS, TRANSACTIONAL_STATS
from tests.warehouse.conftest import ALL, Warehouse
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing
from tests.warehouse.test_privacy import all_texts

COUNTED = Table((Column("id", BIGINT, ""), Column("count", BIGINT, "", nullable=True, least=0)), ("id",), "")
HALF = "planted \ud800"
LARGE = 2**63


def rejected(warehouse: Warehouse, table: Table, rows: list[Any]) -> str:
    with pytest.raises(WarehouseError) as caught:
        warehouse.load(table, rows)
    assert "planted" not in all_texts(caught.value)
    assert warehouse.rows(table) == []
    return str(caught.value)


CAUSES: list[tuple[dict[str, Any], str]] = [
    ({"name": HALF}, "name: holds half a surrogate pair, which is no character"),
    ({"extra": {"a": HALF}}, "extra: field 'a' holds half a surrogate pair"),
    ({"extra": {"a": ["x", {"b": HALF}]}}, "extra: field 'a' item 1 field 'b' holds half a surrogate pair"),
    ({"extra": {HALF: "x"}}, "extra: the name of a field holds half a surrogate pair"),
    ({"extra": {"a": float("nan")}}, "extra: field 'a' holds NaN or infinity"),
    ({"size": 2**31}, "size: is too large for integer"),
    ({"size": -(2**31) - 1}, "size: is too large for integer"),
    ({"number": LARGE}, "number: is too large for bigint"),
    ({"size": "planted"}, "size: needs integer, got str"),
    ({"number": None}, "number: needs bigint, got nothing"),
    ({"account": None}, "account: needs text, got nothing"),
    ({"good": 1}, "good: needs boolean, got int"),
    ({"size": True}, "size: needs integer, got bool"),
    ({"day": datetime.datetime(2026, 3, 1)}, "day: needs date, got datetime"),
    ({"sold_at": datetime.datetime(2026, 3, 1)}, "sold_at: needs a datetime with a zone"),
    ({"extra": {"a": {1, 2}}}, "extra: needs a json value"),
    ({"extra": [float("nan")]}, "extra: item 0 holds NaN or infinity"),
]
"""Values, and what is said of them."""


def test_row_column_and_cause_are_named(warehouse: Warehouse) -> None:
    warehouse.load(THINGS, [])
    for values, words in CAUSES:
        rows = [thing(THINGS, number, name="näme", extra={"a": "ä"}) for number in range(270)]
        rows[260] = tuple((dict(zip(THINGS.names, rows[260], strict=True)) | values).values())
        assert f"row 261, column {words}" in rejected(warehouse, THINGS, rows)


@pytest.mark.parametrize("values", [{"name": "planted \0"}, {"extra": {"a": "planted \0"}}])
def test_postgres_keeps_no_nul(native: Warehouse, values: dict[str, Any]) -> None:
    rows = [thing(THINGS, 1, name="x"), thing(THINGS, 2, **values)]
    if native.is_postgres:
        native.load(THINGS, [])
        field = "field 'a' " if "extra" in values else ""
        message = f"row 2, column {next(iter(values))}: {field}holds the character NUL, which the database cannot keep"
        assert message in rejected(native, THINGS, rows)
    else:
        native.load(THINGS, rows)
        assert native.rows(THINGS) == rows


def test_a_backslash_is_no_nul(native: Warehouse) -> None:
    rows = [thing(THINGS, 1, name=r"\u0000", extra={"a": r"\u0000"})]
    native.load(THINGS, rows)
    assert native.rows(THINGS) == rows


def test_a_negative_count_is_the_service_s_error(way: Warehouse) -> None:
    way.load(COUNTED, [])
    words = "row 2, column count: is less than 0, which cannot be true: the service's error"
    assert words in rejected(way, COUNTED, [(1, 0), (2, -1)])
    way.load(COUNTED, [(1, 0), (2, None)])


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


@pytest.mark.parametrize("kind", [*ALL, "snowflake", "redshift"])
def test_rows_that_cannot_be_stored_are_set_aside(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    """Also so many of them that nothing is left of some hundreds of rows."""
    warehouse, bad = make_warehouse(kind), {7, *range(240, 760)}
    given: list[tuple[int, str]] = []
    rows = [thing(THINGS, number, name=HALF if number in bad else "x") for number in range(800)]
    result = warehouse.load(THINGS, rows, on_unstorable=lambda _, error: given.append((error.row, error.column)))
    assert result.rows == 800
    assert given == [(number + 1, "name") for number in sorted(bad)]
    assert [row[1] for row in warehouse.rows(THINGS)] == [number for number in range(800) if number not in bad]


def test_then_nothing_is_deleted_or_marked(way: Warehouse) -> None:
    def load(at: Any, last: str, **options: Any) -> None:
        rows = [thing(MARKED, 1, at=at), thing(MARKED, 2, name=last, at=at)]
        way.load(MARKED, rows, on_unstorable=lambda *_: None, **options)

    load(NOON, "old")
    load(LATER, HALF, mark_gone=MarkGone(LATER, lambda: [{"account": "a"}]))
    load(LATER, HALF, replace_where={"account": "a"})
    assert [(row[2], row[-1]) for row in way.rows(MARKED)] == [(None, None), ("old", None)]


def test_too_many_fail_the_load(way: Warehouse) -> None:
    way.load(THINGS, [])
    unstorable = [thing(THINGS, number, name=HALF) for number in range(1001)]
    with pytest.raises(WarehouseError, match="more than 1000 rows cannot be stored; row 1001, column name: "):
        way.load(THINGS, unstorable, on_unstorable=lambda *_: None)
    assert way.rows(THINGS) == []


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
