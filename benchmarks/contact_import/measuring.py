"""Measures one import of contacts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contact_import import sink as sinks
from benchmarks.contact_import.tables import TABLES, valid_contacts
from benchmarks.line import reached
from benchmarks.support import Result, measured


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, the table it reads, and the line to the sink.

    :param latency: milliseconds of a round trip.
    """

    latency: int
    variant: str
    table: str = TABLES[0]
    tls: bool = False


def measure(case: Case, connection: str, rows: int, home: Path) -> Result:
    """Run one measurement in a new process.

    :param connection: that of the database.
    :param rows: contacts in the table.
    :param home: Airflow's folder.
    :raises RuntimeError: it failed, or the sink did not get every valid contact.
    """
    command = [sys.executable, "-m", "benchmarks.contact_import.variants", case.variant]
    sql = f"SELECT email, name, phone FROM {case.table}"
    environment = {"AIRFLOW_CONN_CONTACTS_DB": connection, "BENCHMARK_SQL": sql}
    with sinks.running() as sink, reached(sink.port, case.latency, home, tls=case.tls) as address:
        result, records = measured(case, command, home=home, address=address, **environment)
    expected = valid_contacts(case.table, rows)
    if records != (expected if case.variant == "ours" else rows):
        raise RuntimeError(f"{case}: not {expected} contacts")
    if sink.received is None or sink.received.contacts != expected:
        raise RuntimeError(f"{case}: {expected} contacts, and the sink received {sink.received}")
    return result
