"""Rows that the service does not have any more are marked, and cleared when they are there again.

Any sequence of such loads is in `tests/machines/test_loading.py`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import psycopg
import pytest

from airflow_provider_mail.api.contacts import Contact
from airflow_provider_mail.warehouse.load import Between, MarkGone
from airflow_provider_mail.warehouse.table import TIMESTAMP, Column, Table
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, contact_row
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing

DAYS = [NOON.date() + datetime.timedelta(days=number) for number in range(4)]
LATEST = LATER + datetime.timedelta(hours=1)
OF_A: Mapping[str, Any] = {"account": "a"}


def there(warehouse: Warehouse, at: datetime.datetime, *numbers: int, where: Mapping[str, Any] = OF_A) -> Any:
    """Load things as all that a window has."""
    rows = [thing(MARKED, number, day=DAYS[number % 4], at=at) for number in numbers]
    return warehouse.load(MARKED, rows, mark_gone=MarkGone(at, lambda: [where]))


def gone(warehouse: Warehouse) -> dict[int, datetime.datetime | None]:
    return {row[1]: row[-1] for row in warehouse.rows(MARKED)}


def test_no_row_is_compared_with_each(postgres: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres expects a single row in the window of a list, and may have the contacts of a million."""
    execute, plans = psycopg.Cursor.execute, []

    def explained(cursor: Any, statement: str, *parameters: Any, **options: Any) -> Any:
        if "NOT EXISTS" in str(statement):
            plans.append(str(execute(cursor, f"EXPLAIN {statement}", *parameters).fetchall()))
        return execute(cursor, statement, *parameters, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", explained)
    with closing(postgres.hook.get_conn()) as connection:
        if not isinstance(connection, psycopg.Connection):
            pytest.skip("the hook of this Airflow has psycopg2 alone")
    where = {"mail_conn_id": "mail", "team": "", "list_name": "all"}
    for at, numbers in ((NOON, range(200)), (LATER, range(1, 200))):
        contacts = [contact_row(Contact(id=str(number)), **where, observed_at=at) for number in numbers]
        postgres.load(CONTACTS, contacts, "contacts", replace_where=where)
        there(postgres, at, *numbers)
    assert len(plans) == 4
    assert not [plan for plan in plans if "Nested Loop" in plan]


def test_only_rows_of_the_window_are_marked(way: Warehouse) -> None:
    there(way, NOON, 0, 1, 2, 3)
    way.load(MARKED, [thing(MARKED, 1, account="b", day=DAYS[1]), thing(MARKED, 9), thing(MARKED, 5, name="x")])
    there(way, LATER, 0, where={"account": "a", "day": Between(DAYS[0], DAYS[2])})
    assert {row[1] for row in way.rows(MARKED) if row[-1]} == {1, 2}
    there(way, LATEST, 1, where={"account": "a", "day": None, "name": None})
    assert {row[1] for row in way.rows(MARKED) if row[-1]} == {2, 9}
    assert {row[1] for row in way.rows(MARKED) if row[0] == "b"} == {1}


def test_windows_are_asked_for_when_all_rows_are_there(way: Warehouse) -> None:
    there(way, NOON, 1, 2)
    seen: list[int] = []

    def rows() -> Any:
        for number in (1, 3):
            seen.append(number)
            yield thing(MARKED, number, at=LATER)

    way.load(MARKED, rows(), mark_gone=MarkGone(LATER, lambda: [OF_A] if seen == [1, 3] else []))
    assert gone(way) == {1: None, 2: LATER, 3: None}
    way.load(MARKED, [], mark_gone=MarkGone(LATEST, lambda: []))
    assert gone(way) == {1: None, 2: LATER, 3: None}


def test_a_table_without_the_column(sqlite: Warehouse) -> None:
    with pytest.raises(ValueError, match="`mark_gone` needs a table"):
        sqlite.load(THINGS, [], mark_gone=MarkGone(NOON, lambda: [OF_A]))
    with pytest.raises(ValueError, match="a timestamp that may be null"):
        Column("gone_at", TIMESTAMP, "", gone=True)
    with pytest.raises(ValueError, match="and needs one of observation"):
        Table((MARKED["account"], MARKED["gone_at"]), ("account",), "")
