"""What a load finds: tables of its own making and others, names, connections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.exceptions import AirflowNotFoundException
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import Coverage, load
from airflow_provider_mail.warehouse.table import Table
from tests.warehouse.conftest import Warehouse, default_adapter
from tests.warehouse.tables import NOON, PLAIN, THINGS, TOKYO, thing


def never_asked_for() -> Iterator[tuple[Any, ...]]:
    """Rows for loads that are known to fail before they begin."""
    raise AssertionError("a row was asked for")
    yield


POSTGRES_TYPES = "text bigint text integer double_precision boolean date timestamptz jsonb timestamptz timestamptz text"
DUCKDB_TYPES = "VARCHAR BIGINT VARCHAR INTEGER DOUBLE BOOLEAN DATE TIMESTAMP JSON TIMESTAMP TIMESTAMP VARCHAR"
MYSQL_TYPES = (
    "varchar(50) bigint(20) longtext int(11) double tinyint(1) date datetime(6) longtext datetime(6) datetime(6) "
    "varchar(250)"
)
CATALOGS = {
    "psycopg3": (
        "SELECT attname, replace(replace(format_type(atttypid, atttypmod), 'timestamp with time zone', 'timestamptz'), "
        "' ', '_'), attnotnull, col_description(attrelid, attnum) FROM pg_attribute "
        "WHERE attrelid = 'things'::regclass AND attnum > 0 ORDER BY attnum",
        POSTGRES_TYPES,
        "SELECT obj_description('things'::regclass)",
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'things_pkey'",
    ),
    "duckdb": (
        "SELECT column_name, data_type, NOT is_nullable, comment FROM duckdb_columns() WHERE table_name = 'things' "
        "ORDER BY column_index",
        DUCKDB_TYPES,
        "SELECT comment FROM duckdb_tables()",
        "SELECT constraint_text FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'",
    ),
    "mysql": (
        "SELECT column_name, column_type, is_nullable = 'NO', column_comment FROM information_schema.columns "
        "WHERE table_schema = database() AND table_name = 'things' ORDER BY ordinal_position",
        MYSQL_TYPES,
        "SELECT table_comment FROM information_schema.tables WHERE table_schema = database()",
        "SELECT CONCAT('PRIMARY KEY (', GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', '), ')') "
        "FROM information_schema.statistics WHERE table_schema = database() AND table_name = 'things'",
    ),
}


@pytest.mark.parametrize("kind", CATALOGS)
def test_created_with_types_key_and_comments(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    columns, types, comment, key = CATALOGS[kind]
    warehouse = make_warehouse(kind)
    warehouse.load(THINGS, [])
    assert warehouse.query(columns) == [
        (column.name, type_, not column.nullable, column.comment)
        for column, type_ in zip(THINGS.stored_columns, types.split(), strict=True)
    ]
    assert warehouse.query(comment) == [(THINGS.comment,)]
    ((key,),) = warehouse.query(key)
    assert key.replace(" (", "(") == "PRIMARY KEY(account, number)"


def test_sqlite_shows_the_comments_and_compares_times(sqlite: Warehouse) -> None:
    """The comments in its statement, the times with its own."""
    sqlite.load(THINGS, [thing(THINGS, 1, sold_at=NOON.astimezone(TOKYO), day=NOON.date())])
    ((schema,),) = sqlite.query("SELECT sql FROM sqlite_master WHERE name = 'things'")
    comments = ("number BIGINT NOT NULL /* Its number */", "name TEXT /* What it's called */")
    assert [part for part in (*comments, "PRIMARY KEY (account, number)") if part not in schema] == []
    assert sqlite.query(
        "SELECT sold_at = datetime('2026-03-01 12:00'), sold_at < datetime('2026-03-01 12:00:01'), day = date(sold_at) "
        "FROM things"
    ) == [(1, 1, 1)]


def test_a_declared_column_that_is_missing_is_added(warehouse: Warehouse) -> None:
    narrow = Table(THINGS.columns[:3], THINGS.key, "")
    warehouse.load(narrow, [thing(narrow, 1, name="old"), thing(narrow, 2, name="old")])
    warehouse.load(THINGS, [thing(THINGS, 1, name="new", ratio=1.5)])
    assert warehouse.rows(THINGS) == [
        thing(THINGS, 1, name="new", ratio=1.5),
        thing(THINGS, 2, name="old", at=None),  # not known
    ]
    # Rows without a time give way to any observation.
    warehouse.load(THINGS, [thing(THINGS, 2, name="new")])
    assert warehouse.rows(THINGS)[1] == thing(THINGS, 2, name="new")


def test_columns_that_are_not_ours_stay(warehouse: Warehouse) -> None:
    warehouse.load(PLAIN, [thing(PLAIN, 1, name="old")])
    warehouse.execute("ALTER TABLE things ADD note VARCHAR(20)", "UPDATE things SET note = 'mine'")
    narrow = Table(PLAIN.columns[:3], PLAIN.key, "")
    warehouse.load(narrow, [thing(narrow, 1, name="new")])
    notes = {"portable_sqlite": None, "portable_postgres": None}  # deletes and inserts
    assert warehouse.query("SELECT name, note FROM things") == [("new", notes.get(warehouse.kind, "mine"))]


CANNOT_HOLD = {
    "sqlite": "TEXT, INTEGER, REAL, TEXT, TEXT, INTEGER, REAL, JSON",
    "psycopg3": "integer, character varying(20), smallint, real, integer, timestamp without time zone, "
    "timestamp without time zone, json",
    "duckdb": "INTEGER, INTEGER, SMALLINT, FLOAT, INTEGER, TIMESTAMP, TIMESTAMP WITH TIME ZONE, VARCHAR",
    "mysql": "int(11), text, smallint(6), float, varchar(5), datetime, datetime(3), text",
}
"""Of the columns behind the account."""


@pytest.mark.parametrize("kind", CANNOT_HOLD)
def test_a_column_that_cannot_hold_our_values(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    for column, wrong in zip(PLAIN.names[1:], CANNOT_HOLD[kind].split(", "), strict=True):
        others = f"account {warehouse.varchar(50)}" + ("" if column == "number" else ", number BIGINT")
        warehouse.execute(f"CREATE TABLE things ({others}, {column} {wrong}, PRIMARY KEY (account, number))")
        never = never_asked_for()
        words = f"table things on connection 'warehouse': column {column} is {wrong}"
        with pytest.raises(WarehouseError, match=f"{re.escape(words)}[^,]*, expected "):
            warehouse.load(THINGS, never)
        warehouse.execute("DROP TABLE things")


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
    native.execute(f"CREATE TABLE heap {'(LIKE things)' if native.is_postgres else 'AS SELECT * FROM things'}")
    never = never_asked_for()
    with pytest.raises(WarehouseError, match=r"table heap .* no primary key or unique index on \(account, number\)"):
        native.load(THINGS, never, "heap")


def test_a_table_without_the_key_that_lacks_columns(postgres: Warehouse) -> None:
    postgres.execute("CREATE TABLE things (account varchar(50) NOT NULL, number bigint NOT NULL)")
    with pytest.raises(WarehouseError, match=r"no primary key or unique index on \(account, number\)"):
        postgres.load(THINGS, [thing(THINGS, 1), thing(THINGS, 1)])
    assert postgres.query("SELECT * FROM things") == []


def test_another_table_or_none(warehouse: Warehouse) -> None:
    warehouse.execute("CREATE TABLE things (id INTEGER)")
    with pytest.raises(WarehouseError, match="no column account, which is part of the key; another `table`"):
        warehouse.load(THINGS, [])
    with pytest.raises(WarehouseError, match=r"table nowhere\.things on connection 'warehouse': .*nowhere"):
        warehouse.load(THINGS, [thing(THINGS, 1)], "nowhere.things")


@pytest.mark.parametrize(
    ("right", "name", "words"),
    [
        ("SELECT", "things", "permission denied for table things"),
        ("SELECT", "others", "permission denied for schema public"),
        ("ALL", "things", r"table \S*mail_loads on connection 'warehouse': .*permission denied"),
    ],
)
def test_no_permission(postgres: Warehouse, right: str, name: str, words: str) -> None:
    covers = Coverage.one("all", {"account": "a"}, mail_conn_id="m", observed_at=NOON)
    postgres.load(THINGS, [])
    postgres.execute("CREATE ROLE reader", f"GRANT {right} ON things TO reader")
    try:
        postgres.hook.options = "-c role=reader"
        with pytest.raises(WarehouseError, match=words):
            postgres.load(THINGS, [thing(THINGS, 1)], name, covers=covers if right == "ALL" else None)
    finally:
        postgres.hook.options = None
        postgres.execute("DROP OWNED BY reader", "DROP ROLE reader")
    assert postgres.rows(THINGS) == []


# Names


def test_names_mean_what_they_mean_in_a_statement(warehouse: Warehouse) -> None:
    for name in ("Mixed_Case", '"Mixed Case"', '"select"', '"dro""p; --"', "übersicht"):
        for _ in range(2):
            warehouse.load(THINGS, [thing(THINGS, 1, name=name)], name)
        assert warehouse.rows(THINGS, name) == [thing(THINGS, 1, name=name)]


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2", "portable_postgres", "duckdb", "sqlite"])
def test_schemas(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)
    names = {"sqlite": ["main.things"], "duckdb": ["main.things", "warehouse.main.other"]}.get(kind, ["public.things"])
    if kind != "sqlite":
        warehouse.execute("CREATE SCHEMA crm", 'CREATE SCHEMA "My Schema"')
        names += ["crm.things", '"My Schema".things']
    for name in ("things", *names[1:], *names):
        warehouse.load(THINGS, [thing(THINGS, 1, name=name)], name)
    assert [warehouse.rows(THINGS, name)[0][2] for name in names] == names
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


def test_a_hook_that_keeps_its_connection(sqlite: Warehouse) -> None:
    """The hook of Databricks returns the one that it has, also when that is closed."""

    class Keeping(SqliteHook):
        kept: Any = None

        def get_conn(self) -> Any:
            self.kept = self.kept or super().get_conn()
            return self.kept

    hook = Keeping("warehouse")
    for number in (1, 2):
        load(hook, THINGS, "things", [thing(THINGS, number)])
    assert [row[1] for row in sqlite.rows(THINGS)] == [1, 2]


def test_a_database_that_is_not_there(postgres: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", '{"conn_type": "postgres", "host": "127.0.0.1", "port": 1}')
    with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': OperationalError: .*port 1"):
        postgres.load(THINGS, [])


def test_a_connection_that_does_not_exist(airflow_home: object) -> None:
    with pytest.raises(AirflowNotFoundException, match="missing"):
        load(SqliteHook("missing"), THINGS, "things", [])


@default_adapter
def test_how_an_unknown_database_is_loaded_is_logged(
    make_warehouse: Callable[..., Warehouse], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make_warehouse("sqlite").load(THINGS, [])
    assert "no own dialect" not in caplog.text
    make_warehouse("portable_sqlite").load(THINGS, [])
    assert "Database unknown has no own dialect: loading things by deleting and inserting rows" in caplog.text
