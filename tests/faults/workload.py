"""What a case is run with and judged by: a workload says what to do, and what would be wrong afterwards."""

from __future__ import annotations

import dataclasses
import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from tests.faults.cases import Case
from tests.faults.operations import effect_of
from tests.support.passing_time import PassingTime


class Wrong(StrEnum):
    """What must never be; each is counted in the summary."""

    CAMPAIGN_TWICE = "campaigns duplicated"
    MAIL_TWICE = "mails duplicated"
    LOST = "contacts lost"
    INCOMPLETE = "green but incomplete"
    UNTRUE = "told what is not so"
    FOREIGN = "errors of other kinds"
    ENDLESS = "without bounds"
    STUCK = "not over when the fault was"


DEFAULTS = {item.name: item.default for item in dataclasses.fields(EmulatorSettings)}

Finding = tuple[Wrong, str]


@dataclass
class Said:
    """How a run ended, as whoever started it is told.

    :param result: what was returned; ``None`` after an error.
    :param error: what was raised.
    """

    result: Any = None
    error: BaseException | None = None

    @property
    def green(self) -> bool:
        return self.error is None

    def __str__(self) -> str:
        return f"said {self.result!r}"[:300] if self.green else f"{type(self.error).__name__}: {self.error}"


class Workload(ABC):
    """Something that is done to a service, and what the service must hold then."""

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]] = {}
    #: Whether a creation that may have succeeded is looked up.
    adopts = False
    #: The worst that may come of one run, in requests, for each request of a run without faults.
    most_requests = 40
    #: How many of its cases a sample takes, where it takes 1 of others.
    share = 1.0

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def arrange(self, service: Emulator) -> None:
        """Put in place what the workload needs, and neighbours that must not be touched."""

    @abstractmethod
    def run(self, service: Emulator, case: Case, number: int) -> Said:
        """Do it.

        :param case: the faults that will strike.
        :param number: of the run; another one may be run in another way.
        """

    def must_end_well(self, case: Case) -> bool:
        """Whether the faults are such that they are over before anybody's patience is."""
        return case.passes(self.adopts)

    def undecidable(self, case: Case) -> bool:
        """Whether nobody who knows only the document can tell these answers from true ones."""
        return False

    @abstractmethod
    def judge(self, service: Emulator, said: Said, case: Case) -> Iterator[Finding]:
        """Compare what the service holds with what was said."""


@dataclass
class Tally:
    """What was found over many cases."""

    cases: Counter[str] = field(default_factory=Counter)
    wrong: Counter[Wrong] = field(default_factory=Counter)
    green: int = 0
    struck: int = 0
    requests: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.cases.items())
        counts = ", ".join(f"{kind} {self.wrong[kind]:,}" for kind in Wrong)
        return (
            f"{self.cases.total():,} cases ({kinds}), {self.struck:,} faults in {self.requests:,} requests, "
            f"{self.green:,} ended well: {counts}"
        )


class Trial:
    """Runs workloads on one service and notes what is wrong.

    :param level: ``flows`` or ``tasks``.
    """

    def __init__(self, service: Emulator, passing: PassingTime, tally: Tally, level: str) -> None:
        self._service = service
        self._passing = passing
        self._tally = tally
        self._level = level
        self._number = 0
        self.problems: list[str] = []

    def prepare(self, workload: Workload, **settings: Any) -> None:
        """Let the service be what the workload needs; ``settings`` are of the emulator and yield to the workload's."""
        self._service.change_settings(**DEFAULTS | settings | dict(workload.settings))

    def paths(self, workload: Workload, case: Case) -> list[str]:
        """The requests of a run, by operation."""
        self._number += 1
        self._run(workload, case, self._number)
        return [entry["operation"] for entry in self._service.journal.entries()]

    def try_case(self, workload: Workload, case: Case, *, plain_requests: int, number: int | None = None) -> Said:
        """Run a case and judge it.

        :param plain_requests: so many a run without faults takes.
        """
        self._number += 1
        began = self._passing.skipped
        said, struck = self._run(workload, case, self._number if number is None else number)
        requests = self._service.journal.count()
        undecided = said.green and workload.undecidable(case)
        findings = [] if undecided else [*workload.judge(self._service, said, case)]
        if workload.must_end_well(case) and not said.green:
            findings.append((Wrong.STUCK, "the fault was over and the run ended in an error"))
        most = workload.most_requests * (plain_requests + 3)
        if requests > most:
            findings.append((Wrong.ENDLESS, f"{requests} requests"))
        if self._passing.skipped - began > 900 * (plain_requests + 3):
            findings.append((Wrong.ENDLESS, f"pauses of {self._passing.skipped - began:.0f} s"))
        if len(case.strikes) == 1 and not struck and not case.wild:
            findings.append((Wrong.UNTRUE, "the fault did not strike: the case tests nothing"))
        self._note(workload, case, said, findings)
        self._tally.struck += struck
        self._tally.requests += requests
        return said

    def _run(self, workload: Workload, case: Case, number: int) -> tuple[Said, int]:
        service = self._service
        service.reset()
        service.add_sender("news@example.com")
        workload.arrange(service)
        service.journal.clear()
        for strike in case.strikes:
            strike.arrange(service)
        said = workload.run(service, case, number)
        settle(service)
        struck = sum(fault["struck"] for fault in service.faults.list())
        service.faults.clear()
        return said, struck

    def _note(self, workload: Workload, case: Case, said: Said, findings: list[Finding]) -> None:
        self._tally.cases[self._level] += 1
        self._tally.green += said.green
        self._tally.wrong.update(kind for kind, _ in findings)
        for kind, what in findings:
            self.problems.append(f"{workload}: {case}: {kind}: {what} ({said})")


def settle(service: Emulator) -> None:
    """Wait until the service is through with what the client has given up."""
    pause = threading.Event()
    while service.service.journal.in_flight:
        pause.wait(0.002)


def detours(trial: Trial, workload: Workload, paths: list[str]) -> dict[int, list[str]]:
    """The requests of runs in which one that changes something lost its answer, where there are more behind it."""
    from tests.faults.cases import LOST, Strike

    found = {}
    for position, path in enumerate(paths):
        if effect_of(path) not in (Effect.READ, Effect.REPEATABLE):
            case = Case((Strike(LOST, skip=position),), position, effect_of(path))
            requests = trial.paths(workload, case)
            if len(requests) > position + 1:
                found[position] = requests
    return found


def plain(value: Any) -> Any:
    """A value as XCom would give it back."""
    return json.loads(json.dumps(value))
