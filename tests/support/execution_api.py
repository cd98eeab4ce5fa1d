"""Airflow's Task Execution API in memory, for the task instances of one DAG run.

The supervisor of a task reaches it through Airflow's own client, so everything travels as the JSON that the real one
gets. A request that is not known here fails the run.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

Json = Any
HAS_NO_STATE = "none"


@dataclass
class TaskInstance:
    """What Airflow's database holds of an unmapped task.

    :param store: the task state store, by key: the value as JSON text, and when it expires.
    """

    task_id: str
    retries: int
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    state: str = HAS_NO_STATE
    try_number: int = 0
    max_tries: int = 0
    start_date: str | None = None
    reschedules: list[str] = field(default_factory=list)
    next_method: str | None = None
    next_kwargs: Json = None
    end: dict[str, Json] = field(default_factory=dict)
    xcoms: dict[str, Json] = field(default_factory=dict)
    rendered: dict[str, Json] | None = None
    store: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.max_tries = self.retries

    def next_try(self) -> None:
        """Prepare another try, which is another row in Airflow's database."""
        self.id = uuid.uuid4()
        self.try_number += 1
        self.reschedules.clear()
        self.next_method = self.next_kwargs = None

    def clear(self) -> None:
        """Do what a user does who clears the task."""
        self.max_tries = self.try_number + self.retries
        self.next_try()


class ExecutionApi:
    """Handle the requests of the client of a task's supervisor.

    :param dag_run: fields of the DAG run, as the API's response to "run this task instance" has them.
    """

    def __init__(self, dag_run: dict[str, Json], instances: list[TaskInstance]) -> None:
        self.dag_run = dag_run
        self.instances = {instance.task_id: instance for instance in instances}
        self.unknown: list[str] = []
        self.variables: dict[str, str] = {}
        self.variables_away = False
        """Whether Variables cannot be read, or written."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, _, _ = request.url.raw_path.decode().partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        body = json.loads(request.content) if request.content else None
        match parts:
            case ["task-instances", ti_id, what]:
                response = self._task_instance(request, self._by_id(ti_id), what, body)
            case ["task-reschedules", ti_id, "start_date"]:
                response = found(next(iter(self._by_id(ti_id).reschedules), None))
            case ["xcoms", dag_id, run_id, task_id, key, *rest]:
                mine = (dag_id, run_id) == (self.dag_run["dag_id"], self.dag_run["run_id"])
                xcoms = self.instances[task_id].xcoms if mine and task_id in self.instances else {}
                response = self._xcom(request, xcoms, key, rest, body)
            case ["store", "ti", ti_id, *key]:
                store, written = self._by_id(ti_id).store, body and (json.dumps(body["value"]), body["expires_at"])
                response = self._value(
                    request, store, "/".join(key), lambda held: {"value": json.loads(held[0])}, written
                )
            case ["variables", _] if self.variables_away:
                response = httpx.Response(500, json={"detail": "away"})
            case ["variables", key]:
                written = body and body["val" if "val" in body else "value"]
                response = self._value(request, self.variables, key, lambda held: {"key": key, "value": held}, written)
            case ["connections", _] if request.method == "GET":
                response = MISSING  # Those of tests are in the environment, where a task looks first.
            case _:
                response = None
        if response is None:
            self.unknown.append(f"{request.method} {request.url}")
            return httpx.Response(501, json={"detail": "not known to this API"})
        return response

    def _by_id(self, ti_id: str) -> TaskInstance:
        return next(instance for instance in self.instances.values() if str(instance.id) == ti_id)

    def _task_instance(self, request: httpx.Request, ti: TaskInstance, what: str, body: Json) -> httpx.Response | None:
        match request.method, what:
            case "PATCH", "run":
                return self._run(ti, body)
            case "PATCH", "state":
                ti.state, ti.end = body["state"], body
                if ti.state == "up_for_reschedule":
                    assert ti.start_date is not None
                    ti.reschedules.append(ti.start_date)
                return DONE
            case "PATCH", "skip-downstream":
                for task_id, _ in body["tasks"]:
                    self.instances[task_id].state = "skipped"
                return DONE
            case "GET", "validate-inlets-and-outlets":
                return found({"inactive_assets": []})
            case "PUT", "rtif":
                ti.rendered = body
                return DONE
            case _:
                return None

    def _run(self, ti: TaskInstance, body: Json) -> httpx.Response:
        ti.state = "running"
        if not ti.next_method:
            ti.start_date = body["start_date"]
        context = {
            "dag_run": self.dag_run,
            "task_reschedule_count": len(ti.reschedules),
            "max_tries": ti.max_tries,
            "should_retry": ti.max_tries != 0 and ti.try_number <= ti.max_tries,
        }
        if ti.next_method:
            context |= {"next_method": ti.next_method, "next_kwargs": ti.next_kwargs}
        else:
            context["xcom_keys_to_clear"] = list(ti.xcoms)
        return httpx.Response(200, json=context)

    @staticmethod
    def _xcom(
        request: httpx.Request, xcoms: dict[str, Json], key: str, rest: list[str], body: Json
    ) -> httpx.Response | None:
        match request.method, rest:
            case "POST", []:
                xcoms[key] = body
                return DONE
            case "DELETE", []:
                xcoms.pop(key, None)
                return DONE
            case "GET", []:
                return found({"key": key, "value": xcoms[key]}) if key in xcoms else MISSING
            case "GET", ["slice"] if not {"start", "stop", "step"} & set(request.url.params):
                return found([xcoms[key]] if key in xcoms else [])
            case _:
                return None

    @staticmethod
    def _value(
        request: httpx.Request, values: dict[str, Any], key: str, read: Json, written: Any
    ) -> httpx.Response | None:
        """Get, put or delete a value; without a key delete all."""
        match request.method:
            case "GET" if key:
                return found(read(values[key])) if key in values else MISSING
            case "PUT" if key:
                values[key] = written
                return DONE
            case "DELETE":
                values.pop(key, None) if key else values.clear()
                return DONE
            case _:
                return None


DONE = httpx.Response(204)
MISSING = httpx.Response(404, json={"detail": {"reason": "not_found", "message": "Not found"}})


def found(value: Json) -> httpx.Response:
    return httpx.Response(200, json=value)
