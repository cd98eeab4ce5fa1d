"""The example DAGs, run against the emulator."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.emulator import Emulator
from tests.support.env import ROOT
from tests.tasks.conftest import Run, SqlDatabase

EXAMPLES = sorted(path for path in (ROOT / "example_dags").glob("*.py") if path.name != "demo.py")


def example(name: str) -> DAG:
    """The one DAG of a file, as the dag-processor would find it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "example_dags" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (dag,) = [value for value in vars(module).values() if isinstance(value, DAG)]
    return dag


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_parsing_warns_of_nothing(path: Path) -> None:
    warnings = ["-W", "error::DeprecationWarning:__main__", "-W", "error::DeprecationWarning:airflow_provider_mail"]
    done = subprocess.run([sys.executable, *warnings, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_campaign(run: Run, emulator: Emulator, crm: SqlDatabase, warehouse: SqlDatabase) -> None:
    emulator.settings.sending_seconds = 1.0
    crm.execute("CREATE TABLE customers (email TEXT, full_name TEXT, phone TEXT, subscribed INTEGER)")
    people: list[tuple[Any, ...]] = [(f"user{number}@example.com", f"User {number}", None, 1) for number in range(200)]
    crm.execute("INSERT INTO customers", [*people, ("nobody", "Nobody", None, 1), ("off@example.com", "Off", None, 0)])
    dag = example("mail_campaign")
    dag.get_task("wait_until_sent").poke_interval = 1.0  # type: ignore[attr-defined]

    done = run(dag)

    assert done.result.state == "success"
    assert emulator.contact_count("newsletter") == 200
    (campaign,) = emulator.campaigns()
    assert campaign["mailName"] == done.result.xcom("send_newsletter", "mail_name")
    assert warehouse.query("SELECT mail_name, sent_count FROM mail_campaign_stats") == [(campaign["mailName"], 200)]
    (rejected,) = crm.query("SELECT row_number, field, reason FROM newsletter_rejects")
    assert rejected == (201, "email", "is not an email address")
    sent = emulator.journal.entries("campaign/mail/sends")[0]["body"]
    assert sent["content"] == "<p>Hello {{name}}, this is new: ...</p>"


def test_the_daily_statistics(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_list("hundred", count=100)
    emulator.add_campaigns(3, first_day="2026-03-08")
    emulator.set_transactional_day("2026-03-09", sentCount=40)

    done = run(example("mail_daily_statistics"), logical_date=datetime(2026, 3, 11, tzinfo=UTC))

    assert done.result.state == "success"
    assert warehouse.query("SELECT count(*) FROM mail_campaign_stats") == [(3,)]
    assert (40,) in warehouse.query("SELECT sent_count FROM mail_transactional_stats")
