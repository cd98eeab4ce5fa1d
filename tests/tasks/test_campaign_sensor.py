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


@pytest.fixture(autouse=True)
def _slow(emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 10**6


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
        first, *others = (entry["virtual_ms"] / 1000 for entry in emulator.journal.entries("campaign/mail/get"))
        assert first < soon.timestamp() <= min(others)


def test_a_sensor_that_fails_silently_polls_again(run: Run, emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    # So long a pause is not waited for: each poll is one request.
    emulator.faults.add("too_many_requests", "campaign/mail/get", count=3, retry_after=999)
    done = run(lambda: wait("poke", poll_error_timeout=0, silent_fail=True))
    assert (done.state, done.tries) == ("success", 1)
    assert "Sensor poke failed" in done.log


# --- rescheduled: every poll is another process ---


needs_store = pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="needs the task state store of 3.3")


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


@pytest.mark.parametrize("has_store", [pytest.param(True, marks=needs_store), False])
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


@needs_store
def test_with_stored_state_a_removed_campaign_is_noticed(emulator: Emulator, clock: Clock) -> None:
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(has_store=True)
    sensor.poll()
    emulator.set_campaign_state("spring", "removed")
    assert sensor.poll() is False
    clock.sleep(301)
    with pytest.raises(AirflowFailException, match="has disappeared"):
        sensor.poll()
