"""What Airflow does around the task of a campaign: the signal that ends it, for `cancel_on_kill`, and its link.

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
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.sdk import DAG
from airflow.serialization import serialized_objects

from airflow_provider_mail._task import on_kill
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.get_provider_info import get_provider_info
from airflow_provider_mail.hooks.connection import placeholders_of
from airflow_provider_mail.links import LINK_KEY, MailCampaignLink
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.airflow_api import airflow_api
from tests.tasks.conftest import TASK, Connect, Done, Run
from tests.tasks.sending import CAMPAIGN, campaign

SENDS, GETS, CANCELS = "campaign/mail/sends", "campaign/mail/get", "campaign/mail/cancel"
MINUTE, HOUR = 60, 3600
UNNAMED = {name: value for name, value in CAMPAIGN.items() if name != "mail_name"}
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
    given = UNNAMED | WAITS
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


# --- the trigger ---


@pytest.fixture
def scheduled(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """A campaign that is scheduled, whose task was ended; whether it was cancelled."""
    monkeypatch.setattr(on_kill, "was_ended", lambda ti: True)
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
        monkeypatch.setattr(on_kill, "was_ended", lambda ti, ended=ended: ended)
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
    monkeypatch.setattr(on_kill, "was_ended", lambda ti: looking.set() or go.wait(60))

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

        with at_request(emulator, CANCELS, int(is_slow), be_slow, before=True):
            await trigger().on_kill()

    asyncio.run(killed())
    over.set()
    outcome = "may not have been cancelled: the request took longer than 24 s" if is_slow else "could not be cancelled:"
    assert f"campaign 'spring' {outcome}" in capfd.readouterr().out + caplog.text  # Airflow prints it, or does not


# --- the link, where the connection says where a campaign is ---

PAGE = "https://app.example.com/campaigns"


@pytest.fixture(autouse=True)
def _as_in_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads links; a scheduler does not, and what it has set for this process stays (3.2)."""
    for name in ("DagSerialization", "SerializedDAG", "OperatorSerialization", "SerializedBaseOperator"):
        if kind := getattr(serialized_objects, name, None):
            monkeypatch.setattr(kind, "_load_operator_extra_links", True, raising=False)


Linked = Callable[..., tuple[str, Done]]


@pytest.fixture
def linked(run_in_airflow: Run, new_dag: Callable[..., DAG]) -> Linked:
    """A function that runs a task and returns its link: what the API server finds, with the DAG as it was stored."""

    def linked(make: Callable[..., object] = campaign, map_index: int = -1, **arguments: Any) -> tuple[str, Done]:
        with new_dag() as dag:
            make(**arguments)
        done = run_in_airflow(dag)
        storage: Any = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG
        stored = storage.from_dict(storage.to_dict(dag)).get_task(TASK)
        assert stored.extra_links == ["Campaign"]
        key = TaskInstanceKey(done.result.dag_id, TASK, done.result.run_id, map_index=map_index)
        (operator_link,) = stored.operator_extra_links
        return operator_link.get_link(stored, ti_key=key), done

    return linked


def test_a_link_and_one_without_an_id(linked: Linked, connect: Connect, emulator: Emulator) -> None:
    connect(campaign_url=f"{PAGE}/{{id}}?name={{mail_name}}#{{guid}}")
    name = "spring & summer/50%"
    url, done = linked(mail_name=name)
    (created,) = emulator.campaigns()
    assert url == f"{PAGE}/{done.returned['id']}?name=spring%20%26%20summer%2F50%25#{created['guid']}"
    assert done.result.xcom(TASK, LINK_KEY) == url
    # An adopted one has a guid and no id.
    assert linked(mail_name=name, adopt_older=True)[0] == ""


@pytest.mark.parametrize(("fields", "arguments"), [
    ({}, {}),
    ({"campaign_url": f"{PAGE}/{{mail_name}}"}, {"sandbox_mode": True}),
    ({"campaign_url": f"{PAGE}/{{mail_name}}"}, {"mail_conn_id": "none"}),
])  # fmt: skip
def test_no_link_and_no_complaint(linked: Linked, connect: Connect, fields: Any, arguments: dict[str, Any]) -> None:
    connect(**fields)
    url, done = linked(**arguments)
    assert url == ""
    assert "Failed to push" not in done.log
    assert done.state == "failed" or "warning" not in done.log.lower()


def test_tasks_that_defer_or_fail_keep_their_link(linked: Linked, connect: Connect, emulator: Emulator) -> None:
    connect(campaign_url=f"{PAGE}/{{guid}}")
    url, _ = linked(wait_for_completion=True, deferrable=True)
    assert url == f"{PAGE}/{emulator.campaigns()[0]['guid']}"
    assert linked(MailCampaignSensor, task_id=TASK, mail_name="spring", deferrable=True)[0] == url
    emulator.set_campaign_state("spring", "failed")
    again, done = linked(adopt_older=True)
    assert (again, done.state) == (url, "failed")


def test_what_the_api_says_and_each_mapped_task(linked: Linked, connect: Connect) -> None:
    connect(campaign_url=f"{PAGE}/{{mail_name}}")
    partial = MailCreateCampaignOperator.partial
    url, _ = linked(lambda: partial(task_id=TASK, **UNNAMED).expand(mail_name=["one", "two"]), map_index=1)
    assert url == f"{PAGE}/two"
    assert get_provider_info()["extra-links"] == [f"{MailCampaignLink.__module__}.{MailCampaignLink.__name__}"]
    if AIRFLOW_VERSION >= (3, 1):  # dag.test() of 3.0 stores no DAG that the API could read
        done = linked()[1].result
        links = f"/dags/{done.dag_id}/dagRuns/{done.run_id}/taskInstances/{TASK}/links"
        assert airflow_api().request("GET", links).json()["extra_links"] == {"Campaign": f"{PAGE}/spring"}


@pytest.mark.parametrize("template", [
    "app.example.com/{mail_name}", "ftp://app.example.com/{mail_name}", "javascript:alert(1)//{mail_name}",
    "https:///{mail_name}", "https://{mail_name}.example.com/", "https://user:secret@app.example.com/{mail_name}",
    *(f"{PAGE}/{end}" for end in ("{name}", "{}", "{mail_name.__class__}", "{mail_name!r}", "{id:>10}")),
    *(f"{PAGE}/{end}" for end in ("{mail_name", " {mail_name}")),
])  # fmt: skip
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(MailConfigError, match="campaign_url: must be a URL such as"):
        placeholders_of(template)
