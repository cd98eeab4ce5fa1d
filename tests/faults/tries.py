"""A task with its tries, as Airflow runs them, but without Airflow's processes and database: hundreds in seconds.

What Airflow does around ``execute`` and what matters here is small: a new operator for each try, the same identity, a
state store that outlives the tries (3.3), XCom, and what the end of a try means. That it is so is shown by the same
cases under the real Airflow, in ``test_under_airflow.py``.
"""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException
from tests.support.dags import AIRFLOW_VERSION

HAS_STORE = AIRFLOW_VERSION >= (3, 3)

MOST_BYTES = 65_535
"""The limit of a value in the task state store."""


BEGAN = datetime.now(UTC)
"""When the DAG runs began: before anything that is done here."""


class Killed(BaseException):
    """The worker's process has died."""


class StateStore:
    """The task state store of one task instance."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self._values[key]) if key in self._values else default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        text = json.dumps(value)
        assert len(text) <= MOST_BYTES, f"{key} holds {len(text)} bytes"
        self._values[key] = text

    def delete(self, key: str) -> None:
        self._values.pop(key, None)


@dataclass
class TaskInstance:
    """What an operator sees of its task instance."""

    task_id: str
    dag_id: str = "faults"
    run_id: str = "manual__2024-03-07T00:00:00+00:00"
    map_index: int = -1
    try_number: int = 0
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, key: str, **_: Any) -> Any:
        return self.pushed.get(key)


class Task:
    """One task instance.

    :param make: makes its operator, as the DAG file does in every process.
    :param store: whether Airflow has a task state store.
    :param began: when the DAG run began, by the scheduler's clock.
    """

    def __init__(
        self, make: Callable[[], BaseOperator], *, store: bool = HAS_STORE, began: datetime | None = None
    ) -> None:
        self._make = make
        self._began = began or BEGAN
        self.store = StateStore() if store else None
        self._ti = TaskInstance("task")
        self.state = "none"
        self.returned: Any = None
        self.error: BaseException | None = None

    @property
    def tries(self) -> int:
        return self._ti.try_number

    def run(self, most: int = 3) -> str:
        """Try it so often at most; also once more, as if it had been cleared."""
        for left in reversed(range(most)):
            self._ti.try_number += 1
            self._ti.pushed.clear()
            self.state = contextvars.copy_context().run(self._try, left > 0)
            if self.state != "up_for_retry":
                break
        return self.state

    def _try(self, may_retry: bool) -> str:
        operator = self._make()
        ExecutorSafeguard.tracker.set(operator)
        day = datetime(2024, 3, 7, tzinfo=UTC)
        context: Any = {
            "ti": self._ti,
            "task_instance": self._ti,
            "task": operator,
            "run_id": self._ti.run_id,
            "dag_run": SimpleNamespace(
                run_after=day,
                start_date=self._began,
                clear_number=0,
                run_type="manual",
                run_id=self._ti.run_id,
                dag_id=self._ti.dag_id,
            ),
            "data_interval_start": day - timedelta(days=1),
            "data_interval_end": day,
        }
        if self.store is not None:
            context["task_state_store"] = self.store
        try:
            self.returned = json.loads(json.dumps(operator.execute(context)))
        except AirflowSkipException as error:
            return self._ended("skipped", error)
        except AirflowFailException as error:
            return self._ended("failed", error)
        except (Exception, Killed) as error:
            return self._ended("up_for_retry" if may_retry else "failed", error)
        finally:
            if "hook" in vars(operator):
                vars(operator)["hook"].close()
        self.error = None
        return "success"

    def _ended(self, state: str, error: BaseException) -> str:
        self.returned, self.error = None, error
        return state

    def __str__(self) -> str:
        end = f"returned {self.returned}" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return f"{self.state} after {self.tries} tries, {end}"[:400]
