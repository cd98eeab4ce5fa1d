"""What the tests of notifications need: a sender of Airflow's own mail, and runs of DAGs against the emulator."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from tests.support.browser import browser, chromium
from tests.tasks.conftest import (
    _less_patient,
    _made_once,
    _mail_default,
    connect,
    errors,
    new_dag,
    run,
    run_in_airflow,
    run_with,
)
from tests.tasks.sending import SENDS

__all__ = [
    "_less_patient",
    "_made_once",
    "_mail_default",
    "browser",
    "chromium",
    "connect",
    "errors",
    "new_dag",
    "run",
    "run_in_airflow",
    "run_with",
]

AIRFLOW = "https://airflow.example.com"
PEOPLE = ["ada@example.com", "bob@example.com"]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__EMAIL__FROM_EMAIL", "Airflow <news@example.com>")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"{AIRFLOW}/")


@pytest.fixture(autouse=True)
def _quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def bodies(emulator: Emulator) -> list[Any]:
    """What was sent, request by request, whatever became of it."""
    return [entry["body"] for entry in emulator.journal.entries(SENDS)]


def addressees(message: dict[str, Any]) -> list[str]:
    """To whom a message of the emulator's went."""
    return [person["email"] for person in message["recipients"]]
