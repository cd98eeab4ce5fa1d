"""Loading campaign statistics: ours, compared with the usual code and with the limit.

    python benchmarks/load_stats.py [--records 100000] [--rounds 3]

A service in a process of its own answers with all records at once; SQLite and a real Postgres take them, first into no
table, then again with nothing changed. Every measurement is a fresh process that has done its imports; the variants
take turns, so that a busy moment of the machine hits all of them. Only the ratios carry over to another machine. For
dlt, see dlt_loads.py.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

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
    served,
)

LABELS = {
    "http_hook": "HttpHook + insert_rows(replace=True)",
    "ours": "MailCampaignStatsToSqlOperator",
    "limit": "  streamed parse + COPY or executemany",
}
LOADS = ("first", "again")
AIMS = {
    ("Postgres", "first", "http_hook"): ">= 4",
    ("Postgres", "again", "http_hook"): ">= 7",
    ("SQLite", "first", "http_hook"): ">= 10",
    ("SQLite", "again", "http_hook"): ">= 10",
}
"""Goals: speed relative to each variant; at least 0.7 for the limit."""
MOST_MEMORY = "<= 60"


@dataclass(frozen=True)
class Case:
    """What is measured: the database, the variant, and whether the records are there already."""

    database: str
    variant: str
    load: str


@dataclass(frozen=True)
class Place:
    """An empty database: as an Airflow connection, and where its rows are counted."""

    connection: str
    count: str


@contextmanager
def places(folder: Path) -> Iterator[dict[str, Iterator[Place]]]:
    """Yield, by kind of database, as many empty ones as are taken."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres(folder))

        def in_postgres() -> Iterator[Place]:
            while True:
                with server.database() as database:
                    yield Place(database.airflow_connection, database.dsn)

        def in_sqlite() -> Iterator[Place]:
            while True:
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    path = f"{place}/warehouse.db"
                    yield Place(json.dumps({"conn_type": "sqlite", "host": path}), path)

        databases = {"SQLite": in_sqlite(), "Postgres": in_postgres()}
        for empty_databases in databases.values():
            stack.enter_context(closing(empty_databases))  # type: ignore[type-var]
        yield databases


def rows_in(place: Place) -> int:
    """Return the number of rows in the table."""
    sql = "SELECT count(*) FROM mail_campaign_stats"
    if place.count.startswith("postgresql"):
        import psycopg

        with psycopg.connect(place.count) as connection:
            row = connection.execute(sql).fetchone()
    else:
        with closing(sqlite3.connect(place.count)) as connection:
            row = connection.execute(sql).fetchone()
    return int(row[0]) if row else 0


def measure(case: Case, place: Place, port: int, records: int, folder: Path) -> Result:
    """Run one measurement in a new process.

    :param port: port of the service.
    :param records: number of records in the response.
    :param folder: Airflow's folder.
    :raises RuntimeError: it failed, or the table does not hold every record.
    """
    command = [sys.executable, "-m", "benchmarks.stats_load.variants", case.variant]
    environment = {"AIRFLOW_CONN_WAREHOUSE": place.connection}
    result, moved = measured(case, command, home=folder, address=Address(port), **environment)
    if moved != records or (stored := rows_in(place)) != records:
        raise RuntimeError(f"{case}: {records} records, {moved} came and {stored} are there")
    return result


class Report:
    """The results of all rounds, printed as tables.

    :param records: in each answer.
    """

    def __init__(self, records: int) -> None:
        self._records = records
        self._results: dict[Case, list[Result]] = defaultdict(list)

    def add(self, case: Case, result: Result) -> None:
        """Add a measurement."""
        self._results[case].append(result)

    def print_figures(self) -> None:
        """Print the medians."""
        print(f"\n{'':56}{'records/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
        for case, results in sorted(
            self._results.items(), key=lambda item: (item[0].database, item[0].load != "first")
        ):
            seconds, cpu, memory = medians(results)
            aim = f"   {MOST_MEMORY}" if case.variant == "ours" else ""
            print(
                f"{case.database:10}{case.load:7}{LABELS[case.variant]:39}{self._records / seconds:12,.0f}"
                f"{seconds:9.2f}{cpu:8.2f}{memory:18.0f}{aim}"
            )

    def print_ratios(self) -> None:
        """Print the median, minimum and maximum of the ratios of all rounds."""
        print(f"\nAs fast as ...\n{RATIO_HEADER}")
        for case in sorted(self._results, key=lambda case: (case.database, case.load != "first")):
            if case.variant == "ours":
                continue
            theirs, ours = (
                [result.seconds for result in self._results[Case(case.database, variant, case.load)]]
                for variant in (case.variant, "ours")
            )
            aim = ">= 0.7" if case.variant == "limit" else AIMS[case.database, case.load, case.variant]
            title = f"{case.database}, {case.load}: {LABELS[case.variant].strip()}"
            print_ratio(title, theirs, ours, aim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="campaigns in the response")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each line")
    arguments = parser.parse_args()

    report = Report(arguments.records)
    with tempfile.TemporaryDirectory() as name, served("benchmarks.stats_load.service", arguments.records) as service:
        folder = Path(name)
        with places(folder) as kinds:
            for _ in range(arguments.rounds):
                for database, empty in kinds.items():
                    for variant in LABELS:
                        place = next(empty)
                        for load in LOADS:
                            case = Case(database, variant, load)
                            result = measure(case, place, service.port, arguments.records, folder)
                            report.add(case, result)
    print_conditions(f"{arguments.records:,} records in one response", arguments.rounds)
    report.print_figures()
    report.print_ratios()


if __name__ == "__main__":
    main()
