"""`cancel_on_kill`: what a task does about the signal that Airflow sends to its process, and what a trigger does.

The signal is real, and so is the state that Airflow's API tells; that a triggerer calls, and when, is seen end to end.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail._task import on_kill
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.waiting import answered, as_soon_as, hold

SENDS, GETS, CANCELS = "campaign/mail/sends", "campaign/mail/get", "campaign/mail/cancel"
IN_AN_HOUR = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(hours=1)


@pytest.fixture(autouse=True)
def _ready(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.1)
    emulator.add_list("newsletter", count=10)


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A task takes the process's handler, which is that of the tests here."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def create(**arguments: Any) -> MailCreateCampaignOperator:
    given = {
        "task_id": TASK,
        "mail_name": "spring",
        "sender_mail": "news@example.com",
        "subject": "Hi",
        "content": "<p>Hi</p>",
        "send_date": IN_AN_HOUR,
        "send_list_names": ["newsletter"],
        "wait_for_completion": True,
        "cancel_on_kill": True,
        "poke_interval": 1,
    }
    return MailCreateCampaignOperator(**given | arguments)


def mark(state: str | None) -> None:
    """Change the state of the task that runs, as Airflow's API does."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        mine = select(TaskInstance).where(TaskInstance.task_id == TASK).order_by(TaskInstance.start_date.desc())
        ti = session.scalars(mine).first()
        assert ti is not None
        assert ti.state == "running"
        ti.state = state


def kill(state: str | None) -> None:
    """What Airflow does when somebody marks a task: its state first, then the signal; "running" is a signal alone."""
    mark(state)
    handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)  # else it would end the tests
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def killed_during(operation: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the task while its first request of the operation is under way."""
    go = hold(monkeypatch, emulator, operation)

    def end() -> None:
        kill("failed")
        go.set()

    with as_soon_as(lambda: emulator.journal.count(operation), end):
        yield


def waits(emulator: Emulator) -> Callable[[], bool]:
    """Whether the task has created its campaign and looked at it."""
    return lambda: answered(emulator, SENDS) == 1 and answered(emulator, GETS) >= 2


@pytest.mark.parametrize("state", ["failed", "success", "skipped"])
def test_who_ends_the_task_cancels_its_campaign(run_in_airflow: Run, emulator: Emulator, state: str) -> None:
    began = time.monotonic()

    with as_soon_as(waits(emulator), lambda: kill(state)):
        done = run_in_airflow(lambda: create(poke_interval=600, timeout=6000))

    (campaign,) = emulator.campaigns()
    assert campaign["cancelled"]
    assert "the task was ended while it ran: campaign 'spring' was cancelled: it is not sent" in done.log
    assert emulator.journal.count(CANCELS) == 1
    assert time.monotonic() - began < 200  # and not the ten minutes to the next look


@pytest.mark.parametrize("state", ["running", "restarting", "up_for_retry", None])
def test_when_only_the_process_ends_somebody_else_goes_on_with_it(
    run_in_airflow: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """A worker is drained, a task is cleared: another process looks after the same campaign."""

    looked = threading.Event()
    was_ended = on_kill.was_ended

    def look(ti: Any) -> bool:
        ended = was_ended(ti)
        looked.set()
        return ended

    monkeypatch.setattr(on_kill, "was_ended", look)

    def change() -> None:
        kill(state)
        assert looked.wait(60)
        emulator.set_campaign_state("spring", "done")

    with as_soon_as(waits(emulator), change):
        done = run_in_airflow(create)

    assert emulator.journal.count(CANCELS) == 0
    assert "This process is to end, but not the task: campaign 'spring' is not cancelled" in done.log
    if state == "running":
        assert done.state == "success"


def test_by_default_nothing_is_cancelled(run_in_airflow: Run, emulator: Emulator) -> None:
    def change() -> None:
        kill("failed")
        seen = answered(emulator, GETS)
        # A signal would be heeded before the next poll; one may have been under way.
        wait_until(lambda: answered(emulator, GETS) >= seen + 2, what="polls", interval=0.02)
        emulator.set_campaign_state("spring", "done")

    with as_soon_as(waits(emulator), change):
        run_in_airflow(lambda: create(cancel_on_kill=False, poke_interval=0.3))

    assert emulator.journal.count(CANCELS) == 0


def test_what_has_gone_out_cannot_be_cancelled_and_that_is_said(run_in_airflow: Run, emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 1000

    with as_soon_as(waits(emulator), lambda: kill("failed")):
        done = run_in_airflow(lambda: create(send_date=None))

    (campaign,) = emulator.campaigns()
    assert (campaign["state"], campaign["cancelled"]) == ("sending", False)
    assert "campaign 'spring' could not be cancelled: " in done.log
    assert "it shows mailStatus 1" in done.log


def test_killed_before_it_creates_anything(
    run_in_airflow: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with killed_during(GETS, emulator, monkeypatch):
        done = run_in_airflow(create)

    assert emulator.journal.count(SENDS) == 0
    assert emulator.campaigns() == []
    assert "there is no campaign of that name" in done.log


def test_killed_while_it_creates(run_in_airflow: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is waited for: else the campaign could come to be after it was cancelled in vain."""
    with killed_during(SENDS, emulator, monkeypatch):
        run_in_airflow(create)

    (campaign,) = emulator.campaigns()
    assert campaign["cancelled"]


def test_of_a_mapped_task_the_one_that_was_ended(run_in_airflow: Run, emulator: Emulator) -> None:
    """Which of the two runs first is Airflow's choice; the other one's hour comes."""

    def both_are_there() -> bool:
        return len(emulator.campaigns()) == 2

    with (
        as_soon_as(waits(emulator), lambda: kill("failed")),
        as_soon_as(both_are_there, lambda: emulator.clock.advance(7200)),
    ):
        run_in_airflow(
            lambda: MailCreateCampaignOperator.partial(
                task_id=TASK,
                sender_mail="news@example.com",
                subject="Hi",
                content="<p>Hi</p>",
                send_date=IN_AN_HOUR,
                send_list_names=["newsletter"],
                wait_for_completion=True,
                cancel_on_kill=True,
                poke_interval=0.5,
            ).expand_kwargs([{"mail_name": "spring"}, {"mail_name": "summer"}])
        )

    first, second = sorted(emulator.campaigns(), key=lambda campaign: campaign["id"])
    assert {first["mailName"], second["mailName"]} == {"spring", "summer"}
    assert (first["cancelled"], second["cancelled"]) == (True, False)
    assert second["mailStatus"] == 2


def test_ended_before_it_defers(run_in_airflow: Run, emulator: Emulator) -> None:
    """No signal comes in time for a task that is about to leave its process."""

    done = run_in_airflow(lambda: create(deferrable=True, pre_execute=lambda context: mark("failed")))

    assert emulator.campaigns()[0]["cancelled"]
    assert "the task was ended while it ran" in done.log


def test_where_a_deferred_task_cannot_know_it_is_said(run_in_airflow: Run, emulator: Emulator) -> None:
    with as_soon_as(waits(emulator), lambda: emulator.set_campaign_state("spring", "done")):
        done = run_in_airflow(lambda: create(deferrable=True, send_date=None))

    assert done.state == "success"
    said = "this Airflow (below 3.3) does not tell a deferred task that it was ended" in done.log
    assert said == (AIRFLOW_VERSION < (3, 3))


# --- the trigger ---

THIS_TASK: Any = SimpleNamespace(dag_id="dag", run_id="run", task_id=TASK, map_index=-1)


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """What was logged, which one Airflow prints and another does not."""
    caplog.set_level("INFO")
    return lambda: capfd.readouterr().out + caplog.text


def trigger(**arguments: Any) -> MailCampaignTrigger:
    return MailCampaignTrigger(**{"mail_conn_id": "mail_default", "mail_name": "spring"} | arguments)


def killed(waiting: MailCampaignTrigger) -> None:
    waiting.task_instance = THIS_TASK
    asyncio.run(waiting.on_kill())


@pytest.mark.parametrize("ended", [True, False])
def test_the_trigger_cancels_only_for_a_task_that_was_ended(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    emulator.add_campaign("spring", state="scheduled", send_date=IN_AN_HOUR)
    monkeypatch.setattr(on_kill, "was_ended", lambda ti: ended)

    killed(trigger(cancel_on_kill=True))

    assert emulator.campaigns()[0]["cancelled"] is ended


def test_the_trigger_goes_on_although_it_is_cancelled_again_and_again(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the triggerer of Airflow 3.3.2 does every second."""
    emulator.add_campaign("spring", state="scheduled", send_date=IN_AN_HOUR)
    emulator.settings.latency_seconds = 0.5

    def slow(ti: Any) -> bool:
        time.sleep(0.5)
        return True

    monkeypatch.setattr(on_kill, "was_ended", slow)

    async def killed_impatiently() -> None:
        waiting = trigger(cancel_on_kill=True)
        waiting.task_instance = THIS_TASK
        task = asyncio.create_task(waiting.on_kill())
        while not task.done():
            await asyncio.sleep(0.1)
            task.cancel()

    asyncio.run(killed_impatiently())

    assert emulator.campaigns()[0]["cancelled"]


def test_the_trigger_does_not_take_for_ever(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, said: Callable[[], str]
) -> None:
    emulator.add_campaign("spring", state="scheduled", send_date=IN_AN_HOUR)
    emulator.faults.add("delay", CANCELS, seconds=3)
    monkeypatch.setattr(on_kill, "was_ended", lambda ti: True)
    monkeypatch.setenv("AIRFLOW__TRIGGERER__ON_KILL_TIMEOUT", "1")

    killed(trigger(cancel_on_kill=True))

    assert "campaign 'spring' may not have been cancelled: the request took longer than 0.8 s" in said()


def test_the_trigger_cancels_nothing_unless_told(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.add_campaign("spring", state="scheduled", send_date=IN_AN_HOUR)
    monkeypatch.setattr(on_kill, "was_ended", lambda ti: True)

    killed(trigger())

    assert emulator.journal.count() == 0


def test_the_trigger_cancels_nothing_when_it_cannot_know(emulator: Emulator) -> None:
    """As when a DAG is tried out, and no task instance comes with the trigger."""
    emulator.add_campaign("spring", state="scheduled", send_date=IN_AN_HOUR)

    asyncio.run(trigger(cancel_on_kill=True).on_kill())

    assert emulator.journal.count() == 0


def test_the_trigger_says_that_it_could_not(
    emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch, said: Callable[[], str]
) -> None:
    connect(password="wrong")
    monkeypatch.setattr(on_kill, "was_ended", lambda ti: True)

    killed(trigger(cancel_on_kill=True))

    assert "campaign 'spring' could not be cancelled: " in said()


def test_the_argument_is_stored_only_when_it_is_wanted() -> None:
    """A triggerer that is not upgraded yet does not know it."""
    assert "cancel_on_kill" not in trigger().serialize()[1]
    path, stored = trigger(cancel_on_kill=True).serialize()
    assert stored["cancel_on_kill"] is True
    assert MailCampaignTrigger(**stored).serialize() == (path, stored)
