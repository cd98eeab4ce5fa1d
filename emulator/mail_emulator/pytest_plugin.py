"""The pytest fixture ``mail_emulator``: the service for one test, and the Airflow connection that leads to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mail_emulator.emulator import Emulator


def pytest_addoption(parser: pytest.Parser) -> None:
    meaning = "the Airflow connection that the fixture mail_emulator sets"
    parser.addini("mail_emulator_conn_id", meaning, default="mail_default")


@pytest.fixture
def mail_emulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Serve the email service, empty and in memory, until the test ends.

    Airflow reads the connection ``mail_default`` from the environment variable that this fixture sets; the option
    ``mail_emulator_conn_id`` of pytest's configuration names another one. The test fails if the emulator itself did.
    """
    from mail_emulator.emulator import Emulator

    with Emulator() as emulator:
        connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
        name = request.config.getini("mail_emulator_conn_id")
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
        yield emulator
        crashes = emulator.crashes()
    assert not crashes, crashes[0]
