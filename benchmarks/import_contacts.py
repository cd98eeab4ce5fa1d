"""Importing contacts from a database: ours, compared with the usual loop and with the limit.

    python benchmarks/import_contacts.py [--rows 1000000] [--rounds 3]

SQLite and a real Postgres hold the contacts; a sink in a process of its own takes them, answering at once or after 50
ms. Every measurement is a fresh process that has done its imports; the variants take turns, so that a busy moment of
the machine hits all of them. Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.contact_import import sink as sinks  # noqa: E402
from benchmarks.contact_import.tables import databases  # noqa: E402
from benchmarks.contact_import.variants import CHUNK, IN_FLIGHT  # noqa: E402

LATENCIES = (0, 50)
LABELS = {
    "no_http": "  read + check + encode, no HTTP",
    "no_http_beside_a_thread": "  the same beside an idle thread",
    "http_hook": "HttpHook + get_records + json=",
    "ours": "SqlToMailContactsOperator",
    "limit": "  encoded beforehand, raw sockets",
}
AIMS = {0: (">= 2", ""), 50: (">= 14", "<= 1.2")}
"""Goals by latency: ratio to the HttpHook loop, and to the lower bound."""
SMALL_PART = 10
"""Share of the rows for a second measurement of memory."""


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, the database it reads, and the latency of the sink in milliseconds."""

    source: str
    latency: int | None
    variant: str


@dataclass(frozen=True)
class Result:
    """One run: seconds, CPU seconds, peak memory in MiB beyond that of the imports."""

    seconds: float
    cpu: float
    memory: float


def cases(sources: Iterable[str]) -> Iterator[Case]:
    """All measurements of a round."""
    for source in sources:
        yield Case(source, None, "no_http")
        yield Case(source, None, "no_http_beside_a_thread")
        for latency in LATENCIES:
            for variant in ("http_hook", "ours", "limit"):
                yield Case(source, latency, variant)


def measure(case: Case, connection: str, rows: int, home: Path) -> Result:
    """Run one measurement in a new process.

    :raises RuntimeError: when it failed, or when the sink did not get every contact.
    """
    env = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    env = {name: value for name, value in env.items() if not name.startswith("AIRFLOW")}
    with nullcontext() if case.latency is None else sinks.running(case.latency) as sink:
        address = f"http://127.0.0.1:{sink.port}" if sink else "http://127.0.0.1:9"
        service = {"host": "127.0.0.1", "port": int(address.rpartition(":")[2]), "schema": "http"}
        env |= {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "AIRFLOW_CONN_CONTACTS_DB": connection,
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps({"conn_type": "mail", "password": "benchmark", **service}),
            "AIRFLOW_CONN_HTTP_DEFAULT": json.dumps({"conn_type": "http", **service}),
            "BENCHMARK_SINK": address,
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "benchmarks.contact_import.variants", case.variant]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stdout}\n{done.stderr}")
    measured = json.loads(done.stdout.splitlines()[-1])
    if measured.pop("contacts") != rows:
        raise RuntimeError(f"{case}: not {rows} contacts")
    if sink:
        received = sink.received
        if received is None or received.contacts != rows or received.most_in_flight > IN_FLIGHT:
            raise RuntimeError(f"{case}: {rows} contacts, {IN_FLIGHT} in flight, and the sink received {received}")
    return Result(**measured)


def by_latency(rows: int) -> float:
    """Seconds that an import takes when nothing counts but the slower sink's latency."""
    return math.ceil(rows / CHUNK) * LATENCIES[-1] / 1000 / IN_FLIGHT


class Report:
    """The results of all rounds, printed as tables.

    :param rows: contacts in each run.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._results: dict[Case, list[Result]] = defaultdict(list)

    def measure(self, case: Case, connections: Mapping[str, str], home: Path) -> None:
        """Add a measurement."""
        self._results[case].append(measure(case, connections[case.source], self.rows, home))

    def print_figures(self) -> None:
        """Print the medians."""
        print(f"\n{'':44}{'latency':>8}{'contacts/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
        for case, results in self._results.items():
            seconds, cpu, memory = (
                statistics.median(getattr(one, field) for one in results) for field in ("seconds", "cpu", "memory")
            )
            latency = "" if case.latency is None else f"{case.latency} ms"
            # The limit holds all bodies, encoded before the clock starts: its memory says nothing.
            held = "" if case.variant == "limit" else f"{memory:.0f}"
            print(
                f"{case.source:10}{LABELS[case.variant]:34}{latency:>8}{self.rows / seconds:12,.0f}"
                f"{seconds:9.2f}{cpu:8.2f}{held:>18}"
            )
        label, seconds = "  requests x latency / in flight", by_latency(self.rows)
        print(f"{'':10}{label:34}{LATENCIES[-1]:>5} ms{self.rows / seconds:12,.0f}{seconds:9.2f}")

    def print_ratios(self) -> None:
        """Print the median, minimum and maximum of the ratios of all rounds."""
        print(f"\n{'':64}{'median':>8}{'from':>8}{'to':>8}   aim")
        for source in dict.fromkeys(case.source for case in self._results):
            for latency, (as_fast, at_most) in AIMS.items():
                loop, ours, limit = (
                    self._seconds(source, latency, variant) for variant in ("http_hook", "ours", "limit")
                )
                waiting = by_latency(self.rows) if latency else 0.0
                least = [max(alone, waiting) for alone in self._seconds(source, None, "no_http")]
                where = f"{source}, {latency} ms:"
                self._ratio(f"{where} as fast as the HttpHook loop", loop, ours, as_fast)
                self._ratio(f"{where}   if sending took no time of its own", loop, least, "")
                self._ratio(f"{where} time over the larger of no HTTP and latency", ours, least, at_most)
                self._ratio(f"{where} time over raw sockets", ours, limit, "")

    def print_memory(self, few: Report) -> None:
        """Ours with few rows and with all of them."""
        print("\nPeak memory of SqlToMailContactsOperator over imports, MiB")
        for case, results in few._results.items():
            line = ", ".join(
                f"{rows:,} rows {statistics.median(one.memory for one in measured):.1f}"
                for rows, measured in ((few.rows, results), (self.rows, self._results[case]))
            )
            print(f"{case.source:10}{line}")

    def _seconds(self, source: str, latency: int | None, variant: str) -> list[float]:
        return [one.seconds for one in self._results[Case(source, latency, variant)]]

    def _ratio(self, title: str, above: list[float], below: list[float], aim: str) -> None:
        ratios = [one / other for one, other in zip(above, below, strict=True)]
        print(f"{title:64}{statistics.median(ratios):8.2f}{min(ratios):8.2f}{max(ratios):8.2f}   {aim}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="contacts in each database")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each line")
    arguments = parser.parse_args()

    few, all_of_them = Report(max(1, arguments.rows // SMALL_PART)), Report(arguments.rows)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with databases(home / "few", few.rows) as connections:
            for source in connections:
                few.measure(Case(source, LATENCIES[-1], "ours"), connections, home)
        with databases(home / "all", all_of_them.rows) as connections:
            for _ in range(arguments.rounds):
                for case in cases(connections):
                    all_of_them.measure(case, connections, home)

    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"{arguments.rows:,} contacts, {CHUNK:,} a request, {IN_FLIGHT} in flight; Airflow "
        f"{version('apache-airflow-core')}, Python {python}, {os.cpu_count()} cores; medians of {arguments.rounds} "
        "fresh processes"
    )
    all_of_them.print_figures()
    all_of_them.print_ratios()
    all_of_them.print_memory(few)


if __name__ == "__main__":
    main()
