"""Runs of the DAGs whose tasks are killed."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mail_emulator import EmulatorProcess, EmulatorSettings
from tests.support.airflow import FINISHED, RunningAirflow
from tests.support.processes import PATIENCE, wait_until

WHERE = {"crash_campaign": "mailName", "crash_batch": "campaign", "crash_import": "listName"}
"""The field by which a fault knows the requests of a run."""

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

    @property
    def conf(self) -> dict[str, Any]:
        conf = {"case": self.case, "on_ambiguous": self.on_ambiguous, "tries": list(self.tries), "point": self.point}
        return {name: value for name, value in conf.items() if value is not None}


class Service(EmulatorProcess):
    """The service in a process of its own, with its state in a file, and a short memory for bodies."""

    def __init__(self, file: Path) -> None:
        super().__init__(EmulatorSettings(journal_body_bytes=2000, journal_limit=1_000_000), file=file)
        self._state = file

    def mails(self) -> dict[str, Counter[str]]:
        """How many mails each address got, by run; read from the file, since it is many thousands."""
        query = (
            "SELECT campaign, email, count(*) FROM deliveries JOIN messages ON messages.id = message_id GROUP BY 1, 2"
        )
        got: dict[str, Counter[str]] = defaultdict(Counter)
        with closing(sqlite3.connect(f"file:{self._state}?mode=ro", uri=True)) as connection:
            for case, email, count in connection.execute(query):
                got[case][email] = count
        return got

    def settled(self) -> bool:
        """Whether every request was processed, also those whose sender is dead."""
        return all(entry["seconds"] is not None for entry in self.journal.entries())


def run_all(airflow: RunningAirflow, service: Service, crashes: Sequence[Crash]) -> None:
    """Start all runs at once, kill those that are to be killed from outside, and wait for the end of all."""
    held: dict[int, Crash] = {}
    dag_ids = {crash.dag_id for crash in crashes}
    for dag_id in dag_ids:
        airflow.wait_for_dag(dag_id)
        airflow.api.pause(dag_id)  # until all are triggered: that may take longer than a request is held
    for crash in crashes:
        for fault in filter(None, (crash.lost, crash.held)):
            kind, operation, skip, params = fault
            number = service.faults.add(kind, operation, skip=skip, where={WHERE[crash.dag_id]: crash.case}, **params)
            if fault is crash.held:
                held[number] = crash
        crash.run_id = airflow.api.trigger(crash.dag_id, conf=crash.conf)
    for dag_id in dag_ids:
        airflow.api.unpause(dag_id)

    unfinished = {crash.run_id: crash for crash in crashes}
    deadline = time.monotonic() + 2 * PATIENCE
    while unfinished:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{list(unfinished.values())} have not ended")
        faults = service.faults.list() if held else []
        for crash in [held.pop(fault["id"]) for fault in faults if fault["struck"] and fault["id"] in held]:
            airflow.kill_task(crash.dag_id, crash.run_id, "task")
        states = {run_id: state for dag_id in dag_ids for run_id, state in airflow.run_states(dag_id).items()}
        for run_id in [run_id for run_id in unfinished if states.get(run_id) in FINISHED]:
            unfinished.pop(run_id).state = states[run_id]
        time.sleep(0.3)
    wait_until(service.settled, what="all requests are processed")
