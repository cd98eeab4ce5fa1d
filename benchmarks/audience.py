"""Sending only what changed: beside a plain import of the same rows, day after day.

    python benchmarks/audience.py [--rows 1000000] [--database sqlite|postgres] [--plain 3] [--days 30]

A database has the contacts and the state; a service in a process of its own knows who is on which list. Each step is a
new process, and counts from before the query to the result. Only the ratios of CPU time carry over to another machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from airflow_provider_mail.arguments import Brakes, ChangesOnly  # noqa: E402
from benchmarks.support import imported, postgres, served  # noqa: E402

SQL = "SELECT email, name, phone FROM people WHERE active = 1"
# The database sorts, which takes time: compared with a plain import in the same order.
SHUFFLED = f"{SQL} ORDER BY CAST(number AS bigint) * 7919 % 1000003"
MODULES = (
    "_audience.compared", "_metrics", "_task.import_rows", "_task.imports", "hold", "hooks.mail", "warehouse.database",
    "warehouse.dialects.postgres", "warehouse.dialects.sqlite", "warehouse.tables.imports",
)  # fmt: skip
"""What the import of modules takes is not measured, since it does not grow with the rows."""
COLUMNS = {"email": "email", "name": "name", "phone": "phoneNumber"}


def run_step(sql: str, *, plain: bool) -> None:
    """Run the import in this process, and print what it took."""
    imported(
        "people_db",
        *(f"airflow_provider_mail.{name}" for name in MODULES),
        "cryptography.hazmat.primitives.ciphers.aead",
    )
    from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

    arguments: dict[str, Any] = {} if plain else {"exact_audience": True, "changes_only": ChangesOnly()}
    if not plain:
        arguments["brakes"] = Brakes(max_removed_fraction=1)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    operator = SqlToMailContactsOperator(
        task_id="people", sql_conn_id="people_db", sql=sql, columns=COLUMNS, list_name="people", **arguments
    )
    ti = SimpleNamespace(
        dag_id="dag", task_id="people", run_id=os.environ["BENCHMARK_RUN"], map_index=-1, try_number=1,
        xcom_pull=lambda **_: "12345678", xcom_push=lambda **_: None,
    )  # fmt: skip
    result = operator.execute({"ti": ti, "params": {}})
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = {name: result[name] for name in ("joined", "changed", "left") if name in result}
    print(json.dumps({"seconds": seconds, "cpu": cpu, "memory": (after.ru_maxrss - before.ru_maxrss) / 1024} | counts))


@contextmanager
def database(kind: str, folder: Path, rows: int) -> Iterator[tuple[str, Callable[[str], object]]]:
    """Fill a database; yield its connection for Airflow, and a function that runs a statement."""
    people = (
        (number, f"person{number}@company{number % 997}.example.com", f"Name {number % 1000}", f"+49151{number:08d}", 1)
        for number in range(rows)
    )
    create = "CREATE TABLE people (number integer PRIMARY KEY, email text, name text, phone text, active integer)"
    if kind == "postgres":
        with postgres(folder) as server, server.database() as database, database.connect() as connection:
            connection.execute(create)
            with connection.cursor().copy("COPY people FROM STDIN") as copy:
                for person in people:
                    copy.write_row(person)
            yield database.airflow_connection, lambda sql: connection.execute(sql)
        return
    import sqlite3

    path = folder / "people.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(create)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?)", people)
        connection.execute("COMMIT")
        yield json.dumps({"conn_type": "sqlite", "host": str(path)}), lambda sql: connection.execute(sql)


class Steps:
    """Runs steps, and keeps what they took.

    :param execute: runs a statement in the database of the contacts.
    """

    def __init__(self, environment: dict[str, str], port: int, execute: Callable[[str], object], rows: int) -> None:
        self._environment, self._port, self._execute, self._rows = environment, port, execute, rows
        self._numbers = itertools.count(1)

    def run(self, label: str, *changes: str, sql: str = SQL, plain: bool = False, needed: int | None = None) -> float:
        """Run a step after changes, print it, and return its seconds of CPU time."""
        for change in changes:
            self._execute(change)
        self._sent()
        command = [sys.executable, __file__, "--step", sql, *(["--as-plain"] if plain else [])]
        environment = self._environment | {"BENCHMARK_RUN": str(next(self._numbers))}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
        figures = json.loads(done.stdout.splitlines()[-1]) | self._sent()
        if needed is not None:
            figures["needed"] = needed
        shown = (f"{key} {value:,.{2 * isinstance(value, float)}f}" for key, value in figures.items())
        print(f"{label:40}{', '.join(shown)}", flush=True)
        self.last = figures
        return float(figures["cpu"])

    def _sent(self) -> dict[str, int]:
        """Return how many rows the service has got since the last look, for lists to send to and exclusion lists."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/v5/rows", data=b"{}") as response:
            rows = json.load(response)["rows"]
        excluded = sum(count for name, count in rows.items() if " excluded " in name)
        return {"sent": sum(rows.values()) - excluded, "excluded": excluded}

    def all(self, plain_runs: int, days: int) -> None:
        """Run all steps."""
        rows = self._rows
        plain = statistics.median(self.run("plain import", plain=True) for _ in range(plain_runs))
        memory = self.last["memory"]
        in_other_order = statistics.median(
            self.run("plain, other order", sql=SHUFFLED, plain=True) for _ in range(plain_runs)
        )
        change = "UPDATE people SET name = 'Day {day}' WHERE number % 100 = {day}"
        ratios = {"first run (aim 1.3)": self.run("first run") / plain, "nothing changed": self.run("0 %") / plain}
        more_memory = self.last["memory"] - memory
        ten = [self.run(f"1 %, day {day}", change.format(day=day), needed=rows // 100) for day in range(10)]
        ratios["ten days of 1 %, mean (aim 1.3)"] = statistics.mean(ten) / plain
        ratios["other order, over plain in it (aim 1.3)"] = self.run("0 %, other order", sql=SHUFFLED) / in_other_order
        most = "UPDATE people SET name = 'New' WHERE number % 10 < {tenths}"
        ratios["30 % (aim 2)"] = self.run("30 %", most.format(tenths=3), needed=rows * 3 // 10) / plain
        ratios["the day after, 1 %"] = self.run("1 %, the day after", change.format(day=50)) / plain
        ratios["100 %"] = self.run("100 %", "UPDATE people SET name = 'All'", needed=rows) / plain
        more_memory = max(more_memory, self.last["memory"] - memory)
        ratios["the day after that, 1 %"] = self.run("1 %, the day after", change.format(day=51)) / plain
        returns = {
            "nobody returns": "0 = 1",
            "2 % return as they left": "number * 31 % 50 = {}",
            "any 2 % return": "number / 100 % 50 = {}",
        }
        for offset, (label, returning) in zip((40, 20, 20), returns.items(), strict=True):
            sent = needed = 0
            moving = []
            for day in range(days):
                self._execute(f"UPDATE people SET active = 1 WHERE active = 0 AND {returning.format(day % 50)}")
                leave = f"UPDATE people SET active = 0 WHERE number % 100 = {day + offset}"
                moving.append(self.run(f"1 % leave, {label}, {day}", leave))
                sent += self.last["sent"] + self.last["excluded"]
                needed += sum(self.last[name] for name in ("joined", "changed", "left"))
            title = f"{days} days, 1 % leave, {label}"
            ratios[f"{title}, mean"] = statistics.mean(moving) / plain
            ratios[f"{title}, rows sent over changed (aim 1.5)"] = sent / needed
            self._execute("UPDATE people SET active = 1")
            self.run("all return")
        print(f"\n{rows:,} rows; plain import {plain:.2f} s of CPU; {more_memory:.0f} MiB above it; ratios of CPU time")
        for title, ratio in ratios.items():
            print(f"{title:80}{ratio:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--plain", type=int, default=3, help="plain imports, of which the median counts")
    parser.add_argument("--days", type=int, default=30, help="days on which people leave")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--as-plain", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        run_step(arguments.step, plain=arguments.as_plain)
        return
    with (
        tempfile.TemporaryDirectory() as name,
        database(arguments.database, Path(name), arguments.rows) as (connection, execute),
        served("benchmarks.audience_sink") as service,
    ):
        url = f"http://127.0.0.1:{service.port}"
        environment = os.environ | {
            "AIRFLOW_HOME": name,
            "AIRFLOW__MAIL__AUDIENCE_KEY": "benchmark",
            "AIRFLOW_CONN_PEOPLE_DB": connection,
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps({"conn_type": "mail", "host": url, "password": "benchmark"}),
        }
        Steps(environment, service.port, execute, arguments.rows).all(arguments.plain, arguments.days)


if __name__ == "__main__":
    main()
