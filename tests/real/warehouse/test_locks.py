"""A load does not wait for a lock for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, THINGS, thing

SECRET = "ada.lovelace@example.com"
UPDATE = f"UPDATE things SET name = '{SECRET}'"
POSTGRES = {
    "table": "LOCK TABLE things IN ACCESS EXCLUSIVE MODE",
    "row": UPDATE,
    "load": "SELECT pg_advisory_xact_lock(hashtextextended('airflow_provider_mail.things', 0))",
}
MYSQL = {
    "table": "LOCK TABLES things WRITE",
    "row": UPDATE,
    "load": "SELECT get_lock('airflow_provider_mail.7e1ddfc85ae45a95330209c0834c5987', 0)",  # see `MySql._lock_name`
}
CASES = [
    pytest.param(kind, statement, id=f"{kind}-{name}")
    for kind, cases in (("psycopg3", POSTGRES), ("psycopg2", POSTGRES), ("mysql", MYSQL))
    for name, statement in cases.items()
]
OLD, NEW = [thing(THINGS, 1, name="old")], [thing(THINGS, 1, name="new", at=LATER)]


@contextmanager
def held(warehouse: Warehouse, statement: str) -> Iterator[None]:
    """Let another connection run a statement, whose locks it holds in the block."""
    with closing(warehouse.another().hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        yield
        connection.rollback()


@pytest.mark.parametrize(("kind", "statement"), CASES)
def test_the_wait_for_a_lock_ends(make_warehouse: Callable[..., Warehouse], kind: str, statement: str) -> None:
    warehouse = make_warehouse(kind)
    warehouse.load(THINGS, OLD)
    words = r"end what holds the lock, or raise `lock_timeout`: the load has waited for 1 s( \(|$)"
    with held(warehouse, statement), pytest.raises(WarehouseError, match=words) as caught:
        warehouse.load(THINGS, NEW, lock_timeout=1)
    assert SECRET not in str(caught.value)
    assert warehouse.rows(THINGS) == OLD


def test_a_shorter_limit_of_the_database_is_named(make_warehouse: Callable[..., Warehouse]) -> None:
    warehouse = make_warehouse("psycopg3", options="-c lock_timeout=1s")
    warehouse.load(THINGS, OLD)
    words = "or raise the lock timeout of the database's server, role or session: the load has waited for 1 s"
    with held(warehouse, UPDATE), pytest.raises(WarehouseError, match=words):
        warehouse.load(THINGS, NEW)


def test_a_file_that_another_connection_writes(sqlite: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite.load(THINGS, OLD)
    staged = threading.Event()

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from NEW
        staged.set()

    with ThreadPoolExecutor() as pool:
        with held(sqlite, "BEGIN IMMEDIATE"):
            load = pool.submit(sqlite.load, THINGS, rows())
            assert staged.wait(60)
        assert load.result().changed == 1
    monkeypatch.setattr("airflow_provider_mail.warehouse.dialects.sqlite._LOCK_WAIT_MS", 1)
    with held(sqlite, "BEGIN IMMEDIATE"), pytest.raises(WarehouseError, match="database is locked"):
        sqlite.load(THINGS, OLD)
