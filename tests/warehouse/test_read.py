"""Reading: every row once, in constant memory, nothing left open."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.warehouse.connection import configured_hook
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.rows import UnreadableValue
from tests.warehouse.conftest import CAN_STREAM, Warehouse
from tests.warehouse.tables import numbers


def words_of(warehouse: Warehouse, most: int, word: str = "'x' AS word") -> str:
    return numbers(warehouse.kind, most, "i AS id", word)


def test_rows_come_once_in_order_as_tuples(warehouse: Warehouse) -> None:
    for size, sizes in ((4, [4, 4, 2]), (5, [5, 5]), (10, [10]), (11, [10]), (1, [1] * 10)):
        with stream_rows(warehouse.hook, words_of(warehouse, 10) + ";", size=size) as (names, batches):
            assert names == ("id", "word")
            found = list(batches)
        assert [len(batch) for batch in found] == sizes
        assert [row for batch in found for row in batch] == [(number, "x") for number in range(1, 11)]
        assert all(type(batch) is list and type(row) is tuple for batch in found for row in batch)


def test_no_rows_still_have_columns(warehouse: Warehouse) -> None:
    with stream_rows(warehouse.hook, "SELECT 1 AS one, 2 AS two WHERE 1 = 0") as (names, batches):
        assert names == ("one", "two")
        assert list(batches) == []


def test_parameters(warehouse: Warehouse) -> None:
    for mark, parameters in (
        (warehouse.hook.placeholder, ["a%s?'"]),
        (
            {"?": "$word" if warehouse.is_duckdb else ":word"}.get(warehouse.hook.placeholder, "%(word)s"),
            {"word": "a%s?'"},
        ),
    ):
        sql = f"SELECT CAST({mark} AS {'CHAR(10)' if warehouse.is_mysql else 'VARCHAR(10)'})"
        with stream_rows(warehouse.hook, sql, parameters) as (_, batches):
            assert list(batches) == [[("a%s?'",)]]


def test_parameters_that_do_not_match(warehouse: Warehouse) -> None:
    sql = f"SELECT {warehouse.hook.placeholder}, {warehouse.hook.placeholder}"
    with pytest.raises(WarehouseError, match="`sql` on connection 'warehouse'"), stream_rows(warehouse.hook, sql, [1]):
        raise AssertionError


def test_percent_signs_mean_nothing_without_parameters(warehouse: Warehouse) -> None:
    sql = "SELECT 1 FROM (SELECT 1 AS i) AS n WHERE 'abc' LIKE 'a%' AND '%s' <> '?'"
    with stream_rows(warehouse.hook, sql) as (_, batches):
        assert list(batches) == [[(1,)]]


def test_what_is_not_there_is_named_by_the_database(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE people (email VARCHAR(50))")
    for sql, word in (("SELECT * FROM contcats", "contcats"), ("SELECT emial FROM people", "emial")):
        words = f"`sql` on connection 'warehouse': .*{word}"
        with pytest.raises(WarehouseError, match=words), stream_rows(warehouse.hook, sql):
            raise AssertionError


def test_a_statement_that_fails_halfway(native: Warehouse) -> None:
    failing = {
        "sqlite": "json(substr('1x', 1, 1 + (i >= 6000)))",
        "duckdb": "CASE WHEN i = 600000 THEN error('no') ELSE '' END",
        "mysql": "(SELECT 1 UNION SELECT 2 FROM dual WHERE i = 6000)",
    }.get(native.kind, "1 / (i - 6000)")
    sql = words_of(native, 1_000_000 if native.is_duckdb else 10_000, failing)
    found: list[Any] = []
    with (
        stream_rows(native.hook, sql, size=100) as (_, batches),
        pytest.raises(WarehouseError, match="`sql` on connection 'warehouse'"),
    ):
        found.extend(batches)
    assert len(found) == 59 or (native.is_duckdb and 0 < len(found) < 5999)  # that one works on many rows at once


def test_reading_cannot_write(native: Warehouse) -> None:
    native.execute("CREATE TABLE people (email VARCHAR(50))", "INSERT INTO people VALUES ('a')")
    for sql in ("DELETE FROM people", "UPDATE people SET email = 'x'", "CREATE TABLE others (id INTEGER)"):
        with pytest.raises(WarehouseError, match="`sql` on connection 'warehouse'"), stream_rows(native.hook, sql):
            raise AssertionError
    assert native.query("SELECT email FROM people") == [("a",)]


def test_writing_hidden_in_a_select(postgres: Warehouse) -> None:
    postgres.execute(
        "CREATE TABLE people (email VARCHAR(50))",
        "CREATE FUNCTION add() RETURNS integer LANGUAGE sql AS $$ INSERT INTO people VALUES ('a') RETURNING 1 $$",
    )
    with pytest.raises(WarehouseError, match="read-only transaction"), stream_rows(postgres.hook, "SELECT add()"):
        raise AssertionError


def test_a_statement_without_a_result(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("portable_sqlite")
    with pytest.raises(WarehouseError, match="it has no result; is it a SELECT"), stream_rows(warehouse.hook, "BEGIN"):
        raise AssertionError


class Enough(Exception):
    """The reader stops."""


def test_all_is_closed_however_reading_ends(native: Warehouse) -> None:
    native.execute("CREATE TABLE people (id INTEGER)")
    native.execute("INSERT INTO people " + numbers(native.kind, 20_000, "i"))
    with stream_rows(native.hook, "SELECT id FROM people", size=10) as (_, batches):
        next(batches)
    with pytest.raises(Enough), stream_rows(native.hook, "SELECT id FROM people", size=10) as (_, batches):
        raise Enough
    with pytest.raises(WarehouseError), stream_rows(native.hook, "SELECT nothing FROM people"):
        pass
    native.execute("DROP TABLE people")  # would be locked


@pytest.mark.not_unit
def test_the_cursor_of_the_connection_is_not_used(make_warehouse: Callable[..., Warehouse]) -> None:
    make_warehouse("psycopg3", cursor="dictcursor")
    with stream_rows(PostgresHook("warehouse"), "SELECT 1 AS one") as (names, batches):
        assert (names, list(batches)) == (("one",), [[(1,)]])


def test_sizes_that_cannot_be(sqlite: Warehouse) -> None:
    with pytest.raises(ValueError, match="`size`"), stream_rows(sqlite.hook, "SELECT 1", size=0):
        pass


UNREADABLE = [
    *("DATE 'infinity'", "DATE '-infinity'", "DATE '0044-03-15 BC'", "DATE '12000-01-01'"),
    *("TIMESTAMP 'infinity'", "TIMESTAMP '0044-03-15 BC'", "TIMESTAMPTZ '-infinity'", "TIMESTAMPTZ '12000-01-01'"),
    *("TIME '24:00'", "TIMETZ '24:00+00'", "INTERVAL '1000000000 days'", "INTERVAL 'infinity'"),
]
READABLE = {"TIME": "TIME '23:59'", "TIMETZ": "TIMETZ '23:59+00'", "INTERVAL": "INTERVAL '1 day'"}


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_time_that_python_cannot_represent(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str, streams: bool
) -> None:
    """Only its value is lost, with a stream and with a server-side cursor; other times are as ever."""
    hook = make_warehouse(kind).hook
    if not streams:
        monkeypatch.setattr(*CAN_STREAM, lambda connection: False)
    for value, in_array in product(UNREADABLE, [False, True]):
        sql_type = value.partition(" ")[0]
        good = READABLE.get(sql_type, f"{sql_type} '2026-01-02'")
        terms = [f"ARRAY[{good}, {term}]" if in_array else term for term in (good, value, "NULL", good)]
        sql = " UNION ALL ".join(f"SELECT {row} AS n, {term} AS t" for row, term in enumerate(terms))
        with stream_rows(hook, sql + " ORDER BY n", size=2) as (_, batches):
            read = [cell for batch in batches for _, cell in batch]
        ends = [cell[-1] if in_array else cell for cell in read]
        assert isinstance(ends[1], UnreadableValue), value
        assert ends[2] is None
        assert ends[0] == ends[3]
        assert not isinstance(ends[0], UnreadableValue | str)


def test_configured_databases_may_be_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook of the connection type starts jobs; that of the database is in a module of its own."""
    module = SimpleNamespace(DatabricksSqlHook=lambda databricks_conn_id: SqliteHook(databricks_conn_id))
    package = "airflow.providers.databricks"
    for name in (package, f"{package}.hooks", f"{package}.hooks.databricks_sql"):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "databricks://host.example")
    assert configured_hook("page_conn_id", "lake").get_conn_id() == "lake"
