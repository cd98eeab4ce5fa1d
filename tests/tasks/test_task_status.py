"""A push with an event `TaskStatus` makes the next poll of campaigns start at once; the poll alone decides."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller, task_status
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger, MailCampaignTrigger
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from airflow_provider_mail.webhook.inbox import Inbox
from tests.tasks.conftest import Connect, SqlDatabase
from tests.tasks.inboxes import new_inbox, push
from tests.tasks.triggering import Event, cancelled, event, until
from tests.tasks.triggering import run as run_trigger

GETS, STATS = "campaign/mail/get", "campaign/mail/stats/get"
COMPLETED = {"EventCode": "TaskStatus", "MailName": "spring"}
HOUR = 3600.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(shared_poller, "EXTRA_POLL_SECONDS", 0.1)
    monkeypatch.setattr(task_status, "QUERY_SECONDS", 0.05)


@pytest.fixture
def unconfigured(warehouse: SqlDatabase) -> Inbox:
    return new_inbox(warehouse)


@pytest.fixture
def inbox(unconfigured: Inbox, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    return unconfigured


@pytest.fixture
def any_inbox(any_warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    return new_inbox(any_warehouse)


def trigger(mail_name: str = "spring", **arguments: Any) -> MailCampaignTrigger:
    given = {"mail_conn_id": "mail_default", "mail_name": mail_name, "poke_interval": HOUR}
    return MailCampaignTrigger(**given | arguments)


def sending(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 10_000
    emulator.add_campaign("spring", state="sending")


async def quiet(emulator: Emulator, seconds: float = 0.3) -> int:
    """The polls that something causes are over; return their number."""
    while True:
        before = emulator.journal.count(GETS)
        await asyncio.sleep(seconds)
        if before and emulator.journal.count(GETS) == before:
            return before


def test_a_wait_ends_when_the_push_comes(emulator: Emulator, any_inbox: Inbox) -> None:
    sending(emulator)

    async def woken() -> Event:
        waiting = asyncio.create_task(event(trigger()))
        await quiet(emulator)
        emulator.set_campaign_state("spring", "done")
        push(any_inbox, COMPLETED)
        return await asyncio.wait_for(waiting, 60)

    assert run_trigger(woken())["status"] == "complete"


def test_an_asset_event_too(emulator: Emulator, inbox: Inbox) -> None:
    sending(emulator)

    async def woken() -> list[str]:
        events = MailCampaignEventTrigger(poke_interval=HOUR, label="asset").run()
        first = asyncio.create_task(anext(events))  # type: ignore[arg-type]
        await quiet(emulator)
        emulator.set_campaign_state("spring", "done")
        push(inbox, COMPLETED)
        found = (await asyncio.wait_for(first, 60)).payload["campaigns"]
        await events.aclose()  # type: ignore[attr-defined]
        return [campaign["mail_name"] for campaign in found]

    assert run_trigger(woken()) == ["spring"]


def test_the_service_may_list_later_what_it_has_pushed(emulator: Emulator, inbox: Inbox) -> None:
    sending(emulator)

    async def woken() -> Event:
        waiting = asyncio.create_task(event(trigger()))
        polls = await quiet(emulator)
        push(inbox, COMPLETED)
        await until(lambda: emulator.journal.count(GETS) > polls)
        emulator.set_campaign_state("spring", "done")
        return await asyncio.wait_for(waiting, 60)

    assert run_trigger(woken())["status"] == "complete"


def test_a_forged_push_decides_nothing_and_a_flood_is_few_requests(
    emulator: Emulator, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending(emulator)

    async def flooded() -> None:
        waiting = asyncio.create_task(event(trigger()))
        before, began = await quiet(emulator), time.monotonic()
        monkeypatch.setattr(shared_poller, "EXTRA_POLL_SECONDS", 0.5)
        for _ in range(30):
            await asyncio.to_thread(push, inbox, COMPLETED)
            await asyncio.sleep(0.05)
        polls = await quiet(emulator, 0.8) - before
        # At most one in half a second, whatever comes; the last quiet time has none.
        assert 2 <= polls <= (time.monotonic() - began - 0.8) / 0.5 + 2
        assert not waiting.done()
        await cancelled(waiting)

    run_trigger(flooded())


def test_only_those_whom_it_concerns(emulator: Emulator, inbox: Inbox, connect: Connect) -> None:
    connect("mail_shop")
    sending(emulator)

    async def others() -> None:
        stats = MailStatsSettledTrigger(
            mail_conn_id="mail_default", mail_name="spring", start_day="2026-03-01", observations=2, poke_interval=HOUR
        )
        waiting = [asyncio.create_task(event(each)) for each in (trigger(mail_conn_id="mail_shop"), stats)]
        await until(lambda: emulator.journal.count(STATS))
        campaigns = await quiet(emulator)
        polls = emulator.journal.count()
        push(inbox, COMPLETED)
        push(inbox, {"EventCode": "Opened"}, mail_conn_id="mail_shop")
        assert await quiet(emulator) == campaigns
        assert emulator.journal.count() == polls
        push(inbox, COMPLETED, mail_conn_id="mail_shop")
        await until(lambda: emulator.journal.count(GETS) > campaigns)
        await cancelled(*waiting)

    run_trigger(others())


def test_a_push_that_came_while_the_task_deferred(emulator: Emulator, inbox: Inbox) -> None:
    sending(emulator)
    emulator.add_campaign("summer", state="sending")

    async def joined_late() -> Event:
        waiting = asyncio.create_task(event(trigger("summer")))
        polls = await quiet(emulator)
        emulator.set_campaign_state("spring", "done")
        push(inbox, COMPLETED)
        await until(lambda: emulator.journal.count(GETS) > polls)
        await quiet(emulator)
        found = await asyncio.wait_for(event(trigger()), 20)
        await cancelled(waiting)
        return found

    assert run_trigger(joined_late())["status"] == "complete"


def test_without_an_inbox_nothing_is_queried(
    emulator: Emulator, unconfigured: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inbox, "newest", lambda *_, **__: pytest.fail("queried"))
    emulator.add_campaign("spring")
    assert run_trigger(event(trigger()))["status"] == "complete"


def test_an_inbox_is_queried_only_while_a_campaign_is_waited_for_once_for_all(
    emulator: Emulator, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    newest = Inbox.newest

    def note(inbox: Inbox, **options: Any) -> dict[str, int]:
        asked.append(threading.get_ident())
        return newest(inbox, **options)

    monkeypatch.setattr(Inbox, "newest", note)
    sending(emulator)

    async def crowd() -> None:
        began = time.monotonic()
        waiting = [asyncio.create_task(event(trigger(poke_interval=HOUR + number))) for number in range(5)]
        await until(lambda: len(asked) >= 4)
        assert len(asked) <= (time.monotonic() - began) / 0.05 + 1
        await cancelled(*waiting)
        ended = len(asked)
        await asyncio.sleep(0.3)
        assert len(asked) <= ended + 1
        assert threading.get_ident() not in asked

    run_trigger(crowd())


@pytest.mark.parametrize("broken", ["raises", "hangs", "no connection"])
def test_an_inbox_that_cannot_be_read_changes_nothing(
    emulator: Emulator, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    answers = threading.Event()
    if broken == "no connection":
        monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "nowhere")
    else:
        monkeypatch.setattr(Inbox, "newest", lambda *_, **__: answers.wait(30) if broken == "hangs" else 1 / 0)
    sending(emulator)

    async def polled() -> Event:
        waiting = asyncio.create_task(event(trigger(poke_interval=0.2)))
        await until(lambda: emulator.journal.count(GETS) >= 5)
        emulator.set_campaign_state("spring", "done")
        return await waiting

    try:
        assert run_trigger(polled())["status"] == "complete"
        assert not answers.is_set()
    finally:
        answers.set()
    if broken != "hangs":
        assert caplog.text.count("Campaigns are polled at their intervals only: ") == 1
