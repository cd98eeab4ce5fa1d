"""What is measured, each in a new process: ``python -m benchmarks.contact_export.variants NAME``.

Prints one line of JSON: seconds, CPU seconds, peak memory over what the imports alone take (MiB), and records.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from benchmarks.contact_export.service import LIST, PAGE
from benchmarks.support import Run, imported, measure, tls_context

PATH = "/v5/contacts/list/get"
TABLE = "mail_contacts"

# Import before the measurement what the operator imports when it runs.
LAZILY_IMPORTED = (
    "airflow_provider_mail.api.client",
    "airflow_provider_mail.api.contacts",
    "airflow_provider_mail.api._core.responses",
    "airflow_provider_mail._task.mixin",
    "airflow_provider_mail.hooks.mail",
    "airflow_provider_mail.warehouse.tables.resources",
    "airflow_provider_mail.warehouse.database",
)


TEXTS = ("email", "name", "phone_number", "email_bounced_flag", "email_bounced_time")
KEY = ("mail_conn_id", "team_name", "list_name", "id")
COLUMNS = (
    *KEY,
    *TEXTS,
    "email_open_count",
    "properties",
    "create_date",
    "modify_time",
    "create_user_id",
    "observed_at",
)
OTHER_TYPES = {
    "email_open_count": "bigint",
    "create_user_id": "bigint",
    "properties": "jsonb",
    **dict.fromkeys(("create_date", "modify_time", "observed_at"), "timestamptz"),
}


def _create(cursor: Any) -> None:
    """Create the table of the operator, but for comments."""
    columns = ", ".join(f"{name} {OTHER_TYPES.get(name, 'text')}" for name in COLUMNS)
    cursor.execute(f"CREATE TABLE {TABLE} ({columns}, PRIMARY KEY ({', '.join(KEY)}))")


def _row(contact: dict[str, Any], properties: str, now: str) -> tuple[Any, ...]:
    system_properties = contact["properties"]
    return (
        *("mail_default", "", LIST, contact["id"]),
        *(contact["email"], contact["name"], contact["phoneNumber"]),
        *map(system_properties.get, ("email_bounced_flag", "email_bounced_time", "email_open_count")),
        *(properties, contact["createDate"], contact["modifyTime"], contact["createUserId"], now),
    )


def floor() -> Run:
    """The lower bound: concurrent requests over raw connections, msgspec, COPY into the empty table, without any check.

    It shares no code with the provider.
    """
    import msgspec
    import psycopg

    database = json.loads(os.environ["AIRFLOW_CONN_CONTACTS_DB"])
    contacts, in_flight = int(os.environ["BENCHMARK_CONTACTS"]), int(os.environ["BENCHMARK_IN_FLIGHT"])
    address, tls = urlsplit(os.environ["BENCHMARK_SERVICE"]), tls_context()
    host, opened = str(address.hostname), threading.local()

    def read(index: int) -> bytes:
        if not hasattr(opened, "connection"):
            opened.connection = (
                http.client.HTTPSConnection(host, address.port, context=tls)
                if tls
                else http.client.HTTPConnection(host, address.port)
            )
        opened.connection.request("POST", PATH, json.dumps({"listName": LIST, "pageSize": PAGE, "pageIndex": index}))
        return bytes(opened.connection.getresponse().read())

    def lines(page: bytes, now: str) -> str:
        encode = msgspec.json.encode
        rows = (
            _row(contact, encode(contact["properties"]).decode(), now)
            for contact in msgspec.json.decode(page)["contactList"]
        )
        return "".join(["\t".join(["\\N" if value is None else str(value) for value in row]) + "\n" for row in rows])

    def run() -> int:
        with (
            psycopg.connect(host=database["host"], user=database["login"], dbname=database["schema"]) as connection,
            connection.cursor() as cursor,
            ThreadPoolExecutor(in_flight) as pool,
        ):
            _create(cursor)
            now, pages = datetime.now(UTC).isoformat(), deque[Future[bytes]]()
            indices = iter(range(1, -(-contacts // PAGE) + 1))
            with cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
                while True:
                    pages.extend(pool.submit(read, index) for index in islice(indices, 2 * in_flight - len(pages)))
                    if not pages:
                        break
                    copy.write(lines(pages.popleft().result(), now))
            return cursor.rowcount

    return run


def careful() -> Run:
    """What a careful user writes: 16 threads, kept connections, and an upsert of each thousand."""
    import httpx
    import psycopg

    import_module("encodings.idna")
    database = json.loads(os.environ["AIRFLOW_CONN_CONTACTS_DB"])
    pages = -(-int(os.environ["BENCHMARK_CONTACTS"]) // PAGE)
    verify: Any = os.environ["BENCHMARK_CA_BUNDLE"] or True
    client = httpx.Client(base_url=os.environ["BENCHMARK_SERVICE"], verify=verify, timeout=60)
    insert = f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
    changed = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in KEY)
    upsert = f"{insert} ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {changed}"

    def read(index: int) -> list[dict[str, Any]]:
        answer = client.post(PATH, json={"listName": LIST, "pageSize": PAGE, "pageIndex": index}).json()
        return list(answer["contactList"])

    def run() -> int:
        count, now = 0, datetime.now(UTC).isoformat()
        with (
            psycopg.connect(host=database["host"], user=database["login"], dbname=database["schema"]) as connection,
            connection.cursor() as cursor,
            ThreadPoolExecutor(int(os.environ["BENCHMARK_IN_FLIGHT"])) as pool,
        ):
            _create(cursor)
            for contacts in pool.map(read, range(1, pages + 1)):
                cursor.executemany(
                    upsert, [_row(contact, json.dumps(contact["properties"]), now) for contact in contacts]
                )
                count += len(contacts)
        return count

    return run


def ours() -> Run:
    """Run the operator as a task does."""
    from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator

    imported("contacts_db", *LAZILY_IMPORTED)

    def run() -> int:
        operator = MailContactsToSqlOperator(
            task_id="export_contacts",
            sql_conn_id="contacts_db",
            list_name=LIST,
            table=TABLE,
            **json.loads(os.environ.get("BENCHMARK_ARGUMENTS", "{}")),
        )
        return int(operator.execute({})["records"])

    return run


VARIANTS: dict[str, Callable[[], Run]] = {variant.__name__: variant for variant in (careful, ours, floor)}

if __name__ == "__main__":
    measure(VARIANTS[sys.argv[1]]())
