"""Which table a load is of: its records are those of this table, whatever else has its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import LoadResult
from airflow_provider_mail.warehouse.request import LOADS
from tests.warehouse.conftest import Warehouse
from tests.warehouse.lists import read
from tests.warehouse.tables import PLAIN, thing


def load(warehouse: Warehouse, hour: int, table: str, contacts: tuple[int, ...] = (1, 2)) -> LoadResult:
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
    load(warehouse, 2, "two.contacts")
    search(warehouse, monkeypatch, "one", "two")
    assert load(warehouse, 3, "contacts").unchanged == 2
    assert warehouse.query(
        "SELECT observed_at = (SELECT max(read_at) FROM two.contacts_history_readings) FROM two.mail_loads"
    ) == [(True,)]
    # Another one in front of it: no reading of that table says what this one has.
    warehouse.execute("CREATE TABLE one.contacts AS SELECT * FROM two.contacts WHERE false")
    warehouse.execute("ALTER TABLE one.contacts ADD PRIMARY KEY (mail_conn_id, team, list_name, id)")
    assert load(warehouse, 1, "contacts").inserted == 2
    assert warehouse.query("SELECT count(*) FROM one.contacts_history WHERE valid_to IS NULL") == [(2,)]
    assert len(warehouse.rows(LOADS, "one.mail_loads")) == len(warehouse.rows(LOADS, "two.mail_loads")) == 1


@pytest.mark.not_unit
def test_spellings_of_two_tables(make_warehouse: Callable[..., Warehouse]) -> None:
    maria = make_warehouse("mysql")
    assert [load(maria, hour, name).inserted for hour, name in ((2, "Contacts"), (1, "contacts"))] == [2, 2]
    assert [row[0] for row in maria.rows(LOADS, "mail_loads")] == ["Contacts", "contacts"]


@pytest.mark.parametrize(
    ("kind", "other"), [("sqlite", "main.CONTACTS"), ("duckdb", "main.CONTACTS"), ("psycopg3", "public.CONTACTS")]
)
def test_spellings_of_one_table(make_warehouse: Callable[..., Warehouse], kind: str, other: str) -> None:
    warehouse = make_warehouse(kind)
    load(warehouse, 2, "Contacts")
    late = load(warehouse, 1, other, (1, 2, 3))
    assert (late.outdated, late.inserted) == (3, 0)
    assert len(warehouse.rows(LOADS, "mail_loads")) == 1


INEXACT = {
    "sqlite": ("account VARCHAR COLLATE NOCASE", "NOCASE"),
    "sqlite rtrim": ("account VARCHAR COLLATE RTRIM", "RTRIM"),
    "sqlite index": ("account VARCHAR, UNIQUE (account COLLATE NOCASE, number)", "NOCASE"),
    "psycopg3": ("account citext", "citext"),
    "psycopg2": ('account VARCHAR(50) COLLATE "loose"', "loose"),
    "portable_sqlite": ("account VARCHAR COLLATE NOCASE", ""),
    "portable_sqlite rtrim": ("account VARCHAR COLLATE RTRIM", ""),
    "duckdb": ('account VARCHAR COLLATE "nocase"', "nocase"),
    "mysql": ("account VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "utf8mb4_general_ci"),
}


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
