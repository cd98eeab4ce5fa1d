"""`MailCampaignTrigger`: many waits in one event loop, few requests, and nothing left behind.

How one wait ends is in `tests/machines/test_waiting.py`, and what all triggers do in `test_triggers.py`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.tasks.conftest import Connect
from tests.tasks.triggering import (
    event,
    events,
    note_closed,
    run,
    run_for,
    steady_clock,  # noqa: F401
)

GETS = "campaign/mail/get"


@pytest.fixture(autouse=True)
def _slow(emulator: Emulator) -> None:
    """What is being sent is so for long, unless a test changes it."""
    emulator.settings.sending_seconds = 10**6


def trigger(mail_name: str, **arguments: Any) -> MailCampaignTrigger:
    return MailCampaignTrigger(**{"mail_conn_id": "mail_default", "mail_name": mail_name} | arguments)


def polls(emulator: Emulator) -> list[list[int] | str]:
    """What was asked for: states, or a name."""
    bodies = [entry["body"] for entry in emulator.journal.entries(GETS)]
    return [body.get("mailStatus") or body["mailName"] for body in bodies]


def add(emulator: Emulator, count: int, state: Any = "sending", **fields: Any) -> list[str]:
    names = [f"campaign-{number}" for number in range(count)]
    for name in names:
        emulator.add_campaign(name, state=state, **fields)
    return names


def set_all(emulator: Emulator, names: list[str]) -> Callable[[], None]:
    """All of them are sent."""
    return lambda: [emulator.set_campaign_state(name, "done") for name in names] and None


# --- one wait ---


def test_the_event_of_a_sent_campaign(emulator: Emulator) -> None:
    emulator.add_campaign("spring", state="sending", sent=1000)
    emulator.plan_campaign("spring", looks=3)
    began = time.time()

    (found,) = events(trigger("spring"))

    stats = found.pop("result")
    assert found == {"status": "complete", "name": "spring", "message": "campaign 'spring' was sent"}
    assert stats["sent_count"] == 1000
    assert json.loads(json.dumps(stats)) == stats
    # The first not before the scheduler has recorded the deferral.
    moments = [entry["real_ms"] / 1000 - began for entry in emulator.journal.entries(GETS)]
    assert moments == pytest.approx([5, 65, 125, 185], abs=1)


# --- many waits ---


def test_two_hundred_waits_share_one_poll(emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = note_closed(monkeypatch)
    names = add(emulator, 200)
    clock.after(5 * 60 + 30, set_all(emulator, names))

    found = events(*map(trigger, names))

    assert [(each["name"], each["status"]) for each in found] == [(name, "complete") for name in names]
    # Two pages of a hundred and one that is empty; when all are sent at once, those are listed too.
    assert polls(emulator) == [[1]] * 3 * 6 + [[1]] + [[2, 4]] * 3
    assert len(closed) == 1


def test_sent_campaigns_in_a_long_list_are_requested_by_name(emulator: Emulator, clock: Clock) -> None:
    emulator.settings.newest_first = False
    emulator.add_campaigns(2000, prefix="last-year", first_day="2025-03-01", per_day=100)
    names = add(emulator, 30)
    clock.after(60, set_all(emulator, names))

    events(*map(trigger, names))

    sending, none_is_sending, too_long, *by_name = polls(emulator)
    assert [sending, none_is_sending, too_long] == [[1], [1], [2, 4]]
    assert sorted(map(str, by_name)) == sorted(names)


def test_a_long_list_of_others_is_not_read_for_a_few(emulator: Emulator) -> None:
    mine = add(emulator, 6)
    for number in range(310):  # the newest come first
        emulator.add_campaign(f"other-{number:04}", state="sending")

    run_for(150, *map(trigger, mine))

    # At each of three polls a page says that the list is too long.
    assert [polls(emulator).count([1]), *map(polls(emulator).count, mine)] == [3] * 7


def test_scheduled_campaigns_that_show_as_drafts_are_listed_too(emulator: Emulator) -> None:
    emulator.settings.scheduled_status = -1
    names = add(emulator, 30, state="scheduled", send_date=datetime.now(UTC) + timedelta(hours=1))

    run_for(1000, *map(trigger, names))

    # By name once, when nothing was known of them.
    lists = [one for one in polls(emulator) if one not in names]
    assert lists == [[1], [2, 4], [-1, 1], [-1, 1], [-1, 1]]
    assert len(polls(emulator)) == len(lists) + 30


@pytest.mark.parametrize("count", [4, 5])
def test_a_list_that_changes_while_it_is_read_ends_no_wait(emulator: Emulator, clock: Clock, count: int) -> None:
    """It says that it holds more than it does: those that are not in it are requested by name."""
    names = ["not yet there", *add(emulator, count - 1)]
    emulator.faults.add("wrong_total", GETS, count=None, where={"mailStatus": [1]})
    clock.after(100, lambda: emulator.add_campaign(names[0]))
    clock.after(100, set_all(emulator, names[1:]))

    found = events(*(trigger(name, poll_error_timeout=0.0, max_poll_errors=0) for name in names))

    assert [each["status"] for each in found] == ["complete"] * count


def test_connections_and_intervals_have_polls_of_their_own(
    emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = note_closed(monkeypatch)
    connect("mail_other", password="another key")
    waits = [trigger(name) for name in add(emulator, 4, "done")]
    others = ({"poke_interval": 90}, {"mail_conn_id": "mail_other", "poll_error_timeout": 100})
    waits += [trigger("campaign-0", **other) for other in others]

    found = events(*waits)

    assert [each["status"] for each in found] == [*["complete"] * 5, "refused"]
    assert "connection 'mail_other'" in found[-1]["message"]
    assert len({id(client) for client in closed}) == 2 + 3
    assert [entry["auth"] for entry in emulator.journal.entries(GETS)].count("invalid") == 3


def test_the_loop_runs_while_a_request_is_under_way(emulator: Emulator) -> None:
    beat = threading.Event()
    names = add(emulator, 50, "done")

    async def both() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def hold() -> None:
            loop.call_soon_threadsafe(arrived.set)
            assert beat.wait(100)

        with at_request(emulator, GETS, 2, hold):
            waits = asyncio.gather(*map(event, map(trigger, names)))
            await arrived.wait()
            beat.set()
            await waits

    run(both())


# --- what is logged ---


def test_a_wait_logs_what_is_new_and_nothing_else(
    emulator: Emulator, clock: Clock, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line per poll and wait would fill a triggerer's disk, and cost more than the polls."""
    names = add(emulator, 10)
    clock.after(30 * 60, set_all(emulator, names))

    events(*(trigger(name, end_time=1893456000.0) for name in names))

    shown, logged = (
        [line for line in text.splitlines() if "campaign 'campaign-7'" in line]
        for text in (capfd.readouterr().out, caplog.text)
    )
    first, last = shown or logged  # Airflow 3.0 does both.
    assert "sending (mailStatus 1); next poll in 60 s, deadline 2030-01-01 00:00:00 UTC" in first
    assert "was sent" in last


def test_a_slow_log_delays_no_event(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A triggerer that is busy reads what its triggers log only after a while."""
    read, logged = threading.Event(), []

    class Log:
        def info(self, *line: str) -> None:
            assert read.wait(200)
            logged.append(line)

    monkeypatch.setattr(MailCampaignTrigger, "log", Log())

    async def all_of_them(names: list[str]) -> list[Any]:
        # While a thread writes the log, time passes as it does for the thread.
        running = [trigger(name, poke_interval=0.1).run() for name in names]
        first = [(await anext(each)).payload for each in running[:3]]
        ending = [asyncio.create_task(anext(each, None)) for each in running[:3]]
        others = [(await anext(each)).payload for each in running[3:]]
        assert not any(task.done() for task in ending)
        read.set()
        await asyncio.gather(*ending, *(anext(each, None) for each in running[3:]))
        return first + others

    assert [found["status"] for found in run(all_of_them(add(emulator, 6, "done")))] == ["complete"] * 6
    assert len(logged) == 6


def test_the_last_wait_ends_the_poll_and_the_next_starts_one(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = note_closed(monkeypatch)
    emulator.add_campaign("spring")

    async def one_after_the_other() -> list[str]:
        return [(await event(trigger("spring")))["status"] for _ in range(2)]

    assert run(one_after_the_other()) == ["complete"] * 2
    assert len(closed) == 2
