"""Draining the inbox into Postgres: ours, compared with a handler that inserts row by row and with the limit.

    python benchmarks/drain_events.py [--pushes 300] [--rounds 3] [--drains 4]

A real Postgres, with fsync, holds the inbox and the table of events. Pushes have 1,000 events; every tenth is sent
twice. Every measurement is a fresh process that has done its imports, with a fresh database; the variants take turns,
so that a busy moment of the machine hits all of them. Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.line import Address  # noqa: E402
from benchmarks.support import (  # noqa: E402
    RATIO_HEADER,
    Result,
    measured,
    medians,
    postgres,
    print_conditions,
    print_ratio,
    together,
)
from benchmarks.webhook_drain.variants import EVENTS_PER_PUSH, REPEAT_EVERY  # noqa: E402

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

SMALL_PART = 10
"""Share of the pushes for a second measurement of memory."""


@dataclass(frozen=True)
class Case:
    """What is measured: a variant, how many processes at once, and how many pushes."""

    variant: str
    processes: int
    pushes: int

    @property
    def label(self) -> str:
        name = {"ours": "MailEventsToSqlOperator", "row_wise": "row by row, no HTTP", "copy": "COPY, nothing checked"}
        return name[self.variant] + (f", {self.processes} at once" if self.processes > 1 else "")

    @property
    def sent(self) -> int:
        """Events that were pushed, with the repeated ones."""
        return (self.pushes + -(-self.pushes // REPEAT_EVERY)) * EVENTS_PER_PUSH


def measure(case: Case, server: PostgresServer, home: Path) -> Result:
    """Run one measurement in new processes, with a fresh database.

    :param home: Airflow's folder.
    :raises RuntimeError: it failed, or an event is missing or there twice.
    """

    def process(variant: str, **environment: str) -> Result:
        result, _ = measured(
            case,
            [sys.executable, "-m", "benchmarks.webhook_drain.variants", variant],
            home=home,
            address=Address(9),
            AIRFLOW_CONN_EVENTS_DB=database.airflow_connection,
            BENCHMARK_PUSHES=str(case.pushes),
            **environment,
        )
        return result

    with server.database() as database:
        process("fill")
        with tempfile.TemporaryDirectory(dir=home) as barrier, ThreadPoolExecutor(case.processes) as pool:
            environment = {"BENCHMARK_BARRIER": barrier, "BENCHMARK_TASKS": str(case.processes)}
            results = list(pool.map(lambda _: process(case.variant, **environment), range(case.processes)))
        with database.connect() as connection:
            (count,) = connection.execute("SELECT count(*) FROM mail_events").fetchone()
    if count != case.pushes * EVENTS_PER_PUSH:
        raise RuntimeError(f"{case}: {count} events are in the table")
    return together(results)


def report(results: dict[Case, list[Result]], pushes: int, drains: int) -> None:
    """Print the medians of all results, and of each round's ratios.

    :param pushes: number of different pushes.
    :param drains: number of drains at once.
    """
    print(f"\n{'':40}{'events/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
    for case, runs in results.items():
        seconds, cpu, memory = medians(runs)
        if case.pushes == pushes:
            print(f"{case.label:40}{case.sent / seconds:12,.0f}{seconds:9.2f}{cpu:8.2f}{memory:18.0f}")

    def seconds_of(variant: str, processes: int = 1) -> list[float]:
        return [result.seconds for result in results[Case(variant, processes, pushes)]]

    row_wise, limit = seconds_of("row_wise"), seconds_of("copy")
    print(f"\n{RATIO_HEADER}")
    print_ratio("one drain: as fast as row by row", row_wise, seconds_of("ours"), ">= 7")
    print_ratio(f"{drains} drains at once: as fast as row by row", row_wise, seconds_of("ours", drains), "")
    print_ratio("one drain: time over COPY with nothing checked", seconds_of("ours"), limit, "")
    memory = ", ".join(
        f"{case.pushes:,} pushes {statistics.median(result.memory for result in runs):.1f}"
        for case, runs in results.items()
        if case.variant == "ours" and case.processes == 1
    )
    print(f"\nPeak memory of MailEventsToSqlOperator over imports, MiB: {memory}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pushes", type=int, default=300, help="different pushes")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each line")
    parser.add_argument("--drains", type=int, default=4, help="drains at once")
    arguments = parser.parse_args()

    pushes, results = arguments.pushes, defaultdict[Case, list[Result]](list)
    cases = [Case("row_wise", 1, pushes), Case("ours", 1, pushes), Case("ours", arguments.drains, pushes),
             Case("copy", 1, pushes)]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with postgres(home) as server:
            with server.maintenance.connect() as connection:
                for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                    connection.execute(f"ALTER SYSTEM RESET {setting}")
                connection.execute("SELECT pg_reload_conf()")
            few = Case("ours", 1, max(1, pushes // SMALL_PART))
            results[few].append(measure(few, server, home))
            for _ in range(arguments.rounds):
                for case in cases:
                    results[case].append(measure(case, server, home))

    print_conditions(f"{pushes:,} pushes of {EVENTS_PER_PUSH:,} events, every tenth twice", arguments.rounds)
    report(results, pushes, arguments.drains)


if __name__ == "__main__":
    main()
