"""Sending only what changed: beside reading the rows, a plain import, and the usual loop over ``updated_at``.

    python benchmarks/audience.py [--rows 1000000] [--database sqlite|postgres]

A database has the contacts and the state; a sink in a process of its own takes the requests. Each step is a new
process. One percent of the rows change; later, one percent leave. The loop sees neither who left nor a row that was
changed with an old ``updated_at``, as a restored or backdated one has. Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from airflow_provider_mail.arguments import ChangesOnly  # noqa: E402
from benchmarks.contact_import import sink as sinks  # noqa: E402
from benchmarks.support import postgres  # noqa: E402

SQL = "SELECT email, name, phone FROM people"
PLAIN = ["email", "name", "phoneNumber"]
COLUMNS = {"email": "email", "name": "name", "phone": "phoneNumber"}
STEPS = {
    "read": "read the rows",
    "plain": "plain import",
    "first": "first run with a state",
    "changes": "next run, 1 % changed",
    "loop": "WHERE updated_at > ..., HttpHook",
    "left": "next run, 1 % left",
}


def read() -> dict[str, int]:
    """Read the rows as an import does."""
    from airflow_provider_mail._task.storage import sql_hook
    from airflow_provider_mail.warehouse.read import stream_rows

    with stream_rows(sql_hook("people_db"), SQL) as (_, batches):
        return {"rows": sum(map(len, batches))}


def imported(**arguments: Any) -> dict[str, int]:
    """Run the operator."""
    from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

    operator = SqlToMailContactsOperator(
        task_id="people", sql_conn_id="people_db", sql=SQL, columns=COLUMNS, list_name="people", **arguments
    )
    ti = SimpleNamespace(dag_id="dag", task_id="people", run_id=os.environ["BENCHMARK_RUN"], map_index=-1, try_number=1)
    result = operator.execute({"ti": ti, "params": {}})
    counts = ("read", "accepted", "joined", "changed", "left", "requests")
    return {name: result[name] for name in counts if name in result}


def loop() -> dict[str, int]:
    """The usual loop: rows since the last run, in requests one after the other."""
    from airflow.providers.http.hooks.http import HttpHook

    from airflow_provider_mail._task.storage import sql_hook

    rows = sql_hook("people_db").get_records(f"{SQL} WHERE updated_at > 1")
    mapping = [{"columnNum": number, "propertyName": name} for number, name in enumerate(PLAIN)]
    http = HttpHook(method="POST", http_conn_id="http_default")
    for start in range(0, len(rows), 5000):
        body = {"contactData": [list(row) for row in rows[start : start + 5000]], "contactDataMapping": mapping}
        http.run("/v5/contacts/imports", json=body | {"updateMode": 1}, headers={"ApiKey": "benchmark"})
    return {"accepted": len(rows), "requests": -(-len(rows) // 5000)}


EXACT = {"audience": "exact", "changes_only": ChangesOnly()}
VARIANTS: dict[str, Callable[[], dict[str, int]]] = {
    "read": read,
    "plain": imported,
    "first": lambda: imported(**EXACT),
    "changes": lambda: imported(**EXACT),
    "loop": loop,
    "left": lambda: imported(**EXACT),
}


def run_step(name: str) -> None:
    """Run one step in this process, and print what it took."""

    import airflow_provider_mail.api.flows.import_contacts
    import airflow_provider_mail.transfers.sql_to_mail
    import airflow_provider_mail.warehouse.load  # noqa: F401

    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    counts = VARIANTS[name]()
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory = (after.ru_maxrss - before.ru_maxrss) / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "memory": memory, **counts}))


@contextmanager
def database(kind: str, folder: Path, rows: int) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Fill a database; yield its connection for Airflow, and a function that runs a statement."""
    people = (
        (number, f"person{number}@company{number % 997}.example.com", f"Name {number % 1000}", f"+49151{number:08d}", 0)
        for number in range(rows)
    )
    create = "CREATE TABLE people (number integer PRIMARY KEY, email text, name text, phone text, updated_at integer)"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        run_step(arguments.step)
        return
    rows = arguments.rows
    with (
        tempfile.TemporaryDirectory() as name,
        database(arguments.database, Path(name), rows) as (connection, execute),
        sinks.running() as sink,  # one for all steps: another address is another account
    ):
        results: dict[str, dict[str, Any]] = {}
        url = f"http://127.0.0.1:{sink.port}"
        environment = os.environ | {
            "AIRFLOW_HOME": name,
            "AIRFLOW__MAIL__AUDIENCE_KEY": "benchmark",
            "AIRFLOW_CONN_PEOPLE_DB": connection,
            "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps({"conn_type": "mail", "host": url, "password": "benchmark"}),
            "AIRFLOW_CONN_HTTP_DEFAULT": json.dumps({"conn_type": "http", "host": url}),
        }
        for step, label in STEPS.items():
            if step == "changes":
                execute("UPDATE people SET name = 'Changed', updated_at = 2 WHERE number % 100 = 1")
                execute("UPDATE people SET name = 'Restored' WHERE number % 10000 = 7")
            if step == "left":
                execute("DELETE FROM people WHERE number % 100 = 2")
            command = [sys.executable, __file__, "--step", step]
            environment["BENCHMARK_RUN"] = step
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
            results[step] = json.loads(done.stdout.splitlines()[-1])
            shown = (
                f"{key} {value:,.1f}" if isinstance(value, float) else f"{key} {value:,}"
                for key, value in results[step].items()
            )
            print(f"{label:36}{', '.join(shown)}", flush=True)
        print(f"\n{rows:,} rows in {arguments.database}; ratios of seconds")
        for title, above, below in (
            ("next run, over reading the rows (aim <= 1.3)", "changes", "read"),
            ("next run, over a plain import", "changes", "plain"),
            ("first run, over a plain import (aim <= 1.15)", "first", "plain"),
        ):
            print(f"{title:50}{results[above]['seconds'] / results[below]['seconds']:8.2f}")
        missed = results["changes"]["accepted"] - results["loop"]["accepted"]
        print(f"rows that the loop misses: {missed:,} changed with an old updated_at, and all that left")


if __name__ == "__main__":
    main()
