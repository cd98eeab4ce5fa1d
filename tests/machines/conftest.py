"""A connection to the emulator, and time that passes at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from airflow.sdk import BaseOperator

from mail_emulator import Emulator
from tests.machines import HOLD, connect
from tests.support.clock import Clock


@pytest.fixture(autouse=True)
def _mail_default(clock: Clock, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AIRFLOW_CONN_MAIL_DEFAULT", HOLD):
        monkeypatch.setenv(name, "")  # so that what the machine sets is gone afterwards
    connect(emulator)
    del os.environ[HOLD]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No line for each of thousands of requests."""
    loggers = [logging.getLogger(name) for name in ("airflow_provider_mail", "httpx", "tests.machines")]
    monkeypatch.setattr(BaseOperator, "log", loggers[-1])
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
