"""One measurement: a way of importing the contacts, in a new process.

    python -m benchmarks.contact_import.variants VARIANT

The environment has the Airflow connections ``contacts_db``, ``mail_default`` and ``http_default``, the query, and
perhaps arguments of the operator. Prints JSON: seconds, CPU seconds, peak memory over what the imports alone take
(MiB), and records.
"""

from __future__ import annotations

import csv
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
from threading import Semaphore
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
FILE = os.environ.get("BENCHMARK_FILE", "")

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


def file() -> Run:
    """Run the operator that reads a file: CSV or Parquet."""
    from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator

    for module in (*LAZILY_IMPORTED, "airflow_provider_mail.warehouse.read_files", "pyarrow.parquet", "encodings.idna"):
        import_module(module)
    store = TaskStateStore(Path(os.environ["AIRFLOW_HOME"], f"state-{os.getpid()}.db"))

    def run() -> int:
        columns = dict(zip(("email", "name", "phone"), PROPERTIES, strict=True))
        operator = ObjectStorageToMailContactsOperator(task_id="import_file", path=f"file://{FILE}", columns=columns)
        ti = SimpleNamespace(dag_id="benchmark", task_id="import_file", run_id="1", map_index=-1, try_number=1)
        return int(operator.execute({"ti": ti, "task_state_store": store})["accepted"])  # type: ignore[typeddict-item]

    return run


def careful() -> Run:
    """What a careful user writes: rows as they come, 16 threads, kept connections, `json=`; no checks."""
    import httpx

    import_module("psycopg")
    import_module("encodings.idna")
    client = httpx.Client(
        base_url=os.environ["BENCHMARK_SERVICE"],
        verify=os.environ["BENCHMARK_CA_BUNDLE"] or True,
        headers={"ApiKey": "benchmark"},
        limits=httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT),
        timeout=60,
    )
    free = Semaphore(2 * IN_FLIGHT)

    def send(rows: list[tuple[str, ...]]) -> int:
        body = {"contactData": rows, "contactDataMapping": MAPPING, "updateMode": 1}
        answer = client.post(PATH, json=body).json()
        free.release()
        if answer["code"] != 200:
            raise RuntimeError(answer["message"])
        return len(rows)

    def run() -> int:
        futures = []
        with ThreadPoolExecutor(IN_FLIGHT) as pool, _users_rows() as rows:
            while chunk := list(islice(rows, CHUNK)):
                free.acquire()
                futures.append(pool.submit(send, chunk))
        return sum(future.result() for future in futures)

    return run


@contextmanager
def _users_rows() -> Iterator[Iterator[tuple[str, ...]]]:
    """Open the rows as users do: a server-side cursor, or the module `csv`."""
    import psycopg

    if FILE.endswith(".csv"):
        with Path(FILE).open(newline="") as lines:
            reader = csv.reader(lines)
            next(reader)
            yield map(tuple, reader)
    elif FILE:
        parquet = import_module("pyarrow.parquet")
        yield (
            row
            for batch in parquet.ParquetFile(FILE).iter_batches(CHUNK)
            for row in zip(*batch.to_pydict().values(), strict=True)
        )
    elif (database := json.loads(os.environ["AIRFLOW_CONN_CONTACTS_DB"]))["conn_type"] == "postgres":
        with (
            psycopg.connect(host=database["host"], user=database["login"], dbname=database["schema"]) as connection,
            connection.cursor(name="users") as cursor,
        ):
            cursor.itersize = CHUNK
            yield iter(cursor.execute(SQL))  # type: ignore[arg-type]
    else:
        with closing(sqlite3.connect(database["host"])) as connection:
            yield connection.execute(SQL)


def floor() -> Run:
    """The lower bound: read, encode and send over raw sockets, without checks. It shares no code with the provider."""
    import orjson

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
        with ThreadPoolExecutor(IN_FLIGHT) as pool, _open_chunks() as chunks:
            futures = [pool.submit(send) for _ in range(IN_FLIGHT)]
            for chunk in chunks:
                bodies.put(orjson.dumps({**settings, "contactData": chunk}))
                count += len(chunk)
            for _ in futures:
                bodies.put(None)
            for future in futures:
                future.result()
        return count

    return run


@contextmanager
def _open_chunks() -> Iterator[Iterator[list[tuple[str, ...]]]]:
    """Open the rows, in the fastest way that the driver has: each chunk is one result of libpq."""
    import psycopg
    from psycopg.adapt import Transformer

    database = json.loads(os.environ["AIRFLOW_CONN_CONTACTS_DB"])
    if database["conn_type"] == "postgres":
        with psycopg.connect(host=database["host"], user=database["login"], dbname=database["schema"]) as connection:
            server, loader = connection.pgconn, Transformer(connection)
            server.send_query(SQL.encode())
            server.set_chunked_rows_mode(CHUNK)

            def chunks() -> Iterator[list[tuple[str, ...]]]:
                while result := server.get_result():
                    loader.set_pgresult(result)
                    if result.ntuples:
                        yield loader.load_rows(0, result.ntuples, tuple)

            yield chunks()
    else:
        with closing(sqlite3.connect(database["host"])) as connection:
            cursor = connection.execute(SQL)
            yield iter(lambda: cursor.fetchmany(CHUNK), [])


VARIANTS: dict[str, Callable[[], Run]] = {
    variant.__name__: variant for variant in (http_hook, careful, ours, file, floor)
}


if __name__ == "__main__":
    measure(VARIANTS[sys.argv[1]]())
