"""Which table a load is of: its records are those of this table, whatever else has its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.warehouse.coverage import LOADS, Coverage
from airflow_provider_mail.warehouse.load import LoadResult
from tests.warehouse.conftest import Warehouse
from tests.warehouse.test_history import at, read

LIST = {"mail_conn_id": "a", "team": "", "list_name": "news"}


def load(warehouse: Warehouse, hour: int, table: str, contacts: tuple[int, ...] = (1, 2)) -> LoadResult:
    covers = Coverage.one("news", LIST, mail_conn_id="a", observed_at=at(hour))
    return read(warehouse, hour, contacts, table=table, covers=covers)


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
