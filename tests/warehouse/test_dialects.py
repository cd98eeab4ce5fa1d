"""What single databases do their own way: MySQL and MariaDB, DuckDB, and those that are refused."""

from __future__ import annotations

import importlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from airflow.providers.mysql.hooks.mysql import MySqlHook
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail._task.storage import check_tables
from airflow_provider_mail.version_compat import AirflowFailException
from airflow_provider_mail.warehouse import database
from airflow_provider_mail.warehouse.database import LoadResult, StoredTable, database_time, stream_rows
from airflow_provider_mail.warehouse.dialects.duckdb import DuckDb, one_process
from airflow_provider_mail.warehouse.dialects.postgres import Postgres
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from tests.support.clock import Clock
from tests.support.mariadb import CLIENT, CLIENTS
from tests.support.postgres import PostgresServer
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, thing

# Another database: it is read, and nothing of ours is created in it


def test_another_database_is_refused(make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = make_warehouse("unknown")
    monkeypatch.setattr(type(unknown.hook), "conn_type", "oracle")
    words = (
        r"connection 'warehouse': tables are loaded in SQLite, Postgres, DuckDB, MySQL and MariaDB, not in oracle: "
        r"use the dlt source there \(docs/dlt\.md\), or write files \(docs/object-storage\.md\)"
    )
    with pytest.raises(WarehouseError, match=words):
        unknown.load(THINGS, (pytest.fail("a row was asked for") for _ in range(1)))
    for refused in (lambda: database_time(unknown.hook), lambda: StoredTable(unknown.hook, THINGS, "things")):
        with pytest.raises(WarehouseError, match=words):
            refused()
    with pytest.raises(AirflowFailException, match=words):
        check_tables(unknown.hook, {"rejects_table": "rejects"})
    assert unknown.query("SELECT * FROM sqlite_master") == []
    with stream_rows(unknown.hook, "SELECT 1 AS one") as (names, batches):
        assert (names, [*batches]) == (("one",), [[(1,)]])


@pytest.mark.not_unit
def test_redshift_is_not_taken_for_postgres(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hook derives from that of Postgres, and says that it is one."""
    postgres = make_warehouse("psycopg3")
    monkeypatch.setattr(type(postgres.hook), "conn_type", "redshift")
    with pytest.raises(WarehouseError, match="not in redshift"):
        postgres.load(THINGS, [])


@pytest.mark.parametrize(
    "error", [duckdb.InternalException("INTERNAL Error: 'x'"), duckdb.FatalException("FATAL Error: x")]
)
def test_an_internal_error_of_duckdb_is_named(error: Exception) -> None:
    assert safe_message(error) == (
        f"{type(error).__name__}: internal error of DuckDB: restart the process if it persists, and upgrade DuckDB"
    )


# MySQL and MariaDB


@pytest.fixture
def mysql(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    return make_warehouse("mysql")


def test_another_unique_index_is_rejected(mysql: Warehouse) -> None:
    """`ON DUPLICATE KEY UPDATE` would write the values of one campaign into the row of another."""
    mysql.load(PLAIN, [thing(PLAIN, 1, size=1)])
    mysql.execute("CREATE UNIQUE INDEX sizes ON things (size)")
    with pytest.raises(
        WarehouseError, match=r"table things .* index sizes is unique, too; .*make it an ordinary index"
    ):
        mysql.load(PLAIN, [thing(PLAIN, 2, size=1)])
    assert mysql.rows(PLAIN) == [thing(PLAIN, 1, size=1)]


@pytest.mark.not_unit
def test_characters_and_cursors_of_the_user_s_connection(make_warehouse: Callable[..., Warehouse]) -> None:
    hook = MySqlHook("warehouse", init_command="SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    warehouse = replace(make_warehouse("mysql", charset="latin1", cursor="dictcursor"), hook=hook)
    row = thing(THINGS, 1, name="back\\slash 'n' 漢字 🎉")
    for _ in range(2):
        warehouse.load(THINGS, [row])
    with stream_rows(hook, "SELECT name FROM things") as (_, batches):
        assert list(batches) == [[("back\\slash 'n' 漢字 🎉",)]]


@pytest.mark.not_unit
def test_the_other_driver_of_the_hook(make_warehouse: Callable[..., Warehouse]) -> None:
    others = [client for client in CLIENTS if client != CLIENT]
    if not others:
        pytest.skip("only one of MySqlHook's drivers is installed here")
    mysql = make_warehouse("mysql", client=others[0])
    rows = [thing(THINGS, n, name=f"🎉 {n}", good=True, sold_at=NOON, extra={"n": n}) for n in range(1200)]
    assert mysql.load(THINGS, rows).inserted == 1200
    assert mysql.load(THINGS, reversed(rows)).unchanged == 1200
    assert mysql.load(THINGS, [thing(THINGS, 1, at=LATER)], replace_where={"account": "a"}).deleted == 1199
    with pytest.raises(WarehouseError, match=r"DataError: column account \(1406\)"):
        mysql.load(THINGS, [thing(THINGS, 2, account="a" * 60)])
    with stream_rows(mysql.hook, "SELECT number FROM things", size=1) as (_, batches):
        assert list(batches) == [[(1,)]]


def test_reading_breaks_off_without_reading_the_rest(mysql: Warehouse) -> None:
    before = {*threading.enumerate()}
    with stream_rows(mysql.hook, "SELECT seq, repeat('x', 1000) FROM seq_1_to_2000000", size=10) as (_, batches):
        next(batches)
    assert {*threading.enumerate()} <= before


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("number", "message", "shown"),
    [
        (1146, "Table 'crm.things' doesn't exist", "Table 'crm.things' doesn't exist (1146)"),
        (1142, "INSERT command denied to user 'reader'", "INSERT command denied to user 'reader' (1142)"),
        (1213, "Deadlock found", "Deadlock found (1213)"),
        (4025, "CONSTRAINT `small` failed", "CONSTRAINT `small` failed (4025)"),
        (2013, "Lost connection to server", "Lost connection to server (2013)"),
        (1062, "Duplicate entry 'ada@example.com' for key 'PRIMARY'", "key PRIMARY (1062)"),
        (1406, "Data too long for column 'name' at row 3", "column name (1406)"),
        (1366, "Incorrect string value: 'ada@example.com'", "look at the constraints, .* rows (1366)"),
        (1064, "You have an error near 'ada@example.com'", "look at the constraints, .* rows (1064)"),
    ],
)
def test_messages_are_shown_where_they_hold_no_values(client: str, number: int, message: str, shown: str) -> None:
    if client == "mysqlclient":
        error = importlib.import_module("MySQLdb").Error(number, message)
    else:
        error = importlib.import_module("mysql.connector").Error(message, number)
    pattern = ".*".join(map(re.escape, f"{type(error).__name__}: {shown}".split(".*")))
    assert re.fullmatch(pattern, safe_message(error))


# DuckDB


@pytest.fixture
def duck(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """As in a task: each connection opens the file, and the last one closes it."""
    return make_warehouse("duckdb", stays_open=False)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE things SET size = 1 WHERE number = 2",
        "INSERT INTO things (account, number, observed_at) VALUES ('a', 3, '2026-03-01')",
    ],
)
def test_a_conflict_with_another_transaction_is_tried_again(
    duck: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: Clock, statement: str
) -> None:
    caplog.set_level("INFO")
    duck.load(THINGS, [thing(THINGS, 2, name="old")])
    merge, merges = DuckDb.merge, 0

    def merge_behind_another(dialect: DuckDb, cursor: Any) -> LoadResult:
        nonlocal merges
        merges += 1
        if merges == 1:  # this transaction has begun, so it does not see what is committed now
            duck.execute(statement)
        return merge(dialect, cursor)

    monkeypatch.setattr(DuckDb, "merge", merge_behind_another)
    duck.load(THINGS, [thing(THINGS, number, name="new", at=LATER) for number in (2, 3)])
    assert merges == 2
    assert "conflict with another transaction (attempt 1 of 8)" in caplog.text
    assert [row[2] for row in duck.rows(THINGS)] == ["new", "new"]


def test_a_file_that_another_process_is_making_is_waited_for(duck: Warehouse, clock: Clock) -> None:
    file = Path(duck.hook.get_connection("warehouse").host)
    made = file.with_name("made.duckdb")
    duckdb.connect(str(made)).close()
    file.write_bytes(b"half made")
    clock.after(1, lambda: made.replace(file))
    assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    file.write_bytes(b"something else")
    with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': .*not a valid DuckDB database file"):
        duck.load(THINGS, [thing(THINGS, 2)])
    assert file.read_bytes() == b"something else"


def test_a_file_that_this_process_is_closing_is_waited_for(duck: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.load(THINGS, [])
    waits: list[object] = []
    with duckdb.connect() as other:
        other.execute(f"ATTACH '{duck.hook.get_connection('warehouse').host}' AS closing")
        monkeypatch.setattr(database, "pause", lambda: waits.append(other.execute("DETACH closing")))
        assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    assert len(waits) == 1


def test_a_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = json.dumps({"conn_type": "duckdb", "host": str(tmp_path / "nowhere" / "x.duckdb")})
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", nowhere)
    with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': .*No such file or directory"):
        Warehouse("duckdb", DuckDBHook("warehouse")).load(THINGS, [])


def test_where_no_lock_is_possible_it_goes_on(tmp_path: Path) -> None:
    with one_process(str(tmp_path / "no such folder" / "warehouse.duckdb"), 60):
        pass
    assert list(tmp_path.iterdir()) == []


def test_whether_a_user_of_postgres_may_create_tables(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as database, database.connect() as connection, connection.cursor() as cursor:
        assert Postgres.may_create(cursor)
        cursor.execute("CREATE ROLE only_reads")
        cursor.execute("SET ROLE only_reads")
        assert not Postgres.may_create(cursor)
        cursor.execute("RESET ROLE")
        cursor.execute("DROP ROLE only_reads")  # It is one of the server, not of the database.
