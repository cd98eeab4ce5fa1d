"""Fixtures for every test: an Airflow in this process, a Postgres server, a MariaDB server."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import dags, mariadb, sampling  # its profile, before the tests, which take it over
from tests.support.clock import Clock, StillClock
from tests.support.env import ROOT
from tests.support.postgres import Database, PostgresServer

UNIT_FOLDERS = ("api", "document", "emulator", "hooks", "warehouse")
SERVERS = {"airflow_home", "mariadb_server", "postgres_server"}
"""Fixtures that start a server or make a database of Airflow's."""
OTHER_TIERS = ("browser", "e2e", "not_unit", "slow")
"""Markers of tests that do so without these fixtures in their signature, or that take long."""


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples when only the unit tests are wanted."""
    if config.getoption("markexpr") == "unit" and not sampling.EVERYTHING:
        settings.load_profile("few")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for no garbage among what is imported: it stays, and looking takes a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if not hasattr(session.config, "workerinput"):
            atexit.register(gc.unfreeze)  # else libraries take for a leak what is left at the end


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has no unit tests, when those alone are wanted: importing it takes longer than running them."""
    is_other = collection_path.parent == ROOT / "tests" and collection_path.name not in UNIT_FOLDERS
    return True if is_other and config.getoption("markexpr") == "unit" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need no server and no database of Airflow's with `unit`.

    Of a test that runs with both clients it is the one for threads: they share all but transport and pauses.
    """
    folders = {ROOT / "tests" / name for name in UNIT_FOLDERS}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        other_tier = any(item.get_closest_marker(name) for name in OTHER_TIERS)
        second_client = "async" in getattr(getattr(item, "callspec", None), "params", {}).values()
        if item.path.parent in folders and SERVERS.isdisjoint(fixtures) and not other_tier and not second_client:
            item.add_marker("unit")


def _no_unit(config: pytest.Config) -> None:
    """Fail the test that got into `make test-unit` and asks for a server while it runs."""
    if config.getoption("markexpr") == "unit":
        pytest.fail("a test that starts a server without naming its fixture has to be marked `not_unit`")


@pytest.fixture(autouse=True)
def _no_earlier_runs() -> None:
    """No task has run before the test."""
    if tries := sys.modules.get("tests.support.tries"):
        tries.TaskInstance.earlier.clear()


@pytest.fixture(autouse=True)
def _process_context() -> Iterator[None]:
    """Undo what a command or a server leaves behind: it marks its process as one of Airflow's servers."""
    yield
    os.environ.pop("_AIRFLOW_PROCESS_CONTEXT", None)


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Time passes at once: see `tests.support.clock`."""
    clock = Clock()
    with clock.installed():
        yield clock


@pytest.fixture
def still_clock() -> Iterator[StillClock]:
    """Time stands still until the test moves it."""
    clock = StillClock()
    with clock.installed():
        yield clock


@pytest.fixture(scope="session")
def airflow_home(request: pytest.FixtureRequest) -> Path:
    """The home of this process's Airflow, with a migrated SQLite database in it."""
    _no_unit(request.config)
    home = Path(os.environ["AIRFLOW_HOME"])
    cache = getattr(request.config, "cache", None)  # not there with `-p no:cacheprovider`
    dags.migrate(home / "airflow.db", cache.mkdir("airflow-db") if cache else home)
    return home


@pytest.fixture
def run_dag(airflow_home: Path) -> Callable[..., dags.RunResult]:
    """`dags.run_dag`: run a DAG object in this process and get what came of it."""
    return dags.run_dag


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A Postgres of our own, on a socket, for as long as the tests run."""
    _no_unit(request.config)
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
def mariadb_server(request: pytest.FixtureRequest) -> Iterator[mariadb.MariaServer]:
    """A MariaDB of our own, on a socket, for as long as the tests run; without one they are skipped, but not in CI."""
    _no_unit(request.config)
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
