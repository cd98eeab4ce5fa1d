"""`MailCampaignTrigger`: many waits in one event loop, few requests, and nothing left behind."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.flows import polling, wait_campaign
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.triggers._base import decision_of, result_of
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException, AirflowSensorTimeout
from tests.support.processes import PATIENCE
from tests.tasks.triggering import Event, cancelled, event, impatient, note_closed, run, timed_out, until
from tests.tasks.waiting import answered

GETS = "campaign/mail/get"


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scheduler has to note a deferral here."""
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(polling, "MAX_BACKOFF", 0.2)
    monkeypatch.setattr(polling, "CONFIRM_SECONDS", 0.5)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[AsyncMailClient]:
    """The clients that were closed."""
    return note_closed(monkeypatch)


def trigger(mail_name: str, **arguments: Any) -> MailCampaignTrigger:
    return MailCampaignTrigger(
        **{"mail_conn_id": "mail_default", "mail_name": mail_name, "poke_interval": 0.2} | arguments
    )


# --- one wait ---


def test_gone_out(emulator: Emulator) -> None:
    emulator.add_campaign("spring", state="sending", sent=1000)
    emulator.plan_campaign("spring", looks=3)

    found = run(event(trigger("spring")))

    (campaign,) = emulator.campaigns()
    assert found == {
        "status": "complete",
        "mail_name": "spring",
        "message": "campaign 'spring' was sent",
        "mail_stats": found["mail_stats"],
    }
    assert found["mail_stats"]["sent_count"] == campaign["mailStats"]["sentCount"] == 1000
    assert json.loads(json.dumps(found)) == found
    assert emulator.journal.count(GETS) == 4


@pytest.mark.parametrize(
    ("state", "words"),
    [("failed", "mailStatus 4"), ("draft", "is a draft (mailStatus -1)"), ("removed", "has disappeared")],
)
def test_will_not_go_out(emulator: Emulator, state: str, words: str) -> None:
    emulator.settings.sending_seconds = 1000
    emulator.add_campaign("spring", state="sending")

    async def change() -> Event:
        waiting = asyncio.create_task(event(trigger("spring")))
        await until(lambda: answered(emulator, GETS))
        emulator.set_campaign_state("spring", state)
        return await waiting

    found = run(change())

    assert found["status"] == "failed"
    assert words in found["message"]
    with pytest.raises(AirflowFailException, match="spring"):
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)


def test_appears_late(emulator: Emulator) -> None:
    async def appear() -> Event:
        waiting = asyncio.create_task(event(trigger("late")))
        await until(lambda: emulator.journal.count(GETS) > 5)
        emulator.add_campaign("late")
        return await waiting

    assert run(appear())["status"] == "complete"


def test_the_time_is_up(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 1000
    emulator.add_campaign("slow", state="sending")

    found = timed_out(lambda end: trigger("slow", end_time=end))

    assert found["status"] == "timeout"
    assert found["message"] == "the wait timed out: campaign 'slow': sending (mailStatus 1)"
    with pytest.raises(AirflowSensorTimeout, match="the wait timed out"):
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)


@pytest.mark.parametrize("hours", [-9, 9])
def test_the_deadline_is_the_service_s(emulator: Emulator, hours: int) -> None:
    """The worker, whose clock may be another one, gives it by the clock that both know."""
    emulator.clock.advance(hours=hours)
    emulator.add_campaign("spring", state="sending")
    emulator.plan_campaign("spring", looks=3)
    assert run(event(trigger("spring", end_time=time.time() + hours * 3600 + 120)))["status"] == "complete"

    emulator.settings.sending_seconds = 1000
    emulator.add_campaign("slow", state="sending")
    found = timed_out(lambda end: trigger("slow", end_time=end + hours * 3600))
    assert found["message"] == "the wait timed out: campaign 'slow': sending (mailStatus 1)"


def test_nothing_is_asked_before_there_is_something_to_see(emulator: Emulator) -> None:
    emulator.add_campaign("later", state="done")
    moment = time.time() + 1.5

    found = run(event(trigger("later", not_before=moment)))

    assert found["status"] == "complete"
    (entry,) = emulator.journal.entries(GETS)
    assert entry["real_ms"] >= (moment - 0.01) * 1000


def test_no_sleep_is_longer_than_minutes(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been sent before its time, or a clock be wrong."""
    monkeypatch.setattr(wait_campaign, "MAX_PAUSE", 0.3)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    emulator.add_campaign("spring", state="scheduled", send_date=tomorrow)

    async def sent_early() -> Event:
        waiting = asyncio.create_task(event(trigger("spring", not_before=tomorrow.timestamp())))
        await until(lambda: emulator.journal.count(GETS) >= 2)
        emulator.set_campaign_state("spring", "done")
        return await waiting

    assert run(sent_early())["status"] == "complete"


@pytest.mark.parametrize("scheduled_status", [-1, 1])
@pytest.mark.parametrize("days", [-2, 2])
def test_the_send_time_is_the_service_s(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, scheduled_status: int, days: int
) -> None:
    # A second, to which a Date header is exact, must not be enough for a draft.
    monkeypatch.setattr(polling, "CONFIRM_SECONDS", 60)
    emulator.settings.scheduled_status = scheduled_status  # type: ignore[assignment]
    emulator.settings.sending_seconds = 0.0
    emulator.clock.advance(days=days)
    there = datetime.now(UTC) + timedelta(days=days, seconds=2)
    emulator.add_campaign("spring", state="scheduled", send_date=there)

    # What a worker says that knows the service's clock.
    found = run(event(trigger("spring", not_before=time.time() + 0.1)))

    assert found["status"] == "complete"
    # One poll before the send time, and those of the second to which a Date header is exact: ten were every 0.2 s.
    assert emulator.journal.count(GETS) <= 8


def test_who_waits_for_tomorrow_holds_nobody_up(emulator: Emulator) -> None:
    emulator.add_campaign("now", state="done")

    async def both() -> Event:
        tomorrow = asyncio.create_task(event(trigger("tomorrow", not_before=time.time() + 86_400)))
        await asyncio.sleep(0.3)
        try:
            return await asyncio.wait_for(event(trigger("now")), 10)
        finally:
            tomorrow.cancel()
            await asyncio.wait([tomorrow])

    assert run(both())["status"] == "complete"
    assert [entry["body"]["mailName"] for entry in emulator.journal.entries(GETS)] == ["now"]


def test_there_is_always_a_pause(emulator: Emulator) -> None:
    emulator.add_campaign("slow", state="sending")
    emulator.settings.sending_seconds = 1000

    async def some_polls() -> float:
        began = time.monotonic()
        waiting = asyncio.create_task(event(trigger("slow", poke_interval=0.0)))
        await until(lambda: emulator.journal.count(GETS) >= 5)
        await cancelled(waiting)
        return time.monotonic() - began

    seconds = run(some_polls())
    assert emulator.journal.count(GETS) <= seconds / 0.1 + 1


# --- many waits ---


def test_two_hundred_waits_share_one_poll(emulator: Emulator, closed: list[AsyncMailClient]) -> None:
    emulator.settings.sending_seconds = 1000
    names = [f"campaign-{number}" for number in range(200)]
    for name in names:
        emulator.add_campaign(name, state="sending")

    async def all_of_them() -> list[Event]:
        waiting = [asyncio.create_task(event(trigger(name, poke_interval=1.0))) for name in names]
        # Two pages of a hundred: that is a poll.
        await until(lambda: emulator.journal.count(GETS) >= 10)
        assert emulator.journal.count(GETS) <= 12
        for name in names:
            emulator.set_campaign_state(name, "done")
        return await asyncio.gather(*waiting)

    events = run(all_of_them())

    assert {found["mail_name"] for found in events if found["status"] == "complete"} == set(names)
    asked = [entry["body"].get("mailName") for entry in emulator.journal.entries(GETS)]
    # When all are sent at once, those are listed too. Both lists change while they are read: a few may be missed.
    assert len([name for name in asked if name]) <= 25
    assert 10 <= asked.count(None) <= 24
    assert [2, 4] in by_status(emulator)
    assert len(closed) == 1


def test_those_that_were_sent_are_requested_by_name_when_the_list_is_long(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 1000
    emulator.settings.newest_first = False
    names = [f"campaign-{number}" for number in range(30)]
    for number in range(2000):
        emulator.add_campaign(f"last year {number}", sent=1)
    for name in names:
        emulator.add_campaign(name, state="sending")
    told: list[str] = []

    async def tell(name: str) -> None:
        told.append((await event(trigger(name, poke_interval=0.5)))["mail_name"])

    async def all_of_them() -> None:
        waiting = [asyncio.create_task(tell(name)) for name in names]
        await until(lambda: emulator.journal.count(GETS) >= 3)
        emulator.settings.latency_seconds = 0.2
        for name in names:
            emulator.set_campaign_state(name, "done")
        await until(lambda: told)
        assert len(told) < len(names), "each is told at once, not after the last"
        emulator.settings.latency_seconds = 0.0
        await asyncio.gather(*waiting)

    run(all_of_them())

    asked = [entry["body"].get("mailName") for entry in emulator.journal.entries(GETS)]
    assert {name for name in asked if name} == set(names)
    assert len([name for name in asked if name]) <= 40
    assert len([statuses for statuses in by_status(emulator) if statuses == [2, 4]]) <= 3


def test_a_wait_says_what_is_new_and_nothing_else(
    emulator: Emulator, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line per poll and wait would fill a triggerer's disk, and cost more than the polls."""
    emulator.settings.sending_seconds = 1000
    names = [f"campaign-{number}" for number in range(30)]
    for name in names:
        emulator.add_campaign(name, state="sending")

    async def many_polls() -> None:
        waiting = [asyncio.create_task(event(trigger(name, end_time=1893456000.0))) for name in names]
        await until(lambda: emulator.journal.count(GETS) >= 10)
        for name in names:
            emulator.set_campaign_state(name, "done")
        await asyncio.gather(*waiting)

    run(many_polls())

    shown, logged = (
        [line for line in text.splitlines() if "campaign 'campaign-7'" in line]
        for text in (capfd.readouterr().out, caplog.text)
    )
    said = shown or logged  # Airflow 3.0 does both.
    assert len(said) == 2
    assert "sending (mailStatus 1); next poll in 0.2 s, deadline 2030-01-01 00:00:00 UTC" in said[0]
    assert "was sent" in said[1]


def test_a_slow_log_holds_up_no_event(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A triggerer that is busy reads what its triggers log only after a while."""
    names = [f"campaign-{number}" for number in range(6)]
    for name in names:
        emulator.add_campaign(name, state="done", sent=1)
    read, logged = threading.Event(), []

    class Log:
        def info(self, *line: str) -> None:
            assert read.wait(PATIENCE)
            logged.append(line)

    monkeypatch.setattr(MailCampaignTrigger, "log", Log())

    async def all_of_them() -> list[Any]:
        running = [trigger(name).run() for name in names]
        first = [(await anext(each)).payload for each in running[:3]]
        ending = [asyncio.create_task(anext(each, None)) for each in running[:3]]
        await asyncio.sleep(0.1)
        others = [(await anext(each)).payload for each in running[3:]]
        assert not any(task.done() for task in ending)
        read.set()
        await asyncio.gather(*ending, *(anext(each, None) for each in running[3:]))
        return first + others

    assert [found["status"] for found in run(all_of_them())] == ["complete"] * 6
    assert len(logged) == 6


def test_what_was_never_there_is_named_as_such(emulator: Emulator) -> None:
    found = timed_out(lambda end: trigger("sprang", end_time=end))
    assert found["message"] == (
        "the wait timed out: campaign 'sprang' was never seen: the service has none of exactly this name (yet)"
    )


def test_scheduled_campaigns_that_show_as_drafts_are_listed_too(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.settings.scheduled_status = -1
    names = [f"campaign-{number}" for number in range(30)]
    for name in names:
        emulator.add_campaign(name, state="scheduled", send_date=datetime.now(UTC) + timedelta(seconds=1000))
        emulator.plan_campaign(name, seconds=1000)
    monkeypatch.setattr(wait_campaign, "MAX_PAUSE", 0.2)

    async def some_polls() -> None:
        waiting = [asyncio.create_task(event(trigger(name))) for name in names]
        await until(lambda: len(by_status(emulator)) >= 5)
        await cancelled(*waiting)

    run(some_polls())

    # By name once at most, when nothing was known of them.
    assert emulator.journal.count(GETS) - len(by_status(emulator)) <= 40
    assert [-1, 1] in by_status(emulator)


def by_status(emulator: Emulator) -> list[list[int]]:
    bodies = [entry["body"] for entry in emulator.journal.entries(GETS)]
    return [body["mailStatus"] for body in bodies if body and "mailStatus" in body]


@pytest.mark.parametrize("count", [4, 5])
def test_a_list_that_changes_while_it_is_read_ends_no_wait(emulator: Emulator, count: int) -> None:
    """It says that more are being sent than it holds: those who are not in it are asked for by name."""
    emulator.settings.sending_seconds = 1000
    names = [f"campaign-{number}" for number in range(count)]
    for name in names[1:]:
        emulator.add_campaign(name, state="sending")
    emulator.faults.add("wrong_total", GETS, count=None, where={"mailStatus": [1]})

    async def all_of_them() -> list[Event]:
        arguments = {"poll_error_timeout": 0.0, "max_poll_errors": 0}
        waiting = [asyncio.create_task(event(trigger(name, **arguments))) for name in names]
        await until(lambda: emulator.faults.list()[0]["struck"] >= 3)
        emulator.add_campaign(names[0])
        for name in names[1:]:
            emulator.set_campaign_state(name, "done")
        return await asyncio.gather(*waiting)

    assert [found["status"] for found in run(all_of_them())] == ["complete"] * count


def test_who_knows_is_not_asked_for_again_though_the_next_poll_is_due(emulator: Emulator) -> None:
    """A poll that takes longer than the interval is not followed by another before its waits have heard of it."""
    over = ["spring", "summer"]
    for name in over:
        emulator.add_campaign(name, state="done", sent=1)
    emulator.add_campaign("slow", state="sending")
    emulator.settings.sending_seconds = 1000
    emulator.settings.latency_seconds = 0.3

    def asked_for() -> list[str]:
        return [(entry["body"] or {}).get("mailName") for entry in emulator.journal.entries(GETS)]

    async def all_of_them() -> list[Event]:
        slow = asyncio.create_task(event(trigger("slow", poke_interval=0.1)))
        found = await asyncio.gather(*(event(trigger(name, poke_interval=0.1)) for name in over))
        await until(lambda: asked_for().count("slow") > 2)
        await cancelled(slow)
        return found

    assert [found["status"] for found in run(all_of_them())] == ["complete", "complete"]
    asked = asked_for()
    assert [asked.count(name) for name in over] == [1, 1]


def test_a_long_list_of_others_is_not_read_for_a_few(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 1000
    with_others = [f"other-{number:04}" for number in range(500)]
    mine = [f"mine-{number}" for number in range(6)]
    for name in [*mine, *with_others]:  # the newest come first
        emulator.add_campaign(name, state="sending")

    async def some_polls() -> None:
        waiting = [asyncio.create_task(event(trigger(name))) for name in mine]
        await until(lambda: emulator.journal.count(GETS) >= 27)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    run(some_polls())

    asked = [entry["body"].get("mailName") for entry in emulator.journal.entries(GETS)]
    polls = max(asked.count(name) for name in mine)
    assert polls >= 3
    # Three pages a poll and not six; who joins after the first poll is missing in that one.
    assert asked.count(None) <= 3 * (polls + 1)
    assert min(asked.count(name) for name in mine) >= polls - 2


def test_connections_and_intervals_are_kept_apart(
    emulator: Emulator, connect: Callable[..., None], closed: list[AsyncMailClient]
) -> None:
    connect("mail_other", password="another key")
    emulator.settings.sending_seconds = 1000
    for number in range(4):
        emulator.add_campaign(f"mine-{number}", state="done")

    async def all_of_them() -> list[Event]:
        waiting = [trigger(f"mine-{number}") for number in range(4)]
        waiting += [
            trigger("mine-0", poke_interval=0.3),
            trigger("mine-0", mail_conn_id="mail_other", poll_error_timeout=0.5),
        ]
        return await asyncio.gather(*(event(one) for one in waiting))

    events = run(all_of_them())

    assert [found["status"] for found in events] == [*["complete"] * 5, "refused"]
    assert "connection 'mail_other'" in events[-1]["message"]
    assert len({id(client) for client in closed}) >= 3
    auths = [entry["auth"] for entry in emulator.journal.entries(GETS)]
    assert auths.count("invalid") >= 3


def test_nothing_blocks_the_loop(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 1000
    emulator.settings.latency_seconds = 0.2
    names = [f"campaign-{number}" for number in range(50)]
    for name in names:
        emulator.add_campaign(name, state="sending")
    # What is imported once in the life of a triggerer is not what is looked for here.
    for module in ("_polling.campaigns", "hooks.mail", "api.client"):
        importlib.import_module(f"airflow_provider_mail.{module}")

    async def polls() -> tuple[int, float]:
        waiting = [asyncio.create_task(event(trigger(name))) for name in names]
        await until(lambda: answered(emulator))
        began, beats = time.thread_time(), 0
        enough = emulator.journal.count() + 5
        while emulator.journal.count() < enough:
            await asyncio.sleep(0.01)
            beats += bool(emulator.service.journal.in_flight)
        await cancelled(*waiting)
        return beats, time.thread_time() - began

    beats, seconds = run(polls())

    # While a request is under way the loop beats about twenty times, and on a machine that is busy elsewhere sometimes.
    assert beats >= 5
    assert seconds / 5 < 0.15, "of the processor, for each poll"


FRESH_TRIGGERER = """
import asyncio, sys, threading
from airflow_provider_mail.triggers import campaigns

class Noting:
    imported = {}

    def find_spec(self, name, path, target=None):
        if name.startswith("airflow_provider_mail."):
            self.imported[name] = threading.current_thread() is threading.main_thread()

async def wait():
    trigger = getattr(campaigns, sys.argv[1])(mail_conn_id="mail_default", mail_name="spring", poke_interval=0.1)
    async for event in trigger.run():
        print("spring" in str(event.payload))
        break

sys.meta_path.insert(0, Noting())
asyncio.run(wait())
print(sorted(name for name, in_loop in Noting.imported.items() if in_loop))
print(Noting.imported["airflow_provider_mail.api.client"])
"""


@pytest.mark.parametrize("kind", ["MailCampaignTrigger", "MailCampaignEventTrigger"])
def test_the_first_wait_of_a_triggerer_imports_beside_the_loop(
    emulator: Emulator, airflow_home: Path, kind: str
) -> None:
    emulator.add_campaign("spring")

    done = subprocess.run(
        [sys.executable, "-c", FRESH_TRIGGERER, kind], env=os.environ, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-3:] == ["True", "[]", "False"]


# --- what goes wrong ---


@pytest.mark.parametrize("kind", ["close_after", "http_error_before", "html_before", "cut_json", "wrong_total"])
def test_a_failed_poll_ends_no_wait(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(AsyncMailClient, "run", impatient(AsyncMailClient.run))
    emulator.settings.sending_seconds = 1000
    names = [f"campaign-{number}" for number in range(5)]
    for name in names:
        emulator.add_campaign(name, state="sending")
    emulator.faults.add(kind, GETS, count=8)

    async def mended() -> list[Event]:
        waiting = [asyncio.create_task(event(trigger(name))) for name in names]
        await until(lambda: emulator.faults.list()[0]["count"] == 0)
        for name in names:
            emulator.set_campaign_state(name, "done")
        return await asyncio.gather(*waiting)

    assert [found["status"] for found in run(mended())] == ["complete"] * 5


def test_polls_that_always_fail_end_the_wait(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncMailClient, "run", impatient(AsyncMailClient.run))
    emulator.add_campaign("spring")
    emulator.faults.add("http_error_before", GETS, count=None)

    found = run(event(trigger("spring", max_poll_errors=3, poll_error_timeout=0)))

    assert found["status"] == "error"
    assert found["message"].startswith("connection 'mail_default': 4 polls in a row failed, for ")
    assert emulator.journal.count(GETS) == 4
    with pytest.raises(AirflowException, match="4 polls in a row failed") as caught:
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)
    assert not isinstance(caught.value, AirflowFailException)


def test_only_failures_in_a_row_count(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncMailClient, "run", impatient(AsyncMailClient.run))
    emulator.settings.sending_seconds = 1000
    emulator.add_campaign("spring", state="sending")
    for skip in (0, 3, 6):
        emulator.faults.add("http_error_before", GETS, count=2, skip=skip)

    async def mended() -> Event:
        waiting = asyncio.create_task(event(trigger("spring", max_poll_errors=2, poll_error_timeout=0)))
        await until(lambda: all(fault["count"] == 0 for fault in emulator.faults.list()))
        emulator.set_campaign_state("spring", "done")
        return await waiting

    assert run(mended())["status"] == "complete"


def test_a_key_may_be_exchanged_while_tasks_wait(
    emulator: Emulator, connect: Callable[..., None], closed: list[AsyncMailClient]
) -> None:
    emulator.settings.sending_seconds = 1000
    names = [f"campaign-{number}" for number in range(6)]
    for name in names:
        emulator.add_campaign(name, state="sending")

    async def exchanged() -> list[Event]:
        waiting = [asyncio.create_task(event(trigger(name))) for name in names]
        await until(lambda: emulator.journal.count(GETS) >= 2)
        emulator.settings.api_key = "the new key"
        refused = emulator.journal.count(GETS) + 3
        await until(lambda: emulator.journal.count(GETS) >= refused)
        connect(password="the new key")
        for name in names:
            emulator.set_campaign_state(name, "done")
        return await asyncio.gather(*waiting)

    assert [found["status"] for found in run(exchanged())] == ["complete"] * 6
    assert {entry["auth"] for entry in emulator.journal.entries(GETS)} == {"api_key", "invalid"}
    assert len(closed) > 1


@pytest.mark.parametrize("setting", ["", '{"conn_type": "mail", "host": "", "password": "x"}'])
def test_a_connection_that_is_missing_for_a_while(
    emulator: Emulator, connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    emulator.add_campaign("spring")
    if setting:
        monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", setting)
    else:
        monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")

    async def mended() -> Event:
        waiting = asyncio.create_task(event(trigger("spring")))
        await asyncio.sleep(0.7)
        assert not waiting.done()
        connect()
        return await waiting

    assert run(mended())["status"] == "complete"


# --- the end of it ---


def test_the_last_to_leave_ends_it_and_the_next_begins_anew(emulator: Emulator, closed: list[AsyncMailClient]) -> None:
    emulator.add_campaign("spring")

    async def one_after_the_other() -> list[str]:
        return [(await event(trigger("spring")))["status"] for _ in range(3)]

    assert run(one_after_the_other()) == ["complete"] * 3
    assert len(closed) == 3


def test_each_loop_has_its_own(emulator: Emulator) -> None:
    emulator.add_campaign("spring")

    assert [run(event(trigger("spring")))["status"] for _ in range(3)] == ["complete"] * 3
