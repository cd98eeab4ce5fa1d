"""The dbt package over tables that the operators loaded: it builds, its tests pass, and incremental equals full."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.postgres.hooks.postgres import PostgresHook
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
from airflow_provider_mail.webhook.inbox import Inbox
from docs import dbt
from mail_emulator import Emulator
from tests.machines.sixty_days import World
from tests.machines.sixty_marts import Marts, differences
from tests.machines.test_sixty_days import run as sixty_days
from tests.support.clock import Clock
from tests.support.env import ROOT
from tests.tasks.conftest import TASK, Connect, Done, Run, SqlDatabase
from tests.tasks.loading import load_task
from tests.warehouse.conftest import Warehouse
from tests.webhook.pushes import event, push, receive

PACKAGE = ROOT / "dbt"
DBT = ROOT / ".venv-dbt" / "bin" / "dbt"
UTC, DAY, HOUR = datetime.UTC, datetime.timedelta(days=1), datetime.timedelta(hours=1)
FIRST, LAST = datetime.date(2024, 3, 1), datetime.date(2024, 3, 10)
needs_dbt = pytest.mark.skipif("MAIL_TEST_DBT" not in os.environ, reason="make test-dbt runs it")


@pytest.fixture(autouse=True)
def _passing() -> None:
    """Time passes as it does for dbt and the databases: one that jumps would be ahead of theirs."""


def test_the_generated_models_are_current() -> None:
    for path, text in dbt.files().items():
        assert path.read_text() == text, "run: python docs/dbt.py"
    assert list(dbt.stale()) == []
    assert {f"mail_{path.name.partition('.')[0]}" for path in (ROOT / "docs" / "sql").iterdir()} == {
        path.stem for path in (PACKAGE / "models" / "questions").glob("*.sql")
    }


@dataclass
class Project:
    """A project of a user, whose only models are those of the package."""

    database: SqlDatabase
    folder: Path

    def run(self, *command: str, succeeds: bool = True, **variables: Any) -> str:
        """Run dbt; return what it printed."""
        variables = {"mail_tables": dbt.STAGED, **variables}
        settings = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_PARTIAL_PARSE": "false", "TZ": "Pacific/Auckland"}
        given = ["--no-use-colors", "--profiles-dir", self.folder, "--vars", json.dumps(variables)]
        options: dict[str, Any] = {"cwd": self.folder, "env": os.environ | settings}
        done = subprocess.run([DBT, *command, *given], check=False, capture_output=True, text=True, **options)
        assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
        return done.stdout

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return sorted(self.database.query(query), key=repr)

    def marts(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of the incremental models."""
        models = (path.stem for path in (PACKAGE / "models" / "marts").glob("*.sql"))
        return {model: self.rows(f"SELECT * FROM {model}") for model in models}


@pytest.fixture(params=["postgres", "duckdb"])
def project(
    request: pytest.FixtureRequest, make_database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Project:
    """An empty warehouse, and a profile for it."""
    if request.param == "duckdb":
        path = str(tmp_path / "warehouse.duckdb")
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "duckdb", "host": path}))
        database = SqlDatabase("warehouse", DuckDBHook("warehouse"))
        target: dict[str, Any] = {"type": "duckdb", "path": path}
    else:
        database = make_database("postgres", "warehouse")
        connection = database.hook.get_connection("warehouse")
        place = {"host": connection.host, "port": 5432, "dbname": connection.schema, "schema": "public"}
        target = {"type": "postgres", "user": connection.login, "password": "", **place}
    profiles = {"mail": {"target": "warehouse", "outputs": {"warehouse": {**target, "threads": 1}}}}
    (tmp_path / "profiles.yml").write_text(json.dumps(profiles))
    (tmp_path / "dbt_project.yml").write_text(json.dumps({"name": "crm", "version": "1.0", "profile": "mail"}))
    (tmp_path / "packages.yml").write_text(json.dumps({"packages": [{"local": str(PACKAGE)}]}))
    made = Project(database, tmp_path)
    made.run("deps")
    return made


def successful(done: Done) -> None:
    assert done.result.state == "success", done.log


def drain() -> MailEventsToSqlOperator:
    return MailEventsToSqlOperator(task_id=TASK, sql_conn_id="warehouse")


def daily(first: datetime.date = FIRST, last: datetime.date = LAST, **arguments: Any) -> Callable[[], None]:
    """The tasks of a daily DAG."""
    days = {"start_day": first.isoformat(), "end_day": last.isoformat()}

    def tasks() -> None:
        for table in ("mail_campaign_stats_snapshots", "mail_transactional_stats"):
            load_task(table, task_id=table, **days, **arguments)
        load_task("mail_campaigns", task_id="campaigns", **arguments)
        for name in ("newsletter", "partners"):
            load_task("mail_contacts", task_id=name, list_name=name, history=True, **arguments)

    return tasks


@needs_dbt
@pytest.mark.timeout(600)
def test_the_package_builds_and_incremental_equals_full(
    emulator: Emulator, project: Project, inbox: Inbox, connect: Connect, run: Run
) -> None:
    emulator.add_campaigns(40, first_day=FIRST, per_day=4)
    # More bounces than mails, which the service may count at different times.
    emulator.set_campaign_stats("campaign-000007", sentCount=5, hardBounce=8)
    for day in range(10):
        emulator.set_transactional_day(FIRST + day * DAY, sentCount=100 + day, openCount=day)
    emulator.add_list("newsletter", count=30)
    emulator.add_list("partners", [contact["email"] for contact in emulator.contacts("newsletter")[:7]])
    successful(run(daily()))
    connect("mail_other")
    successful(run(daily(mail_conn_id="mail_other")))
    for hour, events in enumerate([(event(1), event(2, "Bounced")), (event(6),)]):
        receive(inbox, [push(*events, at=datetime.datetime.now(UTC) - (2 - hour) * HOUR)])
        successful(run(drain))
    # One account, one campaign of the other, and all events were loaded when a clock was ten days ahead.
    loaded = "SET loaded_at = loaded_at + INTERVAL '10 days'"
    both = f"{loaded}, observed_at = observed_at + INTERVAL '10 days'"
    for table in ("mail_campaign_stats", "mail_campaign_stats_snapshots"):
        project.database.execute(f"UPDATE {table} {both} WHERE mail_conn_id = 'mail_other'")
    project.database.execute(f"UPDATE mail_campaign_stats {loaded} WHERE mail_name = 'campaign-000030'")
    project.database.execute(f"UPDATE mail_events {loaded}")

    built = project.run("build", mail_open_curve_name="campaign-000003")
    assert "ERROR=0" in built
    assert "WARN=0" in built
    first = project.marts()
    assert all(first.values())
    delivered = "SELECT DISTINCT delivered_count FROM mail_campaign_results WHERE mail_name = 'campaign-000007'"
    assert project.rows(delivered) == [(0,)]
    results = {question: project.rows(sql(question, project)) for question in questions()}
    assert results == {question: project.rows(f"SELECT * FROM mail_{question}") for question in questions()}
    assert results["open_curve"]
    assert results["open_rate_by_week"]

    # The next day: late opens of past days, a campaign is deleted, and this day is loaded twice.
    emulator.clock.advance(days=1)
    emulator.set_campaign_stats("campaign-000003", sentCount=500, openCount=200)
    emulator.set_campaign_stats("campaign-000009", sentCount=500, openCount=9)
    emulator.set_campaign_state("campaign-000010", "removed")
    successful(run(daily(FIRST + DAY)))
    emulator.set_campaign_stats("campaign-000009", sentCount=500, openCount=10)
    successful(run(daily(FIRST + DAY)))
    receive(inbox, [push(event(4), event(5, "Opened"), at=datetime.datetime.now(UTC))])
    successful(run(drain))
    project.run("build")
    incremental = project.marts()
    project.run("build", "--full-refresh")
    assert incremental == project.marts()
    assert all(incremental[model] != rows for model, rows in first.items())


def questions() -> list[str]:
    return [path.stem.removeprefix("mail_") for path in (PACKAGE / "models" / "questions").glob("*.sql")]


def sql(question: str, project: Project) -> str:
    """The question as the page has it."""
    kind = "postgres" if isinstance(project.database.hook, PostgresHook) else "duckdb"
    own = ROOT / "docs" / "sql" / f"{question}.{kind}.sql"
    text = (own if own.exists() else ROOT / "docs" / "sql" / f"{question}.sql").read_text()
    return text.replace("'spring-sale'", "'campaign-000003'")


@needs_dbt
@pytest.mark.timeout(3600)
def test_the_models_are_right_after_days_of_all_that_goes_wrong(
    project: Project, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every mart, built twice on the way, equals what is calculated by hand, and every question that of the page."""
    kind = "postgres" if isinstance(project.database.hook, PostgresHook) else "duckdb"
    warehouse = Warehouse({"postgres": "psycopg3"}.get(kind, kind), project.database.hook)

    def build(world: World) -> None:
        world.load_events()
        assert "ERROR=0" in project.run("build")

    days = int(os.environ.get("MAIL_TEST_DAYS", "12"))
    world = sixty_days(warehouse, clock, monkeypatch, tmp_path, days, seed=2, halfway=build)
    build(world)
    for question in {*questions()} - {"open_curve"}:
        assert project.rows(f"SELECT * FROM mail_{question}") == project.rows(sql(question, project)), question
    by_hand = Marts(world)
    key = "mail_conn_id, team_name, mail_name, mail_send_date"
    counts = "open_count, click_count, bounce_count, unsubscribe_count"
    for table, columns, expected in (
        ("mail_campaign_days", f"{key}, observed_day, day_before, sent_count, {counts}, new_sent, new_opens, "
         "new_clicks, new_bounces, new_unsubscribes", by_hand.campaign_days()),
        ("mail_campaign_results", f"{key}, sent_count, delivered_count, {counts}, open_rate, click_rate, bounce_rate, "
         "unsubscribe_rate, is_gone", by_hand.campaign_results()),
        ("mail_event_days", "mail_conn_id, event_day, event_code, guid, events, mails", by_hand.event_days()),
    ):  # fmt: skip
        assert not differences(project.database.query(f"SELECT {columns} FROM {table}"), expected), table


@needs_dbt
def test_freshness_is_that_of_the_last_load(emulator: Emulator, project: Project, connect: Connect, run: Run) -> None:
    connect("mail_other")
    emulator.add_campaigns(4, first_day=FIRST)
    emulator.set_transactional_day(FIRST, sentCount=1)
    for name in ("newsletter", "partners"):
        emulator.add_list(name, count=3)
    successful(run(daily()))
    tables = [table for table in dbt.STAGED if table != "mail_events"]
    assert "ERROR" not in project.run("source", "freshness", mail_tables=tables)
    # An account that was last read long ago is not hidden by one that is read each day.
    project.database.execute("UPDATE mail_loads SET observed_at = '2024-01-01'")
    for table in ("mail_campaign_stats", "mail_contacts", "mail_transactional_stats"):
        project.database.execute(f"UPDATE {table} SET observed_at = '2024-01-01'")
    successful(run(daily(mail_conn_id="mail_other")))
    stale = project.run("source", "freshness", mail_tables=tables, succeeds=False)
    for table in ("mail_campaign_stats", "mail_contacts", "mail_transactional_stats"):
        assert f"ERROR STALE freshness of mail.{table} " in stale
    assert "PASS freshness of mail.mail_campaigns " in stale


@needs_dbt
def test_tables_that_are_not_loaded_are_left_out(emulator: Emulator, project: Project, run: Run) -> None:
    emulator.add_campaigns(4, first_day=FIRST)
    days = {"start_day": FIRST.isoformat(), "end_day": LAST.isoformat()}
    successful(run(lambda: load_task("mail_campaign_stats", table="counts", **days)))
    project.run("build", mail_tables=["mail_campaign_stats"], mail_identifiers={"mail_campaign_stats": "counts"})
    assert len(project.rows("SELECT * FROM mail_campaign_results")) == 4
