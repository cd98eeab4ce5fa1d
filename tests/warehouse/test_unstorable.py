"""Values that no database, or not this one, can keep: row, column and cause are named, and never the value."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.errors import UnstorableError, WarehouseError
from airflow_provider_mail.warehouse.stats import CAMPAIGN_SNAPSHOTS, CAMPAIGN_STATS, TRANSACTIONAL_STATS
from airflow_provider_mail.warehouse.table import BIGINT, Column, Table
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import THINGS, thing

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
