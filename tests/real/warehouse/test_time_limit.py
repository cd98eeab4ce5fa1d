"""A database that takes too long: connecting, a statement, and a driver that is made to return."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider_mail.warehouse import database
from airflow_provider_mail.warehouse.database import connected, stream_rows
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.time_limit import Reading, read_within
from tests.support import mariadb
from tests.warehouse.conftest import HOOKS, Warehouse

AN_HOUR = 3600
ENDLESS = "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers) SELECT count(*) FROM numbers"
SLOW = {
    "psycopg3": f"SELECT pg_sleep({AN_HOUR})",
    "psycopg2": f"SELECT pg_sleep({AN_HOUR})",
    "mysql": f"SELECT SLEEP({AN_HOUR})",
    "sqlite": ENDLESS,
    "duckdb": ENDLESS.replace("AS n", "::HUGEINT AS n"),
}


def read(warehouse: Warehouse, sql: str) -> list[object]:
    with stream_rows(warehouse.hook, sql) as (_, batches):
        return [row for batch in batches for row in batch]


@pytest.mark.parametrize(
    ("kind", "extra"),
    [("psycopg3", {}), ("psycopg2", {}), ("mysql", {}), ("mysql", {"client": "mysql-connector-python"})],
)
def test_connecting_ends(monkeypatch: pytest.MonkeyPatch, kind: str, extra: dict[str, str]) -> None:
    """The server accepts and says nothing."""
    monkeypatch.setattr(database, "CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        values = {"host": "127.0.0.1", "port": silent.getsockname()[1], "login": "planted-user", "extra": extra}
        kind_of_connection = {"conn_type": "mysql" if kind == "mysql" else "postgres"}
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(kind_of_connection | values))

        def connect() -> None:
            with connected(HOOKS[kind]("warehouse")):
                pytest.fail("there is nothing to connect to")

        reading = Reading(connect, AN_HOUR)
        with pytest.raises(WarehouseError, match="cannot connect to 'warehouse'"):
            reading.result.result()
        assert reading.address == f"host 127.0.0.1, port {values['port']}"


@pytest.mark.parametrize("kind", SLOW)
def test_a_statement_without_a_reader_is_cut(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "mysql" and mariadb.CLIENT == "mysql-connector-python":
        pytest.skip("this driver does not show its socket; it ends the wait itself")
    warehouse, opened = make_warehouse(kind), threading.Event()
    uses = Reading.uses

    @contextmanager
    def use_and_tell(reading: Reading[Any], connection: Any) -> Iterator[None]:
        with uses(reading, connection):
            opened.set()
            yield

    monkeypatch.setattr(Reading, "uses", use_and_tell)
    reading = Reading(lambda: read(warehouse, SLOW[kind]), AN_HOUR)
    opened.wait()
    # Some databases ignore the end of a statement that begins at this moment.
    while not wait([reading.result], 0.05).done:
        reading.end()
    assert isinstance(reading.result.exception(), WarehouseError | TimeoutError)


@pytest.mark.skipif("mysql-connector-python" not in mariadb.CLIENTS, reason="needs this driver")
def test_a_driver_that_cannot_be_cut_ends_the_wait_itself(
    make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the server has no limit."""
    monkeypatch.setattr("airflow_provider_mail.warehouse.dialects.mysql.current_reading", lambda: None)
    warehouse = make_warehouse("mysql", client="mysql-connector-python")
    reading = Reading(lambda: read(warehouse, SLOW["mysql"]), 1)
    assert isinstance(reading.result.exception(), WarehouseError)


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2", "mysql"])
def test_a_server_ends_the_statement_itself(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    """So that it does no work without a reader. Here nothing cuts the connection."""
    warehouse = make_warehouse(kind)
    limited = Reading(lambda: read(warehouse, SLOW[kind]), 1)
    with pytest.raises(WarehouseError, match=r"statement timeout|max_statement_time"):
        limited.result.result()
    assert read_within(lambda: read(warehouse, "SELECT 7"), AN_HOUR) == [(7,)]


def test_a_reading_keeps_no_process_from_exiting() -> None:
    """Its function hangs for ever; the process exits nevertheless."""
    program = (
        "import threading; from airflow_provider_mail.warehouse.time_limit import Reading; "
        "Reading(threading.Event().wait, 1)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=300).returncode == 0
