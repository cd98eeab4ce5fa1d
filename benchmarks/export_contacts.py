"""Exporting the contacts of a list to Postgres: ours, compared with the usual loop and with the lower bound.

    python benchmarks/export_contacts.py [--contacts 500000] [--rounds 3]

A service in a process of its own returns pages of 1,000, at once or after 50 ms; a real Postgres takes the rows. Every
measurement is a fresh process that has done its imports, with a fresh database; the variants take turns, so that a busy
moment of the machine hits all of them. Only the ratios carry over to another machine.
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

LATENCIES = (0, 50)
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
    """What is measured: a variant, the milliseconds that the service takes for a page, and how many contacts."""

    variant: str
    latency: int
    contacts: int


def cases(contacts: int) -> Iterator[Case]:
    """Yield all measurements of a round."""
    for latency in LATENCIES:
        for variant in LABELS:
            yield Case(variant, latency, contacts)


def measure(case: Case, server: PostgresServer, home: Path) -> Result:
    """Run one measurement in a new process, into a fresh database.

    :param home: Airflow's folder.
    :raises RuntimeError: it failed, not every contact is in the table, or more pages were in flight.
    """
    command = [sys.executable, "-m", "benchmarks.contact_export.variants", case.variant]
    serving = served("benchmarks.contact_export.service", case.contacts, case.latency)
    with server.database() as database, serving as service:
        result, _ = measured(
            case,
            command,
            home=home,
            port=service.port,
            AIRFLOW_CONN_CONTACTS_DB=database.airflow_connection,
            BENCHMARK_CONTACTS=str(case.contacts),
            BENCHMARK_IN_FLIGHT=str(IN_FLIGHT),
        )
        with database.connect() as connection:
            (count,) = connection.execute(f"SELECT count(DISTINCT email) FROM {TABLE}").fetchone()
    if count != case.contacts:
        raise RuntimeError(f"{case}: {count} different contacts are in the table")
    if service.counts is None or service.counts["most_in_flight"] > IN_FLIGHT:
        raise RuntimeError(f"{case}: {IN_FLIGHT} pages may be in flight, and the service saw {service.counts}")
    return result


def report(results: dict[Case, list[Result]], contacts: int) -> None:
    """Print the medians of all results, and of each round's ratios."""
    print(f"\n{'':34}{'latency':>8}{'contacts/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
    for case, runs in results.items():
        if case.contacts != contacts:
            continue
        seconds, cpu, memory = medians(runs)
        print(
            f"{LABELS[case.variant]:34}{case.latency:>5} ms{contacts / seconds:12,.0f}{seconds:9.2f}{cpu:8.2f}"
            f"{memory:18.0f}"
        )

    def seconds_of(variant: str, latency: int) -> list[float]:
        return [result.seconds for result in results[Case(variant, latency, contacts)]]

    print(f"\n{RATIO_HEADER}")
    for latency in LATENCIES:
        ours = seconds_of("ours", latency)
        print_ratio(f"{latency} ms: time over the lower bound", ours, seconds_of("floor", latency), FLOOR_AIM)
        loop = seconds_of("http_hook", latency)
        print_ratio(f"{latency} ms: as fast as the HttpHook loop", loop, ours, LOOP_AIMS[latency])
    memory = ", ".join(
        f"{case.contacts:,} contacts {statistics.median(result.memory for result in runs):.1f}"
        for case, runs in results.items()
        if case.variant == "ours" and case.latency == LATENCIES[-1]
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
            few = Case("ours", LATENCIES[-1], max(1, arguments.contacts // SMALL_PART))
            results[few].append(measure(few, server, home))
            for _ in range(arguments.rounds):
                for case in cases(arguments.contacts):
                    results[case].append(measure(case, server, home))

    workload = f"{arguments.contacts:,} contacts, {PAGE:,} a page, {IN_FLIGHT} in flight"
    print_conditions(workload, arguments.rounds)
    report(results, arguments.contacts)


if __name__ == "__main__":
    main()
