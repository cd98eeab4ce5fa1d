"""Measures one load of statistics."""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.line import Address
from benchmarks.support import Result, measured, postgres


@dataclass(frozen=True)
class Place:
    """An empty database: as an Airflow connection, and where its rows are counted."""

    connection: str
    count: str


@contextmanager
def places(folder: Path) -> Iterator[dict[str, Iterator[Place]]]:
    """Yield, by kind of database, as many empty ones as are taken."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres(folder))

        def in_postgres() -> Iterator[Place]:
            while True:
                with server.database() as database:
                    yield Place(database.airflow_connection, database.dsn)

        def in_sqlite() -> Iterator[Place]:
            while True:
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    path = f"{place}/warehouse.db"
                    yield Place(json.dumps({"conn_type": "sqlite", "host": path}), path)

        databases = {"SQLite": in_sqlite(), "Postgres": in_postgres()}
        for empty_databases in databases.values():
            stack.enter_context(closing(empty_databases))  # type: ignore[type-var]
        yield databases


def rows_in(place: Place) -> int:
    """Return the number of rows in the table."""
    sql = "SELECT count(*) FROM mail_campaign_stats"
    if place.count.startswith("postgresql"):
        import psycopg

        with psycopg.connect(place.count) as connection:
            row = connection.execute(sql).fetchone()
    else:
        with closing(sqlite3.connect(place.count)) as connection:
            row = connection.execute(sql).fetchone()
    return int(row[0]) if row else 0


def measure(variant: str, place: Place, port: int, records: int, folder: Path) -> Result:
    """Run one measurement in a new process.

    :param port: port of the service.
    :param records: number of records in the response.
    :param folder: Airflow's folder.
    :raises RuntimeError: it failed, or the table does not hold every record.
    """
    command = [sys.executable, "-m", "benchmarks.stats_load.variants", variant]
    environment = {"AIRFLOW_CONN_WAREHOUSE": place.connection}
    result, moved = measured(variant, command, home=folder, address=Address(port), **environment)
    if moved != records or (stored := rows_in(place)) != records:
        raise RuntimeError(f"{variant}: {records} records, {moved} came and {stored} are there")
    return result
