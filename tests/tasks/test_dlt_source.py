"""The source for dlt: the tables of the operators, in the destinations of dlt."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dlt
import duckdb
import pytest
from dlt.common.pipeline import LoadInfo
from dlt.pipeline.exceptions import PipelineStepFailed
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail import dlt_source
from airflow_provider_mail.api import AddTemplate, ClientConfig, DeleteContact, DeleteTemplate, MailClient, MailError
from airflow_provider_mail.dlt_source import mail_source
from airflow_provider_mail.emulator import Emulator
from tests.tasks.conftest import Run, SqlDatabase
from tests.tasks.dlt_loads import START, TABLES, TODAY, by_operators, fill, rows_of
from tests.tasks.test_example_dags import example

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def _settings(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither dlt's settings of this machine, nor what it reports home; and Airflow's database, in which it looks."""
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")


@pytest.fixture
def client(emulator: Emulator) -> Iterator[MailClient]:
    with MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)) as client:
        yield client


class Duck:
    """A pipeline into a DuckDB."""

    def __init__(self, folder: Path) -> None:
        self.file = str(folder / "warehouse.duckdb")
        self.pipeline = dlt.pipeline(
            "mail",
            pipelines_dir=str(folder),
            destination=dlt.destinations.duckdb(self.file),
            dataset_name="mail_service",
        )

    def load(self, client: MailClient, **options: Any) -> LoadInfo:
        return self.pipeline.run(mail_source(client, **{"start_day": START, **options}))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(duckdb.connect(self.file)) as connection:
            return connection.execute(sql.replace("FROM ", "FROM mail_service.")).fetchall()


@pytest.fixture
def duck(tmp_path: Path) -> Duck:
    return Duck(tmp_path)


@pytest.mark.parametrize(("kind", "arrow"), [("postgres", False), ("postgres", True), ("duckdb", True)])
def test_the_tables_equal_those_of_the_operators(
    request: pytest.FixtureRequest,
    run: Run,
    emulator: Emulator,
    client: MailClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    arrow: bool,
) -> None:
    fill(emulator)
    if kind == "postgres":
        warehouse: SqlDatabase = request.getfixturevalue("make_database")("postgres", "warehouse")
        connection = warehouse.hook.get_connection("warehouse")
        destination: Any = dlt.destinations.postgres(
            f"postgresql://{connection.login}:unused@{quote(connection.host, safe='')}/{connection.schema}"
        )
    else:
        file = str(tmp_path / "warehouse.duckdb")
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "duckdb", "host": file}))
        warehouse = SqlDatabase("warehouse", DuckDBHook("warehouse"))
        destination = dlt.destinations.duckdb(file)
    by_operators(run)
    pipeline = dlt.pipeline("mail", pipelines_dir=str(tmp_path), destination=destination, dataset_name="by_dlt")

    pipeline.run(
        mail_source(client, start_day=START, end_day=TODAY, contact_lists="all", snapshots=True, arrow=arrow),
    )

    for name, table in TABLES.items():
        assert rows_of(warehouse.query, f"by_dlt.{name}", table) == rows_of(warehouse.query, name, table) != []


def test_what_was_read_whole_replaces_what_was_there(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_list("newsletter", count=3)
    emulator.add_list("customers", count=2)
    emulator.add_template("welcome", subject="Hello", content="<p>Hello</p>")
    duck.load(client, contact_lists="all")
    lists = "SELECT list_name, count(*) FROM mail_contacts GROUP BY ALL ORDER BY ALL"
    assert duck.query(lists) == [("customers", 2), ("newsletter", 3)]

    client.send(DeleteTemplate(template_name="welcome"))
    for contact in emulator.contacts("newsletter"):
        client.send(DeleteContact(email=contact["email"]))
    duck.load(client, contact_lists=["newsletter"])

    assert duck.query(lists) == [("customers", 2)]  # a list that was not read keeps its rows, an empty one has none
    assert duck.query("SELECT * FROM mail_templates") == []
    client.send(AddTemplate(template_name="new", template_content="<p>x</p>", template_subject="x"))
    duck.load(client)
    assert duck.query("SELECT template_name FROM mail_templates") == [("new",)]


def test_rows_that_are_gone_stay_if_they_should(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_list("newsletter", count=2)
    emulator.add_list("customers", count=1)
    counts = "SELECT list_name, count(*), count(is_removed) FROM mail_contacts GROUP BY ALL ORDER BY ALL"
    duck.load(client, contact_lists="all", keep_gone=True)
    for contact in emulator.contacts("newsletter"):
        client.send(DeleteContact(email=contact["email"]))

    duck.load(client, contact_lists="all", keep_gone=True)

    assert duck.query(counts) == [("customers", 1, 0), ("newsletter", 3, 1)]  # one says that the list is empty
    duck.load(client, contact_lists="all")
    assert duck.query(counts) == [("customers", 1, 0)]


def test_a_later_run_begins_before_the_last_day(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_campaigns(41, first_day=START)
    today = datetime.datetime.now(datetime.UTC).date()
    duck.load(client, lookback_days=3)
    emulator.journal.clear()
    stats = "SELECT mail_name, open_count FROM mail_campaign_stats ORDER BY 1"
    before = duck.query(stats)
    emulator.add_campaign("spring", state="done")
    emulator.set_campaign_stats("spring", openCount=7)

    duck.load(client, lookback_days=3)

    windows = {
        (e["body"]["startDate"], e["body"]["endDate"]) for e in emulator.journal.entries("campaign/mail/stats/get")
    }
    assert windows == {(f"{today - datetime.timedelta(days=3)}", f"{today}")}
    assert duck.query(stats) == [*before, ("spring", 7)]


def test_a_backfill_leaves_the_state_alone(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_campaigns(3, first_day=START)

    duck.load(client, end_day=START + datetime.timedelta(days=1))

    assert duck.query("SELECT count(*) FROM mail_campaign_stats") == [(2,)]
    assert "last_day" not in str(duck.pipeline.state)


def test_an_incomplete_response_loads_nothing(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_campaigns(30, first_day=START)
    emulator.faults.add("short_stats", "campaign/mail/stats/get", count=None)

    with pytest.raises(PipelineStepFailed) as failure:
        duck.load(client)

    assert isinstance(failure.value.__cause__.__cause__, MailError)
    assert "sources" not in duck.pipeline.state


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"end_day": START - datetime.timedelta(days=1)}, "end_day"),
        ({"lookback_days": -1}, "lookback_days"),
        ({"contact_lists": "newsletter"}, "contact_lists"),
    ],
)
def test_arguments_are_checked_first(client: MailClient, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(MailError, match=named):
        mail_source(client, **{"start_day": START, **arguments})


def test_columns_need_pyarrow(client: MailClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlt_source, "find_spec", lambda name: None)
    with pytest.raises(MailError, match=r"arrow: needs pyarrow: pip install .*\[parquet\]"):
        mail_source(client, start_day=START, arrow=True)


def test_a_list_that_does_not_exist(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    with pytest.raises(PipelineStepFailed, match="there is no list 'nobody'"):
        duck.load(client, contact_lists=["nobody"])


def test_the_example(run_in_airflow: Run, emulator: Emulator, duck: Duck, monkeypatch: pytest.MonkeyPatch) -> None:
    # The example reads 30 days back from now, which may be the day after this file was imported.
    fill(emulator, start=datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=40))
    monkeypatch.setenv("DESTINATION__DUCKDB__CREDENTIALS", duck.file)

    assert run_in_airflow(example("mail_dlt")).state == "success"

    assert duck.query("SELECT count(*) FROM mail_campaign_stats") == [(40,)]
    assert duck.query("SELECT count(*) FROM mail_transactional_stats") == [(31,)]
