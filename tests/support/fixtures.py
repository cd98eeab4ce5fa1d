"""Fixtures for every test: an Airflow in this process, a Postgres server, a MariaDB server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import dags, mariadb
from tests.support.postgres import Database, PostgresServer


@pytest.fixture(scope="session")
def airflow_home(request: pytest.FixtureRequest) -> Path:
    """The home of this process's Airflow, with a migrated SQLite database in it."""
    home = Path(os.environ["AIRFLOW_HOME"])
    cache = getattr(request.config, "cache", None)  # not there with `-p no:cacheprovider`
    dags.migrate(home / "airflow.db", cache.mkdir("airflow-db") if cache else home)
    return home


@pytest.fixture
def run_dag(airflow_home: Path) -> Callable[..., dags.RunResult]:
    """`dags.run_dag`: run a DAG object in this process and get what came of it."""
    return dags.run_dag


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A Postgres of our own, on a socket, for as long as the tests run."""
    # Not below pytest's own temporary folder: each session that starts closes that to other users, and Postgres, which
    # refuses to run as root, is one.
    with (
        tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder,
        PostgresServer(Path(folder) / "data") as server,
    ):
        yield server


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[Database]:
    """An empty database, dropped afterwards."""
    with postgres_server.database() as database:
        yield database


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[mariadb.MariaServer]:
    """A MariaDB of our own, on a socket, for as long as the tests run; without one they are skipped, but not in CI."""
    if missing := mariadb.why_not():
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    # Not below pytest's own temporary folder, whose name is longer than the address of a socket can be.
    with (
        tempfile.TemporaryDirectory(prefix="mariadb-", ignore_cleanup_errors=True) as folder,
        mariadb.MariaServer(Path(folder)) as server,
    ):
        yield server
