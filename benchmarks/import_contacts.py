"""Importing contacts from a database: ours, compared with the usual loop and with the limit.

    python benchmarks/import_contacts.py [--rows 1000000] [--rounds 3]

SQLite and a real Postgres hold the contacts; a sink in a process of its own takes them, answering at once or after 50
ms. Every measurement is a fresh process that has done its imports; the variants take turns, so that a busy moment of
the machine hits all of them. Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.contact_import import sink as sinks  # noqa: E402
from benchmarks.contact_import.tables import databases  # noqa: E402
from benchmarks.contact_import.variants import CHUNK, IN_FLIGHT  # noqa: E402
from benchmarks.support import (  # noqa: E402
    RATIO_HEADER,
    Result,
    measured,
    medians,
    print_conditions,
    print_ratio,
)

LATENCIES = (0, 50)
LABELS = {
    "no_http": "  read + check + encode, no HTTP",
    "no_http_beside_a_thread": "  the same beside an idle thread",
    "http_hook": "HttpHook + get_records + json=",
    "ours": "SqlToMailContactsOperator",
    "limit": "  encoded beforehand, raw sockets",
}
AIMS = {0: (">= 2", ""), 50: (">= 14", "<= 1.2")}
"""Goals by latency: ratio to the HttpHook loop, with 16 requests in flight, and to the lower bound."""
SMALL_PART = 10
"""Share of the rows for a second measurement of memory."""


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, the database it reads, and the latency of the sink in milliseconds."""

    source: str
    latency: int | None
    variant: str


def cases(sources: Iterable[str]) -> Iterator[Case]:
    """Yield all measurements of a round.

    :param sources: the databases.
    """
    for source in sources:
        yield Case(source, None, "no_http")
        yield Case(source, None, "no_http_beside_a_thread")
        for latency in LATENCIES:
            for variant in ("http_hook", "ours", "limit"):
                yield Case(source, latency, variant)


def measure(case: Case, connection: str, rows: int, home: Path) -> Result:
    """Run one measurement in a new process.

    :param case: what is measured.
    :param connection: the connection of the database.
    :param rows: contacts in the database.
    :param home: Airflow's folder.
    :raises RuntimeError: it failed, or the sink did not get every contact.
    """
    command = [sys.executable, "-m", "benchmarks.contact_import.variants", case.variant]
    with nullcontext() if case.latency is None else sinks.running(case.latency) as sink:
        port = sink.port if sink else 9
        address = f"http://127.0.0.1:{port}"
        result, records = measured(
            case, command, home=home, port=port, AIRFLOW_CONN_CONTACTS_DB=connection, BENCHMARK_SINK=address
        )
    if records != rows:
        raise RuntimeError(f"{case}: not {rows} contacts")
    if sink:
        received = sink.received
        if received is None or received.contacts != rows or received.most_in_flight > IN_FLIGHT:
            raise RuntimeError(f"{case}: {rows} contacts, {IN_FLIGHT} in flight, and the sink received {received}")
    return result


def by_latency(rows: int) -> float:
    """Return the seconds that an import takes when nothing counts but the slower sink's latency.

    :param rows: contacts in the database.
    """
    return math.ceil(rows / CHUNK) * LATENCIES[-1] / 1000 / IN_FLIGHT


class Report:
    """The results of all rounds, printed as tables.

    :param rows: contacts in each run.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._results: dict[Case, list[Result]] = defaultdict(list)

    def measure(self, case: Case, connections: Mapping[str, str], home: Path) -> None:
        """Add a measurement.

        :param case: what is measured.
        :param connections: the connections of the databases.
        :param home: Airflow's folder.
        """
        self._results[case].append(measure(case, connections[case.source], self.rows, home))

    def print_figures(self) -> None:
        """Print the medians."""
        print(f"\n{'':44}{'latency':>8}{'contacts/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
        for case, results in self._results.items():
            seconds, cpu, memory = medians(results)
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
        print(f"\n{RATIO_HEADER}")
        for source in dict.fromkeys(case.source for case in self._results):
            for latency, (as_fast, at_most) in AIMS.items():
                loop, ours, limit = (
                    self._seconds(source, latency, variant) for variant in ("http_hook", "ours", "limit")
                )
                waiting = by_latency(self.rows) if latency else 0.0
                least = [max(alone, waiting) for alone in self._seconds(source, None, "no_http")]
                where = f"{source}, {latency} ms:"
                print_ratio(f"{where} as fast as the HttpHook loop", loop, ours, as_fast)
                print_ratio(f"{where}   if sending took no time of its own", loop, least, "")
                print_ratio(f"{where} time over the larger of no HTTP and latency", ours, least, at_most)
                print_ratio(f"{where} time over raw sockets", ours, limit, "")

    def print_memory(self, few: Report) -> None:
        """Print the memory of the operator with few rows and with all of them.

        :param few: the results with few rows.
        """
        print("\nPeak memory of SqlToMailContactsOperator over imports, MiB")
        for case, results in few._results.items():
            line = ", ".join(
                f"{rows:,} rows {statistics.median(one.memory for one in measured):.1f}"
                for rows, measured in ((few.rows, results), (self.rows, self._results[case]))
            )
            print(f"{case.source:10}{line}")

    def _seconds(self, source: str, latency: int | None, variant: str) -> list[float]:
        return [one.seconds for one in self._results[Case(source, latency, variant)]]


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

    print_conditions(f"{arguments.rows:,} contacts, {CHUNK:,} a request, {IN_FLIGHT} in flight", arguments.rounds)
    all_of_them.print_figures()
    all_of_them.print_ratios()
    all_of_them.print_memory(few)


if __name__ == "__main__":
    main()
