"""The commands as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mail_emulator import Emulator
from mail_emulator.client import EmulatorClient
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT


def test_the_emulator_runs_until_it_is_ended() -> None:
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


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 2), reason="Airflow has no commands of providers before 3.2")
def test_airflow_has_the_commands(emulator: Emulator, airflow_home: Path) -> None:
    connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    done = subprocess.run(
        [Path(sys.executable).with_name("airflow"), "mail", "check"],
        env={**os.environ, "AIRFLOW_CONN_MAIL_DEFAULT": json.dumps(connection)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "accepts the password (API key)" in done.stdout
