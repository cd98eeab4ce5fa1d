"""Waits for a campaign: of `MailCreateCampaignOperator`, which creates it once, and of `MailCampaignSensor`.

How a wait ends is in `tests/machines/test_waiting.py`, and what all sensors do in `test_sensors.py`.
"""

from __future__ import annotations

import datetime
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import PokeReturnValue

from airflow_provider_mail.api.campaigns import MailStats
from airflow_provider_mail.links import LINK_KEY
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.creation import RECORD_KEY, StateStore
from tests.support.task_runner import stored
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import campaign, remembers
from tests.tasks.sensing import WAYS, repeating
from tests.tasks.triggering import steady_clock  # noqa: F401

GETS, SENDS = "campaign/mail/get", "campaign/mail/sends"
both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["sync", "deferrable"])
FIRST_POLL = 3
"""One lookup before creating, one after, and then the wait."""


@pytest.fixture(autouse=True)
def _ready(emulator: Emulator) -> None:
    emulator.add_list("newsletter", count=100)
    emulator.settings.sending_seconds = 10**6


def create(**arguments: Any) -> MailCreateCampaignOperator:
    patient = {"wait_for_completion": True, "poke_interval": 70, "timeout": 86_400, "retry_delay": 0}
    return campaign(**patient | arguments)


def in_seconds(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


@both_ways
def test_sent_while_the_key_is_exchanged(run: Run, emulator: Emulator, connect: Connect, deferrable: bool) -> None:
    def exchange() -> None:
        emulator.settings.api_key = "the new key"

    def correct() -> None:
        connect(password="the new key")
        emulator.set_campaign_state("spring", "done")

    with at_request(emulator, GETS, 2, exchange), at_request(emulator, GETS, 5, correct):
        done = run(lambda: create(deferrable=deferrable))

    (created,) = emulator.campaigns()
    flags = dict.fromkeys(("adopted", "incomplete", "sandbox"), False)
    stats = done.returned.pop("mail_stats")
    assert done.returned == {"mail_name": "spring", "id": created["id"], "guid": created["guid"]} | flags
    assert (stats["sent_count"], emulator.journal.count(SENDS)) == (100, 1)
    auths = [entry["auth"] for entry in emulator.journal.entries(GETS)]
    assert auths == [*["api_key"] * 2, *["invalid"] * 3, "api_key"]


@both_ways
def test_a_draft_may_be_a_scheduled_one_until_its_send_time(run: Run, emulator: Emulator, deferrable: bool) -> None:
    send_date = in_seconds(3600)

    with at_request(emulator, GETS, FIRST_POLL, lambda: emulator.set_campaign_state("spring", "draft")):
        done = run(lambda: create(deferrable=deferrable, send_date=send_date, retries=2))

    # Another try would adopt the same campaign, which will not be sent either.
    assert (done.state, done.tries, emulator.journal.count(SENDS)) == ("failed", 1, 1)
    assert "saved only, or cancelled before its send time" in done.log
    assert datetime.datetime.now(datetime.UTC) > send_date


@both_ways
@pytest.mark.parametrize("days", [0, 2])
def test_the_timeout_counts_from_the_send_time(run: Run, emulator: Emulator, deferrable: bool, days: int) -> None:
    """The send time is by the service's clock, which `make demo-ui` moves."""
    emulator.settings.sending_seconds = 0.0
    emulator.clock.advance(days=days)
    began = time.time()

    done = run(lambda: create(deferrable=deferrable, send_date=in_seconds(days * 86_400 + 1000), timeout=300))

    assert done.state == "success"
    moments = [entry["real_ms"] / 1000 - began for entry in emulator.journal.entries(GETS)][FIRST_POLL:]
    assert moments[-1] == pytest.approx(1000, abs=90)
    if deferrable:  # else the task holds its worker slot anyway
        assert len(moments) <= 5


@pytest.mark.parametrize("hours", [-9, 9])
def test_the_deadline_of_a_deferral_is_by_the_clock_of_the_service(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    emulator.clock.advance(hours=hours)
    ends = []

    def no_triggerer(ti: Any, what: Any) -> None:
        kwargs = ti.end["trigger_kwargs"]
        ends.append(kwargs.get("__var", kwargs)["end_time"])
        event = {"status": "error", "message": "", "result": {}}
        ti.next_method, ti.next_kwargs = "execute_complete", stored({"event": event})

    monkeypatch.setattr("tests.support.task_runner._resume", no_triggerer)
    run(lambda: create(deferrable=True, timeout=600))
    run(lambda: MailCampaignSensor(task_id=TASK, mail_name="spring", deferrable=True, timeout=600))

    assert ends == pytest.approx([emulator.clock.now().timestamp() + 600] * 2, abs=300)


@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize("make", [create, MailCampaignSensor], ids=["operator", "sensor"])
def test_a_last_poll_at_the_deadline_of_airflow(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, make: Any, is_sent: bool
) -> None:
    """No triggerer ran for so long."""

    def no_triggerer(ti: Any, what: Any) -> None:
        if is_sent:
            emulator.set_campaign_state("spring", "done")
        ti.next_method, ti.next_kwargs = "__fail__", stored({"error": "Trigger timeout"})

    if make is MailCampaignSensor:
        emulator.add_campaign("spring", state="sending")
    monkeypatch.setattr("tests.support.task_runner._resume", no_triggerer)
    done = run(lambda: make(task_id=TASK, mail_name="spring", deferrable=True))

    assert done.state == ("success" if is_sent else "failed")
    assert is_sent or "the wait timed out, and no triggerer ended it: campaign 'spring': sending" in done.log


@both_ways
def test_a_second_try_waits_again_and_creates_nothing(
    run: Run, emulator: Emulator, connect: Connect, deferrable: bool
) -> None:
    """What identifies the campaign is in XCom before the wait."""

    def send(context: Any) -> None:
        if context["ti"].try_number == 2:
            emulator.set_campaign_state("spring", "done")

    connect(campaign_url="https://app.example.com/{guid}")
    first = run(lambda: create(deferrable=deferrable, timeout=600))

    assert "the wait timed out: campaign 'spring': sending (mailStatus 1)" in first.log
    (created,) = emulator.campaigns()
    pushed = [first.result.xcom(TASK, key=key) for key in ("mail_name", "id", "guid", "adopted", LINK_KEY)]
    link = f"https://app.example.com/{created['guid']}"
    assert (pushed, first.returned) == (["spring", created["id"], created["guid"], False, link], None)

    emulator.set_campaign_state("spring", "removed")
    done = run(lambda: create(deferrable=deferrable, timeout=600, retries=1, pre_execute=send))
    assert (done.state, done.tries) == ("success", 2)
    assert (done.returned["adopted"], done.returned["id"]) == (True, None)
    assert emulator.journal.count(SENDS) == 2


@remembers
@pytest.mark.parametrize("how", ["before its send time", "record lost"])
def test_a_cleared_task_sends_nothing_that_was_sent(run: Run, emulator: Emulator, how: str) -> None:
    """Although the campaign is gone, and what was recorded when it was created does not show that it was sent."""
    early = how != "record lost"
    send_date = in_seconds(80_000) if early else None
    executions: list[Any] = []

    def forget(context: Any) -> None:
        executions.append(context["ti"])
        if len(executions) == 2:  # it goes on after the trigger
            context["task_state_store"].delete(RECORD_KEY)

    operation, number = (SENDS, 1) if early else (GETS, FIRST_POLL)
    with at_request(emulator, operation, number, lambda: emulator.set_campaign_state("spring", "done")):
        done = run(lambda: create(deferrable=not early, send_date=send_date, pre_execute=None if early else forget))
    assert (done.state, len(executions)) == ("success", 0 if early else 2)
    assert send_date is None or datetime.datetime.now(datetime.UTC) < send_date

    emulator.set_campaign_state("spring", "removed")
    assert done.result.clear_and_run(TASK).state == "failed"
    assert emulator.journal.count(SENDS) == 1


# --- the sensor ---


def wait(way: str, **arguments: Any) -> MailCampaignSensor:
    given = {"task_id": TASK, "mail_name": "spring", "poke_interval": 50, "timeout": 86_400, "retries": 2}
    return MailCampaignSensor(**given | WAYS[way] | arguments)


@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize(("way", "state"), [("poke", "failed"), ("reschedule", "draft"), ("deferrable", "draft")])
def test_will_not_be_sent(run: Run, emulator: Emulator, way: str, state: Any, soft_fail: bool) -> None:
    emulator.add_campaign("spring", state=state)
    done = run(lambda: wait(way, soft_fail=soft_fail))
    assert (done.state, done.tries) == ("skipped" if soft_fail else "failed", 1)
    assert soft_fail or "campaign 'spring'" in done.log


@repeating
@pytest.mark.parametrize("days", [0, 2])
def test_a_scheduled_campaign_by_the_clock_of_the_service(run: Run, emulator: Emulator, way: str, days: int) -> None:
    """`make demo-ui` moves that clock: by ours the send time is in two days."""
    emulator.settings.scheduled_status = -1
    emulator.settings.sending_seconds = 60.0
    emulator.clock.advance(days=days)
    soon = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(days=days, seconds=300)
    emulator.add_campaign("spring", state="scheduled", send_date=soon)

    assert run(lambda: wait(way, timeout=3600)).state == "success"

    if way == "deferrable":
        first, *others = (entry["virtual_ms"] / 1000 for entry in emulator.journal.entries(GETS))
        assert first < soon.timestamp() <= min(others)


def test_a_sensor_that_fails_silently_polls_again(run: Run, emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    # So long a pause is not waited for: each poll is one request.
    emulator.faults.add("too_many_requests", GETS, count=3, retry_after=999)
    done = run(lambda: wait("poke", poll_error_timeout=0, silent_fail=True))
    assert (done.state, done.tries) == ("success", 1)
    assert "Sensor poke failed" in done.log


def test_after_failed_polls_a_sensor_waits_longer(run: Run, emulator: Emulator) -> None:
    """Twice as long each time, however often Airflow calls it; after one that succeeds, as often as before."""
    emulator.add_campaign("spring", state="sending")
    # So long a pause is not waited for: each poll is one request.
    emulator.faults.add("too_many_requests", GETS, skip=1, count=7, retry_after=999)
    with at_request(emulator, GETS, 4, lambda: emulator.set_campaign_state("spring", "done")):
        done = run(lambda: wait("poke", poke_interval=1, retries=0))
    assert done.state == "success"
    moments = [entry["real_ms"] / 1000 for entry in emulator.journal.entries(GETS)]
    least = [1, 1, 1, 2, 4, 8, 16, 32, 1, 1, 1]  # not less than the interval of the sensor
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert [pause >= seconds - 0.01 for pause, seconds in zip(pauses, least, strict=True)] == [True] * len(least)


# --- rescheduled: every poll is another process ---


class Rescheduled:
    """A sensor whose polls are processes of their own; what Airflow gives each of them is its context."""

    def __init__(self, has_store: bool) -> None:
        self._store = StateStore() if has_store else None
        self.ti = SimpleNamespace(task_id=TASK, try_number=1, xcom_push=lambda **_: None)
        self.polls = 0

    def poll(self) -> bool | PokeReturnValue:
        context: Any = {"ti": self.ti, "task_reschedule_count": self.polls}
        if self._store is not None:
            context["task_state_store"] = self._store
        self.polls += 1
        sensor = wait("reschedule")
        try:
            return sensor.poke(context)
        finally:
            if "hook" in vars(sensor):
                sensor.hook.close()


@pytest.mark.parametrize("has_store", [pytest.param(True, marks=remembers), False])
def test_rejections_after_the_first_poll_are_tolerated(emulator: Emulator, connect: Connect, has_store: bool) -> None:
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(has_store)
    assert sensor.poll() is False
    emulator.settings.api_key = "the new key"
    assert [sensor.poll() for _ in range(10)] == [False] * 10
    with pytest.raises(AirflowFailException, match="rejected the credentials"):
        Rescheduled(has_store).poll()
    connect(password="the new key")
    emulator.set_campaign_state("spring", "done")
    assert isinstance(sensor.poll(), PokeReturnValue)


@remembers
def test_with_stored_state_a_removed_campaign_is_noticed(emulator: Emulator, clock: Clock) -> None:
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(has_store=True)
    sensor.poll()
    emulator.set_campaign_state("spring", "removed")
    assert sensor.poll() is False
    clock.sleep(301)
    with pytest.raises(AirflowFailException, match="has disappeared"):
        sensor.poll()


@both_ways
def test_sandbox_mode_returns_counts_of_nothing(run: Run, emulator: Emulator, deferrable: bool) -> None:
    """So that the tasks after it read the same keys as in earnest."""
    done = run(lambda: create(deferrable=deferrable, sandbox_mode=True))
    assert emulator.campaigns() == []
    assert done.returned["sandbox"] is True
    assert done.returned["mail_stats"] == dict.fromkeys(MailStats.model_fields, 0)
