"""The same tables by the operators and by dlt with `mail_source`: time, CPU time and memory.

    python benchmarks/dlt_loads.py [--rounds 3] [--only statistics,10000,Postgres]

A service in a process of its own answers; a real Postgres, a DuckDB and a folder take the rows, first into no table,
then again with nothing changed. Every measurement is a fresh process that has done its imports; the variants take
turns, so that a busy moment of the machine hits all of them. Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.dlt_load.variants import TABLES  # noqa: E402
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
from tests.support.postgres import PostgresServer  # noqa: E402

LOADS = ("first", "again")
WORK = (("statistics", 10_000), ("statistics", 50_000), ("contacts", 100_000))
FORMATS = {"Postgres": "csv", "DuckDB": "parquet", "files": "parquet"}
MOST_AS_VALUES = 10_000
"""Records up to which dlt's default for DuckDB is measured: with 50,000 it takes 4 GiB."""
AIM = ">= 4"
"""Goal for statistics: times as fast as dlt with its defaults."""


@dataclass(frozen=True)
class Case:
    """What is measured: the records, their number, the destination, the variant, and whether they are there already."""

    what: str
    records: int
    kind: str
    variant: str
    load: str


def variants(destination: str, records: int) -> dict[str, dict[str, Any]]:
    """Return the variants of a destination: their settings by their name."""
    settings: dict[str, dict[str, Any]] = {"ours": {}}
    if destination == "files":
        settings["dlt, parquet"] = {"loader_file_format": "parquet"}
    elif destination == "Postgres" or records <= MOST_AS_VALUES:
        settings["dlt, defaults"] = {}
    settings[f"dlt, arrow, {FORMATS[destination]}"] = {"loader_file_format": FORMATS[destination], "arrow": True}
    return settings


@contextmanager
def place(destination: str, server: PostgresServer, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield an empty destination: an Airflow connection, and what dlt takes."""
    if destination == "Postgres":
        with server.database() as database:
            # dlt insists on a host and a password; the server asks for none.
            host = quote(database.socket_folder, safe="")
            yield database.airflow_connection, f"postgresql://{database.user}:none@{host}/{database.name}"
        return
    with tempfile.TemporaryDirectory(dir=folder) as name:
        if destination == "DuckDB":
            yield json.dumps({"conn_type": "duckdb", "host": f"{name}/warehouse.duckdb"}), f"{name}/warehouse.duckdb"
        else:
            yield "{}", f"file://{name}/files"


def measure(case: Case, settings: dict[str, Any], connection: str, url: str, port: int, folder: Path) -> Result:
    """Run one measurement in a new process.

    :param settings: of the variant.
    :param connection: the destination as an Airflow connection.
    :param url: the destination as dlt takes it.
    :param port: port of the service.
    :param folder: Airflow's folder.
    :raises RuntimeError: it failed, or did not load every record.
    """
    variant = "ours" if case.variant == "ours" else "dlt"
    result, _ = measured(
        case,
        [sys.executable, "-m", "benchmarks.dlt_load.variants", case.what, variant, json.dumps(settings)],
        home=folder,
        address=Address(port),
        AIRFLOW_CONN_WAREHOUSE=connection,
        BENCHMARK_KIND=case.kind,
        BENCHMARK_URL=url,
        BENCHMARK_FOLDER=f"{folder}/dlt-{abs(hash(url))}",
        DLT_DATA_DIR=f"{folder}/dlt",
        RUNTIME__DLTHUB_TELEMETRY="false",
        PYTHONWARNINGS="ignore",
    )
    # Each load of files adds some.
    expected = 2 * case.records if (case.kind, case.load) == ("files", "again") else case.records
    if (count := rows_in(case, connection, url)) != expected:
        raise RuntimeError(f"{case}: {count} rows are there")
    return result


def rows_in(case: Case, connection: str, url: str) -> int:
    """Return the number of rows in the destination.

    :param connection: the destination as an Airflow connection.
    :param url: the destination as dlt takes it.
    """
    if case.kind == "files":
        import pyarrow.parquet

        files = Path(url.removeprefix("file://")).rglob("*.parquet")
        return sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
    sql = f"SELECT count(*) FROM {'' if case.variant == 'ours' else 'by_dlt.'}{TABLES[case.what]}"
    if case.kind == "DuckDB":
        import duckdb

        with closing(duckdb.connect(url)) as database:
            (count,) = database.execute(sql).fetchone() or (0,)
    else:
        import psycopg

        fields = json.loads(connection)
        address = {"host": fields["host"], "user": fields["login"], "dbname": fields["schema"]}
        with psycopg.connect(**address) as postgres_connection:
            (count,) = postgres_connection.execute(sql).fetchone() or (0,)
    return int(count)


def report(results: dict[Case, list[Result]]) -> None:
    """Print the medians, and the ratios of the rounds."""
    print(f"\n{'':62}{'records/s':>12}{'seconds':>9}{'CPU s':>8}{'MiB over imports':>18}")
    for case, runs in results.items():
        seconds, cpu, memory = medians(runs)
        title = f"{case.what:11}{case.records:>8,} {case.kind:9}{case.load:7}{case.variant}"
        print(f"{title:62}{case.records / seconds:12,.0f}{seconds:9.2f}{cpu:8.2f}{memory:18.0f}")
    for title, field in (("Time", "seconds"), ("CPU time", "cpu"), ("Memory", "memory")):
        print(f"\n{title} over that of the operator\n{RATIO_HEADER}")
        for case, runs in results.items():
            if case.variant == "ours":
                continue
            ours = results[Case(case.what, case.records, case.kind, "ours", case.load)]
            above, below = ([getattr(result, field) for result in measurements] for measurements in (runs, ours))
            aim = AIM if case.what == "statistics" and case.variant == "dlt, defaults" and field == "seconds" else ""
            print_ratio(f"{case.what} {case.records:,} {case.kind}, {case.load}: {case.variant}", above, below, aim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each line")
    parser.add_argument("--only", default="", help="the lines whose records, number or destination are in this list")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))

    results: dict[Case, list[Result]] = defaultdict(list)
    services = {"statistics": "benchmarks.stats_load.service", "contacts": "benchmarks.contact_export.service"}
    with tempfile.TemporaryDirectory() as name, postgres(Path(name)) as server:
        folder = Path(name)
        for _ in range(arguments.rounds):
            for subject, records in WORK:
                if only - {subject, str(records), *FORMATS}:
                    continue
                with served(services[subject], records, *([] if subject == "contacts" else [31])) as service:
                    for destination in FORMATS:
                        if only & set(FORMATS) and destination not in only:
                            continue
                        for variant, settings in variants(destination, records).items():
                            with place(destination, server, folder) as (connection, url):
                                for load in LOADS:
                                    case = Case(subject, records, destination, variant, load)
                                    results[case].append(measure(case, settings, connection, url, service.port, folder))
    print_conditions("Statistics in one response, contacts in pages of 1,000", arguments.rounds)
    report(results)


if __name__ == "__main__":
    main()
