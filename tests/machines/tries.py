"""The tries of one task instance, without Airflow's processes: a new operator each time, a store that outlives them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_mail.emulator import Emulator

MAX_BYTES = 65_535
"""The limit of Airflow for one value of the task state store."""


class KilledError(BaseException):
    """The worker's process has ended."""


@dataclass
class Kill:
    """When the process of a try ends.

    :param at: ``before`` or ``after`` a write to the store, or at a ``request`` that the service has performed.
    :param number: of the write or the request, from 0.
    """

    at: str
    number: int


@dataclass
class Tries:
    """A task instance. Nothing that happens in a process after its end reaches the store or the service."""

    emulator: Emulator
    number: int = 0
    values: dict[str, str] = field(default_factory=dict)
    writes: int = 0
    kill: Kill | None = None
    dead: bool = False
    unavailable: range = range(0)
    """Numbers of the writes of a try that fail because Airflow's API server is away."""
    unreadable: bool = False

    def run(self, operator: BaseOperator, kill: Kill | None = None) -> Any:
        """Run one more try; return its result or raise its error."""
        self.number += 1
        self.kill, self.dead, self.writes = kill, False, 0
        ExecutorSafeguard.tracker.set(operator)
        identity = {"dag_id": "dag", "task_id": operator.task_id, "run_id": "manual__1", "map_index": -1}
        ti = SimpleNamespace(**identity, try_number=self.number, xcom_push=lambda **_: None)
        context: Any = {"ti": ti, "task": operator, "run_id": ti.run_id, "task_state_store": self}
        try:
            return operator.execute(context)
        finally:
            vars(operator)["hook"].close()

    def requested(self, number: int) -> None:
        """The service has performed a request of this try, and has not responded yet."""
        if self.kill == Kill("request", number):
            self._die()

    def record(self, key: str) -> Any:
        return json.loads(self.values[key]) if key in self.values else None

    # --- the task state store ---

    def get(self, key: str, default: Any = None) -> Any:
        self._check()
        if self.unreadable:
            raise RuntimeError("the store cannot be read")
        return self.record(key) if key in self.values else default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        text = json.dumps(value)
        assert len(text) <= MAX_BYTES
        self._write(lambda: self.values.update({key: text}))

    def delete(self, key: str) -> None:
        self._write(lambda: self.values.pop(key, None))

    def _write(self, change: Any) -> None:
        self._check()
        number, self.writes = self.writes, self.writes + 1
        if number in self.unavailable:
            raise unavailable()
        if self.kill == Kill("before", number):
            self._die()
            raise KilledError
        change()
        if self.kill == Kill("after", number):
            self._die()
            raise KilledError

    def _check(self) -> None:
        if self.dead:
            raise KilledError

    def _die(self) -> None:
        self.dead = True
        self.emulator.faults.clear()
        self.emulator.faults.add("close_before", count=None)


def unavailable() -> Exception:
    """Return the error of the store while Airflow's API server is away."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"message": "away"}))
