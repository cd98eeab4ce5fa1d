"""What people want at two in the morning, in words and with an exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.client import EmulatorClient
from tests.cli.conftest import Command
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT
from tests.tasks.waiting import answered, as_soon_as


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_campaign("spring", state="done", sent=500, send_date="2026-03-01T08:00:00Z")
    emulator.add_campaign("summer", state="done", sent=700, send_date="2026-06-01T08:00:00Z")
    emulator.add_campaign("spring draft", state="draft")
    emulator.add_campaign("other", state="sending", send_date="2026-06-02T08:00:00Z")
    return emulator


def test_check(command: Command) -> None:
    said = command("check")
    assert (said.status, said.err) == (0, "")
    assert "accepts the password (API key)" in said.out


def test_check_says_what_is_wrong(command: Command) -> None:
    said = command("check", "--conn-id", "mail_bad")
    assert (said.status, said.out) == (1, "")
    assert "rejects the password (API key)" in said.err


@pytest.mark.parametrize("arguments", [("check",), ("campaigns",), ("campaign", "spring")])
def test_a_connection_that_is_not_there(command: Command, arguments: tuple[str, ...]) -> None:
    said = command(*arguments, "-c", "nowhere")
    assert (said.status, said.out) == (1, "")
    assert "nowhere" in said.err
    assert "Traceback" not in said.err


def test_campaigns_newest_first(command: Command, service: Emulator) -> None:
    said = command("campaigns", "-o", "json")
    # The draft is from today.
    assert [row["mail_name"] for row in said.rows] == ["spring draft", "other", "summer", "spring"]
    summer = said.rows[2]
    known = {key: summer[key] for key in ("mail_name", "mail_status", "status", "send_time", "sent_count")}
    assert known == {
        "mail_name": "summer",
        "mail_status": 2,
        "status": "complete",
        "send_time": "2026-06-01T08:00:00+00:00",
        "sent_count": 700,
    }
    assert all(isinstance(count, int) for key, count in summer.items() if key.endswith("_count"))
    assert said.rows[0]["sent_count"] is None
    assert yaml.safe_load(command("campaigns", "-o", "yaml").out) == said.rows
    table = command("campaigns").out
    assert "summer" in table
    assert "complete (2)" in table
    assert "2026-06-01 08:00:00 UTC" in table


def test_some_campaigns(command: Command, service: Emulator) -> None:
    assert {row["mail_name"] for row in command("campaigns", "--name", "spring", "-o", "json").rows} == {
        "spring",
        "spring draft",
    }
    assert [row["mail_name"] for row in command("campaigns", "--status", "sending", "-o", "json").rows] == ["other"]
    said = command("campaigns", "--limit", "1", "-o", "json")
    assert [row["mail_name"] for row in said.rows] == ["spring draft"]
    assert "The newest 1 of 4" in said.err
    assert "--limit" in command("campaigns", "--limit", "0").err


def test_one_campaign(command: Command, service: Emulator) -> None:
    row = command("campaign", "spring", "-o", "json").data
    assert (row["mail_name"], row["mail_status"], row["sent_count"]) == ("spring", 2, 500)
    assert row in command("campaigns", "-o", "json").rows, "the same object in both"
    assert row["send_list_names"] == []
    assert "500" in command("campaign", "spring").out
    said = command("campaign", "sprin")
    assert (said.status, said.err) == (1, "There is no campaign 'sprin'.\n")


def test_watching_one(command: Command, service: Emulator) -> None:
    service.plan_campaign("other", looks=3)
    said = command("campaign", "other", "--watch", "--interval", "0.05", "-o", "json")
    assert said.status == 0
    assert said.data["status"] == "complete"
    assert "sending (mailStatus 1)" in said.err
    assert "was sent" in said.err


def test_watching_one_that_fails(command: Command, service: Emulator) -> None:
    gets = "campaign/mail/get"
    with as_soon_as(lambda: answered(service, gets) > 2, lambda: service.set_campaign_state("other", "failed")):
        said = command("campaign", "other", "--watch", "--interval", "0.05")
    assert (said.status, said.out) == (1, "")
    assert "sending failed (mailStatus 4)" in said.err


def test_the_emulator(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "airflow_provider_mail", "emulator", "--port", "0", "--api-key", "key-4711"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        try:
            assert EmulatorClient(address).api_key == "key-4711"
        finally:
            process.terminate()
            process.communicate()
    assert process.returncode == 0


def test_the_settings_of_the_emulator(command: Command) -> None:
    said = command("emulator", "--list-settings")
    assert (said.status, said.err) == (0, "")
    assert "sending_seconds=5.0\n    Virtual seconds" in said.out


def test_a_wrong_port_of_the_emulator(command: Command) -> None:
    said = command("emulator", "--port", "99999")
    assert said.status == 2
    assert "'99999' is not a port" in said.err


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 2), reason="Airflow has no commands of providers before 3.2")
def test_as_commands_of_airflow(emulator: Emulator, airflow_home: Path) -> None:
    connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    airflow = Path(sys.executable).with_name("airflow")
    done = subprocess.run(
        [airflow, "mail", "check"],
        env={**os.environ, "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(connection)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "accepts the password (API key)" in done.stdout
