"""One service and one clock for all cases, and a summary of what was found."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from airflow.sdk import BaseOperator

from airflow_provider_mail.emulator import Emulator
from tests.faults.workload import Tally, Trial
from tests.support.passing_time import PassingTime

SOAK_SEED = os.environ.get("MAIL_SOAK_SEED", "1")
TALLIES = {"matrix": pytest.StashKey[Tally](), "soak": pytest.StashKey[Tally]()}


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> PassingTime:
    """Pauses of the package cost nothing."""
    passing = PassingTime()
    passing.install(monkeypatch)
    return passing


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A line for each repeated request would be tens of thousands."""
    loggers = [logging.getLogger(name) for name in ("airflow_provider_mail", "httpx", "tests.faults")]
    monkeypatch.setattr(BaseOperator, "log", loggers[-1])
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def _tally(config: pytest.Config, name: str) -> Tally:
    return config.stash.setdefault(TALLIES[name], Tally())


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """What the matrix has found so far."""
    return _tally(request.config, "matrix")


@pytest.fixture
def flow_trial(emulator: Emulator, passing: PassingTime, tally: Tally) -> Trial:
    """Runs flows and counts them for the matrix."""
    return Trial(emulator, passing, tally, "flows")


@pytest.fixture
def task_trial(emulator: Emulator, passing: PassingTime, tally: Tally) -> Trial:
    """Runs tasks and counts them for the matrix."""
    return Trial(emulator, passing, tally, "tasks")


@pytest.fixture
def soak_trial(request: pytest.FixtureRequest, emulator: Emulator, passing: PassingTime) -> Trial:
    """Runs what is drawn at random."""
    return Trial(emulator, passing, _tally(request.config, "soak"), f"seed {SOAK_SEED}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, key in TALLIES.items():
        if key in config.stash:
            terminalreporter.write_line(f"fault {name}: {config.stash[key]}")
