"""The tries of one task instance without Airflow's processes and database: hundreds in seconds.

What Airflow does around ``execute`` and what matters here is small: a new operator for each try, the same identity, a
state store that outlives the tries (3.3), and what the end of a try means. That it is so is shown by the same tasks
under the real Airflow, in ``tests/real/faults/test_under_airflow.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException
from mail_emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION

HAS_STORE = AIRFLOW_VERSION >= (3, 3)
MAX_BYTES = 65_535
"""The limit of Airflow for one value of the task state store."""
DAY = datetime(2024, 3, 7, tzinfo=UTC)
"""The data interval of the tasks is the day before it."""


class Killed(BaseException):
    """The process of a try has ended."""


@dataclass
class Kill:
    """When the process of a try ends.

    :param at: ``before`` or ``after`` a write to the store, or at a ``request`` that the service has performed.
    :param number: of the write or the request, from 0.
    """

    at: str
    number: int


class StateStore:
    """The task state store of one task instance."""

    def __init__(self) -> None:
        self.values: MutableMapping[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        text = json.dumps(value)
        assert len(text) <= MAX_BYTES, f"{key} holds {len(text)} bytes"
        self._write(lambda: self.values.update({key: text}))

    def delete(self, key: str) -> None:
        self._write(lambda: self.values.pop(key, None))

    def _write(self, change: Callable[[], object]) -> None:
        change()


class MortalStore(StateStore):
    """A store that may be out of reach, and that nothing reaches from a process after its end."""

    def __init__(self, emulator: Emulator | None) -> None:
        super().__init__()
        self._emulator = emulator
        self.begin(None)
        self.unavailable = range(0)
        """Numbers of the writes of a try that fail because Airflow's API server is away."""
        self.unreadable = False

    def begin(self, kill: Kill | None) -> None:
        """Begin a try, whose process may end."""
        self._kill, self._dead, self._writes = kill, False, 0

    def requested(self, number: int) -> None:
        """The service has performed a request of this try, and has not responded yet."""
        if self._kill == Kill("request", number):
            self._die()

    def record(self, key: str) -> Any:
        """What is stored, also when the store is out of reach."""
        return super().get(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._check()
        if self.unreadable:
            raise RuntimeError("the store cannot be read")
        return super().get(key, default)

    def _write(self, change: Callable[[], object]) -> None:
        self._check()
        number, self._writes = self._writes, self._writes + 1
        if number in self.unavailable:
            raise unavailable()
        for at in ("before", "after"):
            if self._kill == Kill(at, number):
                self._die()
                raise Killed
            if at == "before":
                change()

    def _check(self) -> None:
        if self._dead:
            raise Killed

    def _die(self) -> None:
        self._dead = True
        if self._emulator is not None:
            self._emulator.faults.clear()
            self._emulator.faults.add("close_before", count=None)


def unavailable() -> Exception:
    """Return the error of the store while Airflow's API server is away."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"message": "away"}))


@dataclass
class TaskInstance:
    """What an operator sees of its task instance."""

    task_id: str
    dag_id: str = "dag"
    run_id: str = "manual__2024-03-07T00:00:00+00:00"
    map_index: int = -1
    try_number: int = 0
    max_tries: int = 0
    pushed: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    """What the first task instance of a mapped task has pushed."""
    earlier: ClassVar[dict[tuple[str, int, str], Any]] = {}
    """What tasks have pushed in any run of a test, by task, map index and key."""

    def get_first_reschedule_date(self, context: Any) -> None:
        """It runs in its first process."""

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = self.earlier[self.task_id, self.map_index, key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, key: str, map_indexes: Any = None, include_prior_dates: bool = False, **_: Any) -> Any:
        pushed = self.others if map_indexes not in (None, self.map_index) else self.pushed
        before = self.earlier.get((self.task_id, map_indexes, key)) if include_prior_dates else None
        return pushed.get(key, before)


class Tries:
    """A task instance.

    :param emulator: to which a process that has ended sends nothing more.
    :param has_store: whether Airflow has a task state store.
    :param params: parameters of the run.
    :param map_index: that of a mapped task.
    """

    def __init__(
        self,
        emulator: Emulator | None = None,
        *,
        has_store: bool = HAS_STORE,
        params: dict[str, Any] | None = None,
        map_index: int = -1,
    ) -> None:
        self.store = MortalStore(emulator)
        self._has_store = has_store
        self._ti = TaskInstance("task", map_index=map_index)
        self._params = params or {}
        self.clear_number = 0
        self.state = "none"
        self.returned: Any = None
        self.error: BaseException | None = None

    @property
    def number(self) -> int:
        return self._ti.try_number

    @property
    def pushed(self) -> dict[str, Any]:
        return self._ti.pushed

    @property
    def others(self) -> dict[str, Any]:
        return self._ti.others

    @others.setter
    def others(self, pushed: dict[str, Any]) -> None:
        self._ti.others = pushed

    @property
    def run_id(self) -> str:
        return self._ti.run_id

    @run_id.setter
    def run_id(self, run_id: str) -> None:
        self._ti.run_id = run_id

    def run(self, operator: BaseOperator, kill: Kill | None = None) -> Any:
        """Run one more try; return its result or raise its error."""
        self._ti.task_id = operator.task_id
        self._ti.try_number += 1
        self._ti.pushed.clear()
        self.store.begin(kill)
        ExecutorSafeguard.tracker.set(operator)
        context = self._context(operator)
        try:
            self._prepare(operator, context)
            return json.loads(json.dumps(operator.execute(context)))
        finally:
            if "hook" in vars(operator):
                vars(operator)["hook"].close()

    def run_all(self, make: Callable[[], BaseOperator], most: int = 3) -> str:
        """Try it so often at most, as Airflow does; return the state. Again: as if it had been cleared."""
        self.returned, self.error = None, None
        for left in reversed(range(most)):
            number = self.number + 1
            try:
                self.returned, self.error, self.state = self.run(make()), None, "success"
            except (AttributeError, NameError, TypeError):
                raise  # a fault of the code or of this double, which a model that expects failures would not see
            except (Exception, Killed) as error:
                self.error = error
                self._ti.try_number = number  # also if the operator could not be made, as of a mapped task
                ends = {AirflowSkipException: "skipped", AirflowFailException: "failed"}
                self.state = next(
                    (state for kind, state in ends.items() if isinstance(error, kind)),
                    "up_for_retry" if left else "failed",
                )
            if self.state != "up_for_retry":
                break
        return self.state

    def clear(self) -> None:
        """Do what a user does who clears the task."""
        self._ti.max_tries = self._ti.try_number

    def _prepare(self, operator: BaseOperator, context: Any) -> None:
        """Do what Airflow does before it executes the operator."""

    def _context(self, operator: BaseOperator) -> Any:
        ti = self._ti
        dag_run = SimpleNamespace(
            run_after=DAY,
            start_date=DAY,
            clear_number=self.clear_number,
            run_type="manual",
            run_id=ti.run_id,
            dag_id=ti.dag_id,
        )
        context = {"ti": ti, "task_instance": ti, "task": operator, "run_id": ti.run_id, "dag_run": dag_run}
        context |= {"params": self._params, "data_interval_start": DAY - timedelta(days=1), "data_interval_end": DAY}
        return context | ({"task_state_store": self.store} if self._has_store else {})

    def __str__(self) -> str:
        end = f"returned {self.returned}" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return f"{self.state} after {self.number} tries, {end}"[:400]
