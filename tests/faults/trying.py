"""Faults of the service, drawn by Hypothesis, strike something that is done to it: what was said must be so.

A workload is run once as it should be, and the service's journal says which requests there are for faults to strike.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseOperator
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator, EmulatorSettings
from mail_emulator.faults import FAULT_KINDS
from tests.api.driving import KINDS
from tests.support.clock import Clock
from tests.support.sampling import examples
from tests.support.tries import Tries

FOREVER = None


def _each(name: str, *values: Any) -> tuple[dict[str, Any], ...]:
    return tuple({name: value} for value in values)


# What is not named here strikes with its default parameters. Faults that only take time pass in real time.
PARAMETERS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "cut_body": ({"share": 0.0}, {"share": 0.5, "reset": True}, {"share": 0.98}),
    "too_many_requests": (*_each("retry_after", 0, 60, 3600, None), {"retry_after": 2, "form": "date"}),
    "http_error_before": _each("status", 404, 408, 500, 502, 503, 504),
    "http_error_after": _each("status", 500, 503),
    "code_before": (*_each("code", 500, 400, 404, 429), {"code": 401, "http_status": 401}, {"code": 403}),
    "code_after": ({"code": 500}, {"code": 502, "http_status": 502}),
    "html_before": _each("status", 200, 404, 503),
    "cut_json": _each("share", 0.5, 0.98),
    "wrong_total": _each("by", 1, -1),
}
VARIANTS = [
    (kind, params)
    for name, kind in FAULT_KINDS.items()
    if kind.outcome != "slow"
    for params in PARAMETERS.get(name, ({},))
]
SERVICES = st.fixed_dictionaries(
    {},
    optional={
        "errors_as_http_status": st.just(True),
        "not_found_code": st.sampled_from([400, 403]),
        "duplicate_code": st.sampled_from([403, 409]),
        "contact_not_found": st.sampled_from(["null", "absent"]),
        "list_name_key": st.just("listName"),
        "success_message": st.sampled_from([None, "ok"]),
        "newest_first": st.just(False),
        "list_sort_descending": st.just(False),
        "contains_ignores_case": st.just(False),
        "max_page_size": st.sampled_from([2, 3, 10]),
        "scheduled_status": st.just(-1),
        "state_after_cancel": st.sampled_from(["removed", "failed"]),
        "wrong_state_code": st.just(400),
    },
)
DEFAULTS = {item.name: item.default for item in dataclasses.fields(EmulatorSettings)}


@dataclass(frozen=True)
class Fault:
    """A fault that strikes so many requests in a row, after so many that it lets pass.

    :param count: how many requests; `FOREVER` for all.
    """

    kind: str
    params: Mapping[str, Any]
    operation: str
    skip: int
    count: int | None

    def add(self, service: Emulator, where: Mapping[str, Any] | None = None) -> None:
        options: Any = {"count": self.count, "skip": self.skip, "where": where, **self.params}
        service.faults.add(self.kind, self.operation, **options)

    @property
    def passes_by(self) -> bool:
        """Whether who only reads, and repeats what got no clear response, comes through."""
        if FAULT_KINDS[self.kind].outcome == "odd":
            return True
        is_short = self.count is not FOREVER and self.count <= 2
        return is_short and (self.kind.startswith(("close", "reset", "cut", "empty")) or self.kind == "html_after")


@st.composite
def faults_at(draw: st.DrawFn, paths: Sequence[str]) -> Fault:
    """Draw a fault that strikes one of the requests, or those behind it that its effect makes necessary."""
    everywhere = [variant for variant in VARIANTS if variant[0].operations is None]
    here = [variant for variant in VARIANTS if {*(variant[0].operations or ())} & {*paths}]
    kind, params = draw(st.sampled_from(everywhere) | st.sampled_from(here or everywhere))
    count = draw(st.sampled_from([1, 1, 2, 6, FOREVER]))
    if kind.operations is None:
        return Fault(kind.name, params, "*", draw(st.integers(0, len(paths) + 2)), count)
    path = draw(st.sampled_from([path for path in kind.operations if path in paths]))
    return Fault(kind.name, params, path, draw(st.integers(0, list(paths).count(path) - 1)), count)


@dataclass
class Said:
    """How a run ended, as its caller sees it: what was returned, or what was raised."""

    result: Any = None
    error: BaseException | None = None

    @property
    def green(self) -> bool:
        return self.error is None


class Workload(ABC):
    """Something that is done to a service, and what the service must hold then."""

    name: str
    settings: ClassVar[Mapping[str, Any]] = {}
    reads = True
    """Whether it only reads."""
    recovers = True
    """Whether it must end well when it is run again without faults."""
    most_requests = 40
    """The most that one run may send, for each request of a run without faults."""
    examples = 30

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def arrange(self, service: Emulator) -> None:
        """Put in place what the workload needs, and neighbors that must not be touched."""

    @abstractmethod
    def run(self, service: Emulator, client: str) -> Said:
        """Do it, again at the second call.

        :param client: the kind of client, where that is not the workload's.
        """

    def undecidable(self, faults: Sequence[Fault]) -> bool:
        """Whether who knows only the specification cannot tell these responses from true ones."""
        return False

    @abstractmethod
    def check(self, service: Emulator, said: Said) -> None:
        """Compare what the service or the warehouse holds with what was said."""


class TaskWorkload(Workload):
    """A task with its tries."""

    most_requests = 120
    task: Tries

    def run(self, service: Emulator, client: str) -> Said:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")
            for conn_id, connection in self.connections().items():
                patch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
            self.task.run_all(self.operator)
        error = self.task.error
        assert error is None or isinstance(error, MailError | AirflowException), f"{type(error).__name__}: {error}"
        return Said(self.task.returned, error)

    def connections(self) -> dict[str, Any]:
        """The connections that the operator needs besides the service's, by id."""
        return {}

    @abstractmethod
    def operator(self) -> BaseOperator:
        """The operator, as a DAG file makes it."""


class Trial:
    """Runs workloads on one service."""

    def __init__(self, service: Emulator, clock: Clock) -> None:
        self.service, self.clock = service, clock

    def check(self, workload: Workload, count: int, seed_: object = None) -> None:
        """Try a workload with so many drawn sets of faults.

        :param seed_: draws other ones. Default: the same ones each time, unless all cases are wanted.
        """
        self._begin(workload, {})
        said = workload.run(self.service, KINDS[0])
        paths = [entry["operation"] for entry in self.service.journal.entries()]
        workload.check(self.service, said)

        @settings(max_examples=examples(count), deadline=None)
        @given(st.lists(faults_at(paths), min_size=1, max_size=3), SERVICES, st.sampled_from(KINDS))
        def try_one(faults: list[Fault], behavior: dict[str, Any], client: str) -> None:
            self._try(workload, faults, behavior, client, len(paths) + 3)

        (try_one if seed_ is None else seed(seed_)(try_one))()

    def _begin(self, workload: Workload, behavior: Mapping[str, Any]) -> None:
        self.service.reset()
        self.service.change_settings(**{**DEFAULTS, **behavior, **workload.settings})
        self.service.add_sender("news@example.com")
        if isinstance(workload, TaskWorkload):
            workload.task = Tries(self.service)
        workload.arrange(self.service)
        self.service.journal.clear()

    def _try(self, workload: Workload, faults: list[Fault], behavior: Any, client: str, requests: int) -> None:
        self._begin(workload, behavior)
        for fault in faults:
            fault.add(self.service)
        began = self.clock.skipped
        said = workload.run(self.service, client)
        settle(self.service)
        self.service.faults.clear()
        assert self.service.journal.count() <= workload.most_requests * requests
        assert self.clock.skipped - began <= 900 * requests, "it takes long"
        if said.green and workload.undecidable(faults):
            return
        workload.check(self.service, said)
        if workload.reads and len(faults) == 1 and faults[0].passes_by:
            assert said.green, f"the fault was over: {said.error}"
        if workload.recovers and not said.green:
            said = workload.run(self.service, client)
            assert said.green, f"all was well again: {said.error}"
            workload.check(self.service, said)


def settle(service: Emulator) -> None:
    """Wait until the service is through with what the client has given up."""
    pause = threading.Event()
    while service.service.journal.in_flight:
        pause.wait(0.002)
