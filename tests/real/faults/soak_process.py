"""One process that imports, loads and waits on thirty connections at once, as busy workers and triggerers do for weeks.

Run by `test_soak_process.py` as a process of its own, with the address of an emulator that fails one request in ten. It
writes a JSON file: its memory over time, and what is left after everything has ended.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import psutil
from airflow.sdk import BaseOperator

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from airflow_provider_mail.version_compat import AirflowException
from airflow_provider_mail.warehouse.errors import WarehouseError
from mail_emulator.client import EmulatorClient
from tests.support.tries import Tries

CONNECTIONS = [f"mail_{number:02}" for number in range(30)]
THREADS = 2
"""Of each kind."""
ROWS, WAITS = 2000, 60
OURS = (MailError, WarehouseError, AirflowException)


class Soak:
    """Everything that goes on until the time is up."""

    def __init__(self, emulator: EmulatorClient) -> None:
        self._emulator = emulator
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()
        self.foreign: list[str] = []
        """Errors that are none of this package's."""

    def run(self, seconds: float) -> list[float]:
        """Keep everything going, until each kind has succeeded; the process's memory in MiB, second by second."""
        process, samples = psutil.Process(), []
        workers = [
            threading.Thread(target=self._repeat, args=(kind, work, number))
            for number in range(THREADS)
            for kind, work in (("import", self._import), ("load", self._load))
        ]
        workers.append(threading.Thread(target=lambda: asyncio.run(self._wait_for_campaigns())))
        for worker in workers:
            worker.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end or not {"import success", "load success", "wait complete"} <= set(self.done):
            time.sleep(1)
            samples.append(process.memory_info().rss / 2**20)
        self._over.set()
        for worker in workers:
            worker.join()
        return samples

    def _count(self, what: str, error: BaseException | None = None) -> None:
        with self._lock:
            self.done[what] += 1
            if error is not None and not isinstance(error, OURS):
                self.foreign.append(f"{what}: {type(error).__name__}: {error}")

    def _repeat(self, kind: str, work: Callable[[str, int], BaseOperator], number: int) -> None:
        dice = random.Random(f"{kind} {number}")
        while not self._over.is_set():
            task = Tries()
            state = task.run_all(partial(work, dice.choice(CONNECTIONS), number))
            self._count(f"{kind} {state}", task.error)

    def _import(self, conn_id: str, number: int) -> BaseOperator:
        rows = [{"email": f"p{row}@example.com", "name": f"Person {row}"} for row in range(ROWS)]
        given = {"task_id": f"import_{number}", "mail_conn_id": conn_id, "list_name": f"imported-{number}"}
        return MailImportContactsOperator(contacts=rows, chunk_size=200, **given)

    def _load(self, conn_id: str, number: int) -> BaseOperator:
        given = {"task_id": f"load_{number}", "mail_conn_id": conn_id, "sql_conn_id": f"warehouse_{number}"}
        return MailContactsToSqlOperator(list_name="everybody", page_size=200, **given)

    async def _wait_for_campaigns(self) -> None:
        await asyncio.gather(*(self._wait(number) for number in range(WAITS)))
        # What the shared polls leave behind would be seen here.
        self.done["asyncio tasks left"] = len(asyncio.all_tasks()) - 1

    async def _wait(self, number: int) -> None:
        while not self._over.is_set():
            name = f"campaign-{uuid.uuid4()}"
            await asyncio.to_thread(self._emulator.add_campaign, name, state="sending")
            conn_id = CONNECTIONS[number % len(CONNECTIONS)]
            trigger = MailCampaignTrigger(
                mail_conn_id=conn_id, mail_name=name, poke_interval=0.5, end_time=time.time() + 600, seen=True
            )
            async with aclosing(trigger.run()) as events:
                event = await anext(events)
            self._count(f"wait {event.payload['status']}")


def main(base_url: str, folder: str, seconds: str, result: str) -> None:
    emulator = EmulatorClient(base_url)
    mail = json.dumps({"conn_type": "mail", "host": base_url, "password": emulator.api_key})
    os.environ.update({f"AIRFLOW_CONN_{conn_id.upper()}": mail for conn_id in CONNECTIONS})
    for number in range(THREADS):
        file = str(Path(folder) / f"warehouse-{number}.db")
        os.environ[f"AIRFLOW_CONN_WAREHOUSE_{number}"] = json.dumps({"conn_type": "sqlite", "host": file})
    MailHook(CONNECTIONS[0]).get_conn().close()  # alone: Airflow 3.0 can dead-lock when two threads import its models
    Soak(emulator).run(1)  # what Airflow keeps open from its first use on, is open now
    process, soak = psutil.Process(), Soak(emulator)
    threads, files = set(threading.enumerate()), process.num_fds()
    samples = soak.run(float(seconds))
    gc.collect()
    left = {
        "threads": [thread.name for thread in threading.enumerate() if thread not in threads],
        "files": process.num_fds() - files,
        "sockets": len(process.net_connections(kind="inet")),
        "tasks": soak.done.pop("asyncio tasks left"),
    }
    results = {"memory": samples, "done": soak.done, "foreign": soak.foreign[:20], "left": left}
    Path(result).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
