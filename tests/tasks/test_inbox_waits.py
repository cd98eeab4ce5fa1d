"""Pushes in an inbox: a sensor waits for one, and one with an event `TaskStatus` starts the next poll of campaigns."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_mail import version_compat
from airflow_provider_mail.sensors.events import MailInboxSensor
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger, MailCampaignTrigger
from airflow_provider_mail.triggers.events import MailInboxTrigger
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from airflow_provider_mail.webhook.inbox import Inbox
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock, passes
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.inboxes import at_query, drained, hanging, new_inbox, push
from tests.tasks.sensing import WAYS, repeating, retrying
from tests.tasks.triggering import Event, event, events, running, steady_clock  # noqa: F401
from tests.tasks.triggering import run as run_trigger

GETS = "campaign/mail/get"
OPENED, COMPLETED = {"EventCode": "Opened"}, {"EventCode": "TaskStatus", "MailName": "spring"}
HOUR = 3600.0
QUIET = 40.0
"""Seconds after which the polls that a start or a push causes are over."""


# --- a sensor waits ---


def wait(way: str, **arguments: Any) -> MailInboxSensor:
    given = {"task_id": TASK, "inbox_conn_id": "inbox", "poke_interval": 50, "timeout": 3600}
    return MailInboxSensor(**given | WAYS[way] | arguments)


@repeating
def test_a_push_arrives(run: Run, emulator: Emulator, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    push(inbox, OPENED)
    drained(inbox)
    queries = at_query(monkeypatch, changes={3: lambda: push(inbox, OPENED)})
    done = run(lambda: wait(way))
    assert (done.returned, len(queries)) == ({"inbox_conn_id": "inbox", "inbox_table": "mail_inbox"}, 3)
    assert "no push waits in the inbox 'mail_inbox' of connection 'inbox'" in done.log
    assert emulator.journal.count() == 0


@retrying
def test_an_inbox_that_is_created_later_is_waited_for(
    run: Run, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    at_query(monkeypatch, changes={3: lambda: push(new_inbox(warehouse), OPENED)})
    assert run(lambda: wait(way, inbox_conn_id="warehouse")).state == "success"


def test_the_configured_inbox_is_the_default(run: Run, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(lambda: wait("deferrable", inbox_conn_id=None))
    assert (done.state, done.tries) == ("failed", 1)
    assert "inbox_conn_id: is missing; give it, or set [mail] inbox_conn_id" in done.log
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_TABLE", "pushes")
    push(new_inbox(warehouse, "pushes"), OPENED)
    result = run(lambda: wait("deferrable", inbox_conn_id=None)).returned
    assert result == {"inbox_conn_id": "warehouse", "inbox_table": "pushes"}


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
def test_a_connection_that_is_corrected_is_read_again(
    run: Run, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    push(inbox, OPENED)
    right = os.environ["AIRFLOW_CONN_INBOX"]
    monkeypatch.setenv("AIRFLOW_CONN_INBOX", json.dumps({"conn_type": "sqlite", "host": "/nowhere/inbox.db"}))
    at_query(monkeypatch, changes={2: lambda: monkeypatch.setenv("AIRFLOW_CONN_INBOX", right)})
    done = run(lambda: wait(way))
    assert done.state == "success"
    assert "could not be read: cannot connect" in done.log


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
    assert "no answer within 0 s" in done.log
    assert "no push waits" not in done.log.splitlines()[-1]


# --- in the triggerer ---


def trigger(**arguments: Any) -> MailInboxTrigger:
    return MailInboxTrigger(**{"inbox_conn_id": "inbox"} | arguments)


def test_two_hundred_waits_share_one_query(inbox: Inbox, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = at_query(monkeypatch)
    clock.after(5 + 30 + 5, lambda: push(inbox, OPENED))
    found = events(*(trigger() for _ in range(200)))
    assert {(each["name"], each["status"]) for each in found} == {("mail_inbox", "complete")}
    assert len(queries) == 5, "after five seconds, and each ten until then"


def test_two_tables_of_one_database_are_two_inboxes(warehouse: SqlDatabase) -> None:
    new_inbox(warehouse)
    push(new_inbox(warehouse, "pushes"), OPENED)

    async def both() -> Event:
        async with running(trigger(inbox_conn_id="warehouse")) as (other,):
            found = await event(trigger(inbox_conn_id="warehouse", inbox_table="pushes"))
            await passes(60)
            assert not other.done()
        return found

    assert run_trigger(both())["result"] == {"inbox_conn_id": "warehouse", "inbox_table": "pushes"}


def test_the_thread_of_a_query_calls_nothing_of_airflow(
    monkeypatch: pytest.MonkeyPatch, make_database: Callable[[str, str], SqlDatabase]
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


# --- campaigns are polled when the service pushes that one has ended ---


@pytest.fixture
def sending(inbox: Inbox, emulator: Emulator) -> Inbox:
    """The configured inbox, at a service that is sending two campaigns for long."""
    emulator.settings.sending_seconds = 10**6
    for name in ("spring", "summer"):
        emulator.add_campaign(name, state="sending")
    return inbox


@contextmanager
def soon(clock: Clock) -> Iterator[None]:
    """Although the next poll is due in an hour."""
    before = clock.skipped
    yield
    assert clock.skipped - before < 4 * QUIET


def campaign(mail_name: str = "spring", **arguments: Any) -> MailCampaignTrigger:
    given = {"mail_conn_id": "mail_default", "mail_name": mail_name, "poke_interval": HOUR}
    return MailCampaignTrigger(**given | arguments)


def is_sent(emulator: Emulator, sending: Inbox) -> Callable[[], None]:
    """The service has sent a campaign, and pushes that."""

    def change() -> None:
        emulator.set_campaign_state("spring", "done")
        push(sending, COMPLETED)

    return change


def test_an_asset_event_is_fired_when_the_push_arrives(emulator: Emulator, sending: Inbox, clock: Clock) -> None:
    clock.after(QUIET, is_sent(emulator, sending))

    async def woken() -> list[str]:
        async with aclosing(MailCampaignEventTrigger(poke_interval=HOUR).run()) as events:  # type: ignore[type-var]
            return [campaign["mail_name"] for campaign in (await anext(events)).payload["campaigns"]]

    with soon(clock):
        assert run_trigger(woken()) == ["spring"]


def test_the_service_may_list_later_what_it_has_pushed(emulator: Emulator, sending: Inbox, clock: Clock) -> None:
    clock.after(QUIET, lambda: push(sending, COMPLETED))
    with at_request(emulator, GETS, 3, lambda: emulator.set_campaign_state("spring", "done")), soon(clock):
        assert events(campaign())[0]["status"] == "complete"


def test_a_flood_of_pushes_is_few_requests_and_decides_nothing(
    emulator: Emulator, sending: Inbox, clock: Clock
) -> None:
    """Anybody who knows the URL may push."""
    for number in range(30):
        clock.after(QUIET + 2 * number, lambda: push(sending, COMPLETED))
    (found,) = events(campaign(end_time=datetime.now(UTC).timestamp() + 4 * QUIET))
    assert found["status"] == "timeout"
    # Two at first, one in ten seconds of the minute, and one more; and one at the deadline.
    assert emulator.journal.count(GETS) == 11


def test_a_push_wakes_only_those_whom_it_concerns(emulator: Emulator, sending: Inbox, connect: Connect) -> None:
    connect("mail_shop")
    stats = MailStatsSettledTrigger(
        mail_conn_id="mail_default", mail_name="spring", start_day="2026-03-01", stable_checks=2, poke_interval=HOUR
    )

    async def others() -> None:
        async with running(campaign(mail_conn_id="mail_shop"), stats):
            await passes(QUIET)
            polls = emulator.journal.count()
            push(sending, COMPLETED)
            push(sending, {"EventCode": "Opened"}, mail_conn_id="mail_shop")
            await passes(QUIET)
            assert emulator.journal.count() == polls
            push(sending, COMPLETED, mail_conn_id="mail_shop")
            await passes(QUIET)
            assert emulator.journal.count() > polls

    run_trigger(others())


def test_a_push_that_arrived_while_the_task_deferred(emulator: Emulator, sending: Inbox, clock: Clock) -> None:
    clock.after(QUIET, is_sent(emulator, sending))

    async def joins_late() -> Event:
        async with running(campaign("summer")):
            await passes(QUIET + 30)
            return await event(campaign())

    with soon(clock):
        assert run_trigger(joins_late())["status"] == "complete"


def test_an_inbox_is_queried_once_for_all_and_only_during_waits(
    emulator: Emulator, sending: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = at_query(monkeypatch, "task_status_pushes")

    async def crowd() -> tuple[int, int]:
        async with running(*(campaign(poke_interval=HOUR + number) for number in range(5))):
            await passes(60)
            during = len(queries)
        await passes(60)
        return during, len(queries)

    during, after = run_trigger(crowd())
    assert during in (60, 61)
    assert after == during


@pytest.mark.parametrize("broken", ["raises", "hangs", "no connection"])
def test_an_inbox_that_cannot_be_read_changes_nothing(
    emulator: Emulator,
    sending: Inbox,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    queries: list[int] = []
    if broken == "no connection":
        monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "nowhere")
    elif broken == "raises":
        failures = {number: lambda: 1 / 0 for number in range(1, 1000) if number != 3}
        queries = at_query(monkeypatch, "task_status_pushes", failures)
    clock.after(300, lambda: emulator.set_campaign_state("spring", "done"))

    with hanging(monkeypatch, "task_status_pushes") if broken == "hangs" else nullcontext():
        assert events(campaign(poke_interval=60))[0]["status"] == "complete"

    times = 2 if broken == "raises" else 1
    assert caplog.text.count("Campaigns are polled at their intervals only: ") == times, "once for each outage"
    assert len(queries) < 60, "in about 300 seconds"
