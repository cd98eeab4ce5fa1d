"""`MailInboxSensor`: until a push waits to be drained, three ways to wait."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail import version_compat
from airflow_provider_mail._polling import inbox_reader, shared_poller
from airflow_provider_mail.api.flows import polling
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.sensors.events import MailInboxSensor
from airflow_provider_mail.triggers.events import MailInboxTrigger
from airflow_provider_mail.webhook.inbox import Inbox
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.inboxes import drained, new_inbox, push
from tests.tasks.sensing import WAYS, every_way, repeating, retrying
from tests.tasks.triggering import Event, cancelled, event, restarted, until
from tests.tasks.triggering import run as run_trigger
from tests.tasks.waiting import as_soon_as

OPENED = {"EventCode": "Opened"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(polling, "MAX_BACKOFF", 0.2)


@pytest.fixture
def any_inbox(any_warehouse: SqlDatabase) -> Inbox:
    return new_inbox(any_warehouse)


@pytest.fixture
def inbox(warehouse: SqlDatabase) -> Inbox:
    return new_inbox(warehouse)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which an inbox was asked whether a push waits."""
    asked: list[float] = []
    waiting = Inbox.waiting

    def note(inbox: Inbox) -> bool:
        asked.append(time.monotonic())
        return waiting(inbox)

    monkeypatch.setattr(Inbox, "waiting", note)
    return asked


def wait(way: str, **arguments: Any) -> MailInboxSensor:
    given = {"task_id": TASK, "inbox_conn_id": "warehouse", "poke_interval": 0.3, "timeout": 60}
    return MailInboxSensor(**given | WAYS[way] | arguments)


@every_way
def test_a_push_waits_already(run: Run, emulator: Emulator, any_inbox: Inbox, way: str) -> None:
    push(any_inbox, OPENED)
    assert run(lambda: wait(way)).returned == {"conn_id": "warehouse", "table": "mail_inbox"}
    assert emulator.journal.count() == 0


@repeating
def test_a_push_comes(run: Run, inbox: Inbox, queries: list[float], way: str) -> None:
    push(inbox, OPENED)
    drained(inbox)
    with as_soon_as(lambda: len(queries) >= 2, lambda: push(inbox, OPENED)):
        done = run(lambda: wait(way))
    assert done.state == "success"
    assert "no push waits in the inbox 'mail_inbox' of connection 'warehouse'" in done.log


@repeating
def test_no_push_comes(run: Run, inbox: Inbox, way: str) -> None:
    done = run(lambda: wait(way, timeout=1))
    assert done.state == "failed"
    assert "no push waits" in done.log


@retrying
def test_no_push_may_mean_that_there_is_nothing_to_do(run: Run, inbox: Inbox, way: str) -> None:
    assert run(lambda: wait(way, timeout=0.5, soft_fail=True)).state == "skipped"


@retrying
def test_an_inbox_that_is_created_later_is_waited_for(
    run: Run, warehouse: SqlDatabase, queries: list[float], way: str
) -> None:
    with as_soon_as(lambda: len(queries) >= 2, lambda: push(new_inbox(warehouse), OPENED)):
        assert run(lambda: wait(way)).state == "success"


def test_the_configured_inbox_is_the_default(run: Run, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> MailInboxSensor:
        return wait("deferrable", inbox_conn_id=None)

    done = run(none)
    assert (done.state, done.tries) == ("failed", 1)
    assert "inbox_conn_id: is missing; give it, or set [mail] inbox_conn_id" in done.log

    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_TABLE", "pushes")
    push(new_inbox(warehouse, "pushes"), OPENED)
    assert run(none).returned == {"conn_id": "warehouse", "table": "pushes"}


@retrying
def test_a_database_that_cannot_hold_an_inbox_fails_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DUCK", json.dumps({"conn_type": "duckdb", "host": ":memory:"}))
    done = run(lambda: wait(way, inbox_conn_id="duck", retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    assert "connection 'duck': the inbox needs a Postgres or SQLite database, not duckdb" in done.log


@retrying
def test_a_database_that_is_away_is_tolerated_for_a_while(
    run: Run, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    broken = iter([True, True])
    waiting = Inbox.waiting

    def ask(inbox: Inbox) -> bool:
        if next(broken, False):
            raise ConnectionError("the database is away")
        return waiting(inbox)

    monkeypatch.setattr(Inbox, "waiting", ask)
    push(inbox, OPENED)
    done = run(lambda: wait(way))
    assert done.state == "success"
    assert "could not be read: ConnectionError: the database is away" in done.log

    monkeypatch.setattr(Inbox, "waiting", lambda inbox: 1 / 0)
    done = run(lambda: wait(way, poll_error_timeout=0))
    assert done.state == "failed"
    assert "3 polls in a row failed" in done.log


# --- in the triggerer ---


def trigger(**arguments: Any) -> MailInboxTrigger:
    return MailInboxTrigger(**{"inbox_conn_id": "warehouse", "poke_interval": 0.2} | arguments)


def test_many_waits_on_one_inbox_cost_one_query_per_interval(inbox: Inbox, queries: list[float]) -> None:
    async def crowd() -> list[Event]:
        began = time.monotonic()
        waiting = [asyncio.create_task(event(trigger())) for _ in range(200)]
        await until(lambda: len(queries) >= 4)
        assert len(queries) <= (time.monotonic() - began) / 0.2 + 1
        push(inbox, OPENED)
        return await asyncio.gather(*waiting)

    events = run_trigger(crowd())
    assert {found["status"] for found in events} == {"complete"}
    assert {found["name"] for found in events} == {"mail_inbox"}


def test_two_tables_of_one_database_are_two_inboxes(warehouse: SqlDatabase, inbox: Inbox) -> None:
    push(new_inbox(warehouse, "pushes"), OPENED)

    async def both() -> Event:
        other = asyncio.create_task(event(trigger()))
        found = await event(trigger(inbox_table="pushes"))
        assert not other.done()
        await cancelled(other)
        return found

    assert run_trigger(both())["result"] == {"conn_id": "warehouse", "table": "pushes"}


def hang(monkeypatch: pytest.MonkeyPatch, queries: list[float]) -> threading.Event:
    """Make all queries but the first one hang until the event is set, and be given up soon."""
    answers, waiting = threading.Event(), Inbox.waiting

    def ask(inbox: Inbox) -> bool:
        if not queries:
            return waiting(inbox)
        queries.append(time.monotonic())
        answers.wait()
        return True

    monkeypatch.setattr(Inbox, "waiting", ask)
    monkeypatch.setattr(inbox_reader, "QUERY_SECONDS", 0.2)
    return answers


def test_a_database_that_does_not_answer_blocks_nothing(
    inbox: Inbox, queries: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait has seen nothing, so it does not end as if there was nothing."""
    queries.append(0.0)
    answers = hang(monkeypatch, queries)

    async def hung() -> None:
        found = await event(trigger(end_time=time.time() + 0.5))
        assert found["status"] == "error"
        assert "no answer within 0.2 seconds" in found["message"]

    run_trigger(hung())
    answers.set()


def test_the_thread_of_a_query_calls_nothing_of_airflow(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, make_database: Callable[[str, str], SqlDatabase]
) -> None:
    """Airflow masks what it reads of a connection; from such a thread this ends the triggerer of Airflow 3.0."""
    postgres = make_database("postgres", "crm")
    push(new_inbox(postgres), OPENED)
    connection = json.loads(os.environ["AIRFLOW_CONN_CRM"])
    connection["extra"] = {"application_name": "planted"}
    monkeypatch.setenv("AIRFLOW_CONN_CRM", json.dumps(connection))
    masked: list[str] = []
    masker = sys.modules[version_compat.mask_secret.__module__]
    monkeypatch.setattr(masker, "mask_secret", lambda *_, **__: masked.append(threading.current_thread().name))
    assert run_trigger(event(trigger(inbox_conn_id="crm")))["status"] == "complete"
    assert "mail-database" not in masked


@retrying
@pytest.mark.parametrize("tolerated", [True, False])
def test_not_seen_is_never_nothing(
    run: Run, inbox: Inbox, queries: list[float], monkeypatch: pytest.MonkeyPatch, way: str, tolerated: bool
) -> None:
    """Neither at the deadline nor before it does a task skip that could not look."""
    answers = hang(monkeypatch, queries)
    queries.extend([] if way == "deferrable" else [0.0])
    arguments = {"timeout": 1} if tolerated else {"poll_error_timeout": 0}
    done = run(lambda: wait(way, soft_fail=True, **arguments))
    answers.set()
    assert done.state == "failed"
    assert "no answer within 0.2 seconds" in done.log
    assert "no push waits" not in done.log.splitlines()[-1]


def test_what_is_stored_holds_no_secret_and_loads_again() -> None:
    path, arguments = trigger(end_time=1893456000.0).serialize()
    assert path == "airflow_provider_mail.triggers.events.MailInboxTrigger"
    assert arguments == {
        "inbox_conn_id": "warehouse",
        "inbox_table": "mail_inbox",
        "poke_interval": 0.2,
        "end_time": 1893456000.0,
        "max_poll_errors": 2,
    }
    assert restarted(trigger(end_time=1893456000.0)).serialize() == (path, arguments)


def test_an_end_in_the_past(inbox: Inbox, queries: list[float]) -> None:
    assert run_trigger(event(trigger(end_time=time.time() - 3600)))["status"] == "timeout"
    assert len(queries) == 1
