"""A load that waits for a lock says for what, and does not wait for ever."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from tests.support.processes import wait_until
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, THINGS, thing

SECRET = "ada.lovelace@example.com"
UPDATE = f"UPDATE things SET name = '{SECRET}'"
POSTGRES = {
    "table": ("LOCK TABLE things IN ACCESS EXCLUSIVE MODE", "a lock of type relation, held by process"),
    "row": (UPDATE, "a lock of type transactionid, held by process"),
    "load": (
        "SELECT pg_advisory_xact_lock(hashtextextended('airflow_provider_mail.things', 0))",
        "a lock of another load, held by process",
    ),
}
MYSQL = {
    "table": ("LOCK TABLES things WRITE", "Waiting for table metadata lock, .*held by .*connection"),
    "row": (UPDATE, "a lock of rows, held by connection"),
    "load": ("SELECT get_lock('{lock}', 0)", "User lock, held by connection"),
}
CASES = [
    *((kind, *case) for kind in ("psycopg3", "psycopg2") for case in POSTGRES.values()),
    *(("mysql", *case) for case in MYSQL.values()),
]
IDS = [f"{kind}-{what}" for kind in ("psycopg3", "psycopg2") for what in POSTGRES] + [f"mysql-{what}" for what in MYSQL]


@contextmanager
def held(warehouse: Warehouse, statement: str) -> Iterator[None]:
    """Let another connection run a statement, whose locks it holds in the block."""
    with closing(warehouse.another().hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        # See `MySql._lock_name`.
        cursor.execute(statement.format(lock="airflow_provider_mail.7e1ddfc85ae45a95330209c0834c5987"))
        yield
        connection.rollback()


def things() -> list[tuple[Any, ...]]:
    return [thing(THINGS, 1, name="new", at=LATER)]


@pytest.mark.parametrize(("kind", "statement", "message"), CASES, ids=IDS)
def test_what_holds_a_lock_is_logged_and_the_wait_ends(
    make_warehouse: Callable[..., Warehouse],
    caplog: pytest.LogCaptureFixture,
    kind: str,
    statement: str,
    message: str,
) -> None:
    caplog.set_level("INFO")
    warehouse = make_warehouse(kind)
    old = [thing(THINGS, 1, name="old")]
    warehouse.load(THINGS, old)
    words = rf"raise `lock_timeout`: .* for 1 s( \(|; .*{message})"
    with held(warehouse, statement), pytest.raises(WarehouseError, match=words) as caught:
        warehouse.load(THINGS, things(), lock_timeout=1)
    assert SECRET not in str(caught.value)
    assert warehouse.rows(THINGS) == old
    caplog.clear()
    with ThreadPoolExecutor() as pool:
        with held(warehouse, statement):
            load = pool.submit(warehouse.load, THINGS, things())
            wait_until(lambda: "waiting for a lock" in caplog.text, what="the line in the log")
        assert load.result().changed == 1
    assert re.search(f"table things on connection 'warehouse': waiting for a lock since .+ s: {message}", caplog.text)
    assert SECRET not in caplog.text


def test_a_file_that_another_connection_writes(sqlite: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sqlite.load(THINGS, [])
    with ThreadPoolExecutor() as pool:
        with held(sqlite, "BEGIN IMMEDIATE"):
            load = pool.submit(sqlite.load, THINGS, things())
            wait_until(lambda: "another connection writes to the database file" in caplog.text, what="the line")
        assert load.result().inserted == 1
