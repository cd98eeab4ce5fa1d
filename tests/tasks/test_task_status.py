"""A push with an event `TaskStatus` makes the next poll of campaigns start at once; the poll alone decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing, nullcontext
from typing import Any

import pytest

from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger, MailCampaignTrigger
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from airflow_provider_mail.webhook.inbox import Inbox
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock, passes
from tests.tasks.conftest import Connect
from tests.tasks.inboxes import at_query, hanging, push
from tests.tasks.triggering import Event, event, events, running, steady_clock  # noqa: F401
from tests.tasks.triggering import run as run_trigger

GETS = "campaign/mail/get"
COMPLETED = {"EventCode": "TaskStatus", "MailName": "spring"}
HOUR = 3600.0
QUIET = 40.0
"""Seconds after which the polls that a start or a push causes are over."""


@pytest.fixture
def inbox(inbox: Inbox, emulator: Emulator) -> Inbox:
    """The configured inbox, at a service that is sending two campaigns for long."""
    emulator.settings.sending_seconds = 10**6
    for name in ("spring", "summer"):
        emulator.add_campaign(name, state="sending")
    return inbox


def trigger(mail_name: str = "spring", **arguments: Any) -> MailCampaignTrigger:
    given = {"mail_conn_id": "mail_default", "mail_name": mail_name, "poke_interval": HOUR}
    return MailCampaignTrigger(**given | arguments)


def is_sent(emulator: Emulator, inbox: Inbox) -> Callable[[], None]:
    """The service has sent a campaign, and pushes that."""

    def change() -> None:
        emulator.set_campaign_state("spring", "done")
        push(inbox, COMPLETED)

    return change


def test_a_wait_ends_when_the_push_arrives(emulator: Emulator, inbox: Inbox, clock: Clock) -> None:
    began = time.time()
    clock.after(QUIET, is_sent(emulator, inbox))
    assert events(trigger())[0]["status"] == "complete"
    assert time.time() - began < 3 * QUIET


def test_an_asset_event_is_fired_when_the_push_arrives(emulator: Emulator, inbox: Inbox, clock: Clock) -> None:
    clock.after(QUIET, is_sent(emulator, inbox))

    async def woken() -> list[str]:
        async with aclosing(MailCampaignEventTrigger(poke_interval=HOUR).run()) as events:  # type: ignore[type-var]
            return [campaign["mail_name"] for campaign in (await anext(events)).payload["campaigns"]]

    began = time.time()
    assert run_trigger(woken()) == ["spring"]
    assert time.time() - began < 3 * QUIET


def test_the_service_may_list_later_what_it_has_pushed(emulator: Emulator, inbox: Inbox, clock: Clock) -> None:
    began = time.time()
    clock.after(QUIET, lambda: push(inbox, COMPLETED))
    with at_request(emulator, GETS, 3, lambda: emulator.set_campaign_state("spring", "done")):
        assert events(trigger())[0]["status"] == "complete"
    assert time.time() - began < 3 * QUIET


def test_a_flood_of_pushes_is_few_requests_and_decides_nothing(emulator: Emulator, inbox: Inbox, clock: Clock) -> None:
    """Anybody who knows the URL may push."""
    for number in range(30):
        clock.after(QUIET + 2 * number, lambda: push(inbox, COMPLETED))
    (found,) = events(trigger(end_time=time.time() + 4 * QUIET))
    assert found["status"] == "timeout"
    # Two at first, one in ten seconds of the minute, and one more; and one at the deadline.
    assert emulator.journal.count(GETS) == 11


def test_a_push_wakes_only_those_whom_it_concerns(emulator: Emulator, inbox: Inbox, connect: Connect) -> None:
    connect("mail_shop")
    stats = MailStatsSettledTrigger(
        mail_conn_id="mail_default", mail_name="spring", start_day="2026-03-01", stable_checks=2, poke_interval=HOUR
    )

    async def others() -> None:
        async with running(trigger(mail_conn_id="mail_shop"), stats):
            await passes(QUIET)
            polls = emulator.journal.count()
            push(inbox, COMPLETED)
            push(inbox, {"EventCode": "Opened"}, mail_conn_id="mail_shop")
            await passes(QUIET)
            assert emulator.journal.count() == polls
            push(inbox, COMPLETED, mail_conn_id="mail_shop")
            await passes(QUIET)
            assert emulator.journal.count() > polls

    run_trigger(others())


def test_a_push_that_arrived_while_the_task_deferred(emulator: Emulator, inbox: Inbox, clock: Clock) -> None:
    clock.after(QUIET, is_sent(emulator, inbox))

    async def joins_late() -> Event:
        async with running(trigger("summer")):
            await passes(QUIET + 30)
            return await event(trigger())

    began = time.time()
    assert run_trigger(joins_late())["status"] == "complete"
    assert time.time() - began < 4 * QUIET


def test_an_inbox_is_queried_once_for_all_and_only_during_waits(
    emulator: Emulator, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = at_query(monkeypatch, "newest")

    async def crowd() -> tuple[int, int]:
        async with running(*(trigger(poke_interval=HOUR + number) for number in range(5))):
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
    inbox: Inbox,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    if broken == "no connection":
        monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "nowhere")
    elif broken == "raises":
        at_query(monkeypatch, "newest", dict.fromkeys(range(1, 1000), lambda: 1 / 0))
    clock.after(300, lambda: emulator.set_campaign_state("spring", "done"))

    with hanging(monkeypatch, "newest") if broken == "hangs" else nullcontext():
        assert events(trigger(poke_interval=60))[0]["status"] == "complete"

    assert caplog.text.count("Campaigns are polled at their intervals only: ") == 1
