"""Runs of the DAGs whose tasks are killed: which points there are, and how a run is led to its end."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from airflow_provider_mail.emulator import EmulatorProcess, EmulatorSettings
from tests.support import sampling
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until

T = TypeVar("T")

TASK = "task"
RETRIES_KILLED_TASKS = AIRFLOW_VERSION >= (3, 1)
"""Airflow 3.0 fails a task whose process was killed, whatever its retries."""

_numbers = itertools.count()


@dataclass(eq=False)
class Crash:
    """One run of a DAG that is killed.

    :param point: where the task ends itself, in `tries`.
    :param held: a fault that holds a request, during which the task is killed from outside: `(kind, operation, how
        many requests pass before it, parameters)`.
    :param lost: a fault that strikes besides, of the same form.
    """

    dag_id: str
    point: str | None = None
    tries: tuple[int, ...] = (1,)
    held: tuple[str, str, int, dict[str, Any]] | None = None
    lost: tuple[str, str, int, dict[str, Any]] | None = None
    on_ambiguous: str = "fail"
    case: str = field(default_factory=lambda: f"case{next(_numbers)}")
    run_id: str = ""
    state: str = ""

    def __str__(self) -> str:
        where = self.point or (f"{self.held[0]} {self.held[1]} {self.held[2]}" if self.held else "nowhere")
        also = f" after {self.lost[0]}" if self.lost else ""
        return f"{self.dag_id} {self.case}: {where}{also}, tries {self.tries}, on_ambiguous={self.on_ambiguous}"

    @property
    def conf(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "on_ambiguous": self.on_ambiguous,
            "tries": list(self.tries),
            **({"point": self.point} if self.point else {}),
        }


WHERE = {"crash_campaign": "mailName", "crash_batch": "campaign", "crash_import": "listName"}
"""The field by which a fault knows the requests of a run."""


class Service(EmulatorProcess):
    """The service in a process of its own, with its state in a file, and a short memory for bodies."""

    def __init__(self, file: Path) -> None:
        super().__init__(EmulatorSettings(journal_body_bytes=2000, journal_limit=1_000_000), file=file)
        self._state = file

    def mails(self) -> dict[str, Counter[str]]:
        """How many mails each address got, by run; read from the file, since it is hundreds of thousands."""
        query = (
            "SELECT campaign, email, count(*) FROM deliveries JOIN messages ON messages.id = message_id GROUP BY 1, 2"
        )
        got: dict[str, Counter[str]] = defaultdict(Counter)
        with closing(sqlite3.connect(f"file:{self._state}?mode=ro", uri=True)) as connection:
            for case, email, count in connection.execute(query):
                got[case][email] = count
        return got

    def bodies(self, operation: str) -> list[dict[str, Any]]:
        """The bodies of requests; a request whose sender was killed before it had sent the body has none."""
        return [entry["body"] for entry in self.journal.entries(operation) if entry["body"] is not None]

    def settle(self) -> None:
        """Wait until every request was dealt with, also those whose sender is dead."""
        wait_until(
            lambda: all(entry["seconds"] is not None for entry in self.journal.entries()),
            what="the last request",
        )


def some(cases: Sequence[T], first: int = 0) -> Sequence[T]:
    """Every second of them; all with MAIL_ALL_FAULTS=1 or MAIL_ALL_CASES=1."""
    return cases if sampling.ALL_FAULTS or sampling.EVERYTHING else cases[first::2]


def more_points() -> int:
    """How many points to add by chance to the others."""
    return int(os.environ.get("MAIL_CRASH_POINTS", "0"))


def chance(number: int) -> random.Random:
    """Repeatable chance: MAIL_CRASH_SEED gives other points."""
    return random.Random(f"{os.environ.get('MAIL_CRASH_SEED', '1')} {number}")


def run_all(airflow: RunningAirflow, service: Service, crashes: Iterable[Crash], *, timeout: float) -> list[Crash]:
    """Start all runs at once, kill those that are to be killed from outside, and wait for the end of all."""
    crashes = list(crashes)
    held: dict[int, Crash] = {}
    dag_ids = {crash.dag_id for crash in crashes}
    for dag_id in dag_ids:
        airflow.wait_for_dag(dag_id)
        # No run starts before all are triggered: that may take longer than a request is held.
        airflow.api.pause(dag_id)
    for crash in crashes:
        for fault, waits in ((crash.lost, False), (crash.held, True)):
            if fault is not None:
                kind, operation, skip, params = fault
                where = {WHERE[crash.dag_id]: crash.case}
                number = service.faults.add(kind, operation, skip=skip, where=where, **params)
                if waits:
                    held[number] = crash
        crash.run_id = airflow.api.trigger(crash.dag_id, conf=crash.conf, logical_date=None)
    for dag_id in dag_ids:
        airflow.api.unpause(dag_id)

    unfinished = {crash.run_id: crash for crash in crashes}
    deadline = time.monotonic() + timeout
    while unfinished:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{[str(crash) for crash in unfinished.values()]}: not within {timeout:g} s")
        faults = service.faults.list() if held else []
        if struck := [held.pop(fault["id"]) for fault in faults if fault["struck"] and fault["id"] in held]:
            # What is answered late or in drips is carried out at once: let that happen first.
            time.sleep(0.5)
            for crash in struck:
                airflow.kill_task(crash.dag_id, crash.run_id, TASK)
        states: dict[str, str] = {}
        for dag_id in dag_ids:
            states |= airflow.run_states(dag_id)
        for run_id in [run_id for run_id in unfinished if states.get(run_id) in ("success", "failed")]:
            unfinished.pop(run_id).state = states[run_id]
        time.sleep(0.3)
    return crashes


def clear(airflow: RunningAirflow, crashes: Iterable[Crash]) -> None:
    """What a user does about tasks that failed."""
    crashes = list(crashes)
    for crash in crashes:
        body = {"dry_run": False, "dag_run_id": crash.run_id, "task_ids": [TASK], "only_failed": False}
        airflow.api.request("POST", f"/dags/{crash.dag_id}/clearTaskInstances", json=body)
    for crash in crashes:
        crash.state = airflow.wait_for_run(crash.dag_id, crash.run_id)
