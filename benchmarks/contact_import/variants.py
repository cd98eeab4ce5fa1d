"""One measurement: a way of importing the contacts, in a new process.

    python -m benchmarks.contact_import.variants VARIANT

The environment has the Airflow connections ``contacts_db``, ``mail_default`` and ``http_default``, the query, and
perhaps arguments of the operator. Prints JSON: seconds, CPU seconds, peak memory over what the imports alone take
(MiB), and records.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from urllib.parse import urlsplit

from airflow_provider_mail.arguments import Rejects
from benchmarks.support import Run, TaskStateStore, imported, measure, tls_context

# The operator's defaults, and what its lower bound does.
CHUNK = 5000
IN_FLIGHT = 16
PROPERTIES = ("email", "name", "phoneNumber")
MAPPING = [{"columnNum": number, "propertyName": name} for number, name in enumerate(PROPERTIES)]
PATH = "/v5/contacts/imports"
SQL = os.environ.get("BENCHMARK_SQL", "")

# Import before the measurement what the operator imports when it runs.
LAZILY_IMPORTED = (
    "airflow_provider_mail.api.client",
    "airflow_provider_mail.api.flows.import_contacts",
    "airflow_provider_mail._audience.audience",
    "airflow_provider_mail._task.mixin",
    "airflow_provider_mail._task.imports",
    "airflow_provider_mail.hold",
    "airflow_provider_mail.hooks.mail",
    "airflow_provider_mail._task.progress",
    "airflow_provider_mail._task.import_rows",
    "airflow_provider_mail.warehouse.database",
)


def http_hook() -> Run:
    """The usual DAG code: the official hook, all rows in memory, sequential requests."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
    from airflow.providers.common.compat.sdk import BaseHook
    from airflow.providers.http.hooks.http import HttpHook

    sql_hook = BaseHook.get_hook("contacts_db")
    get_hook_lineage_collector()  # the hooks load Airflow's plugins when they are first used

    def run() -> int:
        http = HttpHook(method="POST", http_conn_id="http_default")
        rows = sql_hook.get_records(SQL)
        for start in range(0, len(rows), CHUNK):
            body = {"contactData": rows[start : start + CHUNK], "contactDataMapping": MAPPING, "updateMode": 1}
            answer = http.run(PATH, json=body, headers={"ApiKey": "benchmark"}).json()
            if answer["code"] != 200:
                raise RuntimeError(answer["message"])
        return len(rows)

    return run


def ours() -> Run:
    """Run the operator as a task does: with its defaults, and a task state store for its checkpoint."""
    from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
    from airflow_provider_mail.warehouse.database import dialect_of

    dialect_of(imported("contacts_db", *LAZILY_IMPORTED))
    store = TaskStateStore(Path(os.environ["AIRFLOW_HOME"], f"state-{os.getpid()}.db"))

    def run() -> int:
        operator = SqlToMailContactsOperator(
            task_id="import_contacts",
            sql_conn_id="contacts_db",
            sql=SQL,
            columns=dict(zip(("email", "name", "phone"), PROPERTIES, strict=True)),
            rejects=Rejects(max_fraction=1),
            **json.loads(os.environ.get("BENCHMARK_ARGUMENTS", "{}")),
        )
        task_instance = SimpleNamespace(
            dag_id="benchmark", task_id="import_contacts", run_id="1", map_index=-1, try_number=1
        )
        result = operator.execute({"ti": task_instance, "task_state_store": store})  # type: ignore[typeddict-item]
        return int(result["accepted"])

    return run


def no_http() -> Run:
    """Read, validate and encode only: the lower bound of the operator."""
    from airflow.providers.common.compat.sdk import BaseHook

    from airflow_provider_mail.api.flows.validate_rows import RowChecker
    from airflow_provider_mail.warehouse.database import stream_rows

    sql_hook = BaseHook.get_hook("contacts_db")

    def run() -> int:
        checker, count = RowChecker(PROPERTIES), 0
        with stream_rows(sql_hook, SQL, size=CHUNK) as (_, batches):
            for rows in batches:
                count += len(checker.check(rows, count + 1).numbers)
        return count

    return run


def floor() -> Run:
    """The lower bound: read, encode and send over raw sockets, without checks. It shares no code with the provider."""
    import msgspec

    import_module("psycopg")
    address = urlsplit(os.environ["BENCHMARK_SERVICE"])
    settings = {"contactDataMapping": MAPPING, "updateMode": 1}
    bodies: Queue[bytes | None] = Queue(2)
    tls = tls_context()

    def connect() -> socket.socket:
        connection = socket.create_connection((address.hostname, address.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return tls.wrap_socket(connection, server_hostname=address.hostname) if tls else connection

    def send() -> None:
        with connect() as connection:
            while (body := bodies.get()) is not None:
                head = f"POST {PATH} HTTP/1.1\r\nHost: sink\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode())
                connection.sendall(body)
                if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                    raise RuntimeError("the sink said no")

    def run() -> int:
        count = 0
        with ThreadPoolExecutor(IN_FLIGHT) as pool, _open_rows() as rows:
            futures = [pool.submit(send) for _ in range(IN_FLIGHT)]
            while chunk := list(islice(rows, CHUNK)):
                bodies.put(msgspec.json.encode({**settings, "contactData": chunk}))
                count += len(chunk)
            for _ in futures:
                bodies.put(None)
            for future in futures:
                future.result()
        return count

    return run


@contextmanager
def _open_rows() -> Iterator[Iterator[tuple[str, ...]]]:
    """Open the rows, in the fastest way that the driver has."""
    import psycopg

    database = json.loads(os.environ["AIRFLOW_CONN_CONTACTS_DB"])
    if database["conn_type"] == "postgres":
        with psycopg.connect(host=database["host"], user=database["login"], dbname=database["schema"]) as connection:
            yield connection.cursor().stream(SQL, size=CHUNK)
    else:
        with closing(sqlite3.connect(database["host"])) as connection:
            yield connection.execute(SQL)


VARIANTS: dict[str, Callable[[], Run]] = {variant.__name__: variant for variant in (http_hook, ours, no_http, floor)}


if __name__ == "__main__":
    measure(VARIANTS[sys.argv[1]]())
