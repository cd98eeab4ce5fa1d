"""Loads are killed with SIGKILL, at the statements that they send and at random moments, then repeated as by Airflow.

At once after the kill, the table is that of before or that of the service; after the repetition, it is that of the
service. What may remain is a table of staged rows.
"""

from __future__ import annotations

import gc
import json
import linecache
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.transfers.mail_to_object_storage import MailContactsToObjectStorageOperator
from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)
from airflow_provider_mail.warehouse.manifest import Manifest
from tests.support.processes import FORK, fork
from tests.support.sampling import ALL_FAULTS
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    NATIVE,
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)
from tests.warehouse.standins import WAYS, FilesWarehouse, copy

KILLS = 30 if ALL_FAULTS else 2
KINDS = (*NATIVE, *WAYS) if ALL_FAULTS else ("databricks",)

STATEMENT = ("execute(", "executemany(", "commit(", "copy(")
SENDERS = ("airflow_provider_mail.warehouse.dialects", "tests.warehouse.standins")


class Statements:
    """Traces a process, and ends it at one of the points before and after every statement.

    :param deadly: the number of the point. Default: none.
    """

    def __init__(self, deadly: int | None = None) -> None:
        self._passed = FORK.Value("i", 0)
        self._deadly = deadly
        self._sending: set[int] = set()

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        return self._local if frame.f_globals.get("__name__", "").startswith(SENDERS) else None

    def _local(self, frame: Any, event: str, argument: Any) -> Any:
        if id(frame) in self._sending:
            self._sending.remove(id(frame))
            self._point()
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and any(word in line for word in STATEMENT):
            self._sending.add(id(frame))
            self._point()
        return self._local

    @property
    def passed(self) -> int:
        """The number of points that were passed."""
        return int(self._passed.value)

    def _point(self) -> None:
        if self._passed.value == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        self._passed.value += 1


class Tasks:
    """The tasks of one DAG run that loads a list, whose results outlive the processes.

    :param warehouse: the database.
    :param folder: for files and results.
    """

    def __init__(self, warehouse: Warehouse, folder: Path) -> None:
        self._results = folder / "results.json"
        self._files = folder / "lake"
        self._hook = type(warehouse.hook)
        rows, files = [self._load], [self._write, self._stage, self._copy, self._merge]
        self._tasks: list[Callable[..., Any]] = files if isinstance(warehouse, FilesWarehouse) else rows

    def begin(self) -> None:
        """Begin the next run."""
        self._results.write_text("[]")

    def run(self) -> None:
        """Run the tasks that have not succeeded."""
        results = json.loads(self._results.read_text())
        for task in self._tasks[len(results) :]:
            results.append(task(*results))
            written = self._results.with_suffix(".new")
            written.write_text(json.dumps(results))
            written.replace(self._results)

    def _load(self) -> Any:
        operator = MailContactsToSqlOperator(
            task_id="task", sql_conn_id="warehouse", list_name="customers", page_size=5
        )
        return operator.execute({})

    def _write(self) -> Any:
        operator = MailContactsToObjectStorageOperator(
            task_id="task",
            path=f"file://{self._files}",
            list_name="customers",
            page_size=5,
            file_format="jsonl",
            rows_per_file=7,
        )
        return operator.execute({})

    def _stage(self, written: Any) -> Any:
        return MailCreateStageTableOperator(task_id="task", **self._arguments(written)).execute({})

    def _copy(self, written: Any, stage: Any) -> None:
        hook, manifest = self._hook("warehouse"), Path(written["manifest"].removeprefix("file://")).read_bytes()
        copy(hook, Manifest.from_json(manifest), stage["stage_table"], replace=True)

    def _merge(self, written: Any, *_: Any) -> Any:
        return MailMergeStageTableOperator(task_id="task", **self._arguments(written)).execute({})

    def _arguments(self, written: Any) -> dict[str, Any]:
        return {"sql_conn_id": "warehouse", "table": "mail_contacts", "manifest": written["manifest"]}


class Killed:
    """A list of the service that changes, the table with it, and loads that are killed."""

    def __init__(self, warehouse: Warehouse, tasks: Tasks, service: Emulator) -> None:
        self._warehouse = warehouse
        self._tasks = tasks
        self._service = service
        self._service.clock.advance(days=-30)  # ahead of the database's clock, it would not be believed
        self._number = 0
        self.seen: Counter[str] = Counter()

    def change(self) -> None:
        """One contact leaves the list, another one joins it."""
        self._service.clock.advance(minutes=1)
        self._number += 1
        self._service.add_contact(f"new{self._number}@example.com", lists=["customers"])
        url, leaver = f"{self._service.base_url}/v5/contacts/delete", self.truth()[0]
        answer = httpx.post(url, headers={"ApiKey": self._service.api_key}, json={"email": leaver}, timeout=60)
        assert answer.json()["code"] == 200
        self._tasks.begin()

    def truth(self) -> list[str]:
        return sorted(contact["email"] for contact in self._service.contacts("customers"))

    def table(self) -> list[str]:
        return [email for (email,) in self._warehouse.another().query("SELECT email FROM mail_contacts ORDER BY email")]

    def recorded(self) -> Any:
        ((observed_at,),) = self._warehouse.another().query("SELECT observed_at FROM mail_loads")
        return observed_at

    def start(self, statements: Statements | None = None) -> BaseProcess:
        def work() -> None:
            sys.settrace(statements)
            self._tasks.run()

        return fork(work)

    def load(self, statements: Statements | None = None) -> float:
        """Load to the end; return the seconds that took."""
        start = time.monotonic()
        process = self.start(statements)
        process.join(120)
        assert process.exitcode == 0
        assert self.table() == self.truth()
        return time.monotonic() - start

    def kill(self, point: int | None, seconds: float) -> bool:
        """Change the list, load it, kill that at a point or after some seconds, and load it again.

        Return whether the load had not ended.
        """
        before, recorded = self.table(), self.recorded()
        self.change()
        process = self.start(None if point is None else Statements(point))
        process.join(seconds if point is None else 120)
        process.kill()
        process.join()
        found = self.table()
        assert found in (before, self.truth()), point
        if found == before:
            assert self.recorded() == recorded, point  # not the time of a load whose rows are missing
        self.seen["before" if found == before else "after"] += 1
        self.load()
        assert self.recorded() != recorded
        return process.exitcode == -signal.SIGKILL


def spread(points: int, dice: random.Random) -> Iterator[int | None]:
    """Points over all statements, and for every third kill a random moment."""
    order = [round(number * (points - 1) / max(1, KILLS - 1)) for number in range(KILLS)]
    dice.shuffle(order)
    for number in range(KILLS):
        yield None if number % 3 == 2 else order[number]
    while True:
        yield None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_the_service_s_again(
    kind: str,
    make_warehouse: Callable[..., Warehouse],  # noqa: F811
    emulator: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warehouse = make_warehouse(kind)
    vars(warehouse.hook).pop("_database", None)
    monkeypatch.setattr("airflow_provider_mail._task.sql.sql_hook", type(warehouse.hook))
    connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
    emulator.add_list("customers", [f"c{number:02}@example.com" for number in range(12)])
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)

    tasks = Tasks(warehouse, tmp_path)
    killed = Killed(warehouse, tasks, emulator)
    killed.change()
    tasks.run()  # here, so that the processes have all modules
    gc.collect()  # closes the file of DuckDB, which one process at a time may open
    killed.change()
    statements = Statements()
    seconds, kills = killed.load(statements), 0
    points = statements.passed
    for point in spread(points, dice):
        kills += killed.kill(point, dice.random() * seconds)
        if kills == KILLS:
            break
    print(f"{kind}: {points} points, {kills} kills, of which the table was that of {dict(killed.seen)}")
