"""Measures one export of contacts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contact_export.variants import TABLE
from benchmarks.line import reached
from benchmarks.support import Result, measured, served

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

IN_FLIGHT = 8
"""Pages in flight: the operator's default, also for its opponents."""


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, the milliseconds of a round trip to the service, how many contacts, and over TLS."""

    variant: str
    latency: int
    contacts: int
    tls: bool = False


def measure(case: Case, server: PostgresServer, home: Path) -> Result:
    """Run one measurement in a new process, into a fresh database.

    :param home: Airflow's folder.
    :raises RuntimeError: it failed, not every contact is in the table, or more connections were open.
    """
    command = [sys.executable, "-m", "benchmarks.contact_export.variants", case.variant]
    serving = served("benchmarks.contact_export.service", case.contacts)
    with (
        server.database() as database,
        serving as service,
        reached(service.port, case.latency, home, tls=case.tls) as address,
    ):
        result, _ = measured(
            case,
            command,
            home=home,
            address=address,
            AIRFLOW_CONN_CONTACTS_DB=database.airflow_connection,
            BENCHMARK_CONTACTS=str(case.contacts),
            BENCHMARK_IN_FLIGHT=str(IN_FLIGHT),
        )
        with database.connect() as connection:
            [(count,)] = connection.execute(f"SELECT count(DISTINCT email) FROM {TABLE}")
    if count != case.contacts:
        raise RuntimeError(f"{case}: {count} different contacts are in the table")
    if service.counts is None or service.counts["most_connections"] > IN_FLIGHT:
        raise RuntimeError(f"{case}: {IN_FLIGHT} connections may be open, and the service saw {service.counts}")
    return result
