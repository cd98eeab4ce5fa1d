"""One measurement: a way of sending mails or single writes, in a new process.

    python -m benchmarks.batch.variants VARIANT

The environment has the Airflow connections ``mail_default`` and ``http_default``, and ``BENCHMARK_COUNT``: how many
mails, or writes. Prints JSON: seconds, CPU seconds, peak memory over what the imports alone take (MiB), and records.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.support import Run, TaskStateStore, measure

COUNT = int(os.environ.get("BENCHMARK_COUNT", "0"))
IN_ONE = 100
PATHS = {
    "batch": "/v5/transactional/mail/sends_customised",
    "upsert": "/v5/contacts/upserts",
    "creation": "/v5/campaign/mail/sends",
    "deletion": "/v5/contacts/delete",
    "lists": "/v5/lists/get",
    "senders": "/v5/verified_senders/get",
    "templates": "/v5/campaign/mail/template/get",
}
LETTER = {"subject": "Hello", "content": "<p>Hello {{name}}, your order {{order}} is on its way.</p>"}
SENDER = "news@example.com"

LAZILY_IMPORTED = (
    "airflow.sdk.execution_time.supervisor",  # which every task's process has loaded
    "airflow_provider_mail.api.client",
    "airflow_provider_mail.api.contacts",
    "airflow_provider_mail.api.campaigns",
    "airflow_provider_mail._task.at_most_once",
    "airflow_provider_mail._task.messages",
    "airflow_provider_mail._task.mixin",
    "airflow_provider_mail._task.state",
    "airflow_provider_mail.api.templates",
    "airflow_provider_mail.hold",
    "airflow_provider_mail.hooks.mail",
    "encodings.idna",
)


def mails() -> Iterator[dict[str, Any]]:
    """Yield the mails, as the operator takes them."""
    for number in range(COUNT):
        yield {
            "to": f"person{number}@company{number % 997}.example.com",
            "params": {"name": "Ada", "order": str(number)},
        }


def bodies() -> list[bytes]:
    """Return the requests of a batch, as a user would write them."""
    letters = [{"to": [{"email": one["to"]}], "params": one["params"]} for one in mails()]
    return [
        json.dumps({"senderMail": SENDER, **LETTER, "messageVersions": letters[start : start + IN_ONE]}).encode()
        for start in range(0, len(letters), IN_ONE)
    ]


def writes(kind: str) -> list[bytes]:
    """Return single writes, as a user would write them."""
    if kind == "upsert":
        return [
            json.dumps({"email": f"person{number}@company.example.com", "name": "Ada"}).encode()
            for number in range(COUNT)
        ]
    if kind == "deletion":
        return [json.dumps({"email": f"person{number}@company.example.com"}).encode() for number in range(COUNT)]
    if kind != "creation":
        return [b"{}"] * COUNT
    campaign = {"senderMail": SENDER, "subject": "Hello", "content": "<p>Hello</p>", "sendListNames": ["vip"]}
    return [json.dumps({"mailName": f"news {number}", **campaign}).encode() for number in range(COUNT)]


def _settings(is_kept: bool) -> dict[str, Any]:
    import httpx

    return {
        "base_url": os.environ["BENCHMARK_SERVICE"],
        "verify": os.environ["BENCHMARK_CA_BUNDLE"] or True,
        "headers": {"ApiKey": "benchmark", "Content-Type": "application/json"},
        "limits": httpx.Limits(max_connections=16, max_keepalive_connections=16 if is_kept else 0),
        "timeout": 60,
    }


def _post(client: Any, path: str, body: bytes) -> None:
    answer = client.post(path, content=body).json()
    if answer["code"] != 200:
        raise RuntimeError(answer["message"])


def _loop(kind: str, *, is_kept: bool, threads: int = 1) -> Run:
    import_module("encodings.idna")
    client = import_module("httpx").Client(**_settings(is_kept))

    def run() -> int:
        all_of_them = bodies() if kind == "batch" else writes(kind)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda body: _post(client, PATHS[kind], body), all_of_them))
        return COUNT

    return run


def _operator(in_flight: int, *, remembers: bool = False) -> Run:
    from airflow_provider_mail.operators.transactional import MailSendBatchOperator

    for module in LAZILY_IMPORTED:
        import_module(module)
    arguments: dict[str, Any] = {}
    if remembers:
        from airflow_provider_mail._audience.memory import Memory

        import_module("airflow_provider_mail._audience.remembered")
        database = Path(os.environ["AIRFLOW_HOME"], f"memory-{os.getpid()}.db")
        os.environ.setdefault("AIRFLOW_CONN_MEMORY", json.dumps({"conn_type": "sqlite", "host": str(database)}))
        os.environ |= {"AIRFLOW__MAIL__MEMORY_CONN_ID": "memory", "AIRFLOW__MAIL__AUDIENCE_KEY": "a secret"}
        memory = Memory.configured()
        assert memory is not None
        memory.create()
        arguments = {"once_per": "a", "at_most": (3, timedelta(days=7))}
    store = TaskStateStore(Path(os.environ["AIRFLOW_HOME"], f"state-{os.getpid()}.db"))

    def run() -> int:
        operator = MailSendBatchOperator(
            task_id="send", sender_mail=SENDER, **LETTER, messages=mails, max_in_flight=in_flight, **arguments
        )
        ti = SimpleNamespace(dag_id="benchmark", task_id="send", run_id="1", map_index=-1, try_number=1, max_tries=0)
        dag_run = SimpleNamespace(run_after=datetime.now(UTC), clear_number=0)
        context: Any = {"ti": ti, "dag_run": dag_run, "task_state_store": store}
        result = operator.execute(context)
        return int(result["recipients"])

    return run


def _requests(kind: str) -> Iterator[Any]:
    from airflow_provider_mail import api

    for number in range(COUNT):
        email = f"person{number}@company.example.com"
        if kind == "upsert":
            yield api.UpsertContact(email=email, name="Ada")
        elif kind == "deletion":
            yield api.DeleteContact(email=email)
        elif kind == "creation":
            request = {"sender_mail": SENDER, "subject": "Hello", "content": "<p>Hello</p>"}
            yield api.CreateCampaign(mail_name=f"news {number}", send_list_names=["vip"], **request)
        else:
            yield {"lists": api.GetLists, "senders": api.GetSenders, "templates": api.GetTemplates}[kind]()


def _ours(kind: str) -> Run:
    for module in LAZILY_IMPORTED:
        import_module(module)
    from airflow_provider_mail.hooks.mail import MailHook

    client = MailHook().get_conn()
    return lambda: len([client.send(request) for request in _requests(kind)])


def _in_loop(kind: str) -> Run:
    """In an event loop, as a trigger or a user's own service does."""
    for module in LAZILY_IMPORTED:
        import_module(module)
    from airflow_provider_mail.api.client import AsyncMailClient
    from airflow_provider_mail.hooks.mail import MailHook

    config = MailHook().config

    async def send() -> int:
        async with AsyncMailClient(config) as client:
            return len([await client.send(request) for request in _requests(kind)])

    return lambda: asyncio.run(send())


def _loop_in_loop(kind: str, *, is_kept: bool) -> Run:
    import httpx

    import_module("encodings.idna")

    async def send() -> int:
        async with httpx.AsyncClient(**_settings(is_kept)) as client:
            for body in writes(kind):
                answer = (await client.post(PATHS[kind], content=body)).json()
                if answer["code"] != 200:
                    raise RuntimeError(answer["message"])
        return COUNT

    return lambda: asyncio.run(send())


KINDS = tuple(kind for kind in PATHS if kind != "batch")

VARIANTS: dict[str, Callable[[], Run]] = {
    "batch ours 1": lambda: _operator(1),
    "batch ours 8": lambda: _operator(8),
    "batch remembered 1": lambda: _operator(1, remembers=True),
    "batch remembered 8": lambda: _operator(8, remembers=True),
    "batch loop": lambda: _loop("batch", is_kept=True),
    "batch loop new": lambda: _loop("batch", is_kept=False),
    "batch careful": lambda: _loop("batch", is_kept=True, threads=16),
    "upsert async ours": lambda: _in_loop("upsert"),
    "upsert async loop": lambda: _loop_in_loop("upsert", is_kept=True),
    "upsert async loop new": lambda: _loop_in_loop("upsert", is_kept=False),
    **{f"{kind} ours": partial(_ours, kind) for kind in KINDS},
    **{f"{kind} loop": partial(_loop, kind, is_kept=True) for kind in KINDS},
    **{f"{kind} loop new": partial(_loop, kind, is_kept=False) for kind in KINDS},
}


if __name__ == "__main__":
    measure(VARIANTS[sys.argv[1]]())
