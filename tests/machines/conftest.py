"""A connection to the emulator, and time that passes at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from airflow.sdk import BaseOperator

from mail_emulator import Emulator
from tests.support.clock import Clock


@pytest.fixture(autouse=True)
def _mail_default(clock: Clock, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(settings))


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
