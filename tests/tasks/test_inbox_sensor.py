"""`MailInboxSensor`: until a push waits to be drained, three ways to wait."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail import version_compat
from airflow_provider_mail.sensors.events import MailInboxSensor
from airflow_provider_mail.triggers.events import MailInboxTrigger
from airflow_provider_mail.webhook.inbox import Inbox
from mail_emulator import Emulator
from tests.support.clock import Clock, passes
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.inboxes import at_query, drained, hanging, new_inbox, push
from tests.tasks.sensing import WAYS, every_way, repeating, retrying
from tests.tasks.triggering import Event, event, events, running, steady_clock  # noqa: F401
from tests.tasks.triggering import run as run_trigger

OPENED = {"EventCode": "Opened"}


@pytest.fixture
def inbox(warehouse: SqlDatabase) -> Inbox:
    return new_inbox(warehouse)


def wait(way: str, **arguments: Any) -> MailInboxSensor:
    given = {"task_id": TASK, "inbox_conn_id": "warehouse", "poke_interval": 50, "timeout": 3600}
    return MailInboxSensor(**given | WAYS[way] | arguments)


@every_way
def test_a_push_waits_already(run: Run, emulator: Emulator, any_warehouse: SqlDatabase, way: str) -> None:
    push(new_inbox(any_warehouse), OPENED)
    assert run(lambda: wait(way)).returned == {"conn_id": "warehouse", "table": "mail_inbox"}
    assert emulator.journal.count() == 0


@repeating
def test_a_push_arrives(run: Run, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    push(inbox, OPENED)
    drained(inbox)
    queries = at_query(monkeypatch, changes={3: lambda: push(inbox, OPENED)})
    done = run(lambda: wait(way))
    assert (done.state, len(queries)) == ("success", 3)
    assert "no push waits in the inbox 'mail_inbox' of connection 'warehouse'" in done.log


@retrying
def test_an_inbox_that_is_created_later_is_waited_for(
    run: Run, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    at_query(monkeypatch, changes={3: lambda: push(new_inbox(warehouse), OPENED)})
    assert run(lambda: wait(way)).state == "success"


def test_the_configured_inbox_is_the_default(run: Run, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(lambda: wait("deferrable", inbox_conn_id=None))
    assert (done.state, done.tries) == ("failed", 1)
    assert "inbox_conn_id: is missing; give it, or set [mail] inbox_conn_id" in done.log
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_TABLE", "pushes")
    push(new_inbox(warehouse, "pushes"), OPENED)
    result = run(lambda: wait("deferrable", inbox_conn_id=None)).returned
    assert result == {"conn_id": "warehouse", "table": "pushes"}


@retrying
def test_a_database_that_fails_is_tolerated_for_a_while(
    run: Run, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def fail() -> None:
        raise ConnectionError("the database is down")

    push(inbox, OPENED)
    for failures, state in ((2, "success"), (100, "failed")):
        at_query(monkeypatch, changes=dict.fromkeys(range(1, failures + 1), fail))
        done = run(lambda: wait(way))
        assert done.state == state
        assert "could not be read: ConnectionError: the database is down" in done.log
    assert "polls in a row failed, for 6" in done.log


@retrying
@pytest.mark.parametrize("tolerated", [True, False])
def test_a_database_that_hangs_is_never_an_empty_inbox(
    run: Run, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, way: str, tolerated: bool
) -> None:
    """Neither at the deadline nor before it does a task skip that could not look."""
    arguments = {"timeout": 200} if tolerated else {"poll_error_timeout": 0}
    with hanging(monkeypatch):
        done = run(lambda: wait(way, soft_fail=True, **arguments))
    assert done.state == "failed"
    assert "no answer within 0 seconds" in done.log
    assert "no push waits" not in done.log.splitlines()[-1]


# --- in the triggerer ---


def trigger(**arguments: Any) -> MailInboxTrigger:
    return MailInboxTrigger(**{"inbox_conn_id": "warehouse"} | arguments)


def test_two_hundred_waits_share_one_query(inbox: Inbox, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = at_query(monkeypatch)
    clock.after(5 + 30 + 5, lambda: push(inbox, OPENED))
    found = events(*(trigger() for _ in range(200)))
    assert {(each["name"], each["status"]) for each in found} == {("mail_inbox", "complete")}
    assert len(queries) == 5, "after five seconds, and each ten until then"


def test_two_tables_of_one_database_are_two_inboxes(warehouse: SqlDatabase, inbox: Inbox) -> None:
    push(new_inbox(warehouse, "pushes"), OPENED)

    async def both() -> Event:
        async with running(trigger()) as (other,):
            found = await event(trigger(inbox_table="pushes"))
            await passes(60)
            assert not other.done()
        return found

    assert run_trigger(both())["result"] == {"conn_id": "warehouse", "table": "pushes"}


def test_the_thread_of_a_query_calls_nothing_of_airflow(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, make_database: Callable[[str, str], SqlDatabase]
) -> None:
    """Airflow masks what it reads of a connection; from such a thread this ended the triggerer of Airflow 3.0."""
    postgres = make_database("postgres", "crm")
    push(new_inbox(postgres), OPENED)
    connection = json.loads(os.environ["AIRFLOW_CONN_CRM"])
    connection["extra"] = {"application_name": "planted"}
    monkeypatch.setenv("AIRFLOW_CONN_CRM", json.dumps(connection))
    masked: list[str] = []
    masker = sys.modules[version_compat.mask_secret.__module__]
    monkeypatch.setattr(masker, "mask_secret", lambda *_, **__: masked.append(threading.current_thread().name))
    assert events(trigger(inbox_conn_id="crm"))[0]["status"] == "complete"
    assert "mail-database" not in masked
