"""One measurement: a way of importing the contacts, in a new process.

    python -m benchmarks.contact_import.variants VARIANT

The environment has the Airflow connections ``contacts_db``, ``mail_default`` and ``http_default``. Prints JSON:
seconds, CPU seconds, peak memory over what the imports alone take (MiB), and contacts.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

from benchmarks.contact_import.tables import SQL

CHUNK = 5000
IN_FLIGHT = 16
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
    "encodings.idna",
)

Run = Callable[[], int]
"""A measured run; returns how many contacts it brought to the service (or would have brought)."""


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
    """Run the operator as a task does, with validation of rows."""
    from airflow.providers.common.compat.sdk import BaseHook

    from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

    BaseHook.get_hook("contacts_db")  # imports the database's hook and driver
    for module in LAZILY_IMPORTED:
        import_module(module)

    def run() -> int:
        operator = SqlToMailContactsOperator(
            task_id="import_contacts",
            sql_conn_id="contacts_db",
            sql=SQL,
            columns=dict(zip(("email", "name", "phone"), PROPERTIES, strict=True)),
            chunk_size=CHUNK,
            max_in_flight=IN_FLIGHT,
        )
        task_instance = SimpleNamespace(dag_id="benchmark", task_id="import_contacts", run_id="1", map_index=-1)
        result = operator.execute({"ti": task_instance})  # type: ignore[typeddict-item]
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


def _memory_mib(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _measure(run: Run) -> dict[str, float]:
    gc.collect()
    idle = _memory_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far was that of the imports
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    contacts = run()
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "memory": _memory_mib("VmHWM") - idle,
        "contacts": contacts,
    }


if __name__ == "__main__":
    print(json.dumps(_measure(VARIANTS[sys.argv[1]]())))
