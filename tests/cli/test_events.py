"""Dead letters read again, and a person erased, from the command line."""

from __future__ import annotations

import datetime
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.webhook.drain import EventTables, drain
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import Tokens
from tests.cli.conftest import Command
from tests.webhook.pushes import event, push, receive

IN_WAREHOUSE = ("--sql-conn-id", "warehouse")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with an inbox that was drained when the code of an event had another name."""
    path = tmp_path / "warehouse.db"
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    inbox = Inbox(SqliteHook("warehouse"))
    inbox.create()
    receive(inbox, [push(event(1), event(2, Email="Ada@example.com"), {})])
    tables = EventTables(inbox.hook, "mail_events", "mail_dead_letters")
    tables.create()
    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider_mail.webhook.events._CODE", "Code")
        drain(inbox, tables, batch_size=10)
    return path


def count(file: Path, table: str) -> Any:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_replay(command: Command, file: Path) -> None:
    said = command("events", "replay", *IN_WAREHOUSE)
    assert (said.status, said.err) == (0, "")
    assert said.out == "Dead letters read: 2, new events: 2, dead letters left: 1\n"
    assert (count(file, "mail_events"), count(file, "mail_dead_letters")) == (2, 1)


@pytest.mark.parametrize("email", ["ada@EXAMPLE.com", "-"])
def test_erase(command: Command, file: Path, email: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command("events", "replay", *IN_WAREHOUSE)
    monkeypatch.setattr("sys.stdin", io.StringIO("ada@example.com\n"))
    said = command("events", "erase", "--email", email, *IN_WAREHOUSE)
    assert (said.status, said.err) == (0, "")
    assert said.out == "Deleted: 1 events, 0 dead letters; pushes changed: 1\n"
    assert (count(file, "mail_events"), count(file, "mail_dead_letters")) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("erase", "--email", "ada", *IN_WAREHOUSE), "--email: must be an address"),
        (("erase", "--email", "a@b.c", *IN_WAREHOUSE, "--inbox-conn-id", "nowhere"), "connection 'nowhere'"),
        (("replay", "--sql-conn-id", "nowhere"), "nowhere"),
        (("replay", *IN_WAREHOUSE, "--dead-letters-table", "other"), "no such table: other"),
    ],
)
def test_what_is_wrong_is_said(command: Command, file: Path, arguments: tuple[str, ...], text: str) -> None:
    said = command("events", *arguments)
    assert (said.status, said.out) == (1, "")
    assert text in said.err
    assert "Traceback" not in said.err


def test_status(command: Command, file: Path) -> None:
    said = command("receive", "status", "-o", "json", *IN_WAREHOUSE)
    assert (said.status, said.err) == (1, "")
    assert json.loads(said.out) == {
        "waiting_pushes": 0, "waiting_bytes": 0, "max_bytes": 10 * 2**30, "oldest_received_at": None,
        "oldest_seconds": 0, "is_old": False, "tokens": {},
        "dead_letters": {"Code is not a text, or is missing": 3},
        "problems": ["there is no valid token: every push is answered with 404"],
    }  # fmt: skip
    inbox = Inbox(SqliteHook("warehouse"))
    tokens = Tokens(inbox)
    tokens.create()
    tokens.add("x", "mail_default")
    waiting = push(event(1), at=datetime.datetime.now(datetime.UTC))
    receive(inbox, [waiting])
    said = command("receive", "status")
    assert (said.status, said.err) == (0, "")
    assert "mail_default: 1" in said.out
    receive(inbox, [push(event(1))])
    said = command("receive", "status")
    assert said.status == 1
    assert "the inbox is not drained" in said.out


def test_status_for_prometheus(command: Command, file: Path) -> None:
    receive(Inbox(SqliteHook("warehouse")), [push()])
    said = command("receive", "status", "--prometheus", *IN_WAREHOUSE)
    assert (said.status, said.err) == (0, "")
    samples = dict(line.rpartition(" ")[::2] for line in said.out.splitlines() if not line.startswith("#"))
    assert int(samples.pop("airflow_mail_inbox_oldest_seconds")) > 0
    assert samples == {
        "airflow_mail_inbox_pushes": "1",
        "airflow_mail_inbox_bytes": "2",
        'airflow_mail_dead_letters{reason="Code is not a text, or is missing"}': "3",
    }
    assert said.out.count("# TYPE ") == 4


def test_status_without_a_table(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "x.db")}))
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    said = command("receive", "status")
    assert (said.status, said.out) == (1, "")
    assert "create it with `airflow mail receive rotate`" in said.err
