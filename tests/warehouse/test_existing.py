"""What a load finds: tables of its own making and others, names, connections; and which table it is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.warehouse.database import stream_rows
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import LOADS, Coverage, LoadResult, MarkGone
from airflow_provider_mail.warehouse.table import Table
from tests.warehouse.conftest import Warehouse, in_each_dialect
from tests.warehouse.lists import read
from tests.warehouse.tables import LATER, MARKED, NOON, PLAIN, THINGS, TOKYO, thing


def never_asked_for() -> Iterator[tuple[Any, ...]]:
    """Rows for loads that are known to fail before they begin."""
    yield pytest.fail("a row was asked for")


def test_columns_and_tables_have_their_comments(postgres: Warehouse) -> None:
    postgres.load(THINGS, [])
    sql = "SELECT obj_description('things'::regclass), col_description('things'::regclass, 2)"
    assert postgres.query(sql) == [(THINGS.comment, THINGS["number"].comment)]


def test_sqlite_shows_the_comments_and_compares_times(sqlite: Warehouse) -> None:
    sqlite.load(THINGS, [thing(THINGS, 1, sold_at=NOON.astimezone(TOKYO), day=NOON.date())])
    ((schema,),) = sqlite.query("SELECT sql FROM sqlite_master WHERE name = 'things'")
    comments = ("number BIGINT NOT NULL /* Its number */", "name TEXT /* What it's called */")
    assert [part for part in (*comments, "PRIMARY KEY (account, number)") if part not in schema] == []
    assert sqlite.query(
        "SELECT sold_at = datetime('2026-03-01 12:00'), sold_at < datetime('2026-03-01 12:00:01'), day = date(sold_at) "
        "FROM things"
    ) == [(1, 1, 1)]


@in_each_dialect
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


@in_each_dialect
def test_columns_that_are_not_ours_stay(warehouse: Warehouse) -> None:
    warehouse.load(PLAIN, [thing(PLAIN, 1, name="old")])
    warehouse.execute("ALTER TABLE things ADD note VARCHAR(20)", "UPDATE things SET note = 'mine'")
    narrow = Table(PLAIN.columns[:3], PLAIN.key, "")
    warehouse.load(narrow, [thing(narrow, 1, name="new")])
    assert warehouse.query("SELECT name, note FROM things") == [("new", "mine")]


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
        words = f"table things on connection 'warehouse': column {column} is {wrong}"
        with pytest.raises(WarehouseError, match=f"{re.escape(words)}[^,]*, expected "):
            warehouse.load(THINGS, never_asked_for())
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
    words = r"table heap .* no primary key or unique index on \(account, number\)"
    with pytest.raises(WarehouseError, match=words):
        native.load(THINGS, never_asked_for(), "heap")
    if native.is_postgres:  # also when it lacks columns
        native.execute("CREATE TABLE small (account varchar(50) NOT NULL, number bigint NOT NULL)")
        with pytest.raises(WarehouseError, match=r"no primary key or unique index on \(account, number\)"):
            native.load(THINGS, [thing(THINGS, 1), thing(THINGS, 1)], "small")
        assert native.query("SELECT * FROM small") == []


@in_each_dialect
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


@in_each_dialect
def test_names_mean_what_they_mean_in_a_statement(warehouse: Warehouse) -> None:
    for name in ("Mixed_Case", '"Mixed Case"', '"select"', '"dro""p; --"', "übersicht"):
        for _ in range(2):
            warehouse.load(THINGS, [thing(THINGS, 1, name=name)], name)
        assert warehouse.rows(THINGS, name) == [thing(THINGS, 1, name=name)]


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2", "duckdb", "sqlite"])
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
    hook = PostgresHook("warehouse")
    warehouse = replace(make_warehouse("psycopg3", cursor="dictcursor"), hook=hook)
    for _ in range(2):
        warehouse.load(THINGS, [thing(THINGS, 1)])
    assert [dict(row) for row in hook.get_records("SELECT number FROM things")] == [{"number": 1}]
    with stream_rows(hook, "SELECT number FROM things") as (names, batches):
        assert (names, list(batches)) == (("number",), [[(1,)]])


def test_a_hook_that_keeps_its_connection(sqlite: Warehouse) -> None:
    """The hook of Databricks returns the one that it has, also when that is closed."""

    class Keeping(SqliteHook):
        kept: Any = None

        def get_conn(self) -> Any:
            self.kept = self.kept or super().get_conn()
            return self.kept

    keeping = replace(sqlite, hook=Keeping("warehouse"))
    for number in (1, 2):
        keeping.load(THINGS, [thing(THINGS, number)])
    assert [row[1] for row in sqlite.rows(THINGS)] == [1, 2]


# The records of a load are those of its table, whatever else has its name


def load_list(warehouse: Warehouse, hour: int, table: str, contacts: tuple[int, ...] = (1, 2)) -> LoadResult:
    return read(warehouse, hour, contacts, table=table)


def search(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, *schemas: str) -> None:
    """Let the connections search tables in these schemas."""
    opened = warehouse.hook.get_conn

    def get_conn() -> Any:
        connection = opened()
        if warehouse.is_duckdb:
            connection.execute(f"SET search_path = '{','.join(schemas)}'")
            return connection
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {', '.join(schemas)}")
        connection.commit()
        return connection

    monkeypatch.setattr(warehouse.hook, "get_conn", get_conn)


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2", "duckdb"])
def test_tables_of_one_name_in_two_schemas(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The schema of a table is where the database finds it, and what belongs to the table is beside it."""
    warehouse = make_warehouse(kind)
    warehouse.execute("CREATE SCHEMA one", "CREATE SCHEMA two")
    load_list(warehouse, 2, "two.contacts")
    search(warehouse, monkeypatch, "one", "two")
    assert load_list(warehouse, 3, "contacts").unchanged == 2
    assert warehouse.query(
        "SELECT observed_at = (SELECT max(read_at) FROM two.contacts_history_readings) FROM two.mail_loads"
    ) == [(True,)]
    # Another one in front of it: no reading of that table says what this one has.
    warehouse.execute("CREATE TABLE one.contacts AS SELECT * FROM two.contacts WHERE false")
    warehouse.execute("ALTER TABLE one.contacts ADD PRIMARY KEY (mail_conn_id, team_name, list_name, id)")
    assert load_list(warehouse, 1, "contacts").inserted == 2
    assert warehouse.query("SELECT count(*) FROM one.contacts_history WHERE valid_to IS NULL") == [(2,)]
    assert len(warehouse.rows(LOADS, "one.mail_loads")) == len(warehouse.rows(LOADS, "two.mail_loads")) == 1


@pytest.mark.not_unit
def test_spellings_of_two_tables(make_warehouse: Callable[..., Warehouse]) -> None:
    maria = make_warehouse("mysql")
    assert [load_list(maria, hour, name).inserted for hour, name in ((2, "Contacts"), (1, "contacts"))] == [2, 2]
    assert [row[0] for row in maria.rows(LOADS, "mail_loads")] == ["Contacts", "contacts"]


@pytest.mark.parametrize(
    ("kind", "other"), [("sqlite", "main.CONTACTS"), ("duckdb", "main.CONTACTS"), ("psycopg3", "public.CONTACTS")]
)
def test_spellings_of_one_table(make_warehouse: Callable[..., Warehouse], kind: str, other: str) -> None:
    warehouse = make_warehouse(kind)
    load_list(warehouse, 2, "Contacts")
    late = load_list(warehouse, 1, other, (1, 2, 3))
    assert (late.outdated, late.inserted) == (3, 0)
    assert len(warehouse.rows(LOADS, "mail_loads")) == 1


INEXACT = {
    "sqlite": ("account VARCHAR COLLATE NOCASE", "NOCASE"),
    "sqlite rtrim": ("account VARCHAR COLLATE RTRIM", "RTRIM"),
    "sqlite index": ("account VARCHAR, UNIQUE (account COLLATE NOCASE, number)", "NOCASE"),
    "psycopg3": ("account citext", "citext"),
    "psycopg2": ('account VARCHAR(50) COLLATE "loose"', "loose"),
    "duckdb": ('account VARCHAR COLLATE "nocase"', "nocase"),
    "mysql": ("account VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "utf8mb4_general_ci"),
}


@pytest.mark.parametrize("column", ["mail_conn_id", "list_name"])
@pytest.mark.parametrize("kind", ["psycopg2", "mysql"])
def test_the_advice_for_a_collation_works(make_warehouse: Callable[..., Warehouse], kind: str, column: str) -> None:
    """It names the column that has the collation, whichever it is."""
    warehouse = make_warehouse(kind)
    load_list(warehouse, 1, "contacts")
    if warehouse.is_mysql:
        loose = "VARCHAR(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
        warehouse.execute(f"ALTER TABLE contacts MODIFY {column} {loose}")
    else:
        warehouse.execute(
            "CREATE COLLATION loose (locale = 'C')",
            f'ALTER TABLE contacts ALTER COLUMN {column} TYPE text COLLATE "loose"',
            "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'",
        )
    with pytest.raises(WarehouseError, match="takes different texts for one") as caught:
        load_list(warehouse, 2, "contacts")
    statement = re.search("ALTER TABLE .*?(?=[.] The collation)", str(caught.value))
    assert statement
    assert column in statement[0]
    warehouse.execute(statement[0])
    assert load_list(warehouse, 2, "contacts").unchanged == 2


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("kind", ["sqlite", "psycopg3"])
def test_rows_that_a_trigger_drops_are_missed(
    make_warehouse: Callable[..., Warehouse], kind: str, is_empty: bool
) -> None:
    warehouse = make_warehouse(kind)
    warehouse.load(PLAIN, [] if is_empty else [thing(PLAIN, 9)])
    if kind == "sqlite":
        warehouse.execute(
            "CREATE TRIGGER dropping BEFORE INSERT ON things WHEN NEW.number = 2 BEGIN SELECT RAISE(IGNORE); END"
        )
    else:
        warehouse.execute(
            "CREATE FUNCTION dropping() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN IF NEW.number = 2 THEN RETURN NULL; END IF; RETURN NEW; END'",
            "CREATE TRIGGER dropping BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION dropping()",
        )
    with pytest.raises(WarehouseError, match="1 of 3 rows were dropped without an error"):
        warehouse.load(PLAIN, [thing(PLAIN, number) for number in (1, 2, 3)])
    assert len(warehouse.rows(PLAIN)) == (0 if is_empty else 1)


@pytest.mark.parametrize("change", ["DELETE", "UPDATE"])
@pytest.mark.parametrize("kind", ["sqlite", "psycopg3"])
def test_rows_that_a_trigger_keeps_are_noticed(
    make_warehouse: Callable[..., Warehouse], kind: str, change: str
) -> None:
    """What is gone at the service would count for ever."""
    warehouse = make_warehouse(kind)
    where = {"account": "a"}
    removal = {"replace_where": where} if change == "DELETE" else {"mark_gone": MarkGone(LATER, lambda: [where])}
    warehouse.load(MARKED, [thing(MARKED, number) for number in range(3)])
    if kind == "sqlite":
        warehouse.execute(f"CREATE TRIGGER keeping BEFORE {change} ON things BEGIN SELECT RAISE(IGNORE); END")
    else:
        warehouse.execute(
            "CREATE FUNCTION keeping() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            f"CREATE TRIGGER keeping BEFORE {change} ON things FOR EACH ROW EXECUTE FUNCTION keeping()",
        )
    with pytest.raises(WarehouseError, match=r"triggers and rules of the table: 2 rows .* stayed as they were"):
        warehouse.load(MARKED, [thing(MARKED, 1)], **removal)


def test_a_table_that_is_renamed_during_a_load_is_not_made_again(native: Warehouse) -> None:
    native.load(PLAIN, [thing(PLAIN, 1)])

    def rows() -> Iterator[Any]:
        yield thing(PLAIN, 2)
        native.execute("ALTER TABLE things RENAME TO others")
        yield thing(PLAIN, 3)

    with pytest.raises(WarehouseError, match="dropped or renamed during the load"):
        native.load(PLAIN, rows())
    assert [row[1] for row in native.rows(PLAIN, "others")] == [1]


@pytest.mark.parametrize("case", INEXACT)
def test_a_key_must_tell_different_texts_apart(make_warehouse: Callable[..., Warehouse], case: str) -> None:
    """One of their rows would be lost, and counted as inserted."""
    warehouse = make_warehouse(case.split()[0])
    if warehouse.is_postgres:
        # Stand-ins: the server of the tests has neither the extension nor ICU, which a collation like this needs.
        warehouse.execute("CREATE DOMAIN citext AS text", "CREATE COLLATION loose (locale = 'C')")
    column, collation = INEXACT[case]
    warehouse.execute(f"CREATE TABLE things (number BIGINT NOT NULL, {column}, PRIMARY KEY (account, number))")
    if warehouse.is_postgres:
        warehouse.execute("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'")
    rows = [thing(PLAIN, 1, account=account) for account in ("a", "A", "a ")]
    with pytest.raises(WarehouseError, match=f"{collation}.* takes .*texts for one") as caught:
        warehouse.load(PLAIN, iter(rows))
    assert "column account" in str(caught.value).replace("COLUMN", "column").replace("MODIFY `", "column ")
    assert warehouse.query("SELECT count(*) FROM things") == [(0,)]
    if statement := re.search(r"ALTER TABLE [^.]+\.[^.]+", str(caught.value)):
        warehouse.execute(statement[0])
        assert warehouse.load(PLAIN, rows).inserted == 3
        assert len(warehouse.rows(PLAIN)) == 3


def test_a_default_collation_of_duckdb(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = make_warehouse("duckdb")
    opened = warehouse.hook.get_conn
    monkeypatch.setattr(warehouse.hook, "get_conn", lambda: opened().execute("SET default_collation = 'nocase'"))
    with pytest.raises(WarehouseError, match=r"SET default_collation = ''\. .* nocase of column account takes"):
        warehouse.load(PLAIN, [thing(PLAIN, 1, account=account) for account in ("a", "A")])


@pytest.mark.not_unit
def test_spaces_that_a_collation_ignores(make_warehouse: Callable[..., Warehouse]) -> None:
    maria = make_warehouse("mysql")
    maria.execute(f"CREATE TABLE things (account {maria.varchar(50)}, number BIGINT, PRIMARY KEY (account, number))")
    rows = [thing(PLAIN, 1, account=account) for account in ("a", " a", "a ")]
    with pytest.raises(WarehouseError, match="row 3, column account: ends with a space, which the collation utf8mb4_"):
        maria.load(PLAIN, rows)
    assert maria.query("SELECT count(*) FROM things") == [(0,)]
    rejected: list[int] = []
    loaded = maria.load(PLAIN, rows, on_unstorable=lambda _, error: rejected.append(error.row))
    assert (loaded.inserted, rejected, len(maria.rows(PLAIN))) == (2, [3], 2)
