"""Waits in a triggerer: many in one event loop, few requests, what is stored of them, and nothing left behind.

How the wait for a campaign ends is in `tests/machines/test_waiting.py`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail._task.waiting import decision_of, result_of
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from airflow_provider_mail.triggers.senders import MailSenderTrigger
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException, AirflowSensorTimeout
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.tasks.conftest import Connect
from tests.tasks.triggering import (
    cancelled,
    event,
    events,
    note_closed,
    restarted,
    run,
    run_for,
    steady_clock,  # noqa: F401
)

GETS, STATS = "campaign/mail/get", "campaign/mail/stats/get"

WAIT = {"poke_interval": 30.0, "end_time": 1893456000.0, "poll_error_timeout": 60.0}
COMMON = {"mail_conn_id": "mail_default", **WAIT}
CAMPAIGN = {"mail_name": "spring", "not_before": 1893450000.0, "seen": True, "cancel_on_kill": True}
STATE = {"awaited": ["spring", 3600.0], "record": None, "same": 0, "last": 0.0, "missing": 1}
SETTLED = {"mail_name": "spring", "start_day": "2026-03-01", "end_day": None, "stable_checks": 3}
# From the first release on, what a version has stored must load for ever: arguments are only added, with a default.
STORED: dict[str, dict[str, Any]] = {
    "campaigns.MailCampaignTrigger": {**CAMPAIGN, "guid": "g-1", **COMMON},
    "stats.MailStatsSettledTrigger": {**SETTLED, "min_interval": 3600.0, "max_age": None, "state": STATE, **COMMON},
    "senders.MailSenderTrigger": {"sender_email": "mail.example.com", "selector": "mail", **COMMON},
    "events.MailInboxTrigger": {"inbox_conn_id": "warehouse", "inbox_table": "mail_inbox", **WAIT},
    "campaigns.MailCampaignEventTrigger": {
        "mail_conn_id": "mail_default", "mail_name": None, "name_prefix": "news ", "name_contains": None,
        "mail_status": ["complete"], "lookback": 86_400.0, "poke_interval": 30.0, "label": "news",
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _slow(emulator: Emulator) -> None:
    """What is being sent is so for long, unless a test changes it."""
    emulator.settings.sending_seconds = 10**6


def trigger(mail_name: str = "spring", **arguments: Any) -> MailCampaignTrigger:
    return MailCampaignTrigger(**{"mail_conn_id": "mail_default", "mail_name": mail_name} | arguments)


def settled(mail_name: str, start_day: str, **arguments: Any) -> MailStatsSettledTrigger:
    return MailStatsSettledTrigger(
        mail_conn_id="mail_default", mail_name=mail_name, start_day=start_day, stable_checks=3, **arguments
    )


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


def day(days_ago: int) -> str:
    return f"{datetime.now(UTC).date() - timedelta(days=days_ago)}"


# --- one wait ---


@pytest.mark.parametrize("path", STORED)
def test_stored_arguments_stay_the_same(path: str) -> None:
    """Waits survive an upgrade of the provider. What is stored is not encrypted, so nothing of it may be a secret.

    A triggerer imports the class by the stored path and calls it with the stored arguments.
    """
    module, _, name = f"airflow_provider_mail.triggers.{path}".rpartition(".")
    loaded = getattr(importlib.import_module(module), name)(**STORED[path])
    assert loaded.serialize() == restarted(loaded).serialize() == (f"{module}.{name}", STORED[path])


def test_the_event_of_a_sent_campaign(emulator: Emulator) -> None:
    emulator.add_campaign("spring", state="sending", sent=1000)
    emulator.plan_campaign("spring", looks=3)
    began = time.time()
    (found,) = events(trigger())

    stats = found.pop("result")
    assert found == {"status": "complete", "name": "spring", "message": "campaign 'spring' was sent"}
    assert stats["sent_count"] == 1000
    assert json.loads(json.dumps(stats)) == stats
    # The first not before the scheduler has recorded the deferral.
    moments = [entry["real_ms"] / 1000 - began for entry in emulator.journal.entries(GETS)]
    assert moments == pytest.approx([5, 65, 125, 185], abs=1)


@pytest.mark.parametrize("reached", [False, True])
def test_a_deadline_that_has_passed_is_after_one_poll(emulator: Emulator, reached: bool) -> None:
    """What was awaited may have happened while no triggerer ran."""
    if reached:
        emulator.add_campaign("spring")
    (found,) = events(trigger(end_time=time.time() - 3600))
    assert (found["status"], emulator.journal.count()) == ("complete" if reached else "timeout", 1)
    assert reached or "the wait timed out" in found["message"]


@pytest.mark.parametrize("is_missing", [False, True])
def test_while_polls_fail_the_connection_is_read_again(
    emulator: Emulator, connect: Connect, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_missing: bool
) -> None:
    closed = note_closed(monkeypatch)
    emulator.add_campaign("spring")
    emulator.settings.api_key = "the new key"
    if is_missing:
        monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")
    clock.after(200, lambda: connect(password="the new key"))
    assert events(trigger())[0]["status"] == "complete"
    failed = 0 if is_missing else 4
    assert [entry["auth"] for entry in emulator.journal.entries()] == [*["invalid"] * failed, "api_key"]
    assert len(closed) == failed + 1


def test_cancelling_leaves_nothing_behind(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a poll."""
    closed = note_closed(monkeypatch)

    async def cancel() -> None:
        loop, polling = asyncio.get_running_loop(), asyncio.Event()
        with at_request(emulator, GETS, 1, lambda: loop.call_soon_threadsafe(polling.set), before=True):
            waiting = [asyncio.create_task(event(trigger())) for _ in range(3)]
            await polling.wait()
            await cancelled(*waiting)
        assert all(task.cancelled() for task in waiting)

    run(cancel())
    assert len(closed) == 1


@pytest.mark.parametrize(("status", "error"), [
    ("failed", AirflowFailException),
    ("refused", AirflowFailException),
    ("error", AirflowException),
    ("timeout", AirflowSensorTimeout),
])  # fmt: skip
def test_the_end_of_a_wait_in_its_task(status: str, error: type[Exception]) -> None:
    ended = {"status": status, "message": "so it ended", "result": {"sent_count": 1}}
    with pytest.raises(AirflowException, match="so it ended") as raised:
        result_of(decision_of(ended), timeout_error=AirflowSensorTimeout)
    assert type(raised.value) is error
    complete = ended | {"status": "complete"}
    assert result_of(decision_of(complete), timeout_error=AirflowSensorTimeout) == {"sent_count": 1}
    for strange in (None, {"status": status}, ended | {"result": None}, ended | {"status": "no such"}):
        with pytest.raises(AirflowException, match="not an event of a mail trigger"):
            decision_of(strange)


# --- many waits for campaigns ---


def test_two_hundred_waits_share_one_poll(emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = note_closed(monkeypatch)
    names = add(emulator, 200)
    clock.after(5 * 60 + 30, set_all(emulator, names))
    found = events(*map(trigger, names))
    assert [(each["name"], each["status"]) for each in found] == [(name, "complete") for name in names]
    # Two pages of a hundred and one that is empty; when all are sent at once, those are listed too.
    assert polls(emulator) == [[1]] * 3 * 6 + [[1]] + [[2, 4]] * 3
    assert len(closed) == 1


def test_a_long_list_of_others_is_not_read_for_a_few(emulator: Emulator) -> None:
    mine = add(emulator, 4)
    for number in range(210):  # the newest come first
        emulator.add_campaign(f"other-{number:04}", state="sending")
    run_for(150, *map(trigger, mine))
    # At each of three polls a page says that the list is too long.
    assert [polls(emulator).count([1]), *map(polls(emulator).count, mine)] == [3] * 5


def test_scheduled_campaigns_that_show_as_drafts_are_listed_too(emulator: Emulator) -> None:
    emulator.settings.scheduled_status = -1
    names = add(emulator, 30, state="scheduled", send_date=datetime.now(UTC) + timedelta(hours=1))
    run_for(1000, *map(trigger, names))
    # By name once, when nothing was known of them.
    lists = [one for one in polls(emulator) if one not in names]
    assert lists == [[1], [2, 4], [-1, 1], [-1, 1], [-1, 1]]
    assert len(polls(emulator)) == len(lists) + 30


def test_a_list_that_changes_while_it_is_read_ends_no_wait(emulator: Emulator, clock: Clock) -> None:
    """It says that it holds more than it does: those that are not in it are requested by name."""
    names = ["not yet there", *add(emulator, 4)]
    emulator.faults.add("wrong_total", GETS, count=None, where={"mailStatus": [1]})
    clock.after(100, lambda: emulator.add_campaign(names[0]))
    clock.after(100, set_all(emulator, names[1:]))
    found = events(*(trigger(name, poll_error_timeout=0.0) for name in names))
    assert [each["status"] for each in found] == ["complete"] * 5


@pytest.mark.parametrize("count", [2, 4])
def test_the_guid_identifies_a_campaign_and_its_name_only_without_one(emulator: Emulator, count: int) -> None:
    names = add(emulator, count)
    guids = [emulator.campaigns(name)[0]["guid"] for name in names]
    add(emulator, 1)  # another one has the first name by now
    emulator.set_campaign_state(names[1], "done")
    known = [trigger(name.upper(), guid=guid.upper(), seen=True) for name, guid in zip(names, guids, strict=True)]
    waits = [known[1], trigger(names[1]), trigger(names[0], guid="another", seen=True)]
    assert [found["status"] for found in events(*waits)] == ["complete", "complete", "failed"]
    run_for(1000, *known[2:])  # in the list, or asked for


def test_connections_and_intervals_have_polls_of_their_own(
    emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = note_closed(monkeypatch)
    connect("mail_other", password="another key")
    others = ({"poke_interval": 90}, {"mail_conn_id": "mail_other", "poll_error_timeout": 100})
    waits = [trigger(name) for name in add(emulator, 4, "done")] + [trigger("campaign-0", **other) for other in others]
    found = events(*waits)
    assert [each["status"] for each in found] == [*["complete"] * 5, "refused"]
    assert "connection 'mail_other'" in found[-1]["message"]
    assert len({id(client) for client in closed}) == 2 + 3
    assert [entry["auth"] for entry in emulator.journal.entries(GETS)].count("invalid") == 3


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


# --- many waits for statistics and senders ---


def test_waits_for_statistics_share_one_request(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = note_closed(monkeypatch)
    emulator.add_campaigns(200, prefix="c", first_day=day(29), per_day=20)
    names = [campaign["mailName"] for campaign in emulator.campaigns()]
    found = events(*(settled(name, day(30)) for name in names))
    assert [(each["status"], each["result"]["mail_name"]) for each in found] == [("complete", name) for name in names]
    assert [entry["body"].get("mailName") for entry in emulator.journal.entries(STATS)] == [None, None, None]
    assert len(closed) == 1


def test_windows_that_touch_are_requested_together(emulator: Emulator) -> None:
    windows = [(250, 240), (300, 300), (3, 3), (248, 245), (299, 299), (246, 239)]
    names = [f"of-{first}-{last}-000000" for first, last in windows]
    for name, (_, last) in zip(names, windows, strict=True):
        emulator.add_campaigns(1, prefix=name.removesuffix("-000000"), first_day=day(last))
    days = zip(names, windows, strict=True)
    found = events(*(settled(name, day(first), end_day=day(last)) for name, (first, last) in days))
    assert {each["status"] for each in found} == {"complete"}
    bodies = [entry["body"] for entry in emulator.journal.entries(STATS)][:3]
    # Only one campaign is waited for in the last window: it is requested by name.
    assert [(body["startDate"], body["endDate"], body.get("mailName")) for body in bodies] == [
        (day(300), day(299), None),
        (day(250), day(239), None),
        (day(3), day(3), names[2]),
    ]


def test_waits_for_senders_share_one_request(emulator: Emulator, clock: Clock) -> None:
    senders = [f"mail{number}.example.com" for number in range(50)]
    clock.after(700, lambda: [emulator.add_sender(sender) for sender in senders])
    emulator.add_sender("checked.example.com")
    *found, checked = events(
        *(MailSenderTrigger(mail_conn_id="mail_default", sender_email=sender) for sender in senders),
        MailSenderTrigger(mail_conn_id="mail_default", sender_email="checked.example.com", selector="mail"),
    )
    good = dict.fromkeys(("valid", "good_mx", "good_spf", "good_dkim", "good_dmarc"), True)
    assert [(each["name"], each["result"]) for each in found] == [(sender, good) for sender in senders]
    assert {each["status"] for each in [*found, checked]} == {"complete"}
    assert [emulator.journal.count(f"verified_senders/{name}") for name in ("get", "verify")] == [4, 1]
