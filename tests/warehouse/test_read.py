"""Reading: every row once, in constant memory, nothing left open. Loading does not need more memory either."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.warehouse.connection import configured_hook
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.rows import UnreadableValue
from tests.warehouse.conftest import CAN_STREAM, PORTABLE, Warehouse
from tests.warehouse.tables import THINGS, numbers, thing


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
    with stream_rows(warehouse.hook, "SELECT 1 AS one, 2 AS two WHERE 1 = 0") as (names, batches):
        assert (names, list(batches)) == (("one", "two"), [])


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

    # Percent signs mean nothing without parameters.
    sql = "SELECT 1 FROM (SELECT 1 AS i) AS n WHERE 'abc' LIKE 'a%' AND '%s' <> '?'"
    with stream_rows(warehouse.hook, sql) as (_, batches):
        assert list(batches) == [[(1,)]]


def test_what_is_not_there_is_named_by_the_database(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE people (email VARCHAR(50))")
    marks = f"SELECT {warehouse.hook.placeholder}, {warehouse.hook.placeholder}"
    for sql, word in (("SELECT * FROM contcats", "contcats"), ("SELECT emial FROM people", "emial"), (marks, "")):
        words = f"`sql` on connection 'warehouse': .*{word}"
        parameters = [1] if sql == marks else None
        with pytest.raises(WarehouseError, match=words), stream_rows(warehouse.hook, sql, parameters):
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


def test_all_is_closed_however_reading_ends(native: Warehouse) -> None:
    native.execute("CREATE TABLE people (id INTEGER)")
    native.execute("INSERT INTO people " + numbers(native.kind, 20_000, "i"))
    with stream_rows(native.hook, "SELECT id FROM people", size=10) as (_, batches):
        next(batches)
    with pytest.raises(KeyError), stream_rows(native.hook, "SELECT id FROM people", size=10) as (_, batches):
        raise KeyError
    with pytest.raises(WarehouseError), stream_rows(native.hook, "SELECT nothing FROM people"):
        pass
    native.execute("DROP TABLE people")  # would be locked


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


# Memory, as Python counts it

ROWS, WORDS = 60_000, "x" * 1000
MOST = 20_000_000
"""Bytes, of 60 MB of words alone."""


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


@pytest.mark.not_unit
def test_reading_takes_little_memory(native: Warehouse) -> None:
    """What the driver holds beside Python's objects is not counted."""
    joined = f"concat('{WORDS}', i)" if native.is_mysql else f"'{WORDS}' || i"
    sql = numbers(native.kind, ROWS, "i", joined)
    with stream_rows(native.hook, "SELECT 1") as (_, batches):  # what is imported for the first reading is not counted
        assert [*batches] == [[(1,)]]
    with little_memory(), stream_rows(native.hook, sql) as (_, batches):
        assert sum(map(len, batches)) == ROWS


@pytest.mark.not_unit
@pytest.mark.parametrize("kind", ["sqlite", PORTABLE[0], "psycopg3", "psycopg2", "mysql"])
def test_loading_takes_little_memory(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse, rows = make_warehouse(kind), ROWS // 6

    def many() -> Iterator[tuple[Any, ...]]:
        for number in range(rows):
            yield thing(THINGS, number, name=f"{WORDS * 6}{number}")

    warehouse.load(THINGS, [])
    with little_memory():
        warehouse.load(THINGS, many())
    assert warehouse.query("SELECT count(*) FROM things") == [(rows,)]
