"""A load that waits for a lock says for what, and does not wait for ever."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

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
    # See `MySql._lock_name`.
    "load": ("SELECT get_lock('airflow_provider_mail.7e1ddfc85ae45a95330209c0834c5987', 0)",
             "User lock, held by connection"),
}  # fmt: skip
CASES = [
    pytest.param(kind, *case, id=f"{kind}-{name}")
    for kind, cases in (("psycopg3", POSTGRES), ("psycopg2", POSTGRES), ("mysql", MYSQL))
    for name, case in cases.items()
]
OLD, NEW = [thing(THINGS, 1, name="old")], [thing(THINGS, 1, name="new", at=LATER)]


@contextmanager
def held(warehouse: Warehouse, statement: str) -> Iterator[None]:
    """Let another connection run a statement, whose locks it holds in the block."""
    with closing(warehouse.another().hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        yield
        connection.rollback()


def load_when_released(warehouse: Warehouse, statement: str, caplog: pytest.LogCaptureFixture, message: str) -> None:
    """Release the lock once the log has the message."""
    caplog.set_level("INFO")
    with ThreadPoolExecutor() as pool:
        with held(warehouse, statement):
            load = pool.submit(warehouse.load, THINGS, NEW)
            wait_until(lambda: re.search(message, caplog.text), what="the line in the log")
        assert load.result().changed == 1


@pytest.mark.parametrize(("kind", "statement", "message"), CASES)
def test_what_holds_a_lock_is_logged_and_the_wait_ends(
    make_warehouse: Callable[..., Warehouse], caplog: pytest.LogCaptureFixture, kind: str, statement: str, message: str
) -> None:
    warehouse = make_warehouse(kind)
    warehouse.load(THINGS, OLD)
    words = rf"raise `lock_timeout`: .* for 1 s( \(|; .*{message})"
    with held(warehouse, statement), pytest.raises(WarehouseError, match=words) as caught:
        warehouse.load(THINGS, NEW, lock_timeout=1)
    assert SECRET not in str(caught.value)
    assert warehouse.rows(THINGS) == OLD
    caplog.clear()
    words = f"table things on connection 'warehouse': waiting for a lock since .+ s: {message}"
    load_when_released(warehouse, statement, caplog, words)
    assert SECRET not in caplog.text


def test_a_file_that_another_connection_writes(sqlite: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    sqlite.load(THINGS, OLD)
    load_when_released(sqlite, "BEGIN IMMEDIATE", caplog, "another connection writes to the database file")
