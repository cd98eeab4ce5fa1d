"""A real Airflow: API server, scheduler, dag-processor and triggerer as processes, on Postgres or SQLite."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from mail_emulator import Emulator, EmulatorClient
from tests.support import env
from tests.support.postgres import Database
from tests.support.processes import PATIENCE, Component, free_port, wait_until
from tests.support.rest import AirflowApi, Json

T = TypeVar("T")

AIRFLOW = [sys.executable, "-m", "airflow"]
# Tasks and DAG files run in forks of these, which need not import the provider again.
PRELOADED = [sys.executable, "-m", "tests.support.preloaded_airflow"]
COMPONENTS = {
    "api-server": [*AIRFLOW, "api-server"],
    "scheduler": [*PRELOADED, "scheduler", "--skip-serve-logs"],
    "dag-processor": [*PRELOADED, "dag-processor"],
    "triggerer": [*AIRFLOW, "triggerer", "--skip-serve-logs"],
}
HEALTH = {"metadatabase", "scheduler", "dag_processor", "triggerer"}
FINISHED = frozenset({"success", "failed"})

# Airflow's own patience is measured in minutes; a test that kills something wants to see the recovery.
IMPATIENT = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    # A task is not given up because the API server is away for a moment.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
    # Nor because the API server needs long for the first request. Airflow 3.0 waits for five seconds, five times.
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
    # So often the scheduler decides which assets are in use; a task with another one fails.
    "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "2",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
    # The first question that a new triggerer asks Airflow takes seconds, on a busy machine many.
    "AIRFLOW__TRIGGERER__ON_KILL_TIMEOUT": "120",
    # No file changes while Airflow runs.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    # Airflow 3.0 takes a callback for a reading of the file, and deactivates the DAGs that it has not read with it.
    "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD": "3600",
}


@dataclass(frozen=True)
class SqliteFile:
    """Airflow's own tables in a file, which one process at a time writes to."""

    path: Path

    @property
    def sqlalchemy_url(self) -> str:
        return f"sqlite:///{self.path}?timeout=60"

    def connect(self) -> sqlite3.Connection:
        """A new connection that commits every statement by itself."""
        return sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)


class RunningAirflow:
    """All four components, from `with` to the end of it.

    :param home: a folder for Airflow's files and logs.
    :param database: for Airflow's own tables, migrated if need be.
    :param dags_folder: the DAG files to run; DAGs start paused.
    :param extra_env: further environment of all components: connections, settings.
    :param parallelism: processes that run tasks.
    """

    def __init__(
        self,
        home: Path,
        *,
        database: Database | SqliteFile,
        dags_folder: Path,
        extra_env: Mapping[str, str] | None = None,
        parallelism: int = 4,
    ) -> None:
        self.home = home
        self.metadata = database
        # Outside of Airflow's home, in which a test looks for secrets.
        self._secrets_file = home.with_name(f"{home.name}-secrets.json")
        port = free_port()
        self.base_url = f"http://127.0.0.1:{port}"
        self.environment = (
            env.clean_environment()
            | env.settings(home, database.sqlalchemy_url, dags_folder)
            | IMPATIENT
            | {
                "AIRFLOW__SECRETS__BACKEND": "tests.support.secrets_file.SecretsFile",
                "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"path": str(self._secrets_file)}),
                "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
                "AIRFLOW__CORE__PARALLELISM": str(parallelism),
                "AIRFLOW__API__HOST": "127.0.0.1",
                "AIRFLOW__API__PORT": str(port),
                "AIRFLOW__API__WORKERS": "1",
                "AIRFLOW__API__BASE_URL": f"{self.base_url}/",
                "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.base_url}/execution/",
            }
            | dict(extra_env or {})
        )
        home.mkdir(parents=True, exist_ok=True)
        self._forget_secrets()
        self.components = {
            name: Component(name, command, env=self.environment, log=home / f"{name}.out")
            for name, command in COMPONENTS.items()
        }
        self.api = AirflowApi(self.base_url)
        self._connection: Any = None
        self._killed: set[str] = set()
        self._watching: set[str] = set()

    def __enter__(self) -> Self:
        try:
            self.run_command("db", "migrate")
            for component in self.components.values():
                component.start()
            self.wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process."""
        self.api.close()
        if self._connection is not None:
            self._connection.close()
        for component in self.components.values():
            component.terminate()
        for component in self.components.values():
            component.stop()

    def run_command(self, *arguments: str) -> str:
        """Run `airflow ...` beside the components; return what it printed."""
        command = [*AIRFLOW, *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"airflow {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def set_connection(self, conn_id: str, definition: Json | str) -> None:
        """A connection from now on, in the spelling of `AIRFLOW_CONN_...`."""
        self._secrets["connections"][conn_id] = definition if isinstance(definition, str) else json.dumps(definition)
        self._write_secrets()

    def set_mail_connection(self, conn_id: str, service: Emulator | EmulatorClient, **extra: Any) -> None:
        """A connection to an emulated service."""
        mail = {"conn_type": "mail", "host": service.base_url, "password": service.api_key, "extra": extra}
        self.set_connection(conn_id, mail)

    def set_variable(self, name: str, value: str) -> None:
        """A variable from now on."""
        self._secrets["variables"][name] = value
        self._write_secrets()

    def _forget_secrets(self) -> None:
        self._secrets: dict[str, dict[str, str]] = {"connections": {}, "variables": {}}
        self._write_secrets()

    def _write_secrets(self) -> None:
        unfinished = self._secrets_file.with_suffix(".new")
        unfinished.write_text(json.dumps(self._secrets))
        unfinished.replace(self._secrets_file)

    # --- the machinery ---

    def wait_until_healthy(self) -> None:
        def healthy() -> bool:
            health = self.api.health()
            return all(health.get(name) == "healthy" for name in HEALTH)

        self._wait(healthy, what="all components healthy")

    def kill(self, name: str) -> None:
        """SIGKILL a component and all that it started, running tasks included."""
        self._killed.add(name)
        self.components[name].kill()

    def restart(self, name: str) -> None:
        """Start a component again, after ending it if it still runs."""
        self.components[name].stop()
        self.components[name].start()
        self._killed.discard(name)
        if name == "api-server":
            self._wait(self.api.health, what="the API server responds")

    def clean_up(self) -> None:
        """Start what was killed, end every run, pause all DAGs, and forget connections and variables."""
        for name in sorted(self._killed):
            self.restart(name)
        for dag in self.api.request("GET", "/dags?paused=false&limit=100").json()["dags"]:
            self.api.pause(dag["dag_id"])
        while self._watching:
            self.api.reparse(self._watching.pop())
        for run in self.api.request("GET", "/dags/~/dagRuns?state=running&state=queued&limit=100").json()["dag_runs"]:
            self.api.request("PATCH", f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}", json={"state": "failed"})
        self._wait(lambda: not self.triggers() and not self.slots()["occupied"], what="the end of all")
        self._forget_secrets()

    def kill_task(self, dag_id: str, run_id: str, task_id: str) -> None:
        """SIGKILL the process in which a task runs at the moment."""
        # From the database: on a busy machine the REST API may take longer than the moment lasts.
        query = "SELECT pid FROM task_instance WHERE dag_id = %s AND run_id = %s AND task_id = %s"
        [(pid,)] = self.query(query, dag_id, run_id, task_id)
        os.kill(pid, signal.SIGKILL)

    # --- what users do ---

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait for the DAG to appear."""
        self._wait(lambda: self.api.dag_exists(dag_id), what=f"DAG {dag_id}")

    def unpause(self, dag_id: str, *, watches_assets: bool = False) -> None:
        """Wait for the DAG to appear, and unpause it.

        :param watches_assets: its triggers start when the dag-processor next reads the file: have it do so now.
        """
        self.wait_for_dag(dag_id)
        self.api.unpause(dag_id)
        if watches_assets:
            self._watching.add(dag_id)
            self.api.reparse(dag_id)

    def start_run(self, dag_id: str, *, conf: Json | None = None) -> str:
        """Wait for the DAG to appear, unpause and trigger it; return the id of the run."""
        self.unpause(dag_id)
        return self.api.trigger(dag_id, conf=conf)

    def clear(self, dag_id: str, run_id: str) -> None:
        """Have all tasks of a run done again."""
        body = {"dag_run_id": run_id, "dry_run": False, "only_failed": False, "reset_dag_runs": True}
        self.api.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def wait_for_run(self, dag_id: str, run_id: str, *, timeout: float = PATIENCE) -> str:
        """Wait for the end of a run, and return its state."""

        def state() -> str | None:
            now = self.run_states(dag_id)[run_id]
            return now if now in FINISHED else None

        return self._wait(state, what=f"end of {dag_id} {run_id}", timeout=timeout)

    def wait_for_task(self, dag_id: str, run_id: str, task_id: str, state: str) -> Json:
        """Wait until a task is in `state`, and return the task instance."""
        self._wait(
            lambda: self.task_states(dag_id, run_id).get((task_id, -1)) == state, what=f"{dag_id}.{task_id} {state}"
        )
        return self.task(dag_id, run_id, task_id)

    def tasks(self, dag_id: str, run_id: str) -> dict[tuple[str, int], Json]:
        """Every task instance of a run by task id and map index."""
        return {(ti["task_id"], ti["map_index"]): ti for ti in self.api.task_instances(dag_id, run_id)}

    def task(self, dag_id: str, run_id: str, task_id: str) -> Json:
        return self.tasks(dag_id, run_id)[task_id, -1]

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """What a task pushed, or `None`."""
        return self.api.xcom(dag_id, run_id, task_id, key, map_index)

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """The log of one try, one JSON record a line."""
        return self.api.log(dag_id, run_id, task_id, try_number)

    def wait_for_log(self, dag_id: str, run_id: str, task_id: str, words: str) -> str:
        """The log of a first try, once it has these words: callbacks run after the task has reported its state."""
        return wait_until(
            lambda: log if words in (log := self.log(dag_id, run_id, task_id)) else None,
            what=f"{words!r} in the log of {task_id}",
        )

    # --- what is going on; from the database where it is looked at often, or the REST API does not list it ---

    def run_states(self, dag_id: str) -> dict[str, str]:
        """The states of all runs of a DAG, by id."""
        return dict(self.query("SELECT run_id, state FROM dag_run WHERE dag_id = %s", dag_id))

    def task_states(self, dag_id: str, run_id: str) -> dict[tuple[str, int], str | None]:
        """The states of all task instances of a run, by task id and map index."""
        query = "SELECT task_id, map_index, state FROM task_instance WHERE dag_id = %s AND run_id = %s"
        return {(task_id, map_index): state for task_id, map_index, state in self.query(query, dag_id, run_id)}

    def slots(self, pool: str = "default_pool") -> dict[str, int]:
        """Slots of a pool by what is in them: `occupied`, `running`, `queued`, `deferred`, `open` ..."""
        counts = self.api.pool(pool).items()
        return {name.removesuffix("_slots"): count for name, count in counts if name.endswith("_slots")}

    def triggers(self) -> list[tuple[str, int | None]]:
        """The class path of every trigger that waits, and the id of the triggerer that runs it."""
        return self.query("SELECT classpath, triggerer_id FROM trigger ORDER BY id")

    def query(self, query: str, *parameters: str | int) -> list[Any]:
        """The rows of a statement on Airflow's own tables, with `%s` for each parameter."""
        if self._connection is None:
            self._connection = self.metadata.connect()
        if isinstance(self.metadata, SqliteFile):
            query = query.replace("%s", "?")
        return list(self._connection.execute(query, parameters))

    def _wait(self, look: Callable[[], T | None], *, what: str, timeout: float = PATIENCE) -> T:
        def look_alive() -> T | None:
            for name, component in self.components.items():
                if name not in self._killed and component.exit_code() is not None:
                    raise RuntimeError(f"{name} ended with {component.exit_code()}")
            return look()

        try:
            return wait_until(look_alive, what=what, timeout=timeout)
        except Exception as error:
            error.add_note("\n".join(component.tail() for component in self.components.values()))
            raise
