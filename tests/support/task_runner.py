"""Run the tasks of a DAG with Airflow's task runner, but without Airflow's database, scheduler and API server.

Airflow's own code renders the templates, runs the callbacks, decides on retries and pushes XComs. `ExecutionApi` keeps
what Airflow would store. That both end alike is shown in `tests/tasks/test_task_runner.py`.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import time
import traceback
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx

from tests.support.dags import AIRFLOW_VERSION, RunResult, TaskResult
from tests.support.execution_api import HAS_NO_STATE, ExecutionApi, TaskInstance

if TYPE_CHECKING:
    from airflow.sdk import DAG

FAILED = {"failed", "upstream_failed"}
ALL_SUCCESS, ALL_DONE, NONE_FAILED = "all_success", "all_done", "none_failed"
ONE_SUCCESS = "none_failed_min_one_success"
MOST_SECONDS = 60
"""The longest wait for a retry or a reschedule; a longer one is a mistake in the test."""


@dataclass(frozen=True)
class TaskRunnerResult(RunResult):
    """A run by `run_tasks`."""

    runner: TaskRunner = field(repr=False)

    def xcoms(self) -> dict[tuple[str, int, str], Any]:
        instances = self.runner.api.instances.values()
        return {(ti.task_id, -1, key): value for ti in instances for key, value in ti.xcoms.items()}

    def rendered_fields(self) -> list[dict[str, Any]]:
        return [ti.rendered for ti in self.runner.api.instances.values() if ti.rendered is not None]

    def state_store(self, task_id: str) -> dict[str, tuple[str, Any]]:
        return dict(self.runner.api.instances[task_id].store)

    def clear_and_run(self, task_id: str) -> TaskResult:
        """Do what a user does who clears a task: one more try in the same run, with what the task remembers."""
        return self.runner.clear_and_run(task_id)


def run_tasks(
    dag: DAG, *, logical_date: datetime.datetime | None = None, conf: dict[str, Any] | None = None
) -> RunResult:
    """Run every task of `dag` here and now, triggers included.

    As in a deployment, and not as in `dag.test()`, a deferred task gets its own kwargs beside the event, and a trigger
    that fails makes its task fail, which may be retried. Timeouts of deferrals are not watched. There are no mapped
    tasks, no assets, no callbacks of the DAG and no trigger rules but `all_success`, `all_done`,
    `none_failed` and `none_failed_min_one_success`: a run in Airflow is for these.

    :param logical_date: of the run, and through the timetable its data interval. Default: none, as of a run that an
        asset or the API starts.
    """
    runner = TaskRunner(dag, logical_date, conf)
    state = runner.run()
    tasks = {(ti.task_id, -1): TaskResult(ti.state, ti.try_number) for ti in runner.api.instances.values()}
    return TaskRunnerResult(dag.dag_id, runner.api.dag_run["run_id"], state, tasks, runner)


class TaskRunner:
    """The tasks of one DAG run: what a scheduler, its workers and a triggerer do."""

    def __init__(self, dag: DAG, logical_date: datetime.datetime | None, conf: dict[str, Any] | None) -> None:
        self.dag = dag
        _check(dag)
        instances = [TaskInstance(task.task_id, retries=task.retries or 0) for task in dag.topological_sort()]
        self.api = ExecutionApi(_dag_run(dag, logical_date, conf), instances)

    def run(self) -> str:
        """Run each task after those before it, and return the state of the DAG run."""
        for ti in self.api.instances.values():
            upstream = {
                self.api.instances[task_id].state for task_id in self.dag.get_task(ti.task_id).upstream_task_ids
            }
            rule = self.dag.get_task(ti.task_id).trigger_rule
            if rule != ALL_DONE and upstream & FAILED:
                ti.state = "upstream_failed"
            elif (rule == ALL_SUCCESS and "skipped" in upstream) or (rule == ONE_SUCCESS and "success" not in upstream):
                ti.state = "skipped"
            if ti.state != HAS_NO_STATE:  # also what a branch has skipped
                continue
            ti.next_try()
            self._run_try(ti)
            while ti.state == "up_for_retry":
                _sleep(self._retry_delay(ti))
                ti.next_try()
                self._run_try(ti)
        ends = {self.api.instances[task.task_id].state for task in self.dag.leaves}
        return "failed" if ends & FAILED else "success"

    def clear_and_run(self, task_id: str) -> TaskResult:
        ti = self.api.instances[task_id]
        self.api.dag_run["start_date"] = datetime.datetime.now(datetime.UTC).isoformat()
        self.api.dag_run["clear_number"] += 1
        ti.clear()
        self._run_try(ti)
        return TaskResult(ti.state, ti.try_number)

    def _run_try(self, ti: TaskInstance) -> None:
        from airflow.sdk.execution_time.supervisor import run_task_in_process

        task = self.dag.get_task(ti.task_id)
        with self._supervised():
            while True:
                what = _runnable(self.dag, self.api.dag_run["run_id"], ti)
                run_task_in_process(ti=what, task=task)
                if self.api.unknown:
                    raise NotImplementedError(f"the task runner of the tests does not know {self.api.unknown}")
                if ti.state == "deferred":
                    _resume(ti, what)
                elif ti.state == "up_for_reschedule":
                    until = datetime.datetime.fromisoformat(ti.end["reschedule_date"])
                    _sleep((until - datetime.datetime.now(datetime.UTC)).total_seconds())
                else:
                    return

    def _supervised(self) -> Any:
        """Let the supervisors of tasks talk to our API."""
        from airflow.sdk.execution_time.supervisor import InProcessTestSupervisor

        return mock.patch.object(InProcessTestSupervisor, "_api_client", staticmethod(lambda *_: self._client))

    @functools.cached_property
    def _client(self) -> Any:
        """Airflow's client of our API, without what httpx does for a network, and without retries."""
        from airflow.sdk.api.client import Client, raise_on_4xx_5xx

        api = self.api

        class Direct(Client):  # type: ignore[misc]
            def request(self, method: str, url: str, **parts: Any) -> httpx.Response:
                sent = {name: parts[name] for name in ("params", "content", "json") if parts.get(name) is not None}
                request = httpx.Request(method, f"http://execution-api.invalid/{url}", **sent)
                response = api(request)
                response.request = request
                raise_on_4xx_5xx(response)
                return response

        return Direct(base_url=None, dry_run=True, token="")

    def _retry_delay(self, ti: TaskInstance) -> float:
        decided: float | None = ti.end.get("retry_delay_seconds")  # by a retry policy
        return self.dag.get_task(ti.task_id).retry_delay.total_seconds() if decided is None else decided


def _check(dag: DAG) -> None:
    """Refuse what is not done here, and see that the DAG can be stored, as the DAG processor does."""
    unsupported = [task.task_id for task in dag.tasks if task.is_mapped or task.is_setup or task.is_teardown]
    rules = {task.trigger_rule for task in dag.tasks} - {ALL_SUCCESS, ALL_DONE, NONE_FAILED, ONE_SUCCESS}
    if unsupported or rules or dag.on_failure_callback or dag.on_success_callback:
        raise NotImplementedError("run this DAG with `run_in_airflow`")
    dag.validate()
    if AIRFLOW_VERSION < (3, 1):
        from airflow.serialization.serialized_objects import SerializedDAG

        json.dumps(SerializedDAG.to_dict(dag))
    else:
        from airflow.serialization.serialized_objects import LazyDeserializedDAG

        json.dumps(LazyDeserializedDAG.from_dag(dag).data)


def _dag_run(dag: DAG, logical_date: datetime.datetime | None, conf: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields that this version of Airflow has of a DAG run."""
    from airflow.models.dagrun import DagRun as StoredDagRun
    from airflow.sdk.api.datamodels._generated import DagRun
    from airflow.utils.types import DagRunType

    timetable: Any = dag.timetable
    if AIRFLOW_VERSION >= (3, 2):
        from airflow.serialization.encoders import coerce_to_core_timetable

        timetable = coerce_to_core_timetable(timetable)
    now = datetime.datetime.now(datetime.UTC)
    run_type = DagRunType.MANUAL
    times = {"run_after": now, "start_date": logical_date or now}  # as `dag.test()` has it
    if logical_date is not None:
        interval = timetable.infer_manual_data_interval(run_after=logical_date)
        times |= {
            "logical_date": logical_date, "data_interval_start": interval.start, "data_interval_end": interval.end,
        }  # fmt: skip
    values: dict[str, Any] = {name: moment.isoformat() for name, moment in times.items()}
    values |= {"dag_id": dag.dag_id, "run_type": run_type.value, "state": "running", "conf": conf, "clear_number": 0}
    values["run_id"] = StoredDagRun.generate_run_id(run_type=run_type, logical_date=logical_date, run_after=now)
    return {name: values.get(name, [] if name == "consumed_asset_events" else None) for name in DagRun.model_fields}


def _runnable(dag: DAG, run_id: str, ti: TaskInstance) -> Any:
    """Return the task instance as a worker gets it."""
    from airflow.sdk.api.datamodels._generated import TaskInstance as WorkerTaskInstance

    version = {"dag_version_id": uuid.uuid4()} if AIRFLOW_VERSION >= (3, 1) else {}
    ids = {"id": ti.id, "task_id": ti.task_id, "dag_id": dag.dag_id, "run_id": run_id, "map_index": -1}
    return WorkerTaskInstance(try_number=ti.try_number, **ids, **version)


def _resume(ti: TaskInstance, what: Any) -> None:
    """Run the trigger of a deferred task, and let the task go on with its event."""
    from airflow.sdk.definitions.dag import _run_inline_trigger

    _, deserialize = _serialization()
    module, _, name = ti.end["classpath"].rpartition(".")
    method, kwargs = ti.end["next_method"], deserialize(ti.end["next_kwargs"] or {})
    try:
        trigger = getattr(importlib.import_module(module), name)(**deserialize(ti.end["trigger_kwargs"]))
        event = _run_inline_trigger(*([trigger] if AIRFLOW_VERSION < (3, 1) else [trigger, what]))
        assert event is not None, "the trigger ended without an event"
    except Exception as error:
        method = "__fail__"
        kwargs = {"error": "Trigger failure", "traceback": traceback.format_exception(error)}
    else:
        kwargs["event"] = event.payload
    ti.next_method, ti.next_kwargs = method, stored(kwargs)


def stored(kwargs: dict[str, Any]) -> Any:
    """Return the keyword arguments of a deferred task's method as this version of Airflow stores them."""
    serialize, _ = _serialization()
    return json.loads(json.dumps(serialize(kwargs)))


def _serialization() -> tuple[Any, Any]:
    """Return how this version of Airflow stores keyword arguments, and how it reads them."""
    if AIRFLOW_VERSION >= (3, 2):
        from airflow.sdk.serde import deserialize, serialize

        return serialize, deserialize
    from airflow.serialization.serialized_objects import BaseSerialization

    return BaseSerialization.serialize, BaseSerialization.deserialize


def _sleep(seconds: float) -> None:
    assert seconds < MOST_SECONDS, f"a wait of {seconds} seconds"
    time.sleep(max(seconds, 0))
