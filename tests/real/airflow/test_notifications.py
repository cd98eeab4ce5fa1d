"""Airflow's own mail in a real Airflow: each way leaves one readable message, and none of them harms a task."""

from __future__ import annotations

from typing import Any

import pytest

from mail_emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until


def only_message(emulator: Emulator, recipient: str) -> dict[str, Any]:
    """The one message to somebody."""
    address = f"{recipient}@example.com"
    wait_until(lambda: emulator.messages(recipient=address), what=f"a message to {address}")
    (message,) = emulator.messages(recipient=address)
    return message


@pytest.mark.ci
def test_a_task_and_its_run_fail(airflow: RunningAirflow, emulator: Emulator) -> None:
    run_id = airflow.start_run("callback")
    assert airflow.wait_for_run("callback", run_id) == "failed"
    message = only_message(emulator, "task")
    assert message["subject"] == "Failed: callback.fail"
    assert only_message(emulator, "run")["subject"] == "Run failed: callback"
    assert "task@example.com" not in airflow.wait_for_log("callback", run_id, "fail", "ValueError")

    assert "ValueError: table &lt;orders&gt; is missing, tell ***@example.com" in message["content"]
    assert run_id in message["content"]
    assert f'href="{airflow.base_url}/dags/callback/runs/' in message["content"]


def test_a_task_fails_in_the_triggerer(airflow: RunningAirflow, emulator: Emulator) -> None:
    """Then the dag-processor calls the notifier, and knows less."""
    run_id = airflow.start_run("triggerer")
    assert airflow.wait_for_run("triggerer", run_id) == "failed"
    message = only_message(emulator, "triggerer")
    assert (message["subject"], message["sender_name"]) == ("Failed: triggerer.wait", "Airflow")
    assert run_id in message["content"]


@pytest.mark.skipif(AIRFLOW_VERSION == (3, 2), reason="Airflow 3.2 mails with SMTP, whatever the setting")
def test_email_backend(airflow: RunningAirflow, emulator: Emulator) -> None:
    assert airflow.wait_for_run("backend", airflow.start_run("backend")) == "failed"
    message = only_message(emulator, "backend")
    assert message["subject"].startswith("Airflow alert: ")
    assert "fail" in message["subject"]
    assert "table &lt;orders&gt; is missing" in message["content"].replace("<orders>", "&lt;orders&gt;")


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 2), reason="deadlines came with Airflow 3.2")
@pytest.mark.parametrize("name", ["late_async", "late_sync"])
def test_a_missed_deadline(airflow: RunningAirflow, emulator: Emulator, name: str) -> None:
    run_id = airflow.start_run(name)
    message = only_message(emulator, name)
    assert message["subject"] == f"Late: {name}"
    assert "Deadline missed" in message["content"]
    assert run_id in message["content"]
    airflow.set_variable(f"end_{name}", "now")
    assert airflow.wait_for_run(name, run_id) == "success"


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 1), reason="people are asked from Airflow 3.1 on")
def test_a_decision(airflow: RunningAirflow, emulator: Emulator) -> None:
    run_id = airflow.start_run("decision")
    message = only_message(emulator, "decision")
    assert message["subject"] == "Decision needed: Send it?"
    assert f"{airflow.base_url}/dags/decision/runs/" in message["content"]
    assert "/tasks/approve/required_actions" in message["content"]
    assert airflow.task("decision", run_id, "approve")["state"] not in ("failed", "success")
