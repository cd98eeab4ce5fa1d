"""How long the pages in Airflow take, beside their bare queries.

    python benchmarks/airflow_page.py [--campaigns 10000] [--days 365] [--contacts 100000] [--rounds 40]
                                       [--database SQLite]

Fills the tables in SQLite and in Postgres: campaigns of a year, each with a snapshot on each of `--days` days after its
sending; a year of transactional mail, loads, contacts in 20 lists and as many events. Then requests each
page in turn through the application, with Airflow's authentication, and runs the statements that the page has run by
themselves: on one open connection of the driver, without a page around them. The CPU time of a page, which other
processes do not lengthen, is that of the whole process: with SQLite all of it, with Postgres without the server's.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import env

FIRST = datetime.datetime(2026, 1, 1, 9, tzinfo=datetime.UTC)
ACCOUNT = "mail_default"
PAGES = {
    "overview, first time": "",
    "overview": "",
    "campaigns": "campaigns",
    "campaigns, searched": "campaigns?q=letter+12",
    "campaigns of a list": "campaigns?list=list+3&from=2026-03-01&state=sent",
    "campaigns, sorted": "campaigns?sort=open_rate",
    "campaigns, middle page": "campaigns?page={middle_page}",
    "campaigns, last page": "campaigns?page={last}",
    "campaigns, CSV": "campaigns?csv=campaigns",
    "campaign": "campaign?account=mail_default&name=letter+{middle}",
    "six campaigns": "compare?"
    + "&".join(f"c=mail_default%2F%2Fletter+{{{name}}}" for name in ("middle", "one", "two", "three", "four", "five")),
    "lists, first time": "lists",
    "lists": "lists",
    "transactional": "transactional",
    "loads": "loads",
    "imports": "imports",
    "events, first time": "events",
    "events": "events",
    "waits": "waits",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--contacts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--database", choices=("SQLite", "Postgres"), help="only this one")
    options = parser.parse_args()
    home = env.install()
    with tempfile.TemporaryDirectory(prefix="airflow-page-", ignore_cleanup_errors=True) as folder:
        from tests.support import dags
        from tests.support.postgres import PostgresServer

        dags.migrate(home / "airflow.db", home)
        os.environ["AIRFLOW__MAIL__PAGE_CONN_ID"] = "warehouse"
        with PostgresServer(Path(folder) / "data") as server, server.database() as database:
            sqlite = {"conn_type": "sqlite", "host": str(Path(folder) / "warehouse.db")}
            for name, connection in (("SQLite", json.dumps(sqlite)), ("Postgres", database.airflow_connection)):
                if options.database not in (None, name):
                    continue
                os.environ["AIRFLOW_CONN_WAREHOUSE"] = connection
                print(f"{name}: {fill(options):,} snapshots of {options.campaigns:,} campaigns")
                measure(options)


def fill(options: argparse.Namespace) -> int:
    """Fill the tables; return the number of snapshots."""
    from airflow_provider_mail.plugin.reader import TABLES, Reader
    from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, load

    reader = Reader.of_page()
    hook = reader.hook
    names = reader.names
    for table_key, name in names.items():
        load(hook, LoadRequest(TABLES[table_key], TableName.parse(name), Source([])))
    count = 0
    with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        for table_key, rows in tables(options).items():
            columns = TABLES[table_key].columns
            encoded_rows = (
                tuple(encoded(column.type.name, row.get(column.name), connection) for column in columns) for row in rows
            )
            inserted = insert(cursor, names[table_key], [column.name for column in columns], encoded_rows)
            count = inserted if table_key == "snapshots" else count
        connection.commit()
        if not isinstance(connection, sqlite3.Connection):
            connection.commit()
            cursor.execute("ANALYZE")
            connection.commit()
    return count


def insert(cursor: Any, table: str, columns: list[str], rows: Iterator[tuple[Any, ...]]) -> int:
    """Insert rows as quickly as the driver can; return their number."""
    if isinstance(cursor, sqlite3.Cursor):
        cursor.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})", rows
        )
        return int(cursor.rowcount)
    count = 0
    with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
            count += 1
    return count


def encoded(type_name: str, value: Any, connection: Any) -> Any:
    """Return a value as the driver takes it.

    :param type_name: the type of its column.
    :param value: the value; for ``None`` in a column of counts, 1.
    """
    if type_name == "json":
        return json.dumps(value or [])
    if isinstance(connection, sqlite3.Connection) and isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(connection, sqlite3.Connection) and isinstance(value, datetime.date):
        return value.isoformat()
    return value


def tables(options: argparse.Namespace) -> dict[str, Iterator[dict[str, Any]]]:
    """Return the rows of each table."""
    account = {"mail_conn_id": ACCOUNT, "team_name": ""}
    day = datetime.timedelta(days=1)

    def sent_at(number: int) -> datetime.datetime:
        return FIRST + datetime.timedelta(minutes=number * 525_600 // options.campaigns)

    def counts(number: int, age: int) -> dict[str, Any]:
        sent, opens = 10_000 + number, int((2_000 + number % 700) * (1 - 0.6 ** (age + 1)))
        bounces = {"hard_bounce": 40, "soft_bounce": 12, "unsent_count": 3, "unsubscribe_count": 9, "bounce_rate": 0.5}
        rates = {"open_rate": 100 * opens / sent, "click_rate": 1.5, "unsubscribe_rate": 0.1}
        return {"sent_count": sent, "open_count": opens, "click_count": opens // 6, **bounces, **rates}

    def campaign(number: int, age: int) -> dict[str, Any]:
        name = {"mail_name": f"letter {number}", "mail_send_date": sent_at(number)}
        return {**account, **name, **counts(number, age), "observed_at": sent_at(number) + age * day}

    return {
        "campaign_stats": (campaign(number, 400) for number in range(options.campaigns)),
        "snapshots": (
            {**campaign(number, age), "observed_day": (sent_at(number) + age * day).date()}
            for number in range(options.campaigns)
            for age in range(options.days)
        ),
        "campaigns": (
            {**campaign(number, 400), "guid": f"g{number}", "mail_status": 2, "subject": "News",
             "delivered_count": 9_000, "rcpt_list_names": [f"list {number % 20}"]}
            for number in range(options.campaigns)
        ),
        "transactional_stats": (
            {**account, **counts(number, 9), "bounce_count": 4, "stats_date": (FIRST + number * day).date(),
             "observed_at": FIRST}
            for number in range(365)
        ),
        "loads": (
            {**account, "table_name": table, "part": (FIRST + number * day).date().isoformat(), "observed_at": FIRST}
            for table in ("mail_campaign_stats", "mail_transactional_stats")
            for number in range(365)
        ),
        "contacts": (
            {**account, "list_name": f"list {number % 20}", "id": str(number // 3),
             "create_date": FIRST - number % 900 * day,
             "observed_at": FIRST}
            for number in range(options.contacts)
        ),
        "events": (
            {**account, "event_id": str(number), "event_code": "Delivered", "raw": {}, "push_id": 1, "push_index": 0,
             "received_at": datetime.datetime.now(datetime.UTC) - number % 60 * day}
            for number in range(options.contacts)
        ),
        "imports": (
            {**account, "import_id": f"crm/contacts/manual__{number}", "list_name": "list 1", "state": "success",
             "rows_read": 5_000, "rows_accepted": 4_990, "rows_accepted_earlier": 0, "rows_rejected": 10, "requests": 1,
             "rows_opted_out": 0, "rows_without_address": 0, "requests_with_message": 0, "sandbox": False,
             "try_number": 1, "seconds": 1.5, "finished_at": FIRST + number * day / 20}
            for number in range(7_300)
        ),
    }  # fmt: skip


def measure(options: argparse.Namespace) -> None:
    """Request every page and run its statements, and print how long both take."""
    from airflow.api_fastapi.app import init_auth_manager
    from fastapi import FastAPI
    from starlette.testclient import TestClient

    from airflow_provider_mail.plugin.app import app
    from airflow_provider_mail.plugin.campaigns import MOST_PAGES
    from airflow_provider_mail.plugin.reader import forget
    from tests.plugin.conftest import token

    init_auth_manager()
    outer = FastAPI()
    outer.mount("/mail", app)
    client = TestClient(outer, headers={"Authorization": f"Bearer {token('viewer')}"})
    forget()
    numbers = dict(zip(("one", "two", "three", "four", "five"), range(1, 6), strict=True))
    values = {
        "last": min(options.campaigns // 50, MOST_PAGES),
        "middle": options.campaigns // 2,
        "middle_page": min(options.campaigns // 50, MOST_PAGES) // 2,
    }
    values |= numbers
    print(
        f"{'':24}{'page':>10}{'':>10}{'':>10}{'statements':>12}\n{'':24}{'median':>10}{'p95':>10}{'CPU':>10}{'p95':>12}"
    )
    for name, path in PAGES.items():
        path = f"/mail/{path.format(**values)}"

        def get(name: str = name, path: str = path) -> None:
            if "first time" in name:
                forget()
            response = client.get(path)
            assert response.status_code == 200, response.text

        with recorded() as statements:
            get()
        pages, cpu = timed(get, options.rounds)
        bare, _ = timed(bare_statements(statements), options.rounds) if statements else ([0.0], [0.0])
        print(f"{name:24}{pages[len(pages) // 2]:7.0f} ms{p95(pages):7.0f} ms{p95(cpu):7.0f} ms{p95(bare):9.0f} ms")


@contextmanager
def recorded() -> Iterator[list[tuple[str, list[Any]]]]:
    """Record the statements that pages run."""
    from airflow_provider_mail.plugin import reader

    statements: list[tuple[str, list[Any]]] = []
    original = reader.stream_rows

    def record(hook: Any, sql: str, parameters: Any, **options: Any) -> Any:
        statements.append((sql, parameters))
        return original(hook, sql, parameters, **options)

    with mock.patch.object(reader, "stream_rows", record):
        yield statements


def bare_statements(statements: list[tuple[str, list[Any]]]) -> Callable[[], None]:
    """Return what runs statements on an open connection of the driver.

    :param statements: with their parameters.
    """
    from airflow_provider_mail.plugin.reader import Reader

    connection = Reader.of_page().hook.get_conn()

    def run() -> None:
        with closing(connection.cursor()) as cursor:
            for sql, parameters in statements:
                cursor.execute(sql, parameters)
                cursor.fetchall()

    return run


def timed(work: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """Return how many milliseconds something takes, and of CPU time, both in ascending order."""
    times, cpu = [], []
    for _ in range(rounds):
        began, began_cpu = time.perf_counter(), time.process_time()
        work()
        times.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - began_cpu))
    return sorted(times), sorted(cpu)


def p95(times: list[float]) -> float:
    """Return the 95th percentile.

    :param times: in ascending order.
    """
    return times[int(0.95 * (len(times) - 1))]


if __name__ == "__main__":
    main()
