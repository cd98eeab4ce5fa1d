"""What single databases do their own way: the portable path, MySQL and MariaDB, DuckDB, warehouses without keys."""

from __future__ import annotations

import datetime
import importlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
import sqlglot
from airflow.providers.mysql.hooks.mysql import MySqlHook
from duckdb_provider.hooks.duckdb_hook import DuckDBHook
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from airflow_provider_mail.warehouse import connection
from airflow_provider_mail.warehouse.dialects import DIALECTS, dialect_of
from airflow_provider_mail.warehouse.dialects.duckdb import DuckDb, one_process
from airflow_provider_mail.warehouse.dialects.portable import NOT_ENFORCING
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message
from airflow_provider_mail.warehouse.load import LoadResult, check_database, load
from airflow_provider_mail.warehouse.manifest import TABLES
from airflow_provider_mail.warehouse.read import stream_rows
from airflow_provider_mail.warehouse.request import Coverage, LoadRequest, MarkGone
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import Table, TableName
from tests.support.clock import Clock
from tests.support.mariadb import CLIENT, CLIENTS
from tests.support.sampling import EVERYTHING, examples
from tests.warehouse.conftest import PORTABLE, REPLACE, UnknownSqliteHook, Warehouse, default_adapter
from tests.warehouse.standins import STANDINS, Conflict, Proxy, VersionedCursor, native
from tests.warehouse.tables import LATER, MARKED, NOON, PLAIN, THINGS, thing

# The portable path: rejected where it would double rows, honest about what the driver says


@pytest.fixture(params=PORTABLE)
def unknown(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """A database without a dialect of its own."""
    return make_warehouse(request.param)


def test_a_table_that_takes_a_key_twice_is_rejected(unknown: Warehouse) -> None:
    unknown.execute("CREATE TABLE things (account VARCHAR(50) NOT NULL, number BIGINT NOT NULL)")
    words = r"accepts two rows with one key \(account, number\).* would duplicate rows"
    with pytest.raises(WarehouseError, match=words):
        unknown.load(THINGS, (pytest.fail("a row was asked for") for _ in range(1)))
    assert unknown.query("SELECT * FROM things") == []


class CommittingHook(UnknownSqliteHook):
    """A database without transactions: every statement counts at once."""

    def get_conn(self) -> Any:
        connection = super().get_conn()
        connection.isolation_level = None
        return connection


@default_adapter
def test_a_database_without_transactions_is_rejected(make_warehouse: Callable[..., Warehouse]) -> None:
    sqlite = make_warehouse("portable_sqlite")
    sqlite.load(THINGS, [thing(THINGS, 1, name="old")])
    with pytest.raises(WarehouseError, match=r"rows stay although they were rolled back: .* has no transactions"):
        load(CommittingHook("warehouse"), THINGS, "things", [thing(THINGS, 2)])
    assert [row[:3] for row in sqlite.rows(THINGS)] == [("a", 1, "old")]


def no_rollback() -> None:
    """What connections of Trino's kind do in their default, autocommit."""
    raise RuntimeError("No transaction was started")


def test_what_a_database_says_that_cannot_roll_back(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite = make_warehouse("portable_sqlite")
    connect = sqlite.hook.get_conn
    monkeypatch.setattr(sqlite.hook, "get_conn", lambda: Proxy(connect(), rollback=no_rollback))
    words = r"cannot roll back \(RuntimeError: No transaction was started\): a load needs a transaction"
    with pytest.raises(WarehouseError, match=words):
        sqlite.load(THINGS, [thing(THINGS, 2)])


@pytest.mark.parametrize("kind", sorted(NOT_ENFORCING)[::5])
def test_databases_that_are_known_not_to_enforce_keys(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sqlite = make_warehouse("portable_sqlite")
    monkeypatch.setattr(UnknownSqliteHook, "conn_type", kind)
    for rejected in (lambda: check_database(sqlite.hook), lambda: sqlite.load(THINGS, [])):
        with pytest.raises(WarehouseError, match=rf"'warehouse': {kind} does not enforce .* would duplicate rows"):
            rejected()


class DriverError(Exception):
    """Of a driver that we do not know."""


class SpeakingHook(UnknownSqliteHook):
    """Its driver fails at the insert of a row of the load, with its values in the message."""

    def get_conn(self) -> Any:
        connection = super().get_conn()
        return Proxy(connection, cursor=lambda: Proxy(connection.cursor(), executemany=self._fail))

    def _fail(self, statement: str, rows: list[list[Any]]) -> None:
        raise DriverError(
            f"Can't insert: value {rows[0][2]} of \"name\" is too long, 'cut ada@exa', near bob@example.com\n{rows[0]}"
        )


@default_adapter
def test_the_driver_s_message_is_kept_without_values(make_warehouse: Callable[..., Warehouse]) -> None:
    make_warehouse("portable_sqlite")
    with pytest.raises(WarehouseError) as caught:
        load(SpeakingHook("warehouse"), THINGS, "things", [thing(THINGS, 1, name="Ada Lovelace")])
    assert 'DriverError: Can\'t insert: value *** of "name" is too long, ***, near *** (1 rows read)' in str(
        caught.value
    )
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("failures", [(1213, "Deadlock found"), (1205, "Lock wait timeout"), (1020, "Has changed")])
@default_adapter
def test_a_deadlock_of_mariadb_s_is_tried_again(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, failures: tuple[int, str], clock: object
) -> None:
    """As PyMySQL and MariaDB's own driver say it, through a hook that is not Airflow's for MySQL."""
    sqlite = make_warehouse("portable_sqlite")
    left = [DriverError(*failures)] * 2
    replace = getattr(*REPLACE)

    def fail_twice(*arguments: Any) -> Any:
        written = replace(*arguments)
        if left:
            raise left.pop()
        return written

    monkeypatch.setattr(*REPLACE, fail_twice)
    assert sqlite.load(THINGS, [thing(THINGS, 1)]) == LoadResult(1, outdated=0)
    assert len(sqlite.rows(THINGS)) == 1


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
    make_warehouse("mysql", charset="latin1", cursor="dictcursor")
    hook = MySqlHook("warehouse", init_command="SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    row = thing(THINGS, 1, name="back\\slash 'n' 漢字 🎉")
    for _ in range(2):
        load(hook, THINGS, "things", [row])
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
        monkeypatch.setattr(connection, "pause", lambda: waits.append(other.execute("DETACH closing")))
        assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    assert len(waits) == 1


def test_a_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = json.dumps({"conn_type": "duckdb", "host": str(tmp_path / "nowhere" / "x.duckdb")})
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", nowhere)
    with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': .*No such file or directory"):
        load(DuckDBHook("warehouse"), THINGS, "things", [])


def test_where_no_lock_is_possible_it_goes_on(tmp_path: Path) -> None:
    with one_process(str(tmp_path / "no such folder" / "warehouse.duckdb"), 60):
        pass
    assert list(tmp_path.iterdir()) == []


# Warehouses that do not enforce keys: the rules of all loads hold on their stand-ins, and no row is doubled

LATEST = LATER + datetime.timedelta(hours=1)
OF_A = {"account": "a"}


@pytest.mark.parametrize("kind", STANDINS)
def test_every_type_and_every_rule_once(make_warehouse: Callable[[str], Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    full = {"name": "a\\' \" \n\r\t%s {} $1 å", "size": -5, "ratio": 1.5, "good": True, "day": NOON.date()}
    more = {"sold_at": LATER, "extra": {"a": ["x\\ ' \n"], "b": None}}
    first = [thing(MARKED, 1, **full, **more), thing(MARKED, 2), thing(MARKED, 3), thing(MARKED, 3, name="last")]
    warehouse.load(MARKED, first)
    assert warehouse.rows(MARKED) == [first[0], first[1], first[3]]

    old = NOON - datetime.timedelta(hours=1)
    second = [thing(MARKED, 1, at=old, name="old"), thing(MARKED, 2, at=LATER, name="new"), thing(MARKED, 4, at=LATER)]
    warehouse.load(MARKED, second, mark_gone=MarkGone(LATER, lambda: [OF_A]))
    # Neither is the first older, nor is it missing.
    assert warehouse.rows(MARKED) == [first[0], second[1], (*first[3][:-1], LATER), second[2]]
    warehouse.load(MARKED, [thing(MARKED, 3, at=LATEST)], replace_where=OF_A)
    assert [(row[1], row[-1]) for row in warehouse.rows(MARKED)] == [(3, None)]
    with native(warehouse.hook) as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%stage%'")
        assert cursor.fetchall() == []


def test_a_conflict_with_another_load_is_tried_again(
    make_warehouse: Callable[[str], Warehouse], monkeypatch: pytest.MonkeyPatch, clock: object
) -> None:
    """Each of two statements that write one table is a commit of it, of which the second one fails."""
    warehouse, conflicts = make_warehouse("databricks"), [Conflict(), Conflict()]
    warehouse.load(THINGS, [thing(THINGS, 1, name="old")])
    commit = VersionedCursor.commit_table

    def conflict(cursor: VersionedCursor) -> None:
        if conflicts:
            raise conflicts.pop()
        commit(cursor)

    monkeypatch.setattr(VersionedCursor, "commit_table", conflict)
    warehouse.load(THINGS, [thing(THINGS, 1, name="new", at=LATER)])
    assert (warehouse.rows(THINGS)[0][2], conflicts) == ("new", [])


class Killed(BaseException):
    """The process is gone: nothing that it would have done happens any more."""


@pytest.mark.parametrize("kind", ["snowflake", "redshift", "databricks"])
def test_killed_at_every_statement(make_warehouse: Callable[[str], Warehouse], kind: str) -> None:
    """The table is that of before or that of after, and the load can be repeated."""
    warehouse = make_warehouse(kind)
    before = [thing(MARKED, 1, name="old"), thing(MARKED, 2), thing(MARKED, 3)]
    after = [thing(MARKED, 1, name="new", at=LATER), thing(MARKED, 4, at=LATER)]
    covers = Coverage.one("a", {"account": "a"}, mail_conn_id="m", observed_at=LATER)
    again = {"replace_where": OF_A, "covers": covers}
    for point in range(0, 40, 1 if EVERYTHING else 4):
        for table in ("things", "mail_loads"):
            warehouse.execute(f"DROP TABLE IF EXISTS {table}")
        warehouse.load(MARKED, before)
        dying = Warehouse(warehouse.kind, dies_at(STANDINS[kind], point)("warehouse"))
        try:
            dying.load(MARKED, after, **again)
        except Killed:
            assert warehouse.rows(MARKED) in (before, after)
            warehouse.load(MARKED, after, **again)
            assert warehouse.rows(MARKED) == after
        else:
            assert warehouse.rows(MARKED) == after
            assert point > 8
            return
    raise AssertionError("there are more statements than that")


def dies_at(hook: Any, point: int) -> Any:
    """A hook whose process dies before the statement with this number."""
    left = [point]

    class Dying(hook):
        def get_conn(self) -> Any:
            connection = super().get_conn()
            return Proxy(connection, cursor=lambda: self._dying(connection.cursor()))

        def _dying(self, cursor: Any) -> Any:
            def execute(*arguments: Any) -> None:
                if not left[0]:
                    raise Killed
                left[0] -= 1
                cursor.execute(*arguments)

            return Proxy(cursor, execute=execute)

    return Dying


MERGING = [kind for kind, path in DIALECTS.items() if path.startswith("warehouses.")]


def sql_of(kind: str, table: Table = MARKED, name: str = "crm.things") -> Any:
    request = LoadRequest(table, TableName.parse(name), Source(()))
    hook: Any = SimpleNamespace(conn_type=kind, dialect_name=kind)
    return dialect_of(hook)(hook, request)


@pytest.mark.parametrize("kind", MERGING)
@given(text=st.text())
@settings(max_examples=examples(50))
def test_a_text_is_a_literal_whatever_it_holds(kind: str, text: str) -> None:
    """As the parser of each dialect reads it; characters that no column keeps are left out."""
    text = text.replace("\x00", "").encode(errors="ignore").decode()
    if kind != "trino":
        text = text.replace("\f", "").replace("\v", "")
    tree = sqlglot.parse_one(f"SELECT {sql_of(kind).text(text)} AS a", read=kind)
    (found,) = tree.find_all(exp.Literal)
    assert found.this == text


SPELLINGS = {
    "snowflake": ("CLUSTER BY", "VARIANT", "TIMESTAMP_TZ"),
    "bigquery": ("PARTITION BY", "JSON", "TIMESTAMP"),
    "redshift": ("SORTKEY", "SUPER", "TIMESTAMPTZ"),
    "databricks": ("CLUSTER BY", "VARIANT", "TIMESTAMP"),
    "trino": (None, "VARCHAR", "TIMESTAMP(6) WITH TIME ZONE"),
}
"""What keeps the rows of a day together, and the types of JSON and of times."""


@pytest.mark.parametrize("kind", MERGING)
def test_the_tables_in_the_types_of_the_warehouse(kind: str) -> None:
    by_day, json, timestamp = SPELLINGS[kind]
    for table in TABLES.values():
        (create, *_) = sql_of(kind, table).create_statements()
        tree = sqlglot.parse_one(create, read=kind, error_level=sqlglot.ErrorLevel.RAISE)
        assert isinstance(tree, exp.Create)
        assert [column.name for column in tree.find_all(exp.ColumnDef)] == [*table.stored_names]
        if table.by_day and by_day:
            assert f"{by_day} " in create
            assert table.by_day in create.rpartition(")\n")[2] or table.by_day in create[create.rindex("\n)") :]
    create = next(sql_of(kind).create_statements()).replace('"', "")
    assert f"extra {json},\n" in create
    assert f"sold_at {timestamp},\n" in create


def test_a_name_that_cannot_be_quoted() -> None:
    with pytest.raises(WarehouseError, match="must not contain `"):
        sql_of("bigquery", name='crm."th`ings"')
