"""Importing contacts from a database: ours, compared with the usual loop and with the lower bound.

    python benchmarks/import_contacts.py [--rows 1000000] [--rounds 3]

SQLite and a real Postgres hold the contacts; a sink in a process of its own takes them, on loopback or over a line of
50 ms (`benchmarks/line.py`), with TLS and without. Every measurement is a fresh process that has done its imports; the
variants take turns, so that a busy moment of the machine hits all of them. Only the ratios carry over to another
machine, those to the lower bound best.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.contact_import import sink as sinks  # noqa: E402
from benchmarks.contact_import.tables import TABLES, databases, valid_contacts  # noqa: E402
from benchmarks.contact_import.variants import CHUNK, IN_FLIGHT  # noqa: E402
from benchmarks.line import Address, line_name, reached  # noqa: E402
from benchmarks.support import (  # noqa: E402
    RATIO_HEADER,
    Result,
    measured,
    medians,
    print_conditions,
    print_ratio,
    together,
)

LINES = ((0, False), (50, False), (50, True))
"""Milliseconds of a round trip, and whether with TLS."""
LABELS = {
    "no_http": "  read + check + encode, no HTTP",
    "http_hook": "HttpHook + get_records + json=",
    "ours": "SqlToMailContactsOperator",
    "floor": "  read + encode, raw sockets",
}
CLEAN, SOME_INVALID = TABLES
FLOOR_AIM = 1.6
LOOP_AIMS = {("Postgres", 0): ">= 1.5", ("Postgres", 50): ">= 8", ("SQLite", 0): ">= 2", ("SQLite", 50): ">= 8"}
"""Goals: times as fast as the HttpHook loop."""
INVALID_AIM = 1.15
TASKS, TASKS_AIM = 4, 1.6
"""Mapped tasks that import together, and how many times as fast as one they should be."""
SMALL_PART = 10
"""Share of the rows for a second measurement of memory."""


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, the database and the table it reads, and the line to the sink.

    :param latency: milliseconds of a round trip; ``None`` without a sink.
    :param tasks: how many processes share the rows.
    """

    source: str
    latency: int | None
    variant: str
    table: str = CLEAN
    tasks: int = 1
    tls: bool = False


def cases(sources: Iterable[str]) -> Iterator[Case]:
    """Yield all measurements of a round."""
    for source in sources:
        yield Case(source, None, "no_http")
        for latency, tls in LINES:
            for variant in ("http_hook", "ours", "floor"):
                yield Case(source, latency, variant, tls=tls)
            yield Case(source, latency, "ours", SOME_INVALID, tls=tls)
            for variant in ("ours", "floor"):
                yield Case(source, latency, variant, tasks=TASKS, tls=tls)


def measure(case: Case, connection: str, rows: int, home: Path) -> Result:
    """Run one measurement in new processes.

    :param rows: contacts in the table.
    :param home: Airflow's folder.
    :raises RuntimeError: it failed, or the sink did not get every valid contact.
    """
    command = [sys.executable, "-m", "benchmarks.contact_import.variants", case.variant]
    with (
        nullcontext() if case.latency is None else sinks.running() as sink,
        reached(sink.port, case.latency or 0, home, tls=case.tls) if sink else nullcontext(Address(9)) as address,
    ):

        def run(part: int) -> tuple[Result, int]:
            sql = f"SELECT email, name, phone FROM {case.table}"
            if case.tasks > 1:
                sql += f" WHERE number >= {part * rows // case.tasks} AND number < {(part + 1) * rows // case.tasks}"
            environment = {"AIRFLOW_CONN_CONTACTS_DB": connection, "BENCHMARK_SQL": sql}
            if case.tasks > 1:
                environment |= {"BENCHMARK_TASKS": str(case.tasks), "BENCHMARK_BARRIER": barrier}
            return measured(case, command, home=home, address=address, **environment)

        with tempfile.TemporaryDirectory() as barrier, ThreadPoolExecutor(case.tasks) as pool:
            parts = list(pool.map(run, range(case.tasks)))
    expected = valid_contacts(case.table, rows)
    if sum(records for _, records in parts) != (expected if case.variant == "ours" else rows):
        raise RuntimeError(f"{case}: not {expected} contacts")
    if sink and (sink.received is None or sink.received.contacts != expected):
        raise RuntimeError(f"{case}: {expected} contacts, and the sink received {sink.received}")
    return together([result for result, _ in parts])


class Report:
    """The results of all rounds, printed as tables.

    :param rows: contacts in each run.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._results: dict[Case, list[Result]] = defaultdict(list)

    def measure(self, case: Case, connections: Mapping[str, str], home: Path) -> None:
        """Add a measurement.

        :param home: Airflow's folder.
        """
        self._results[case].append(measure(case, connections[case.source], self.rows, home))

    def print_figures(self) -> None:
        """Print the medians."""
        print(f"\n{'':58}{'line':>12}{'contacts/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
        for case, results in self._results.items():
            seconds, cpu, memory = medians(results)
            line = "" if case.latency is None else line_name(case.latency, case.tls)
            label = LABELS[case.variant] + ("" if case.table == CLEAN else ", 0.5 % invalid")
            label += f", {case.tasks} tasks" if case.tasks > 1 else ""
            print(
                f"{case.source:10}{label:48}{line:>12}{self.rows / seconds:12,.0f}"
                f"{seconds:9.2f}{cpu:8.2f}{memory:18.0f}"
            )

    def print_ratios(self) -> None:
        """Print the median, minimum and maximum of the ratios of all rounds."""
        print(f"\n{RATIO_HEADER}")
        for source in dict.fromkeys(case.source for case in self._results):
            for latency, tls in LINES:
                ours = self._seconds(Case(source, latency, "ours", tls=tls))
                prefix = f"{source}, {line_name(latency, tls)}:"

                def ratio(
                    title: str, above: list[float], below: list[float], aim: object, prefix: str = prefix
                ) -> None:
                    print_ratio(f"{prefix} {title}", above, below, str(aim))

                floor = self._seconds(Case(source, latency, "floor", tls=tls))
                ratio("time over the lower bound", ours, floor, f"<= {FLOOR_AIM}")
                loop = self._seconds(Case(source, latency, "http_hook", tls=tls))
                ratio("as fast as the HttpHook loop", loop, ours, LOOP_AIMS.get((source, latency), ""))
                invalid = self._seconds(Case(source, latency, "ours", SOME_INVALID, tls=tls))
                ratio("0.5 % invalid, time over none", invalid, ours, f"<= {INVALID_AIM}")
                tasks, floors = (
                    self._seconds(Case(source, latency, variant, tasks=TASKS, tls=tls)) for variant in ("ours", "floor")
                )
                ratio(f"{TASKS} tasks, as fast as one", ours, tasks, f">= {TASKS_AIM}")
                ratio(f"  the lower bound in {TASKS}, as fast as in one", floor, floors, "")

    def print_memory(self, few: Report) -> None:
        """Print the memory of the operator with few rows and with all of them.

        :param few: the results with few rows.
        """
        print("\nPeak memory of SqlToMailContactsOperator over imports, MiB")
        for case, results in few._results.items():
            line = ", ".join(
                f"{rows:,} rows {statistics.median(result.memory for result in measured):.1f}"
                for rows, measured in ((few.rows, results), (self.rows, self._results[case]))
            )
            print(f"{case.source:10}{line}")

    def _seconds(self, case: Case) -> list[float]:
        return [result.seconds for result in self._results[case]]


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
                few.measure(Case(source, LINES[-1][0], "ours", tls=LINES[-1][1]), connections, home)
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
