"""What all waits in a triggerer do alike, whatever they wait for."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.api.client import AsyncMailClient
from airflow_provider_mail.api.flows import polling
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.triggers._base import BaseWaitTrigger, decision_of, result_of
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger, MailCampaignTrigger
from airflow_provider_mail.triggers.senders import MailSenderTrigger
from airflow_provider_mail.triggers.stats import MailStatsSettledTrigger
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException, AirflowSensorTimeout
from tests.support.processes import free_port
from tests.tasks.conftest import Connect
from tests.tasks.triggering import cancelled, event, impatient, note_closed, restarted, run, until

NEEDED: dict[type[BaseWaitTrigger], dict[str, Any]] = {
    MailCampaignTrigger: {"mail_name": "spring"},
    MailStatsSettledTrigger: {"mail_name": "spring", "start_day": "2026-03-01", "observations": 2},
    MailSenderTrigger: {"sender_email": "mail.example.com"},
}
every_trigger = pytest.mark.parametrize("kind", NEEDED)

# What versions up to now have stored: it must load for ever, so arguments are only added, with a default.
STORED: dict[type[BaseWaitTrigger], tuple[str, dict[str, Any]]] = {
    MailCampaignTrigger: (
        "airflow_provider_mail.triggers.campaigns.MailCampaignTrigger",
        {
            "mail_conn_id": "mail_default",
            "mail_name": "spring",
            "poke_interval": 30.0,
            "end_time": 1893456000.0,
            "not_before": 1893450000.0,
            "seen": True,
            "max_poll_errors": 10,
        },
    ),
    MailStatsSettledTrigger: (
        "airflow_provider_mail.triggers.stats.MailStatsSettledTrigger",
        {
            "mail_conn_id": "mail_default",
            "mail_name": "spring",
            "start_day": "2026-03-01",
            "end_day": None,
            "observations": 3,
            "apart": 3600.0,
            "age": None,
            "memory": {"mail_name": "spring", "apart": 3600.0, "record": None, "same": 0, "last": 0.0, "missing": 1},
            "poke_interval": 30.0,
            "end_time": 1893456000.0,
            "max_poll_errors": 10,
        },
    ),
    MailSenderTrigger: (
        "airflow_provider_mail.triggers.senders.MailSenderTrigger",
        {
            "mail_conn_id": "mail_default",
            "sender_email": "mail.example.com",
            "selector": "mail",
            "poke_interval": 30.0,
            "end_time": 1893456000.0,
            "max_poll_errors": 10,
        },
    ),
}

STORED_EVENT_TRIGGER = (
    "airflow_provider_mail.triggers.campaigns.MailCampaignEventTrigger",
    {
        "mail_conn_id": "mail_default",
        "mail_name": None,
        "name_prefix": "news ",
        "name_contains": None,
        "mail_status": [2],
        "lookback": 86_400.0,
        "poke_interval": 30.0,
    },
)


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scheduler has to note a deferral here."""
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(polling, "MAX_BACKOFF", 0.2)


def trigger(kind: type[BaseWaitTrigger], **arguments: Any) -> BaseWaitTrigger:
    return kind(**{"mail_conn_id": "mail_default", "poke_interval": 0.1} | NEEDED[kind] | arguments)


@every_trigger
def test_the_arguments_that_are_stored_stay_the_same(kind: type[BaseWaitTrigger]) -> None:
    """Waits survive an upgrade of the provider. What is stored is not encrypted, so nothing of it may be a secret."""
    path, arguments = STORED[kind]
    waiting = kind(**arguments)

    assert waiting.serialize() == (path, arguments)
    assert restarted(waiting).serialize() == (path, arguments)


@pytest.mark.parametrize(("path", "arguments"), [*STORED.values(), STORED_EVENT_TRIGGER])
def test_what_the_layout_before_has_stored_is_loaded_from_its_path(path: str, arguments: dict[str, Any]) -> None:
    """A triggerer imports the class by the stored path and calls it with the stored arguments."""
    module, _, name = path.rpartition(".")
    loaded = getattr(importlib.import_module(module), name)(**arguments)

    assert loaded.serialize() == (path, arguments)


@every_trigger
def test_a_budget_for_failed_polls_is_stored_when_it_is_another(kind: type[BaseWaitTrigger]) -> None:
    path, arguments = STORED[kind]
    waiting = kind(**arguments, poll_error_timeout=60.0)
    assert waiting.serialize() == restarted(waiting).serialize() == (path, {**arguments, "poll_error_timeout": 60.0})


def test_what_is_asked_for_when_the_task_is_killed_is_stored_when_it_is_wanted() -> None:
    path, arguments = STORED[MailCampaignTrigger]
    assert MailCampaignTrigger(**arguments, cancel_on_kill=True).serialize() == (
        path,
        {**arguments, "cancel_on_kill": True},
    )


def test_a_label_is_stored_when_there_is_one() -> None:
    path, arguments = STORED_EVENT_TRIGGER
    labelled = MailCampaignEventTrigger(**arguments, label="news")
    assert labelled.serialize() == restarted(labelled).serialize() == (path, {**arguments, "label": "news"})


@every_trigger
def test_the_time_was_up_before(emulator: Emulator, kind: type[BaseWaitTrigger]) -> None:
    found = run(event(trigger(kind, end_time=time.time() - 3600)))

    assert found["status"] == "timeout"
    with pytest.raises(AirflowSensorTimeout, match="the wait timed out"):
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)


def test_one_that_was_sent_while_no_triggerer_ran(emulator: Emulator) -> None:
    emulator.add_campaign("spring", state="done")
    found = run(event(trigger(MailCampaignTrigger, mail_name="spring", end_time=time.time() - 3600)))
    assert found["status"] == "complete"


@every_trigger
def test_no_such_connection_is_tolerated_for_a_while(emulator: Emulator, kind: type[BaseWaitTrigger]) -> None:
    found = run(event(trigger(kind, mail_conn_id="nobody", poll_error_timeout=0)))

    assert found["status"] == "error"
    assert "3 polls in a row failed" in found["message"]
    assert "connection 'nobody'" in found["message"]
    with pytest.raises(AirflowException, match="3 polls in a row failed") as caught:
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)
    assert not isinstance(caught.value, AirflowFailException)


@every_trigger
def test_a_key_that_stays_refused_ends_the_wait(
    emulator: Emulator, connect: Connect, kind: type[BaseWaitTrigger]
) -> None:
    connect(password="wrong")

    found = run(event(trigger(kind, poll_error_timeout=0)))

    assert found["status"] == "refused"
    assert "connection 'mail_default': 3 polls in a row failed" in found["message"]
    assert emulator.journal.count() == 3
    with pytest.raises(AirflowFailException, match="rejected the credentials"):
        result_of(decision_of(found), timeout_error=AirflowSensorTimeout)


@every_trigger
def test_a_refusal_reads_the_connection_anew(
    emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch, kind: type[BaseWaitTrigger]
) -> None:
    closed = note_closed(monkeypatch)
    emulator.settings.api_key = "the new key"

    async def exchanged() -> dict[str, Any]:
        waiting = asyncio.create_task(event(trigger(kind)))
        await until(lambda: emulator.journal.count() >= 2)
        emulator.add_campaign("spring", send_date="2026-03-01T08:00:00Z")
        emulator.add_sender("mail.example.com")
        connect(password="the new key")
        return await waiting

    assert run(exchanged())["status"] == "complete"
    assert {entry["auth"] for entry in emulator.journal.entries()} == {"api_key", "invalid"}
    assert len(closed) >= 3


@every_trigger
def test_while_polls_fail_the_connection_is_read_again(
    emulator: Emulator,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[BaseWaitTrigger],
) -> None:
    """Its host was changed: the old one never answers again, which is an error that may pass."""
    monkeypatch.setattr(shared_poller, "RECONNECT_SECONDS", 0.2)
    emulator.add_campaign("spring", send_date="2026-03-01T08:00:00Z")
    emulator.add_sender("mail.example.com")
    gone = {"conn_type": "mail", "host": f"http://127.0.0.1:{free_port()}", "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(gone))
    monkeypatch.setattr(AsyncMailClient, "run", impatient(AsyncMailClient.run))
    monkeypatch.setattr(AsyncMailClient, "send", impatient(AsyncMailClient.send))

    async def moved() -> dict[str, Any]:
        waiting = asyncio.create_task(event(trigger(kind)))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        connect()
        return await waiting

    assert run(moved())["status"] == "complete"


def test_an_error_of_our_own_ends_one_wait_and_no_other(emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    broken, other = trigger(MailCampaignTrigger), trigger(MailCampaignTrigger)
    kind, part = broken.subscription(polling.PollErrorBudget())

    def judge(look: Any, at: float, offset: float) -> Any:
        raise ZeroDivisionError

    part.decide = judge
    broken.subscription = lambda errors: (kind, part)  # type: ignore[method-assign]

    async def both() -> list[Any]:
        return await asyncio.gather(event(broken), event(other), return_exceptions=True)

    failed, found = run(both())
    assert isinstance(failed, ZeroDivisionError)
    assert found["status"] == "complete"


@every_trigger
def test_cancelling_leaves_nothing_behind(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, kind: type[BaseWaitTrigger]
) -> None:
    closed = note_closed(monkeypatch)
    emulator.settings.latency_seconds = 0.3

    async def in_the_middle_of_a_poll() -> None:
        waiting = [asyncio.create_task(event(trigger(kind))) for _ in range(3)]
        await until(lambda: emulator.journal.count() >= 2)
        await cancelled(*waiting)
        assert all(task.cancelled() for task in waiting)

    run(in_the_middle_of_a_poll())

    assert len(closed) == 1


@pytest.mark.parametrize(
    "strange",
    [
        None,
        {},
        "success",
        {"status": "complete"},
        {"status": "failed", "message": "the campaign failed"},
        {"status": "complete", "message": "", "mail_stats": None},
        {"status": "waiting", "message": "", "mail_stats": {}},
        {"status": None, "message": "", "mail_stats": {}},
        {"status": "no such", "message": "", "mail_stats": {}},
    ],
)
def test_what_is_no_event_fails_loudly(strange: Any) -> None:
    with pytest.raises(AirflowException, match="not an event of a mail trigger"):
        decision_of(strange)
