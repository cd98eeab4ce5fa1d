"""One service and one clock for all cases."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from airflow_provider_mail.emulator import Emulator
from tests.faults.workload import Trial
from tests.support.clock import Clock


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A line for each repeated request would be tens of thousands."""
    loggers = [logging.getLogger(name) for name in ("airflow_provider_mail", "httpx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def trial(emulator: Emulator, clock: Clock) -> Trial:
    """Runs workloads on the emulator."""
    return Trial(emulator, clock)
