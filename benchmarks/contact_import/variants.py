"""One measurement: a way of importing the contacts, in a new process.

    python -m benchmarks.contact_import.variants VARIANT

The environment has the Airflow connections ``contacts_db``, ``mail_default`` and ``http_default``. Prints JSON:
seconds, CPU seconds, peak memory over what the imports alone take (MiB), and records.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from benchmarks.contact_import.tables import SQL
from benchmarks.support import Run, TaskStateStore, imported, measure

# The operator's defaults.
CHUNK = 5000
IN_FLIGHT = 8
PROPERTIES = ("email", "name", "phoneNumber")
MAPPING = [{"columnNum": number, "propertyName": name} for number, name in enumerate(PROPERTIES)]
PATH = "/v5/contacts/imports"

# Import before the measurement what the operator imports when it runs.
LAZILY_IMPORTED = (
    "airflow_provider_mail.api.client",
    "airflow_provider_mail.api.flows.import_contacts",
    "airflow_provider_mail._task.exceptions",
    "airflow_provider_mail._task.import_checkpoint",
    "airflow_provider_mail.hooks.mail",
    "airflow_provider_mail._task.progress",
    "airflow_provider_mail._task.rejected_rows",
    "airflow_provider_mail.warehouse.read",
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
    """Run the operator as a task does: with its default settings, and a task state store for its checkpoint."""
    from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

    imported("contacts_db", *LAZILY_IMPORTED)
    store = TaskStateStore(Path(os.environ["AIRFLOW_HOME"], f"state-{os.getpid()}.db"))

    def run() -> int:
        operator = SqlToMailContactsOperator(
            task_id="import_contacts",
            sql_conn_id="contacts_db",
            sql=SQL,
            columns=dict(zip(("email", "name", "phone"), PROPERTIES, strict=True)),
        )
        task_instance = SimpleNamespace(dag_id="benchmark", task_id="import_contacts", run_id="1", map_index=-1)
        result = operator.execute({"ti": task_instance, "task_state_store": store})  # type: ignore[typeddict-item]
        return int(result["accepted"])

    return run


def no_http() -> Run:
    """Read, validate and encode only: the lower bound of the operator."""
    from airflow.providers.common.compat.sdk import BaseHook

    from airflow_provider_mail.api.flows.validate_rows import RowChecker
    from airflow_provider_mail.warehouse.read import stream_rows

    sql_hook = BaseHook.get_hook("contacts_db")

    def run() -> int:
        checker, count = RowChecker(PROPERTIES), 0
        with stream_rows(sql_hook, SQL, size=CHUNK) as (_, batches):
            for rows in batches:
                count += len(checker.check(rows, count + 1).numbers)
        return count

    return run


def no_http_beside_a_thread() -> Run:
    """The same with a second, idle thread, which makes locks slower."""
    run = no_http()
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return run


def limit() -> Run:
    """Send prepared bodies over raw sockets with the same concurrency: the limit of any client."""
    import msgspec
    from airflow.providers.common.compat.sdk import BaseHook

    rows = iter(BaseHook.get_hook("contacts_db").get_records(SQL))
    bodies, count = [], 0
    while chunk := list(islice(rows, CHUNK)):
        bodies.append(msgspec.json.encode({"contactData": chunk, "contactDataMapping": MAPPING, "updateMode": 1}))
        count += len(chunk)
    del rows, chunk
    address = urlsplit(os.environ["BENCHMARK_SINK"])
    next_body = iter(bodies)

    def carry() -> None:
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for body in next_body:
                head = f"POST {PATH} HTTP/1.1\r\nHost: sink\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                connection.sendmsg([head])
                connection.sendall(body)
                if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                    raise RuntimeError("the sink said no")

    def run() -> int:
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            for future in [pool.submit(carry) for _ in range(IN_FLIGHT)]:
                future.result()
        return count

    return run


VARIANTS: dict[str, Callable[[], Run]] = {
    variant.__name__: variant for variant in (http_hook, ours, no_http, no_http_beside_a_thread, limit)
}


if __name__ == "__main__":
    measure(VARIANTS[sys.argv[1]]())
