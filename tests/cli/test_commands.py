"""What people want at two in the morning, in words and with an exit status."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.hold import SETTLE_SECONDS
from airflow_provider_mail.webhook.drain import EventTables, drain
from airflow_provider_mail.webhook.events import DeadLetter, Origin, Reason
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens
from mail_emulator import Emulator
from tests.cli.conftest import Command
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.tries import Tries
from tests.tasks.sending import batch, letters
from tests.tasks.test_audience import created, done
from tests.tasks.test_audience_changes import imported
from tests.webhook.pushes import NOON, event, push, receive

IN_WAREHOUSE = ("--sql-conn-id", "warehouse")


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_campaign("spring", state="done", sent=500, send_date="2026-03-01T08:00:00Z")
    emulator.add_campaign("summer", state="done", sent=700, send_date="2026-06-01T08:00:00Z")
    emulator.add_campaign("spring draft", state="draft")
    emulator.add_campaign("other", state="sending", send_date="2026-06-02T08:00:00Z")
    return emulator


def test_check_says_whether_the_connection_works(command: Command) -> None:
    said = command("check")
    assert (said.status, said.err) == (0, "")
    assert "accepts the password (API key)" in said.out
    said = command("check", "--conn-id", "mail_bad")
    assert (said.status, said.out) == (1, "")
    assert "rejects the password (API key)" in said.err


@pytest.mark.parametrize(
    ("arguments", "error", "status"),
    [
        (("check", "-c", "nowhere"), "nowhere", 1),
        (("campaigns", "-c", "nowhere"), "nowhere", 1),
        (("campaigns", "--limit", "0"), "--limit: must be at least 1", 1),
        (("campaign", "spring", "--watch", "--interval", "0"), "--interval: must be more than 0", 1),
        (("campaign", "sprin"), "There is no campaign 'sprin'.", 1),
        (("emulator", "--port", "99999"), "'99999' is not a port", 2),
        (("stop",), "Nothing to stop: give --prefix, --all-scheduled or --hold", 1),
        (("stop", "--prefix", "a", "--all-scheduled"), "--prefix and --all-scheduled: give one of them", 1),
        (("audience", "status"), "--sql-conn-id", 2),
        (("memory", "create"), "[mail] memory_conn_id: there is no memory", 1),
        (("memory", "expire", "--keep-days", "0"), "--keep-days: must be more than 0", 1),
        (("events", "erase", "--email", "ada", *IN_WAREHOUSE), "--email: must be an address", 1),
        (("events", "erase", "--email", "a@b.c", *IN_WAREHOUSE, "--inbox-conn-id", "no"), "connection 'no'", 1),
        (("events", "replay", "--sql-conn-id", "nowhere"), "nowhere", 1),
        (("events", "replay", *IN_WAREHOUSE, "--dead-letters-table", "other"), "no such table: other", 1),
    ],
)
def test_an_error_is_one_message(
    command: Command, hook: SqliteHook, arguments: tuple[str, ...], error: str, status: int
) -> None:
    said = command(*arguments)
    assert (said.status, said.out) == (status, "")
    assert error in said.err
    assert "Traceback" not in said.err


def test_campaigns_are_listed_newest_first(command: Command, service: Emulator) -> None:
    rows = command("campaigns", "-o", "json").data
    # The draft is from today.
    assert [row["mail_name"] for row in rows] == ["spring draft", "other", "summer", "spring"]
    known = {
        "mail_name": "summer", "mail_status": 2, "status": "complete", "send_time": "2026-06-01T08:00:00+00:00",
        "sent_count": 700, "send_list_names": [],
    }  # fmt: skip
    assert {key: rows[2][key] for key in known} == known
    assert all(isinstance(count, int) for key, count in rows[2].items() if key.endswith("_count"))
    assert rows[0]["sent_count"] is None
    assert yaml.safe_load(command("campaigns", "-o", "yaml").out) == rows
    table = command("campaigns").out
    assert all(text in table for text in ("summer", "complete (2)", "2026-06-01 08:00:00 UTC"))
    assert command("campaign", "spring", "-o", "json").data == rows[3], "the same object in both"
    assert "500" in command("campaign", "spring").out


def test_some_campaigns_are_listed(command: Command, service: Emulator) -> None:
    for arguments, names in (
        (("--name", "spring"), {"spring", "spring draft"}),
        (("--status", "sending"), {"other"}),
        (("--limit", "1"), {"spring draft"}),
    ):
        said = command("campaigns", *arguments, "-o", "json")
        assert {row["mail_name"] for row in said.data} == names
    assert "The newest 1 of 4" in said.err


def test_a_campaign_is_watched(command: Command, service: Emulator) -> None:
    """Until it is sent, or fails."""
    service.plan_campaign("other", looks=3)
    said = command("campaign", "other", "--watch", "-o", "json")
    assert (said.status, said.data["status"]) == (0, "complete")
    assert "sending (mailStatus 1)" in said.err
    assert "was sent" in said.err
    service.add_campaign("broken", state="sending")
    service.plan_campaign("broken", looks=9)
    with at_request(service, "campaign/mail/get", 3, lambda: service.set_campaign_state("broken", "failed")):
        said = command("campaign", "broken", "--watch")
    assert (said.status, said.out) == (1, "")
    assert "sending failed (mailStatus 4)" in said.err


@pytest.fixture
def scheduled(emulator: Emulator) -> Emulator:
    for name in ("news a", "news b", "other"):
        emulator.add_campaign(name, state="scheduled", send_date="2999-01-01T00:00:00Z")
    return emulator


def test_stop_cancels_what_begins_so(command: Command, scheduled: Emulator) -> None:
    said = command("stop", "--prefix", "news", "-o", "json")
    assert said.status == 0
    assert {**said.data, "stopped": sorted(said.data["stopped"])} == {
        "stopped": ["news a", "news b"], "not_stopped": {}, "sending": [], "sent": 0,
    }  # fmt: skip
    assert [found["mailName"] for found in scheduled.campaigns() if found["state"] == "scheduled"] == ["other"]
    said = command("stop", "--all-scheduled")
    assert (said.status, "other" in said.out) == (0, True)


def test_stop_fails_when_one_may_be_sent(command: Command, scheduled: Emulator) -> None:
    scheduled.faults.add("code_before", "campaign/mail/cancel", code=403, count=1)
    said = command("stop", "--prefix", "other")
    assert said.status == 1
    assert "NOT STOPPED: it is still scheduled" in " ".join(said.out.split())


def test_hold_and_release(command: Command, clock: Clock) -> None:
    said = command("stop", "--hold", "--reason", "wrong price")
    assert (said.status, said.out) == (0, "")
    assert clock.skipped > SETTLE_SECONDS - 1
    assert "All mass mail is held, set by " in said.err
    assert "wrong price" in said.err
    assert "wrong price" in command("release").out
    assert command("release").out == "Nothing is held.\n"


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
        DeadLetter(Origin("mail_default", NOON, 1), index, Reason.NO_CODE, json.dumps(each))
        for index, each in enumerate(events)
    ]
    tables.store_letters(letters)
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
        "dead_letters": {"EventCode is not a text, or is missing": 3},
        "problems": ["there is no valid token: every push is answered with 404"],
    }  # fmt: skip
    Tokens(inbox, TokenOwner("mail_default", "", "")).add("x")
    receive(inbox, [push(event(1), at=datetime.datetime.now(datetime.UTC))])
    said = command("receive", "status")
    assert (said.status, said.err) == (0, "")
    assert "mail_default: 1" in said.out
    receive(inbox, [push()])
    with inbox.connected() as cursor:
        cursor.execute(f"UPDATE mail_inbox SET received_at = '{inbox.sql.time(NOON)}'")
        cursor.connection.commit()
    said = command("receive", "status")
    assert (said.status, "the inbox is not drained" in said.out) == (1, True)
    said = command("receive", "status", "--prometheus", *IN_WAREHOUSE)
    assert (said.status, said.err) == (0, "")
    samples = dict(line.rpartition(" ")[::2] for line in said.out.splitlines() if not line.startswith("#"))
    assert int(samples.pop("airflow_mail_inbox_oldest_seconds")) > 0
    assert int(samples.pop("airflow_mail_inbox_bytes")) > 2
    assert samples == {
        "airflow_mail_inbox_pushes": "2",
        'airflow_mail_dead_letters{reason="EventCode is not a text, or is missing"}': "3",
    }
    assert said.out.count("# TYPE ") == 4


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where the state is, as arguments of the task."""
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")
    monkeypatch.setenv(
        "AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "warehouse.db")})
    )
    return {"state_conn_id": "warehouse"}


def test_the_memory_is_created_asked_and_deleted(
    command: Command, where: dict[str, str], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__MEMORY_CONN_ID", "warehouse")
    assert command("memory", "create").out == "Table mail_memory of connection 'warehouse' exists.\n"
    Tries(has_store=False).run(batch(messages=letters(2), once_per="welcome"))
    (why,) = json.loads(command("memory", "why", "--email", "User1@Example.com", "-o", "json").out)
    assert (why["mail_key"], why["state"]) == ("welcome", "sent")
    assert why["task"].startswith("dag/task/")
    assert command("memory", "forget", "--email", "user1@example.com").out == "Deleted: 1 mails.\n"
    assert command("memory", "why", "--email", "user1@example.com").status == 1
    assert command("memory", "expire", "--keep-days", "0.000001").out.startswith("Deleted: ")


def test_a_person_is_erased_from_audiences_and_the_memory_too(
    command: Command, inbox: Inbox, where: dict[str, str], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__MEMORY_CONN_ID", "warehouse")
    command("memory", "create")
    Tries(has_store=False).run(batch(messages=letters(2), once_per="welcome"))
    done(imported("user1", "bob", **where))
    said = command("events", "erase", "--email", "user1@example.com", *IN_WAREHOUSE).out
    assert said.startswith("Deleted: 0 events, 1 dead letters; pushes changed: 1; forgotten in 1 audiences")
    assert said.endswith("; 1 mails of the memory deleted\n")
    assert command("memory", "why", "--email", "user1@example.com").status == 1
    assert json.loads(command("audience", "status", "--sql-conn-id", "warehouse", "-o", "json").out)[0]["size"] == 1


def test_lists_of_another_deployment_are_deleted(command: Command, emulator: Emulator) -> None:
    names = [done(imported("ada", changes_only=False), run_id)["list_name"] for run_id in ("first", "second", "third")]
    store = names[0].split()[1].partition("-")[2]
    done(created({"send_list_names": names[:1]}, send_date="2999-01-01T00:00:00Z"))
    emulator.add_list(f"of {store}")
    said = command("audience", "prune", store)
    assert said.out == "".join(f"{name}: would be deleted, with --yes\n" for name in names[1:])
    assert len(emulator.lists()) == 4
    assert command("audience", "prune", "01234567", store, "--yes").out == "".join(
        f"{name}: deleted\n" for name in names[1:]
    )
    assert [entry["name"] for entry in emulator.lists()] == [names[0], f"of {store}"]


@pytest.mark.parametrize("words", [("memory", "why"), ("memory", "forget"), ("audience", "forget")])
@pytest.mark.parametrize(
    ("email", "problem"),
    [("Ada <ada@example.com>", "a space"), ("mailto:ada@example.com", "leave out mailto:"), ("ada", ""), ("-", "")],
)
def test_who_is_no_address_is_not_looked_up(
    command: Command,
    where: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, str],
    email: str,
    problem: str,
) -> None:
    """It would look as if nothing were stored of the person."""
    monkeypatch.setenv("AIRFLOW__MAIL__MEMORY_CONN_ID", "warehouse")
    monkeypatch.setattr("sys.stdin", io.StringIO("'ada@example.com'\n"))
    options = ["--sql-conn-id", where["state_conn_id"]] if words[0] == "audience" else []
    said = command(*words, "--email", email, *options)
    assert (said.status, said.out) == (1, "")
    assert "--email: is not an email address" in said.err
    assert problem in said.err
    assert "ada@example.com" not in said.err


def test_states_are_shown_and_deleted(command: Command, where: dict[str, str]) -> None:
    options = ["--sql-conn-id", where["state_conn_id"]]
    assert json.loads(command("audience", "status", *options, "-o", "json").out) == []
    done(imported("ada", "bob", **where))
    done(imported("bob", **where), "second")
    (shown,) = json.loads(command("audience", "status", *options, "-o", "json").out)
    assert [shown[name] for name in ("audience", "size", "excluded", "running")] == ["dag/load", 1, 1, False]
    (why,) = json.loads(command("audience", "why", "--email", "Bob@Example.com", *options, "-o", "json").out)
    assert [why[name] for name in ("audience", "status", "run_id")] == ["dag/load", "member", "first"]
    (why,) = json.loads(command("audience", "why", "--email", "ada@example.com", *options, "-o", "json").out)
    assert [why[name] for name in ("status", "run_id")] == ["excluded", "second"]
    assert command("audience", "why", "--email", "max@example.com", *options).status == 1
    assert command("audience", "forget", "--email", "ADA@example.com", *options).out == "dag/load: forgotten\n"
    said = command("audience", "forget", "--email", "ada@example.com", *options).out
    assert said == "The person is in no audience.\n"
    assert command("audience", "reset", "other", *options).status == 1
    assert command("audience", "reset", "dag/load", *options).out.startswith("The state of dag/load was deleted")
    assert json.loads(command("audience", "status", *options, "-o", "json").out) == []
    assert done(imported("bob", **where), "third")["joined"] == 1
