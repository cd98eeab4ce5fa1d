"""`cancel_on_kill`: what a task does about the signal that Airflow sends to its process, and what a trigger does.

The signal is real, and so is the state that Airflow's API tells; that a triggerer calls, and when, is seen in
`tests/real/airflow/test_cancel_on_kill.py`.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.task_parts import task_waiting
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import CAMPAIGN, campaign

SENDS, GETS, CANCELS = "campaign/mail/sends", "campaign/mail/get", "campaign/mail/cancel"
MINUTE, HOUR = 60, 3600
FIRST_POLL = 2
"""The number of the request: before it there is the lookup of the creation."""


@pytest.fixture(autouse=True)
def _own_signals(emulator: Emulator) -> Iterator[None]:
    """A task takes the process's handler, which is that of the tests here."""
    emulator.add_list("newsletter", count=10)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def in_an_hour() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(hours=1)


WAITS = {"wait_for_completion": True, "cancel_on_kill": True, "poke_interval": 10 * MINUTE}


def create(**others: Any) -> MailCreateCampaignOperator:
    return campaign(**{"send_date": in_an_hour()} | WAITS | others)


def mark(state: str | None) -> None:
    """Change the state of the task that runs, as Airflow's API does."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        running = select(TaskInstance).where(TaskInstance.task_id == TASK, TaskInstance.state == "running")
        session.scalars(running).one().state = state


def kill(state: str | None) -> None:
    """What Airflow does when a user marks a task: its state first, then the signal; "running" is a signal alone."""
    mark(state)
    assert callable(signal.getsignal(signal.SIGTERM))  # else it would end the tests
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "running", "restarting", "up_for_retry", None])
def test_a_campaign_is_cancelled_if_its_task_was_ended(
    run_in_airflow: Run, emulator: Emulator, clock: Clock, state: str | None
) -> None:
    """Not if a worker is drained or a task is cleared: another process continues with the same campaign."""
    began = time.monotonic()
    clock.after(MINUTE, lambda: kill(state))
    done = run_in_airflow(create)
    ended = state in ("failed", "success", "skipped")
    assert emulator.campaigns()[0]["cancelled"] is ended
    if ended:
        assert "the task was ended while it ran: campaign 'spring' was cancelled: it is not sent" in done.log
        assert time.monotonic() - began < 5 * MINUTE  # and not the ten to the next poll
    else:
        assert "This process is to end, but not the task: campaign 'spring' is not cancelled" in done.log
        assert state != "running" or done.state == "success"


def test_the_log_says_when_a_deferred_task_does_not_cancel(run_in_airflow: Run) -> None:
    done = run_in_airflow(lambda: create(deferrable=True, send_date=None))
    assert "Marked before a triggerer has started it, or while none runs, the campaign goes out" in done.log
    assert "`airflow mail stop --conn-id mail_default --prefix 'spring'`" in done.log
    assert ("below 3.3) does not tell a deferred task" in done.log) is (AIRFLOW_VERSION < (3, 3))


@pytest.mark.parametrize(("operation", "number", "given", "cancelled", "words"), [
    (GETS, 1, {}, [], "there is no campaign of that name"),
    # The response is waited for: else the campaign could be created after it was cancelled in vain.
    (SENDS, 1, {}, [True], "was cancelled: it is not sent"),
    (GETS, FIRST_POLL, {"send_date": None}, [False], "could not be cancelled: "),
    (GETS, FIRST_POLL, {"cancel_on_kill": False}, [False], ""),
])  # fmt: skip
def test_killed_at_a_request(
    run_in_airflow: Run, emulator: Emulator, operation: str, number: int, given: Any, cancelled: list[bool], words: str
) -> None:
    emulator.settings.sending_seconds = HOUR
    with at_request(emulator, operation, number, lambda: kill("failed"), before=True):
        done = run_in_airflow(lambda: create(**given))
    assert [campaign["cancelled"] for campaign in emulator.campaigns()] == cancelled
    assert words in done.log
    assert words or emulator.journal.count(CANCELS) == 0


def test_of_a_mapped_task_the_one_that_was_ended(run_in_airflow: Run, emulator: Emulator, clock: Clock) -> None:
    """Which of the two runs first is Airflow's choice."""
    clock.after(MINUTE, lambda: kill("failed"))
    given = {name: value for name, value in CAMPAIGN.items() if name != "mail_name"} | WAITS
    partial = MailCreateCampaignOperator.partial
    run_in_airflow(
        lambda: partial(task_id=TASK, send_date=in_an_hour(), **given).expand(mail_name=["spring", "summer"])
    )
    campaigns = sorted(emulator.campaigns(), key=lambda campaign: campaign["id"])
    assert [(campaign["cancelled"], campaign["state"]) for campaign in campaigns] == [(True, "draft"), (False, "done")]


def test_ended_before_it_defers(run_in_airflow: Run, emulator: Emulator) -> None:
    """No signal comes in time for a task that is about to leave its process."""
    done = run_in_airflow(lambda: create(deferrable=True, pre_execute=lambda context: mark("failed")))
    assert emulator.campaigns()[0]["cancelled"]
    assert "the task was ended while it ran" in done.log


@pytest.fixture
def scheduled(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """A campaign that is scheduled, whose task was ended; whether it was cancelled."""
    monkeypatch.setattr(task_waiting, "was_ended", lambda ti: True)
    emulator.add_campaign("spring", state="scheduled", send_date=in_an_hour())
    return lambda: bool(emulator.campaigns()[0]["cancelled"])


def trigger(**others: Any) -> MailCampaignTrigger:
    given = {"mail_conn_id": "mail_default", "mail_name": "spring", "cancel_on_kill": True}
    waiting = MailCampaignTrigger(**given | others)
    waiting.task_instance = SimpleNamespace(dag_id="dag", run_id="run", task_id=TASK, map_index=-1)
    return waiting


def test_the_trigger_cancels_for_a_task_that_was_ended(
    emulator: Emulator, scheduled: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for another, not unless wanted, nor without a task instance, which `dag.test()` does not give a trigger."""
    for ended, wanted, known in ((False, True, True), (True, False, True), (True, True, False), (True, True, True)):
        monkeypatch.setattr(task_waiting, "was_ended", lambda ti, ended=ended: ended)
        waiting = trigger(cancel_on_kill=wanted)
        if not known:
            waiting.task_instance = None  # type: ignore[assignment]
        asyncio.run(waiting.on_kill())
        assert scheduled() == emulator.journal.count() == (ended and wanted and known)


def test_the_trigger_goes_on_although_it_is_cancelled_again(
    scheduled: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the triggerer of Airflow 3.3.2 does every second."""
    looking, go = threading.Event(), threading.Event()
    monkeypatch.setattr(task_waiting, "was_ended", lambda ti: looking.set() or go.wait(60))

    async def killed_impatiently() -> None:
        killing = asyncio.create_task(trigger().on_kill())
        await asyncio.to_thread(looking.wait, 60)
        for _ in range(3):
            killing.cancel()
            await asyncio.sleep(0)
        go.set()
        await killing

    asyncio.run(killed_impatiently())
    assert scheduled()


@pytest.mark.usefixtures("scheduled")
@pytest.mark.parametrize("is_slow", [True, False])
def test_the_trigger_says_that_it_could_not_and_ends(
    emulator: Emulator, connect: Connect, clock: Clock, is_slow: bool,
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The service is slow, or rejects the key."""
    caplog.set_level("INFO")
    over = threading.Event()
    connect(password=emulator.api_key if is_slow else "wrong")

    async def killed() -> None:
        loop = asyncio.get_running_loop()

        def be_slow() -> None:
            clock.sleep(30)  # what Airflow allows
            loop.call_soon_threadsafe(lambda: None)  # it looks at the clock again
            over.wait(60)

        with at_request(emulator, CANCELS, 1, be_slow, before=True) if is_slow else nullcontext():
            await trigger().on_kill()

    asyncio.run(killed())
    over.set()
    outcome = "may not have been cancelled: the request took longer than 24 s" if is_slow else "could not be cancelled:"
    assert f"campaign 'spring' {outcome}" in capfd.readouterr().out + caplog.text  # Airflow prints it, or does not
