"""What a load finds: tables of its own making and others, names, connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.table import Table
from tests.warehouse.conftest import Warehouse, default_adapter
from tests.warehouse.tables import NOON, PLAIN, THINGS, TOKYO, thing


def never_asked_for() -> Iterator[tuple[Any, ...]]:
    """Rows for loads that are known to fail before they begin."""
    raise AssertionError("a row was asked for")
    yield


@pytest.mark.not_unit
def test_created_with_types_key_and_comments_on_postgres(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("psycopg3")
    warehouse.load(THINGS, [])
    columns = warehouse.query(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull, col_description(attrelid, attnum) "
        "FROM pg_attribute WHERE attrelid = 'things'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert columns == [
        ("account", "text", True, "Whose thing it is"),
        ("number", "bigint", True, "Its number"),
        ("name", "text", False, "What it's called"),
        ("size", "integer", False, "How large"),
        ("ratio", "double precision", False, "In percent"),
        ("good", "boolean", False, "Or bad"),
        ("day", "date", False, "Of its making"),
        ("sold_at", "timestamp with time zone", False, "When it was sold"),
        ("extra", "jsonb", False, "All the rest"),
        ("observed_at", "timestamp with time zone", True, "When it was looked at"),
        ("loaded_at", "timestamp with time zone", False, "When the row was last written"),
        ("run_id", "text", False, "Airflow run that wrote it; null outside of a task"),
    ]
    assert warehouse.query("SELECT obj_description('things'::regclass)") == [(THINGS.comment,)]
    assert warehouse.query("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'things_pkey'") == [
        ("PRIMARY KEY (account, number)",)
    ]


def test_created_with_types_key_and_comments_on_sqlite(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("sqlite")
    warehouse.load(THINGS, [])
    ((schema,),) = warehouse.query("SELECT sql FROM sqlite_master WHERE name = 'things'")
    assert "number BIGINT NOT NULL /* Its number */" in schema
    assert "name TEXT /* What it's called */" in schema
    assert "observed_at TIMESTAMP NOT NULL" in schema
    assert "PRIMARY KEY (account, number)" in schema


def test_sqlite_times_compare_with_its_own(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("sqlite")
    warehouse.load(THINGS, [thing(THINGS, 1, sold_at=NOON.astimezone(TOKYO), day=NOON.date())])
    assert warehouse.query(
        "SELECT sold_at = datetime('2026-03-01 12:00'), sold_at < datetime('2026-03-01 12:00:01'), day = date(sold_at) "
        "FROM things"
    ) == [(1, 1, 1)]


def test_a_declared_column_that_is_missing_is_added(warehouse: Warehouse) -> None:
    narrow = Table(THINGS.columns[:3], THINGS.key, "")
    warehouse.load(narrow, [thing(narrow, 1, name="old"), thing(narrow, 2, name="old")])
    warehouse.load(THINGS, [thing(THINGS, 1, name="new", ratio=1.5)])
    assert warehouse.rows(THINGS) == [
        thing(THINGS, 1, name="new", ratio=1.5),
        thing(THINGS, 2, name="old", at=None),  # nobody knows when
    ]
    # Rows that nobody knows the time of give way to any observation.
    warehouse.load(THINGS, [thing(THINGS, 2, name="new")])
    assert warehouse.rows(THINGS)[1] == thing(THINGS, 2, name="new")


def test_columns_that_are_not_ours_are_left_alone(warehouse: Warehouse) -> None:
    warehouse.load(PLAIN, [thing(PLAIN, 1, name="old")])
    warehouse.execute("ALTER TABLE things ADD note VARCHAR(20)", "UPDATE things SET note = 'mine'")
    narrow = Table(PLAIN.columns[:3], PLAIN.key, "")
    warehouse.load(narrow, [thing(narrow, 1, name="new")])
    notes = {"portable_sqlite": None, "portable_postgres": None}  # deletes and inserts
    assert warehouse.query("SELECT name, note FROM things") == [("new", notes.get(warehouse.kind, "mine"))]


CANNOT_HOLD = {
    "sqlite": ("TEXT", "INTEGER", "REAL", "TEXT", "TEXT", "INTEGER", "REAL", "JSON"),
    "postgres": (
        "integer",
        "character varying(20)",
        "smallint",
        "real",
        "integer",
        "timestamp without time zone",
        "timestamp without time zone",
        "json",
    ),
    "duckdb": (
        "INTEGER",
        "INTEGER",
        "SMALLINT",
        "FLOAT",
        "INTEGER",
        "TIMESTAMP",
        "TIMESTAMP WITH TIME ZONE",
        "VARCHAR",
    ),
    "mysql": ("int(11)", "text", "smallint(6)", "float", "varchar(5)", "datetime", "datetime(3)", "text"),
}


@pytest.mark.parametrize("at", range(8), ids=["number", "name", "size", "ratio", "good", "day", "sold_at", "extra"])
def test_a_column_that_cannot_hold_our_values(native: Warehouse, at: int) -> None:
    wrong = CANNOT_HOLD["postgres" if native.is_postgres else native.kind][at]
    column = PLAIN.names[at + 1]
    others = f"account {native.varchar(50)}" + ("" if column == "number" else ", number BIGINT")
    native.execute(f"CREATE TABLE things ({others}, {column} {wrong}, PRIMARY KEY (account, number))")
    never = never_asked_for()
    with pytest.raises(WarehouseError) as caught:
        native.load(THINGS, never)
    message = str(caught.value)
    assert "table things on connection 'warehouse'" in message
    assert f"column {column} is {wrong}" in message
    assert "expected " in message


def test_wider_columns_will_do(native: Warehouse) -> None:
    types = {"duckdb": ("HUGEINT", "DOUBLE", "VARCHAR"), "mysql": ("DECIMAL(20)", "DOUBLE", "LONGTEXT")}
    number, ratio, name = types.get(native.kind, ("NUMERIC", "NUMERIC", "VARCHAR"))
    name += " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci" if native.is_mysql else ""
    native.execute(
        f"CREATE TABLE things (account {native.varchar(60)}, number {number}, name {name}, size BIGINT, "
        f"ratio {ratio}, PRIMARY KEY (number, account))"
    )
    if native.is_sqlite:
        native.execute("DROP TABLE things", "CREATE TABLE things (account, number, ratio, UNIQUE (number, account))")
    row = thing(THINGS, 1, name="n", size=5, ratio=0.5)
    native.load(THINGS, [row])
    assert native.load(THINGS, [row]).unchanged == 1
    assert native.rows(THINGS) == [row]
    # Whatever the database thinks of capitals.
    assert native.load(THINGS, [thing(THINGS, 1, name="N", size=5, ratio=0.5)]).changed == 1
    assert native.rows(THINGS)[0][2] == "N"


def test_a_table_without_the_key(native: Warehouse) -> None:
    native.load(THINGS, [])
    native.execute(
        "CREATE TABLE heap (LIKE things)" if native.is_postgres else "CREATE TABLE heap AS SELECT * FROM things"
    )
    never = never_asked_for()
    with pytest.raises(WarehouseError, match=r"table heap .* no primary key or unique index on \(account, number\)"):
        native.load(THINGS, never, "heap")


def test_a_table_that_is_something_else(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE things (id INTEGER)")
    with pytest.raises(WarehouseError, match="no column account, which is part of the key; another `table`"):
        warehouse.load(THINGS, [])


def test_a_schema_that_is_not_there(warehouse: Warehouse) -> None:
    with pytest.raises(WarehouseError, match=r"table nowhere\.things on connection 'warehouse': .*nowhere"):
        warehouse.load(THINGS, [thing(THINGS, 1)], "nowhere.things")


@pytest.mark.not_unit
def test_no_permission(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("psycopg3")
    warehouse.load(THINGS, [])
    warehouse.execute("CREATE ROLE reader", "GRANT SELECT ON things TO reader")
    try:
        warehouse.hook.options = "-c role=reader"
        with pytest.raises(WarehouseError, match="permission denied for table things"):
            warehouse.load(THINGS, [thing(THINGS, 1)])
        with pytest.raises(WarehouseError, match="permission denied for schema public"):
            warehouse.load(THINGS, [thing(THINGS, 1)], "others")
    finally:
        warehouse.hook.options = None
        warehouse.execute("DROP OWNED BY reader", "DROP ROLE reader")


# Names


@pytest.mark.parametrize("name", ["Mixed_Case", '"Mixed Case"', '"select"', '"dro""p; --"', "übersicht"])
def test_names_mean_what_they_mean_in_a_statement(warehouse: Warehouse, name: str) -> None:
    for _ in range(2):
        warehouse.load(THINGS, [thing(THINGS, 1, name="x")], name)
    assert warehouse.rows(THINGS, name) == [thing(THINGS, 1, name="x")]


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2", "portable_postgres"])
def test_schemas(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    warehouse.execute("CREATE SCHEMA crm", 'CREATE SCHEMA "My Schema"')
    for name in ("things", "crm.things", '"My Schema".things'):
        warehouse.load(THINGS, [thing(THINGS, 1, name=name)], name)
    assert [warehouse.rows(THINGS, name)[0][2] for name in ("public.things", "crm.things", '"My Schema".things')] == [
        "things",
        "crm.things",
        '"My Schema".things',
    ]


def test_sqlite_schemas(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("sqlite")
    for _ in range(2):
        warehouse.load(THINGS, [thing(THINGS, 1)], "main.things")
    assert len(warehouse.rows(THINGS)) == 1


# Connections


@pytest.mark.not_unit
def test_the_hook_of_the_provider_as_it_is(make_warehouse: Callable[..., Warehouse]) -> None:
    # The cursor that the connection names is meant for the user's own statements.
    make_warehouse("psycopg3", cursor="dictcursor")
    hook = PostgresHook("warehouse")
    for _ in range(2):
        load(hook, THINGS, "things", [thing(THINGS, 1)])
    assert [dict(row) for row in hook.get_records("SELECT number FROM things")] == [{"number": 1}]


def test_a_hook_that_keeps_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook of Databricks returns the one that it has, also when that is closed."""

    class Keeping(SqliteHook):
        kept: Any = None

        def get_conn(self) -> Any:
            self.kept = self.kept or super().get_conn()
            return self.kept

    connection = {"conn_type": "sqlite", "host": str(tmp_path / "warehouse.db")}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
    hook = Keeping("warehouse")
    for number in (1, 2):
        load(hook, THINGS, "things", [thing(THINGS, number)])
    assert hook.get_records("SELECT number FROM things ORDER BY number") == [(1,), (2,)]


@pytest.mark.not_unit
def test_a_stricter_isolation_level_of_the_database(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("psycopg2")
    warehouse.hook.options = "-c default_transaction_isolation=serializable"
    for _ in range(2):
        warehouse.load(THINGS, [thing(THINGS, 1)])
    assert len(warehouse.rows(THINGS)) == 1


@pytest.mark.not_unit
def test_a_database_that_does_not_answer(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = make_warehouse("psycopg3")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", '{"conn_type": "postgres", "host": "127.0.0.1", "port": 1}')
    with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': OperationalError: .*port 1"):
        warehouse.load(THINGS, [])


def test_a_connection_that_does_not_exist(airflow_home: object) -> None:
    from airflow.exceptions import AirflowNotFoundException

    with pytest.raises(AirflowNotFoundException, match="nobody_knows"):
        load(SqliteHook("nobody_knows"), THINGS, "things", [])


def test_a_read_only_database(make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = make_warehouse("sqlite")
    warehouse.load(THINGS, [])
    path = warehouse.hook.connection.host
    monkeypatch.setenv(
        "AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": path, "extra": {"mode": "ro"}})
    )
    with pytest.raises(WarehouseError, match="attempt to write a readonly database"):
        load(SqliteHook("warehouse"), THINGS, "things", [thing(THINGS, 1)])


@default_adapter
def test_an_unknown_database_is_told_which_way_it_is_loaded(
    make_warehouse: Callable[..., Warehouse], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make_warehouse("sqlite").load(THINGS, [])
    assert "no own dialect" not in caplog.text
    make_warehouse("portable_sqlite").load(THINGS, [])
    assert "Database unknown has no own dialect: loading things by deleting and inserting rows" in caplog.text
