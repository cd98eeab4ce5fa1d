"""Inboxes in the databases that can hold one, and receivers that fill them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_mail.webhook.inbox import Inbox
from tests.support.postgres import PostgresServer
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)
from tests.webhook.running import RunningReceiver


@pytest.fixture(params=["sqlite", "psycopg3", "psycopg2"])
def inbox(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Inbox:  # noqa: F811
    """An empty inbox."""
    made = Inbox(make_warehouse(request.param).hook)
    made.create()
    return made


def sqlite_connection(path: Path) -> str:
    """In the spelling of ``AIRFLOW_CONN_...``."""
    return json.dumps({"conn_type": "sqlite", "host": str(path)})


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def receiver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningReceiver]:
    """A receiver that runs, with an inbox in SQLite or Postgres; what earlier tests pushed is in it."""
    folder = tmp_path_factory.mktemp("receiver")
    if request.param == "sqlite":
        with RunningReceiver(folder, sqlite_connection(folder / "inbox.db")) as running:
            yield running
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with server.database() as database, RunningReceiver(folder, database.airflow_connection) as running:
            yield running
