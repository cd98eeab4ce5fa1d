"""Reading: every row once, in constant memory, nothing left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.warehouse.dialects import postgres
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.rows import UnreadableValue
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import numbers


def words_of(warehouse: Warehouse, most: int, word: str = "'x' AS word") -> str:
    return numbers(warehouse.kind, most, "i AS id", word)


@pytest.mark.parametrize(("size", "sizes"), [(4, [4, 4, 2]), (5, [5, 5]), (10, [10]), (11, [10]), (1, [1] * 10)])
def test_rows_come_once_in_order_as_tuples(warehouse: Warehouse, size: int, sizes: list[int]) -> None:
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
    with stream_rows(warehouse.hook, "SELECT 1 FROM (SELECT 1 AS i) AS n WHERE 'abc' LIKE 'a%' AND '%s' <> '?'") as (
        _,
        batches,
    ):
        assert list(batches) == [[(1,)]]


@pytest.mark.parametrize(
    ("sql", "word"), [("SELECT * FROM contcats", "contcats"), ("SELECT emial FROM people", "emial")]
)
def test_what_is_not_there_is_said_in_the_words_of_the_database(warehouse: Warehouse, sql: str, word: str) -> None:
    warehouse.execute("CREATE TABLE people (email VARCHAR(50))")
    with (
        pytest.raises(WarehouseError, match=f"`sql` on connection 'warehouse': .*{word}"),
        stream_rows(warehouse.hook, sql),
    ):
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


@pytest.mark.parametrize(
    "sql", ["DELETE FROM people", "UPDATE people SET email = 'x'", "CREATE TABLE others (id INTEGER)"]
)
def test_reading_cannot_write(native: Warehouse, sql: str) -> None:
    native.execute("CREATE TABLE people (email VARCHAR(50))", "INSERT INTO people VALUES ('a')")
    with pytest.raises(WarehouseError, match="`sql` on connection 'warehouse'"), stream_rows(native.hook, sql):
        raise AssertionError
    assert native.query("SELECT email FROM people") == [("a",)]


@pytest.mark.not_unit
def test_writing_hidden_in_a_select(make_warehouse: Callable[..., Warehouse]) -> None:
    postgres = make_warehouse("psycopg3")
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


OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
    "AND pid <> pg_backend_pid()"
)


@pytest.mark.not_unit
def test_everything_is_closed_however_it_ends(make_warehouse: Callable[..., Warehouse]) -> None:
    class Enough(Exception):
        pass

    for kind in ("psycopg3", "psycopg2"):
        warehouse = make_warehouse(kind)

        def others_become(count: int, warehouse: Warehouse = warehouse) -> bool:
            # The server takes a moment to notice.
            return any(warehouse.query(f"SELECT pg_sleep(0.02), ({OTHERS})")[0][1] == count for _ in range(250))

        assert others_become(0)
        with stream_rows(warehouse.hook, words_of(warehouse, 100_000)) as (_, batches):
            next(batches)
            assert others_become(1)
        assert others_become(0)
        with pytest.raises(Enough), stream_rows(warehouse.hook, words_of(warehouse, 100_000)) as (_, batches):
            raise Enough
        assert others_become(0)
        with pytest.raises(WarehouseError), stream_rows(warehouse.hook, "SELECT nothing"):
            pass
        assert others_become(0)


def test_sqlite_is_closed_when_not_all_was_read(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("sqlite")
    warehouse.execute("CREATE TABLE people (id INTEGER)")
    warehouse.execute("INSERT INTO people " + numbers("sqlite", 20_000, "i"))
    with stream_rows(warehouse.hook, "SELECT id FROM people", size=10) as (_, batches):
        next(batches)
    warehouse.execute("DROP TABLE people")  # would be locked


@pytest.mark.not_unit
def test_the_cursor_of_the_connection_is_not_used(make_warehouse: Callable[..., Warehouse]) -> None:
    from airflow.providers.postgres.hooks.postgres import PostgresHook

    make_warehouse("psycopg3", cursor="dictcursor")
    with stream_rows(PostgresHook("warehouse"), "SELECT 1 AS one") as (names, batches):
        assert (names, list(batches)) == (("one",), [[(1,)]])


def test_sizes_that_cannot_be(make_warehouse: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="`size`"), stream_rows(make_warehouse("sqlite").hook, "SELECT 1", size=0):
        pass


UNREADABLE = [
    *("DATE 'infinity'", "DATE '-infinity'", "DATE '0044-03-15 BC'", "DATE '12000-01-01'"),
    *("TIMESTAMP 'infinity'", "TIMESTAMP '0044-03-15 BC'", "TIMESTAMPTZ '-infinity'", "TIMESTAMPTZ '12000-01-01'"),
    *("TIME '24:00'", "TIMETZ '24:00+00'", "INTERVAL '1000000000 days'", "INTERVAL 'infinity'"),
]


@pytest.mark.not_unit
@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2"])
@pytest.mark.parametrize("value", UNREADABLE)
@pytest.mark.parametrize("in_array", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_a_time_that_python_cannot_represent(
    make_warehouse: Callable[..., Warehouse],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    value: str,
    in_array: bool,
    streams: bool,
) -> None:
    """Only its value is lost, with a stream and with a server-side cursor; other times are as ever."""
    hook = make_warehouse(kind).hook
    if not streams:
        monkeypatch.setattr(postgres, "_can_stream", lambda connection: False)
    sql_type = value.partition(" ")[0]
    good = {"TIME": "TIME '23:59'", "TIMETZ": "TIMETZ '23:59+00'", "INTERVAL": "INTERVAL '1 day'"}.get(
        sql_type, f"{sql_type} '2026-01-02'"
    )
    terms = [f"ARRAY[{good}, {term}]" if in_array else term for term in (good, value, "NULL", good)]
    sql = " UNION ALL ".join(f"SELECT {row} AS n, {term} AS t" for row, term in enumerate(terms))
    with stream_rows(hook, sql + " ORDER BY n", size=2) as (_, batches):
        read = [cell for batch in batches for _, cell in batch]
    ends = [cell[-1] if in_array else cell for cell in read]
    assert isinstance(ends[1], UnreadableValue)
    assert ends[2] is None
    assert ends[0] == ends[3]
    assert not isinstance(ends[0], UnreadableValue | str)
