"""Dead letters read again, a person erased, and the state of receiving, from the command line."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.webhook.drain import Drained, EventTables, drain
from airflow_provider_mail.webhook.events import DeadLetter, Origin
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import Tokens
from tests.cli.conftest import Command
from tests.webhook.pushes import NOON, event, push, receive

IN_WAREHOUSE = ("--sql-conn-id", "warehouse")


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteHook:
    """An empty database, which is that of the inbox."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "warehouse.db")}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    return SqliteHook("warehouse")


@pytest.fixture
def inbox(hook: SqliteHook) -> Inbox:
    """A drained inbox; an earlier version could read none of its events."""
    inbox, tables = Inbox(hook), EventTables(hook, "mail_events", "mail_dead_letters")
    inbox.create()
    tables.create()
    events: list[Any] = [event(1), event(2, Email="Ada@example.com"), {}]
    receive(inbox, [push(*events)])
    letters = [
        DeadLetter(Origin("mail_default", NOON, 1), index, "Code is not a text, or is missing", json.dumps(each))
        for index, each in enumerate(events)
    ]
    tables.keep(letters, Drained())
    drain(inbox, EventTables(hook, "others", "other_letters"), batch_size=10)
    return inbox


def counts(hook: SqliteHook) -> list[int]:
    return [hook.get_first(f"SELECT count(*) FROM {table}")[0] for table in ("mail_events", "mail_dead_letters")]


@pytest.mark.parametrize("email", ["ada@EXAMPLE.com", "-"])
def test_dead_letters_are_replayed_and_a_person_erased(
    command: Command, inbox: Inbox, hook: SqliteHook, email: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = command("events", "replay", *IN_WAREHOUSE)
    assert (said.status, said.err) == (0, "")
    assert said.out == "Dead letters read: 2, new events: 2, dead letters left: 1\n"
    assert counts(hook) == [2, 1]
    monkeypatch.setattr("sys.stdin", io.StringIO("ada@example.com\n"))
    said = command("events", "erase", "--email", email, *IN_WAREHOUSE)
    assert (said.status, said.err) == (0, "")
    assert said.out == "Deleted: 1 events, 0 dead letters; pushes changed: 1\n"
    assert counts(hook) == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("erase", "--email", "ada", *IN_WAREHOUSE), "--email: must be an address"),
        (("erase", "--email", "a@b.c", *IN_WAREHOUSE, "--inbox-conn-id", "nowhere"), "connection 'nowhere'"),
        (("replay", "--sql-conn-id", "nowhere"), "nowhere"),
        (("replay", *IN_WAREHOUSE, "--dead-letters-table", "other"), "no such table: other"),
    ],
)
def test_an_error_is_one_message(command: Command, inbox: Inbox, arguments: tuple[str, ...], error: str) -> None:
    said = command("events", *arguments)
    assert (said.status, said.out) == (1, "")
    assert error in said.err
    assert "Traceback" not in said.err


def test_the_state_of_receiving(command: Command, hook: SqliteHook, request: pytest.FixtureRequest) -> None:
    said = command("receive", "status")
    assert (said.status, said.out) == (1, "")
    assert "create it with `airflow mail receive rotate`" in said.err
    inbox: Inbox = request.getfixturevalue("inbox")
    said = command("receive", "status", "-o", "json", *IN_WAREHOUSE)
    assert (said.status, said.err) == (1, "")
    assert said.data == {
        "waiting_pushes": 0, "waiting_bytes": 0, "max_bytes": 10 * 2**30, "oldest_received_at": None,
        "oldest_seconds": 0, "is_old": False, "tokens": {},
        "dead_letters": {"Code is not a text, or is missing": 3},
        "problems": ["there is no valid token: every push is answered with 404"],
    }  # fmt: skip
    Tokens(inbox).create()
    Tokens(inbox).add("x", "mail_default")
    receive(inbox, [push(event(1), at=datetime.datetime.now(datetime.UTC))])
    said = command("receive", "status")
    assert (said.status, said.err) == (0, "")
    assert "mail_default: 1" in said.out
    receive(inbox, [push()])
    said = command("receive", "status")
    assert (said.status, "the inbox is not drained" in said.out) == (1, True)
    said = command("receive", "status", "--prometheus", *IN_WAREHOUSE)
    assert (said.status, said.err) == (0, "")
    samples = dict(line.rpartition(" ")[::2] for line in said.out.splitlines() if not line.startswith("#"))
    assert int(samples.pop("airflow_mail_inbox_oldest_seconds")) > 0
    assert int(samples.pop("airflow_mail_inbox_bytes")) > 2
    assert samples == {
        "airflow_mail_inbox_pushes": "2",
        'airflow_mail_dead_letters{reason="Code is not a text, or is missing"}': "3",
    }
    assert said.out.count("# TYPE ") == 4
