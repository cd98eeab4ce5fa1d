"""What operators do, with the tries that Airflow gives them: the base of all workloads that do."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.version_compat import AirflowException
from tests.faults.cases import Case
from tests.faults.tries import BEGAN, HAS_STORE, Killed, Task
from tests.faults.variants import HASTY
from tests.faults.workload import Finding, Said, Workload, Wrong

TRIES = 3


class TaskWorkload(Workload):
    """One task instance."""

    # Of all tries together.
    most_requests = 120
    #: Whether the task must end well once it is cleared when the faults are over.
    recovers = True
    #: Whether the memory of Airflow 3.3 makes a difference.
    remembers = False
    #: By how much the worker's and the scheduler's clocks are ahead of the service's.
    clocks = (timedelta(0), timedelta(0))

    def __init__(self) -> None:
        self.task: Task

    def arrange(self, service: Emulator) -> None:
        """Nothing, unless a workload needs something."""

    def run(self, service: Emulator, case: Case, number: int) -> Said:
        worker, scheduler = self.clocks
        # Without the memory every fourth time, as on older versions.
        store = HAS_STORE and not (self.remembers and number % 4 == 0)
        self.task = Task(self.begin_try, store=store, began=BEGAN + scheduler - worker)
        return self._run(service, case)

    def _run(self, service: Emulator, case: Case) -> Said:
        with pytest.MonkeyPatch.context() as patch:
            for conn_id, connection in self.connections(service, HASTY if case.is_hasty else 10.0).items():
                patch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
            kill(patch, case.kill)
            self.task.run(TRIES)
        return Said(self.task.returned, self.task.error)

    def connections(self, service: Emulator, timeout: float) -> dict[str, Any]:
        """The connections that the operator needs, by id."""
        extra = {"timeout": timeout}
        return {
            "mail_default": {
                "conn_type": "mail", "host": service.base_url, "password": service.api_key, "extra": extra,
            }
        }  # fmt: skip

    @abstractmethod
    def operator(self) -> BaseOperator:
        """The operator, as a DAG file makes it."""

    def begin_try(self) -> BaseOperator:
        """Make the operator of a try, after what people do before it."""
        return self.operator()

    def judge(self, service: Emulator, said: Said, case: Case) -> Iterator[Finding]:
        yield from self._judge(service, said)
        if self.recovers and not said.green:
            # What a user does with a task that has failed, when all is well again.
            cleared = self._run(service, Case.none())
            if not cleared.green and not self.gives_up(service, cleared.error):
                yield Wrong.STUCK, f"cleared when all was well again: {self.task}"
            yield from self._judge(service, cleared)

    def _judge(self, service: Emulator, said: Said) -> Iterator[Finding]:
        if said.error is not None and not isinstance(said.error, MailError | AirflowException | Killed):
            yield Wrong.FOREIGN, f"{type(said.error).__name__} is neither the service's nor Airflow's"
        yield from self.held(service, said)

    def gives_up(self, service: Emulator, error: BaseException | None) -> bool:
        """Whether it is right that the task fails whenever it is run."""
        return False

    @abstractmethod
    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        """Compare what the service, or the warehouse, holds with what the task said."""


def kill(patch: pytest.MonkeyPatch, moment: tuple[int, str] | None) -> None:
    """Let the process die at the so manieth request, before it is sent or when its answer is there."""
    if moment is None:
        return
    number, when = moment
    original, left = MailClient._fetch, iter(range(number, -1, -1))

    def fetch(self: MailClient, call: Any) -> Any:
        dies = next(left, None) == 0
        if dies and when == "before":
            raise Killed
        answer = original(self, call)
        if dies:
            raise Killed
        return answer

    patch.setattr(MailClient, "_fetch", fetch)
