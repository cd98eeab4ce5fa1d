"""Runs a DAG in this process, with `dag.test()`, and says what came of it."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import DAG

AIRFLOW_VERSION = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])


@dataclass(frozen=True)
class TaskResult:
    """How one task instance ended."""

    state: str
    try_number: int


@dataclass(frozen=True)
class RunResult(ABC):
    """How a run ended: its state, and its tasks by id and map index (-1 for a task that is not mapped)."""

    dag_id: str
    run_id: str
    state: str
    tasks: dict[tuple[str, int], TaskResult]

    def task(self, task_id: str, map_index: int = -1) -> TaskResult:
        return self.tasks[task_id, map_index]

    def xcom(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """What the task pushed, or `None`."""
        return self.xcoms().get((task_id, map_index, key))

    @abstractmethod
    def xcoms(self) -> dict[tuple[str, int, str], Any]:
        """Everything that the run left behind, by task id, map index and key."""

    @abstractmethod
    def rendered_fields(self) -> list[dict[str, Any]]:
        """The rendered template fields of each task that has run."""

    @abstractmethod
    def state_store(self, task_id: str) -> dict[str, tuple[str, Any]]:
        """What the task keeps in the task state store, by key: the stored text, and when it expires."""

    def outcome(self) -> dict[str, Any]:
        """Return all in which runs of one DAG agree, whatever runs it, without what differs between any two runs."""
        kept = {
            "state": self.state,
            "tasks": {task_id: (task.state, task.try_number) for (task_id, _), task in self.tasks.items()},
            "xcoms": {f"{task_id} {key}": value for (task_id, _, key), value in self.xcoms().items()},
            "rendered": sorted(self.rendered_fields(), key=str),
            "store": {
                f"{task_id} {key}": [re.sub(r"[0-9a-f]{32}|\d{10}\.\d+", "VARIES", text), expires is not None]
                for task_id, _ in self.tasks
                for key, (text, expires) in (self.state_store(task_id) if AIRFLOW_VERSION >= (3, 3) else {}).items()
            },
        }
        return dict(json.loads(json.dumps(kept, sort_keys=True, default=str).replace(self.run_id, "RUN")))


@dataclass(frozen=True)
class AirflowResult(RunResult):
    """A run by `run_dag`, as it lies in Airflow's database."""

    dag: DAG = field(repr=False)

    def _rows(self, model: Any, *what: Any) -> list[Any]:
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            mine = select(model).where(model.dag_id == self.dag_id, model.run_id == self.run_id, *what)
            return list(session.scalars(mine))

    def xcoms(self) -> dict[tuple[str, int, str], Any]:
        from airflow.models.xcom import XComModel

        rows = self._rows(XComModel)
        return {(row.task_id, row.map_index, row.key): XComModel.deserialize_value(row) for row in rows}

    def rendered_fields(self) -> list[dict[str, Any]]:
        from airflow.models.renderedtifields import RenderedTaskInstanceFields

        return [row.rendered_fields for row in self._rows(RenderedTaskInstanceFields)]

    def state_store(self, task_id: str) -> dict[str, tuple[str, Any]]:
        from airflow.models.task_state_store import TaskStateStoreModel as Model

        return {row.key: (row.value, row.expires_at) for row in self._rows(Model, Model.task_id == task_id)}


def migrate(database: Path, cache: Path) -> None:
    """Make the metadata database of this process's Airflow, from a copy in `cache` where there is one.

    Migrating takes ten seconds, copying none.
    """
    cache.mkdir(parents=True, exist_ok=True)
    template = cache / f"airflow-{version('apache-airflow-core')}.db"
    # Of several test processes the first migrates and the others wait for it.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if template.exists():
            shutil.copy(template, database)
            return
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"airflow db migrate failed:\n{done.stdout}\n{done.stderr}")
        # A run that is ended here must not leave half a file.
        unfinished = template.with_suffix(".unfinished")
        # Not a copy of the file: a part of the database may be in the file beside it.
        with closing(sqlite3.connect(database)) as migrated, closing(sqlite3.connect(unfinished)) as copy:
            migrated.backup(copy)
        unfinished.replace(template)


def run_dag(
    dag: DAG, *, logical_date: datetime.datetime | None = None, conf: dict[str, Any] | None = None
) -> RunResult:
    """Run every task of `dag` here and now, triggers included.

    Mind what `dag.test()` does not do: kwargs and timeouts of a deferral are lost, outlets start nothing, nothing can
    be killed. That is what `RunningAirflow` is for.

    :param logical_date: of the run, and through the timetable its data interval. Default: none, as of a run that an
        asset or the API starts.
    """
    from airflow.utils.session import create_session

    register(dag)
    run = dag.test(logical_date=logical_date, run_conf=conf)
    with create_session() as session:
        run = session.merge(run)
        session.refresh(run)
        tasks = {
            (ti.task_id, ti.map_index): TaskResult(state=str(ti.state or "none"), try_number=ti.try_number)
            for ti in run.get_task_instances(session=session)
        }
        return AirflowResult(run.dag_id, run.run_id, str(run.state), tasks, dag)


def register(dag: DAG) -> None:
    """Do what the dag-processor does with a file: from 3.1 on a task instance needs a stored version of its DAG."""
    if AIRFLOW_VERSION < (3, 1):
        return
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    DagBundlesManager().sync_bundles_to_db()
    with create_session() as session:
        update_dag_parsing_results_in_db(
            "dags-folder", None, [LazyDeserializedDAG.from_dag(dag)], {}, None, set(), session=session
        )
