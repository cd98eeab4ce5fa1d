"""Exporting the contacts of a list to Postgres: ours, compared with the usual loop and with the lower bound.

    python benchmarks/export_contacts.py [--contacts 500000] [--rounds 3]

A service in a process of its own returns pages of 1,000, on loopback or over a line of 50 ms (`benchmarks/line.py`),
with TLS and without; a real Postgres takes the rows. Every measurement is a fresh process that has done its imports,
with a fresh database; the variants take turns, so that a busy moment of the machine hits all of them. Only the ratios
carry over to another machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.contact_export.service import PAGE  # noqa: E402
from benchmarks.contact_export.variants import TABLE  # noqa: E402
from benchmarks.line import line_name, reached  # noqa: E402
from benchmarks.support import (  # noqa: E402
    RATIO_HEADER,
    Result,
    measured,
    medians,
    postgres,
    print_conditions,
    print_ratio,
    served,
)

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

LINES = ((0, False), (50, False), (50, True))
"""Milliseconds of a round trip, and whether with TLS."""
LABELS = {
    "http_hook": "HttpHook + insert_rows",
    "ours": "MailContactsToSqlOperator",
    "floor": "  msgspec, COPY, one upsert",
}
LOOP_AIMS = {0: ">= 2", 50: ">= 4"}
FLOOR_AIM = "<= 1.5"
IN_FLIGHT = 8
"""Pages in flight: the operator's default, also for the lower bound."""
SMALL_PART = 10
"""Share of the contacts for a second measurement of memory."""


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, the milliseconds of a round trip to the service, how many contacts, and over TLS."""

    variant: str
    latency: int
    contacts: int
    tls: bool = False


def cases(contacts: int) -> Iterator[Case]:
    """Yield all measurements of a round."""
    for latency, tls in LINES:
        for variant in LABELS:
            yield Case(variant, latency, contacts, tls)


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
            (count,) = connection.execute(f"SELECT count(DISTINCT email) FROM {TABLE}").fetchone()
    if count != case.contacts:
        raise RuntimeError(f"{case}: {count} different contacts are in the table")
    if service.counts is None or service.counts["most_connections"] > IN_FLIGHT:
        raise RuntimeError(f"{case}: {IN_FLIGHT} connections may be open, and the service saw {service.counts}")
    return result


def report(results: dict[Case, list[Result]], contacts: int) -> None:
    """Print the medians of all results, and of each round's ratios."""
    print(f"\n{'':34}{'line':>12}{'contacts/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
    for case, runs in results.items():
        if case.contacts != contacts:
            continue
        seconds, cpu, memory = medians(runs)
        label, line = LABELS[case.variant], line_name(case.latency, case.tls)
        print(f"{label:34}{line:>12}{contacts / seconds:12,.0f}{seconds:9.2f}{cpu:8.2f}{memory:18.0f}")

    def seconds_of(variant: str, latency: int, tls: bool) -> list[float]:
        return [result.seconds for result in results[Case(variant, latency, contacts, tls)]]

    print(f"\n{RATIO_HEADER}")
    for latency, tls in LINES:
        ours = seconds_of("ours", latency, tls)
        line = line_name(latency, tls)
        print_ratio(f"{line}: time over the lower bound", ours, seconds_of("floor", latency, tls), FLOOR_AIM)
        loop = seconds_of("http_hook", latency, tls)
        print_ratio(f"{line}: as fast as the HttpHook loop", loop, ours, LOOP_AIMS[latency])
    memory = ", ".join(
        f"{case.contacts:,} contacts {statistics.median(result.memory for result in runs):.1f}"
        for case, runs in results.items()
        if case.variant == "ours" and (case.latency, case.tls) == LINES[-1]
    )
    print(f"\nPeak memory of MailContactsToSqlOperator over imports, MiB: {memory}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contacts", type=int, default=500_000, help="contacts in the list")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each line")
    arguments = parser.parse_args()

    results: dict[Case, list[Result]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with postgres(home) as server:
            few = Case("ours", LINES[-1][0], max(1, arguments.contacts // SMALL_PART), LINES[-1][1])
            results[few].append(measure(few, server, home))
            for _ in range(arguments.rounds):
                for case in cases(arguments.contacts):
                    results[case].append(measure(case, server, home))

    workload = f"{arguments.contacts:,} contacts, {PAGE:,} a page, {IN_FLIGHT} in flight"
    print_conditions(workload, arguments.rounds)
    report(results, arguments.contacts)


if __name__ == "__main__":
    main()
