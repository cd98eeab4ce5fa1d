"""The source for dlt: the tables of the operators, in the destinations of dlt."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dlt
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed

from airflow_provider_mail import dlt_source
from airflow_provider_mail.api import AddTemplate, DeleteTemplate, MailClient, MailError
from airflow_provider_mail.dlt_source import mail_source
from mail_emulator import Emulator
from tests.tasks.conftest import Run, SqlDatabase
from tests.tasks.dlt_loads import (  # noqa: F401 - some are fixtures
    IGNORED,
    START,
    TABLES,
    TODAY,
    Duck,
    by_operators,
    dlt_client,
    dlt_duck,
    dlt_settings,
    fill,
    noon,
    rows_of,
)
from tests.tasks.loading import delete, windows
from tests.tasks.test_example_dags import example

pytestmark = pytest.mark.filterwarnings(*IGNORED)
DAY = datetime.timedelta(days=1)


def load(duck: Duck, client: MailClient, **options: Any) -> None:
    duck.pipeline.run(mail_source(client, **{"start_day": START, **options}))


@pytest.mark.parametrize("arrow", [False, True])
def test_the_tables_equal_those_of_the_operators(
    run: Run, emulator: Emulator, client: MailClient, make_database: Callable[[str, str], SqlDatabase],
    tmp_path: Path, arrow: bool,
) -> None:  # fmt: skip
    fill(emulator)
    warehouse = make_database("postgres", "warehouse")
    connection = warehouse.hook.get_connection("warehouse")
    host = quote(connection.host, safe="")
    to: Any = dlt.destinations.postgres(f"postgresql://{connection.login}:unused@{host}/{connection.schema}")
    by_operators(run)
    pipeline = dlt.pipeline("mail", pipelines_dir=str(tmp_path), destination=to, dataset_name="by_dlt")
    options: dict[str, Any] = {"contact_lists": "all", "snapshots": True, "arrow": arrow}
    pipeline.run(mail_source(client, start_day=START, end_day=TODAY, **options))
    for name, table in TABLES.items():
        assert rows_of(warehouse.query, f"by_dlt.{name}", table) == rows_of(warehouse.query, name, table) != []


def test_a_part_that_is_read_whole_replaces_its_rows(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_list("newsletter", count=3)
    emulator.add_list("customers", count=2)
    emulator.add_template("welcome", subject="Hello", content="<p>Hello</p>")
    load(duck, client, contact_lists="all")
    lists = "SELECT list_name, count(*) FROM mail_contacts GROUP BY ALL ORDER BY ALL"
    assert duck.query(lists) == [("customers", 2), ("newsletter", 3)]

    client.send(DeleteTemplate(template_name="welcome"))
    delete(emulator, *emulator.contacts("newsletter"))
    load(duck, client, contact_lists=["newsletter"])

    assert duck.query(lists) == [("customers", 2)]  # a list that was not read keeps its rows, an empty one has none
    assert duck.query("SELECT * FROM mail_templates") == []
    client.send(AddTemplate(template_name="new", template_content="<p>x</p>", template_subject="x"))
    load(duck, client)
    assert duck.query("SELECT template_name FROM mail_templates") == [("new",)]


def test_a_later_run_begins_before_the_last_day(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_campaigns(41, first_day=START)
    emulator.clock.freeze()  # opens arrive with time
    load(duck, client, lookback_days=3)
    stats = "SELECT mail_name, open_count FROM mail_campaign_stats ORDER BY 1"
    before, state = duck.query(stats), duck.pipeline.state["sources"]
    emulator.journal.clear()
    emulator.add_campaign("spring", state="done")
    emulator.set_campaign_stats("spring", openCount=7)
    load(duck, client, lookback_days=3)
    assert set(windows(emulator)) == {(f"{TODAY - 3 * DAY}", f"{TODAY}")}
    assert duck.query(stats) == [*before, ("spring", 7)]
    # A backfill neither uses nor changes the state.
    load(duck, client, end_day=START + DAY)
    assert windows(emulator)[-1] == (f"{START}", f"{START + DAY}")
    assert duck.pipeline.state["sources"] == state


def test_an_incomplete_response_loads_nothing(emulator: Emulator, client: MailClient, duck: Duck) -> None:
    emulator.add_campaigns(30, first_day=START)
    emulator.faults.add("short_stats", "campaign/mail/stats/get", count=None)
    with pytest.raises(PipelineStepFailed) as failure:
        load(duck, client)
    cause: Any = failure.value.__cause__
    assert isinstance(cause.__cause__, MailError)
    assert "sources" not in duck.pipeline.state
    emulator.faults.clear()
    with pytest.raises(PipelineStepFailed, match="there is no list 'unknown'"):
        load(duck, client, contact_lists=["unknown"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"end_day": START - DAY}, "end_day"),
        ({"lookback_days": -1}, "lookback_days"),
        ({"contact_lists": "newsletter"}, "contact_lists"),
        ({"arrow": True}, r"arrow: needs pyarrow: pip install .*\[parquet\]"),
    ],
)
def test_wrong_arguments(
    client: MailClient, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(dlt_source, "find_spec", lambda name: None)
    with pytest.raises(MailError, match=words):
        mail_source(client, **{"start_day": START, **arguments})


def test_the_example(run: Run, emulator: Emulator, duck: Duck, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(emulator, contacts=10)
    monkeypatch.setenv("DESTINATION__DUCKDB__CREDENTIALS", duck.file)
    assert run(example("mail_dlt")).result.state == "success"
    # Of the last 30 days.
    assert duck.query("SELECT count(*) FROM mail_transactional_stats") == [(31,)]
    assert duck.query("SELECT count(*) FROM mail_campaign_stats") == [(40,)]
