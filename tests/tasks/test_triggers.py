"""What all waits in a triggerer do alike, whatever they wait for."""

from __future__ import annotations

import asyncio
import importlib
import time
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
from tests.tasks.triggering import cancelled, event, events, note_closed, restarted, run, steady_clock  # noqa: F401

OPERATIONS: dict[Any, str] = {
    MailCampaignTrigger: "campaign/mail/get",
    MailStatsSettledTrigger: "campaign/mail/stats/get",
    MailSenderTrigger: "verified_senders/get",
}
every_trigger = pytest.mark.parametrize("kind", OPERATIONS)

WAIT = {"poke_interval": 30.0, "end_time": 1893456000.0, "max_poll_errors": 10, "poll_error_timeout": 60.0}
COMMON = {"mail_conn_id": "mail_default", **WAIT}
CAMPAIGN = {"mail_name": "spring", "not_before": 1893450000.0, "seen": True, "cancel_on_kill": True}
MEMORY = {"mail_name": "spring", "min_interval": 3600.0, "record": None, "same": 0, "last": 0.0, "missing": 1}
STATS = {"mail_name": "spring", "start_day": "2026-03-01", "end_day": None, "stable_checks": 3}
# From the first release on, what a version has stored must load for ever: arguments are only added, with a default.
STORED: dict[str, dict[str, Any]] = {
    "campaigns.MailCampaignTrigger": {**CAMPAIGN, **COMMON},
    "stats.MailStatsSettledTrigger": {**STATS, "min_interval": 3600.0, "max_age": None, "memory": MEMORY, **COMMON},
    "senders.MailSenderTrigger": {"sender_email": "mail.example.com", "selector": "mail", **COMMON},
    "events.MailInboxTrigger": {"inbox_conn_id": "warehouse", "inbox_table": "mail_inbox", **WAIT},
    "campaigns.MailCampaignEventTrigger": {
        "mail_conn_id": "mail_default",
        "mail_name": None,
        "name_prefix": "news ",
        "name_contains": None,
        "mail_status": [2],
        "lookback": 86_400.0,
        "poke_interval": 30.0,
        "label": "news",
    },
}


def trigger(kind: Any, **arguments: Any) -> Any:
    needed = {
        MailCampaignTrigger: {"mail_name": "spring"},
        MailStatsSettledTrigger: {"mail_name": "spring", "start_day": "2026-03-01", "stable_checks": 2},
        MailSenderTrigger: {"sender_email": "mail.example.com"},
    }
    return kind(**{"mail_conn_id": "mail_default", "poke_interval": 60} | needed[kind] | arguments)


def exist(emulator: Emulator) -> None:
    emulator.add_campaign("spring", send_date="2026-03-01T08:00:00Z")
    emulator.add_sender("mail.example.com")


@pytest.mark.parametrize("path", STORED)
def test_stored_arguments_stay_the_same(path: str) -> None:
    """Waits survive an upgrade of the provider. What is stored is not encrypted, so nothing of it may be a secret.

    A triggerer imports the class by the stored path and calls it with the stored arguments.
    """
    module, _, name = f"airflow_provider_mail.triggers.{path}".rpartition(".")
    loaded = getattr(importlib.import_module(module), name)(**STORED[path])

    assert loaded.serialize() == restarted(loaded).serialize() == (f"{module}.{name}", STORED[path])


@every_trigger
@pytest.mark.parametrize("reached", [False, True])
def test_a_deadline_that_has_passed_is_after_one_poll(emulator: Emulator, kind: Any, reached: bool) -> None:
    """What was awaited may have happened while no triggerer ran."""
    if reached:
        exist(emulator)

    (found,) = events(trigger(kind, end_time=time.time() - 3600))

    assert emulator.journal.count() == 1
    if reached and kind is not MailStatsSettledTrigger:  # one observation is not enough
        assert found["status"] == "complete"
        return
    assert found["status"] == "timeout"
    with pytest.raises(AirflowSensorTimeout, match="the wait timed out"):
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)


@every_trigger
@pytest.mark.parametrize(
    ("connection", "arguments", "seconds", "status", "words", "error"),
    [
        ("missing", {}, 600, "error", "connection 'missing'", AirflowException),
        ("wrong", {"poll_error_timeout": 0}, 120, "refused", "rejected the credentials", AirflowFailException),
    ],
)
def test_polls_that_fail_for_too_long_end_the_wait(
    connect: Connect, kind: Any, connection: str, arguments: Any, seconds: int, status: str, words: str, error: Any
) -> None:
    connect("wrong", password="wrong")
    began = time.time()

    (found,) = events(trigger(kind, mail_conn_id=connection, **arguments))

    assert time.time() - began == pytest.approx(seconds, abs=100)
    assert found["status"] == status
    with pytest.raises(AirflowException, match="polls in a row failed") as caught:
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)
    assert (type(caught.value), words in str(caught.value)) == (error, True)


@every_trigger
def test_while_polls_fail_the_connection_is_read_again(
    emulator: Emulator, connect: Connect, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    closed = note_closed(monkeypatch)
    exist(emulator)
    emulator.settings.api_key = "the new key"
    clock.after(200, lambda: connect(password="the new key"))
    assert events(trigger(kind))[0]["status"] == "complete"
    assert [entry["auth"] for entry in emulator.journal.entries()][:5] == [*["invalid"] * 4, "api_key"]
    assert len(closed) == 5


def test_a_connection_that_is_missing_is_read_again(
    emulator: Emulator, connect: Connect, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    exist(emulator)
    monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")
    clock.after(200, connect)
    assert events(trigger(MailCampaignTrigger))[0]["status"] == "complete"


@every_trigger
def test_cancelling_leaves_nothing_behind(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """Also in the middle of a poll."""
    closed = note_closed(monkeypatch)

    async def cancel() -> None:
        loop, polling = asyncio.get_running_loop(), asyncio.Event()
        with at_request(emulator, OPERATIONS[kind], 1, lambda: loop.call_soon_threadsafe(polling.set), before=True):
            waiting = [asyncio.create_task(event(trigger(kind))) for _ in range(3)]
            await polling.wait()
            await cancelled(*waiting)
        assert all(task.cancelled() for task in waiting)

    run(cancel())

    assert len(closed) == 1


@pytest.mark.parametrize(
    "strange",
    [
        None,
        {"status": "complete"},
        {"status": "complete", "message": "", "result": None},
        {"status": "no such", "message": "", "result": {}},
    ],
)
def test_what_is_not_an_event_fails_loudly(strange: Any) -> None:
    with pytest.raises(AirflowException, match="not an event of a mail trigger"):
        decision_of(strange)
