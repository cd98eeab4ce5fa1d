"""Fixtures of the tests in a real Airflow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mail_emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.postgres import Database, PostgresServer


@pytest.fixture(scope="module")
def emulator(airflow: RunningAirflow) -> Iterator[Emulator]:
    """The email service with a verified sender, at the other end of the connection `mail_default`."""
    with Emulator() as emulator:
        emulator.add_sender("news@example.com")
        airflow.set_mail_connection("mail_default", emulator)
        yield emulator
        assert emulator.crashes() == []


@pytest.fixture(scope="module")
def warehouse(airflow: RunningAirflow, postgres_server: PostgresServer) -> Iterator[Database]:
    """An empty Postgres to load statistics into, at the other end of the connection of that name."""
    with postgres_server.database() as database:
        airflow.set_connection("warehouse", database.airflow_connection)
        yield database
