"""Runs a DAG in this process, with `dag.test()`, and says what came of it."""

from __future__ import annotations

import datetime
import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
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
class RunResult:
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

    def xcoms(self) -> dict[tuple[str, int, str], Any]:
        """Everything that the run left behind, by task id, map index and key."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        mine = (XComModel.dag_id == self.dag_id, XComModel.run_id == self.run_id)
        with create_session() as session:
            rows = session.scalars(select(XComModel).where(*mine)).all()
            return {(row.task_id, row.map_index, row.key): XComModel.deserialize_value(row) for row in rows}


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
        migrated = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        if migrated.returncode:
            raise RuntimeError(f"airflow db migrate failed:\n{migrated.stdout}\n{migrated.stderr}")
        # A run that is ended here must not leave half a file.
        unfinished = template.with_suffix(".unfinished")
        shutil.copy(database, unfinished)
        unfinished.replace(template)


def run_dag(
    dag: DAG, *, logical_date: datetime.datetime | None = None, conf: dict[str, Any] | None = None
) -> RunResult:
    """Run every task of `dag` here and now, triggers included.

    Mind what `dag.test()` does not do: kwargs and timeouts of a deferral are lost, outlets start nothing, nothing can
    be killed. That is what `RunningAirflow` is for.

    :param logical_date: of the run, and through the timetable its data interval; default: now.
    """
    from airflow.utils.session import create_session

    _register(dag)
    when = logical_date or datetime.datetime.now(datetime.UTC)
    run = dag.test(logical_date=when, run_conf=conf)
    with create_session() as session:
        run = session.merge(run)
        session.refresh(run)
        tasks = {
            (ti.task_id, ti.map_index): TaskResult(state=str(ti.state or "none"), try_number=ti.try_number)
            for ti in run.get_task_instances(session=session)
        }
        return RunResult(dag_id=run.dag_id, run_id=run.run_id, state=str(run.state), tasks=tasks)


def _register(dag: DAG) -> None:
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
