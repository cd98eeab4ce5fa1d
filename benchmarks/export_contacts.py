"""Exporting the contacts of a list to Postgres: ours, compared with the usual loop and with the limit.

    python benchmarks/export_contacts.py [--contacts 500000] [--rounds 3] [--in-flight 8]

A service in a process of its own tells pages of 1,000, at once or after 50 ms; a real Postgres takes the rows. Every
measurement is a fresh process that has done its imports, with a fresh database; the variants take turns, so that a busy
moment of the machine hits all of them. Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.contact_export import service as services  # noqa: E402
from benchmarks.contact_export.variants import TABLE  # noqa: E402

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

LATENCIES = (0, 50)
LABELS = {
    "no_http": "  parse + load, no HTTP",
    "http_hook": "HttpHook + insert_rows",
    "ours": "MailContactsToSqlOperator",
}
SMALL_PART = 10
"""Share of the contacts for a second measurement of memory."""


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, the milliseconds that the service takes for a page, and how many contacts."""

    variant: str
    latency: int | None
    contacts: int


@dataclass(frozen=True)
class Result:
    """One run: seconds, CPU seconds, peak memory in MiB beyond that of the imports."""

    seconds: float
    cpu: float
    memory: float


def cases(contacts: int) -> Iterator[Case]:
    """All measurements of a round."""
    yield Case("no_http", None, contacts)
    for latency in LATENCIES:
        for variant in ("http_hook", "ours"):
            yield Case(variant, latency, contacts)


def measure(case: Case, server: PostgresServer, in_flight: int, home: Path) -> Result:
    """Run one measurement in a new process, into a fresh database.

    :raises RuntimeError: when it failed, when not every contact is in the table, or when more pages were under way.
    """
    env = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    env = {name: value for name, value in env.items() if not name.startswith("AIRFLOW")}
    serving = nullcontext() if case.latency is None else services.running(case.contacts, case.latency)
    with server.database() as database, serving as service:
        address = {"host": "127.0.0.1", "port": service.port if service else 9, "schema": "http"}
        env |= {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "AIRFLOW_CONN_CONTACTS_DB": database.airflow_connection,
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps({"conn_type": "mail", "password": "benchmark", **address}),
            "AIRFLOW_CONN_HTTP_DEFAULT": json.dumps({"conn_type": "http", **address}),
            "BENCHMARK_CONTACTS": str(case.contacts),
            "BENCHMARK_IN_FLIGHT": str(in_flight),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "benchmarks.contact_export.variants", case.variant]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{case} failed:\n{done.stdout}\n{done.stderr}")
        with database.connect() as connection:
            (count,) = connection.execute(f"SELECT count(DISTINCT email) FROM {TABLE}").fetchone()
    if count != case.contacts:
        raise RuntimeError(f"{case}: {count} different contacts are in the table")
    if service and service.asked.most_in_flight > in_flight:
        raise RuntimeError(f"{case}: {in_flight} pages may be under way, and the service saw {service.asked}")
    measured = json.loads(done.stdout.splitlines()[-1])
    measured.pop("contacts")
    return Result(**measured)


def by_latency(contacts: int, in_flight: int) -> float:
    """Seconds that an export takes when nothing counts but latency: the first page alone, then as many as allowed."""
    pages = -(-contacts // services.PAGE)
    return (1 + pages / in_flight) * LATENCIES[-1] / 1000


def report(results: dict[Case, list[Result]], contacts: int, in_flight: int) -> None:
    """Medians of everything, and of each round's ratios."""
    print(f"\n{'':34}{'latency':>8}{'contacts/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
    for case, measured in results.items():
        if case.contacts != contacts:
            continue
        seconds, cpu, memory = (
            statistics.median(getattr(one, field) for one in measured) for field in ("seconds", "cpu", "memory")
        )
        latency = "" if case.latency is None else f"{case.latency} ms"
        print(f"{LABELS[case.variant]:34}{latency:>8}{contacts / seconds:12,.0f}{seconds:9.2f}{cpu:8.2f}{memory:18.0f}")
    waiting = by_latency(contacts, in_flight)
    print(f"{'  pages x latency / in flight':34}{LATENCIES[-1]:>5} ms{contacts / waiting:12,.0f}{waiting:9.2f}")

    def seconds_of(variant: str, latency: int | None) -> list[float]:
        return [one.seconds for one in results[Case(variant, latency, contacts)]]

    alone = seconds_of("no_http", None)
    print(f"\n{'':64}{'median':>8}{'from':>8}{'to':>8}   aim")
    for latency in LATENCIES:
        ours, loop = seconds_of("ours", latency), seconds_of("http_hook", latency)
        least = [max(one, waiting if latency else 0.0) for one in alone]
        _ratio(f"{latency} ms: as fast as the HttpHook loop", loop, ours, "")
        _ratio(f"{latency} ms: time over the larger of no HTTP and latency", ours, least, "<= 1.25" if latency else "")
        if latency:
            _ratio(f"{latency} ms: time over latency alone", ours, [waiting] * len(ours), "")
    memory = ", ".join(
        f"{case.contacts:,} contacts {statistics.median(one.memory for one in measured):.1f}"
        for case, measured in results.items()
        if case.variant == "ours" and case.latency == LATENCIES[-1]
    )
    print(f"\nPeak memory of MailContactsToSqlOperator over imports, MiB: {memory}")


def _ratio(title: str, above: list[float], below: list[float], aim: str) -> None:
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    print(f"{title:64}{statistics.median(ratios):8.2f}{min(ratios):8.2f}{max(ratios):8.2f}   {aim}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contacts", type=int, default=500_000, help="contacts in the list")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each line")
    parser.add_argument("--in-flight", type=int, default=8, help="pages in flight (default: the operator's)")
    arguments = parser.parse_args()

    from tests.support.postgres import PostgresServer

    results: dict[Case, list[Result]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        server_folder = home / "postgres"
        server_folder.mkdir(mode=0o700)
        with PostgresServer(server_folder / "data") as server:
            few = Case("ours", LATENCIES[-1], max(1, arguments.contacts // SMALL_PART))
            results[few].append(measure(few, server, arguments.in_flight, home))
            for _ in range(arguments.rounds):
                for case in cases(arguments.contacts):
                    results[case].append(measure(case, server, arguments.in_flight, home))

    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"{arguments.contacts:,} contacts, {services.PAGE:,} a page, {arguments.in_flight} in flight; Airflow "
        f"{version('apache-airflow-core')}, Python {python}, {os.cpu_count()} cores; medians of {arguments.rounds} "
        "fresh processes"
    )
    report(results, arguments.contacts, arguments.in_flight)


if __name__ == "__main__":
    main()
