"""Measures one drain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.line import Address
from benchmarks.support import Result, measured
from benchmarks.webhook_drain.variants import EVENTS_PER_PUSH

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer


def measure(variant: str, pushes: int, server: PostgresServer, home: Path) -> Result:
    """Run one measurement in a new process, with a fresh database.

    :param pushes: how many different ones there are.
    :param home: Airflow's folder.
    :raises RuntimeError: it failed, or an event is missing or there twice.
    """
    with server.database() as database:
        environment = {"AIRFLOW_CONN_EVENTS_DB": database.airflow_connection, "BENCHMARK_PUSHES": str(pushes)}
        for name in ("fill", variant):
            command = [sys.executable, "-m", "benchmarks.webhook_drain.variants", name]
            result, _ = measured(name, command, home=home, address=Address(9), **environment)
        with database.connect() as connection:
            (count,) = connection.execute("SELECT count(*) FROM mail_events").fetchone()  # type: ignore[misc]
    if count != pushes * EVENTS_PER_PUSH:
        raise RuntimeError(f"{variant}: {count} events are in the table")
    return result
