"""Fixtures of the tests in a real Airflow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import Database, PostgresServer


@pytest.fixture(scope="module")
def warehouse(postgres_server: PostgresServer) -> Iterator[Database]:
    """An empty Postgres to load statistics into."""
    with postgres_server.database() as database:
        yield database
