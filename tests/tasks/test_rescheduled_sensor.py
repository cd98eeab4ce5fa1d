"""`mode="reschedule"`: every poll is another process, with the memory of Airflow 3.3 and without one."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import PokeReturnValue

from airflow_provider_mail.api.flows import polling
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.version_compat import AirflowFailException
from tests.faults.tries import HAS_STORE, StateStore, TaskInstance
from tests.tasks.conftest import Connect

needs_store = pytest.mark.skipif(not HAS_STORE, reason="needs the task state store of 3.3")
either_memory = pytest.mark.parametrize(
    "store", [pytest.param(StateStore, marks=needs_store, id="3.3"), pytest.param(None, id="before 3.3")]
)


class Rescheduled:
    """A sensor whose polls are processes of their own; what Airflow gives each of them is its context."""

    def __init__(self, store: type[StateStore] | None, **arguments: Any) -> None:
        self._arguments = {"task_id": "wait", "mail_name": "spring", "mode": "reschedule"} | arguments
        self._store = store() if store else None
        self.ti = TaskInstance("wait", try_number=1)
        self._polls = 0

    def poll(self) -> bool | PokeReturnValue:
        context: Any = {"ti": self.ti, "task_reschedule_count": self._polls}
        if self._store is not None:
            context["task_state_store"] = self._store
        self._polls += 1
        sensor = MailCampaignSensor(**self._arguments, deferrable=False)
        try:
            return sensor.poke(context)
        finally:
            if "hook" in vars(sensor):
                sensor.hook.close()

    def next_try(self) -> None:
        self.ti.try_number += 1
        self._polls = 0


@either_memory
def test_a_key_may_be_exchanged_while_it_waits(
    emulator: Emulator, connect: Connect, store: type[StateStore] | None
) -> None:
    emulator.settings.sending_seconds = 1000
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(store)
    assert sensor.poll() is False

    emulator.settings.api_key = "the new key"
    assert [sensor.poll() for _ in range(10)] == [False] * 10

    connect(password="the new key")
    emulator.set_campaign_state("spring", "done")
    assert isinstance(sensor.poll(), PokeReturnValue)


@either_memory
def test_a_refused_key_fails_the_first_poll(
    emulator: Emulator, connect: Connect, store: type[StateStore] | None
) -> None:
    connect(password="wrong")
    with pytest.raises(AirflowFailException, match="rejected the credentials"):
        Rescheduled(store).poll()


@needs_store
def test_the_time_for_which_polls_may_fail_is_kept_and_ends_with_the_try(emulator: Emulator) -> None:
    emulator.add_campaign("spring", state="sending")
    emulator.plan_campaign("spring", looks=99)
    sensor = Rescheduled(StateStore, poll_error_timeout=0)
    sensor.poll()
    key, emulator.settings.api_key = emulator.settings.api_key, "the new key"
    assert [sensor.poll(), sensor.poll()] == [False, False]
    with pytest.raises(AirflowFailException, match="3 polls in a row failed"):
        sensor.poll()

    sensor.next_try()
    emulator.settings.api_key = key
    assert sensor.poll() is False


@needs_store
def test_with_a_memory_a_campaign_that_has_disappeared_is_noticed(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "CONFIRM_SECONDS", 0.0)
    emulator.settings.sending_seconds = 1000
    emulator.add_campaign("spring", state="sending")
    sensor = Rescheduled(StateStore)
    sensor.poll()
    emulator.set_campaign_state("spring", "removed")
    assert sensor.poll() is False
    with pytest.raises(AirflowFailException, match="has disappeared"):
        sensor.poll()
