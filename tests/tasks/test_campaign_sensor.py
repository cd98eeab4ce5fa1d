"""`MailCampaignSensor`: what only campaigns do, and what another process of `mode="reschedule"` knows."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import PokeReturnValue

from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.creation import StateStore
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sensing import WAYS, repeating
from tests.tasks.triggering import steady_clock  # noqa: F401

GETS = "campaign/mail/get"


@pytest.fixture(autouse=True)
def _slow(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 10**6


def wait(way: str, **arguments: Any) -> MailCampaignSensor:
    given = {"task_id": TASK, "mail_name": "spring", "poke_interval": 50, "timeout": 86_400, "retries": 2}
    return MailCampaignSensor(**given | WAYS[way] | arguments)


def in_seconds(seconds: float) -> datetime.datetime:
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return now + datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("way", "state", "words", "soft_fail"),
    [
        ("poke", "failed", "mailStatus 4", False),
        ("poke", "failed", "mailStatus 4", True),
        ("reschedule", "draft", "is a draft (mailStatus -1): saved only, or cancelled", False),
        ("deferrable", "failed", "mailStatus 4", False),
        ("deferrable", "draft", "is a draft (mailStatus -1): saved only, or cancelled", True),
    ],
)
def test_will_not_be_sent(run: Run, emulator: Emulator, way: str, state: Any, words: str, soft_fail: bool) -> None:
    emulator.add_campaign("spring", state=state)

    done = run(lambda: wait(way, soft_fail=soft_fail))

    assert (done.state, done.tries) == ("skipped" if soft_fail else "failed", 1)
    assert soft_fail or words in done.log


def test_a_scheduled_campaign_is_not_polled_before_its_time(run: Run, emulator: Emulator) -> None:
    emulator.settings.scheduled_status = -1
    emulator.settings.sending_seconds = 0.0
    soon = in_seconds(300)
    emulator.add_campaign("spring", state="scheduled", send_date=soon)

    assert run(lambda: wait("deferrable")).state == "success"

    first, *others = (entry["real_ms"] / 1000 for entry in emulator.journal.entries(GETS))
    assert first < soon.timestamp() <= min(others)


@repeating
@pytest.mark.parametrize("state", ["sending", "scheduled"])
def test_the_clock_of_the_service_is_ahead(run: Run, emulator: Emulator, way: str, state: Any) -> None:
    """`make demo-ui` moves it. By our clock the send time is in two days."""
    emulator.settings.scheduled_status = -1
    emulator.settings.sending_seconds = 60.0
    emulator.clock.advance(days=2)
    there = in_seconds(2 * 86_400 + (600 if state == "scheduled" else 0))
    emulator.add_campaign("spring", state=state, send_date=there)

    assert run(lambda: wait(way, timeout=3600)).state == "success"


@pytest.mark.parametrize("fault", ["polls", "connection"])
def test_a_sensor_that_fails_silently_polls_again(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    emulator.add_campaign("spring")
    if fault == "polls":
        # So long a pause is not waited for: each poll is one request.
        emulator.faults.add("too_many_requests", GETS, count=3, retry_after=999)
    else:
        broken = iter([ConnectionAbortedError("no secrets backend")])
        original = MailCampaignSensor.poll

        def poll(sensor: MailCampaignSensor, context: Any) -> Any:
            if error := next(broken, None):
                raise error
            return original(sensor, context)

        monkeypatch.setattr(MailCampaignSensor, "poll", poll)

    done = run(lambda: wait("poke", poll_error_timeout=0, silent_fail=True))

    assert (done.state, done.tries) == ("success", 1)
    assert "Sensor poke failed" in done.log


# --- rescheduled: every poll is another process ---


needs_store = pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="needs the task state store of 3.3")
with_and_without = pytest.mark.parametrize(
    "store", [pytest.param(StateStore, marks=needs_store, id="3.3"), pytest.param(None, id="before 3.3")]
)


class Rescheduled:
    """A sensor whose polls are processes of their own; what Airflow gives each of them is its context."""

    def __init__(self, store: type[StateStore] | None, **arguments: Any) -> None:
        self._arguments = arguments
        self._store = store() if store else None
        self.ti = SimpleNamespace(task_id=TASK, try_number=1, xcom_push=lambda **_: None)
        self.polls = 0

    def poll(self) -> bool | PokeReturnValue:
        context: Any = {"ti": self.ti, "task_reschedule_count": self.polls}
        if self._store is not None:
            context["task_state_store"] = self._store
        self.polls += 1
        sensor = wait("reschedule", **self._arguments)
        try:
            return sensor.poke(context)
        finally:
            if "hook" in vars(sensor):
                sensor.hook.close()


@with_and_without
def test_rejections_after_the_first_poll_are_tolerated(
    emulator: Emulator, connect: Connect, store: type[StateStore] | None
) -> None:
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(store)
    assert sensor.poll() is False

    emulator.settings.api_key = "the new key"
    assert [sensor.poll() for _ in range(10)] == [False] * 10
    with pytest.raises(AirflowFailException, match="rejected the credentials"):
        Rescheduled(store).poll()

    connect(password="the new key")
    emulator.set_campaign_state("spring", "done")
    assert isinstance(sensor.poll(), PokeReturnValue)


@needs_store
def test_failed_polls_are_counted_within_a_try(emulator: Emulator) -> None:
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(StateStore, poll_error_timeout=0)
    sensor.poll()
    key, emulator.settings.api_key = emulator.settings.api_key, "the new key"
    assert [sensor.poll(), sensor.poll()] == [False, False]
    with pytest.raises(AirflowFailException, match="3 polls in a row failed"):
        sensor.poll()

    sensor.ti.try_number, sensor.polls = 2, 0
    emulator.settings.api_key = key
    assert sensor.poll() is False


@needs_store
def test_with_stored_state_a_removed_campaign_is_noticed(emulator: Emulator, clock: Clock) -> None:
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(StateStore)
    sensor.poll()
    emulator.set_campaign_state("spring", "removed")
    assert sensor.poll() is False
    clock.sleep(301)
    with pytest.raises(AirflowFailException, match="has disappeared"):
        sensor.poll()
