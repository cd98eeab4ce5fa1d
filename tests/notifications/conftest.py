"""What the tests of notifications need: a sender of Airflow's own mail, and runs of DAGs against the emulator."""

from __future__ import annotations

import datetime
import logging
from typing import Any

import pytest

from airflow_provider_mail.notifications.mail import MailNotifier
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.conftest import _made_once, _mail_default, connect, errors, new_dag, run, run_with
from tests.tasks.sending import SENDS

__all__ = ["_made_once", "_mail_default", "connect", "errors", "new_dag", "run", "run_with"]

AIRFLOW = "https://airflow.example.com"
PEOPLE = ["ada@example.com", "bob@example.com"]
DEADLINE = {
    "dag_run": {
        "dag_id": "orders", "dag_run_id": "scheduled__2026-01-31T06:00:00+00:00", "state": "running",
        "logical_date": "2026-01-31T06:00:00Z", "run_after": "2026-01-31T07:00:00Z",
    },
    "deadline": {"id": "0199", "deadline_time": datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    monkeypatch.setenv("AIRFLOW__EMAIL__FROM_EMAIL", "Airflow <news@example.com>")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"{AIRFLOW}/")
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, logger="airflow_provider_mail.notifications.mail")


def notify(context: dict[str, Any], **arguments: Any) -> None:
    """Call a notifier as Airflow does."""
    MailNotifier(**{"to": "ada@example.com"} | arguments)(dict(context))


def bodies(emulator: Emulator) -> list[Any]:
    """What was sent, request by request, whatever became of it."""
    return [entry["body"] for entry in emulator.journal.entries(SENDS)]


def addressees(message: dict[str, Any]) -> list[str]:
    """To whom a message of the emulator's went."""
    return [person["email"] for person in message["recipients"]]
