"""The Airflow of all end-to-end tests: started when the first of them runs, with every DAG in it."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.airflow import RunningAirflow, SqliteFile
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT
from tests.support.postgres import Database, PostgresServer
from tests.support.statsd import StatsdServer, statsd_server

DAGS = ROOT / "tests" / "real" / "airflow" / "dags"
YESTERDAY = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
HURRY = {"mail_on_campaign_sent": ("poke_interval=30", "poke_interval=1")}
"""The example that a test waits for polls every second."""
SETTINGS = {
    # A test looks for secrets in all that Airflow can log.
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
    # Of the connection form.
    "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
    # The connection exists where a test needs it.
    "AIRFLOW__MAIL__INBOX_CONN_ID": "pushes",
    "AIRFLOW__MAIL__PAGE_CONN_ID": "page_warehouse",
    "AIRFLOW__EMAIL__EMAIL_BACKEND": "airflow_provider_mail.utils.emailer.send_email",
    "AIRFLOW__EMAIL__FROM_EMAIL": "Airflow <news@example.com>",
    # Airflow's own are many, and nobody reads them here.
    "AIRFLOW__METRICS__METRICS_ALLOW_LIST": r"^mail\.",
}
PARALLELISM = 8
ON_SQLITE = os.environ.get("MAIL_TEST_METADATA") == "sqlite"
"""Whether Airflow's own tables are in a file, as `make test-sqlite` has it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of them waits for the start, and each for a machine that may be busy."""
    for item in items:
        if "airflow" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def statsd() -> Iterator[StatsdServer]:
    """Where the running Airflow sends the provider's metrics."""
    with statsd_server() as server:
        yield server


@pytest.fixture(scope="session")
def one_airflow(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, statsd: StatsdServer
) -> Iterator[RunningAirflow]:
    """A running Airflow."""
    folder = tmp_path_factory.mktemp("dags")
    home = tmp_path_factory.mktemp("airflow")
    copy_dags(folder)
    settings = SETTINGS | statsd.settings
    if AIRFLOW_VERSION < (3, 3):  # the default of 3.0 cannot be rendered
        template = folder / "failed.html"
        template.write_text("<p>{{ ti.task_id }}: {{ exception_html }}</p>")
        settings["AIRFLOW__EMAIL__HTML_CONTENT_TEMPLATE"] = str(template)
    metadata: contextlib.AbstractContextManager[Database | SqliteFile]
    if ON_SQLITE:
        metadata = contextlib.nullcontext(SqliteFile(home.with_name(f"{home.name}.db")))
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        metadata = server.database()
    with (
        metadata as database,
        RunningAirflow(
            home, database=database, dags_folder=folder, extra_env=settings, parallelism=PARALLELISM
        ) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def airflow(one_airflow: RunningAirflow) -> Iterator[RunningAirflow]:
    """The running Airflow, in which nothing runs; set the connections and variables that your DAGs need."""
    yield one_airflow
    one_airflow.clean_up()


def copy_dags(folder: Path) -> None:
    """The tests' DAGs and all examples."""
    for path in DAGS.glob("*.py"):
        shutil.copy(path, folder)
    for path in (ROOT / "example_dags").glob("mail_*.py"):
        code = path.read_text()
        old, new = HURRY.get(path.stem, ("", ""))
        assert old in code, path.name
        (folder / path.name).write_text(code.replace(old, new))
