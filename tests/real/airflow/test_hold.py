"""A hold that is set while eight workers create campaigns, send batches and import, in a real Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from mail_emulator import EmulatorProcess
from tests.support.airflow import RunningAirflow
from tests.support.processes import wait_until

CREATES = "campaign/mail/sends"
WRITES = (CREATES, "transactional/mail/sends_customised", "contacts/imports")


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


def test_nothing_is_written_after_the_command_returned(airflow: RunningAirflow, service: EmulatorProcess) -> None:
    airflow.set_mail_connection("mail_default", service)
    # Each request takes a second, so that the hold is set while some are under way.
    service.change_settings(latency_seconds=1.0)
    run_id = airflow.start_run("hold")
    wait_until(lambda: all(service.journal.count(path) > 8 for path in WRITES), what="requests of each kind")
    try:
        said = mail(airflow, "stop", "--all-scheduled", "--hold", "--reason", "wrong price", "-o", "json")
        returned_at = time.time()
        assert airflow.wait_for_run("hold", run_id) == "failed"
    finally:
        mail(airflow, "release")

    result = json.loads(said)
    written = {path: service.journal.entries(path) for path in WRITES}
    assert max(entry["real_ms"] / 1000 for entries in written.values() for entry in entries) < returned_at
    states = {found["mailName"]: found["state"] for found in service.campaigns()}
    assert (len(states), result["not_stopped"]) == (len(written[CREATES]), {})
    assert sorted(result["stopped"]) == sorted(states)
    assert "scheduled" not in states.values()
    ended = Counter((key[0], ti["state"]) for key, ti in airflow.tasks("hold", run_id).items())
    assert (ended["task", "success"], ended["task", "failed"]) == (len(states), 40 - len(states))
    assert {state for _, state in ended} == {"success", "failed"}
