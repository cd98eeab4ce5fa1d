"""A hold that is set while eight workers create campaigns, in a real Airflow with its own database."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from mail_emulator import EmulatorProcess
from tests.support.airflow import RunningAirflow
from tests.support.processes import wait_until

CREATES = "campaign/mail/sends"


@pytest.fixture
def service() -> Iterator[EmulatorProcess]:
    with EmulatorProcess() as service:
        service.add_sender("news@example.com")
        service.add_list("everybody", ["ida@example.com"])
        yield service


def mail(airflow: RunningAirflow, *arguments: str) -> str:
    """Run a command, as on a machine of this Airflow; return what it prints."""
    command = [sys.executable, "-m", "airflow_provider_mail", *arguments]
    quiet = airflow.environment | {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_created_after_the_command_returned(airflow: RunningAirflow, service: EmulatorProcess) -> None:
    airflow.set_mail_connection("mail_default", service)
    # Each request takes a second, so that the hold is set while some are under way.
    service.change_settings(latency_seconds=1.0)
    run_id = airflow.start_run("hold")
    wait_until(lambda: service.journal.count(CREATES) > 8, what="campaigns")
    try:
        said = mail(airflow, "stop", "--all-scheduled", "--hold", "--reason", "wrong price", "-o", "json")
        returned_at = time.time()
        assert airflow.wait_for_run("hold", run_id) == "failed"
    finally:
        mail(airflow, "release")

    result = json.loads(said)
    arrivals = [entry["real_ms"] / 1000 for entry in service.journal.entries(CREATES)]
    assert max(arrivals) < returned_at
    states = {found["mailName"]: found["state"] for found in service.campaigns()}
    assert (len(states), result["not_stopped"]) == (len(arrivals), {})
    assert sorted(result["stopped"]) == sorted(states)
    assert "scheduled" not in states.values()
    ended = [ti["state"] for ti in airflow.tasks("hold", run_id).values()]
    assert (ended.count("success"), ended.count("failed")) == (len(arrivals), len(ended) - len(arrivals))
