"""Campaigns in stages, over days and at local times whose tasks are killed with SIGKILL, at any line.

A task that was killed is tried again, as Airflow does. Nobody is mailed twice, nobody is left out, and no stage follows
a gate that fails. With MAIL_ALL_FAULTS=1 at ten times as many points.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
from collections.abc import Callable, Iterator, MutableMapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

from mail_emulator import Emulator, EmulatorClient
from tests.machines.conftest import _mail_default, _quiet  # noqa: F401 - fixtures
from tests.machines.test_staged import TRIES, check, staged
from tests.support.clock import Clock
from tests.support.flow_tries import FlowRun, FlowTries
from tests.support.killer import traced
from tests.support.sampling import ALL_FAULTS
from tests.tasks.test_ramp_and_local_time import (
    _days_pass_at_once,  # noqa: F401 - a fixture
    addresses,
    everybody,
    local_dag,
    mailed,
    ramp_dag,
    times,
    zoned,
)

POINTS = 50 if ALL_FAULTS else 5
"""In each task."""
KILLED = {
    "people": "import",
    **{f"staged_send.send_{stage}": "create and wait" for stage in ("canary", "early", "rest")},
    **{f"staged_send.gate_{stage}": "gate" for stage in ("canary", "early")},
}
FLOWS: dict[str, Callable[[], DAG]] = {
    "ramp": ramp_dag,
    "local": lambda: local_dag(zoned(), send_day=f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"),
}
KILLED_IN_FLOWS = [
    *(("ramp", name) for name in ("people", "staged_send.send_day_1", "staged_send.gate_day_1", "staged_send.sent")),
    *(("local", name) for name in ("people", *(f"local_time_send.{own}" for own in ("check", "send", "wait", "sent")))),
]
TRACED = (
    "operators/_contact_import.py", "operators/_base.py", "operators/campaigns.py",
    "_audience/compared.py", "_task/division.py",
    "sensors/gate.py", "sensors/stats.py", "_audience/audience.py", "_task/mixin.py", "_task/state.py",
    "_task/waiting.py", "_task/staged_plan.py", "api/_core/transport.py", "api/client.py",
    "api/flows/campaign_checks.py", "api/flows/create_campaign.py", "api/flows/create_once.py",
    "api/flows/import_contacts.py", "api/flows/waits.py",
)  # fmt: skip


class FileValues(MutableMapping[str, str]):
    """What a task stores, in a file, so that it outlives the process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _read(self) -> dict[str, str]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}

    def _write(self, values: dict[str, str]) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(values))
        new.replace(self._file)

    def __getitem__(self, key: str) -> str:
        return self._read()[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._write(self._read() | {key: value})

    def __delitem__(self, key: str) -> None:
        self._write({name: value for name, value in self._read().items() if name != key})

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


class Child:
    """Runs the first try of one task in a process of its own, which is killed.

    :param at: the line at which; ``None`` for none.
    """

    def __init__(self, emulator: Emulator, clock: Clock, task_id: str, at: int | None) -> None:
        self._service = EmulatorClient(emulator.base_url)
        self._clock = clock
        self._task_id = task_id
        self._at = at
        self.lines = 0
        self.was_killed = False

    def run_task(self, tries: FlowTries, make: Callable[[], BaseOperator], most: int) -> None:
        """Run all tries of a task."""
        if make().task_id == self._task_id and not tries.number:
            self._run_first(tries, make)
        if tries.state not in ("success", "failed", "skipped"):
            tries.run_all(make, most - tries.number)

    def _run_first(self, tries: FlowTries, make: Callable[[], BaseOperator]) -> None:
        def work() -> tuple[str, dict[str, Any]]:
            self._begin()
            tries.run_all(make, 1)
            return tries.state, tries.xcoms

        child, written = traced(work, TRACED, self._at)
        with written:
            result = written.read()
        os.waitpid(child, 0)
        self.was_killed |= not result
        if not result:
            tries.died()
        else:
            self.lines, ended = pickle.loads(result)
            tries.ended(*ended)

    def _begin(self) -> None:
        """Let the service's time pass with that of this process."""
        pass_until = self._clock.pass_until

        def pass_together(moment: float) -> None:
            self._service.clock.advance(max(0.0, moment - self._clock.monotonic()))
            pass_until(moment)

        self._clock.pass_until = pass_together  # type: ignore[method-assign]


def begin(emulator: Emulator, folder: Path, bounces: float, dag: DAG | None = None) -> FlowRun:
    """Return a run of the flow, or of another, at a service that is as new."""
    emulator.reset()
    emulator.add_sender("news@example.com")
    emulator.change_settings(hard_bounce_rate=bounces, soft_bounce_rate=0)
    run = FlowRun(dag or staged(), emulator, most=TRIES)
    for file in folder.glob("*.json"):
        file.unlink()
    for number, tries in enumerate(run.tries.values()):
        tries.store.values = FileValues(folder / f"{number}.json")
    return run


@pytest.mark.parametrize("task_id", KILLED)
def test_a_killed_task_mails_nobody_twice(task_id: str, emulator: Emulator, clock: Clock, tmp_path: Path) -> None:
    whole = Child(emulator, clock, task_id, None)
    run = begin(emulator, tmp_path, 0.0)
    run.run(whole.run_task)
    check(run, emulator, 0.0)
    assert run.succeeded
    kills = 0
    for point in range(POINTS):
        child = Child(emulator, clock, task_id, 1 + point * whole.lines // POINTS)
        bounces = 0.9 if point % 3 == 2 else 0.0
        run = begin(emulator, tmp_path, bounces)
        run.run(child.run_task)
        kills += child.was_killed
        check(run, emulator, bounces)
        gate = run.states["staged_send.gate_canary"]
        assert (run.succeeded, gate) == ((False, "failed") if bounces else (True, "success")), (point, run.states)
    # With a gate that fails, what comes after it is never begun.
    assert kills >= POINTS // 2


@pytest.mark.parametrize(("flow", "task_id"), KILLED_IN_FLOWS)
def test_a_killed_task_of_a_ramp_or_of_local_times(
    flow: str, task_id: str, emulator: Emulator, clock: Clock, tmp_path: Path
) -> None:
    """Everybody is mailed once, and the days of a ramp are a day apart."""
    choose, kills, lines = random.Random(task_id), 0, 0
    for number in range(POINTS + 1):
        child = Child(emulator, clock, task_id, choose.randint(1, lines) if number else None)
        run = begin(emulator, tmp_path, 0.0, FLOWS[flow]())
        mapped = itertools.count()

        def run_task(tries: FlowTries, make: Callable[[], BaseOperator], most: int) -> None:
            if not isinstance(tries.store.values, FileValues):
                tries.store.values = FileValues(tmp_path / f"mapped {next(mapped)}.json")  # noqa: B023
            child.run_task(tries, make, most)  # noqa: B023

        run.run(run_task)
        lines, kills = lines or child.lines, kills + child.was_killed
        assert run.succeeded, (child._at, run.states)
        assert mailed(emulator) == everybody(addresses(40)), child._at
        if flow == "ramp":
            days = sorted(times(emulator).values())
            assert all(late - early >= timedelta(days=1) for early, late in itertools.pairwise(days))
    assert kills >= POINTS // 2
