"""`MailCreateCampaignOperator` with `wait_for_completion`: created once, then waited for."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.api.flows import polling, wait_campaign
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from tests.support.processes import wait_until
from tests.support.task_runner import stored
from tests.tasks.conftest import TASK, Run
from tests.tasks.waiting import answered, as_soon_as

GETS, SENDS = "campaign/mail/get", "campaign/mail/sends"
both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["sync", "deferrable"])


@pytest.fixture(autouse=True)
def _ready(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(polling, "CONFIRM_SECONDS", 0.5)
    monkeypatch.setattr(polling, "MAX_BACKOFF", 0.2)
    emulator.add_list("newsletter", count=100)
    emulator.settings.sending_seconds = 1000


def create(**arguments: Any) -> MailCreateCampaignOperator:
    given = {
        "task_id": TASK,
        "mail_name": "spring",
        "sender_mail": "news@example.com",
        "subject": "Hi",
        "content": "<p>Hi</p>",
        "send_list_names": ["newsletter"],
        "wait_for_completion": True,
        "poke_interval": 0.3,
        "timeout": 60,
    }
    return MailCreateCampaignOperator(**given | arguments)


@both_ways
def test_gone_out_at_last(run: Run, emulator: Emulator, deferrable: bool) -> None:
    emulator.plan_campaign("spring", looks=3)

    done = run(lambda: create(deferrable=deferrable))

    assert done.state == "success"
    (campaign,) = emulator.campaigns()
    assert done.returned == {
        "mail_name": "spring",
        "id": campaign["id"],
        "guid": campaign["guid"],
        "adopted": False,
        "incomplete": False,
        "sandbox": False,
        "mail_stats": done.returned["mail_stats"],
    }
    assert done.returned["mail_stats"]["sent_count"] == 100
    assert emulator.journal.count(SENDS) == 1


@both_ways
def test_what_was_created_is_known_before_the_wait(run: Run, emulator: Emulator, deferrable: bool) -> None:
    done = run(lambda: create(deferrable=deferrable, timeout=1))

    assert done.state == "failed"
    # On a busy machine a trigger may not have polled by then.
    assert re.search(
        r"the wait timed out: ('spring' was not polled|campaign 'spring': sending \(mailStatus 1\))", done.log
    )
    (campaign,) = emulator.campaigns()
    assert [done.result.xcom(TASK, key) for key in ("mail_name", "id", "guid", "adopted")] == [
        "spring",
        campaign["id"],
        campaign["guid"],
        False,
    ]
    assert done.returned is None


@both_ways
def test_of_a_mapped_task_each_has_its_own(run_in_airflow: Run, emulator: Emulator, deferrable: bool) -> None:
    emulator.settings.sending_seconds = 0.5
    emulator.add_list("vip", count=7)

    done = run_in_airflow(
        lambda: MailCreateCampaignOperator.partial(
            task_id=TASK,
            sender_mail="news@example.com",
            subject="Hi",
            content="<p>Hi</p>",
            wait_for_completion=True,
            deferrable=deferrable,
            poke_interval=0.3,
        ).expand(send_list_names=[["newsletter"], ["vip"]])
    )

    assert done.state == "success"
    found = [done.result.xcom(TASK, map_index=index) for index in (0, 1)]
    assert [one["mail_stats"]["sent_count"] for one in found] == [100, 7]
    created = {campaign["mailName"]: campaign["guid"] for campaign in emulator.campaigns()}
    assert {one["mail_name"]: one["guid"] for one in found} == created
    assert len(created) == 2


@both_ways
@pytest.mark.parametrize(
    ("state", "words"), [("failed", "mailStatus 4"), ("draft", "is a draft"), ("removed", "has disappeared")]
)
def test_will_not_go_out(run: Run, emulator: Emulator, deferrable: bool, state: str, words: str) -> None:
    # One look before creating, one after, and then the wait.
    with as_soon_as(lambda: answered(emulator, GETS) >= 3, lambda: emulator.set_campaign_state("spring", state)):
        done = run(lambda: create(deferrable=deferrable, retries=2))

    # Another try would adopt the same campaign, which will not go out either.
    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count(SENDS) == 1


@both_ways
def test_cancelled_before_its_send_time(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    monkeypatch.setattr(wait_campaign, "MAX_PAUSE", 0.3)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)

    def cancel() -> None:
        emulator.set_campaign_state("spring", "draft")
        emulator.clock.advance(hours=2)

    with as_soon_as(lambda: answered(emulator, GETS) >= 2, cancel):
        done = run(lambda: create(deferrable=deferrable, send_date=later, retries=2, timeout=86_400))

    assert (done.state, done.tries) == ("failed", 1)
    assert "saved only, or cancelled before its send time" in done.log


@both_ways
def test_the_timeout_counts_from_the_send_time(run: Run, emulator: Emulator, deferrable: bool) -> None:
    emulator.settings.sending_seconds = 0.0
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=4)

    done = run(lambda: create(deferrable=deferrable, send_date=soon, timeout=3.5))

    assert done.state == "success"
    asked = [entry["real_ms"] / 1000 for entry in emulator.journal.entries(GETS)]
    if deferrable:
        assert all(moment >= soon.timestamp() - 1 for moment in asked[2:])


@both_ways
def test_the_service_s_clock_is_ahead(run: Run, emulator: Emulator, deferrable: bool) -> None:
    """`make demo-ui` moves it. By our clock the send date is in two days."""
    emulator.settings.sending_seconds = 0.0
    emulator.clock.advance(days=2)
    there = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2, seconds=3)

    done = run(lambda: create(deferrable=deferrable, send_date=there, timeout=30))

    assert done.state == "success"


@pytest.mark.parametrize("hours", [-9, 0, 9])
def test_the_deadline_of_a_deferral_is_the_service_s(
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
    there = emulator.clock.now().timestamp() + 600
    assert len(ends) == 2
    assert all(abs(end - there) < 300 for end in ends)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("make", ["operator", "sensor"])
def test_a_last_look_at_airflows_own_deadline(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, make: str, ended: bool
) -> None:
    """No triggerer ran for so long."""

    def no_triggerer(ti: Any, what: Any) -> None:
        if ended:
            emulator.set_campaign_state("spring", "done")
        ti.next_method, ti.next_kwargs = "__fail__", stored({"error": "Trigger timeout"})

    emulator.settings.sending_seconds = 10_000
    if make == "sensor":
        emulator.add_campaign("spring", state="sending")
    monkeypatch.setattr("tests.support.task_runner._resume", no_triggerer)
    tasks: dict[str, Callable[[], Any]] = {
        "operator": lambda: create(deferrable=True),
        "sensor": lambda: MailCampaignSensor(task_id=TASK, mail_name="spring", deferrable=True),
    }
    done = run(tasks[make])

    assert done.state == ("success" if ended else "failed")
    if not ended:
        assert "the wait timed out, and no triggerer ended it: campaign 'spring': sending" in done.log


@both_ways
def test_polls_that_fail_for_too_long_end_the_wait(run: Run, emulator: Emulator, deferrable: bool) -> None:
    def fail() -> None:
        emulator.faults.add("too_many_requests", GETS, count=None, retry_after=999)

    with as_soon_as(lambda: answered(emulator, GETS) >= 3, fail):
        done = run(lambda: create(deferrable=deferrable, poll_error_timeout=0, poke_interval=0.1))

    assert done.state == "failed"
    assert "3 polls in a row failed" in done.log
    assert len(emulator.campaigns()) == emulator.journal.count(SENDS) == 1


@both_ways
def test_an_adopted_campaign_is_waited_for(run: Run, emulator: Emulator, deferrable: bool) -> None:
    run(lambda: create(wait_for_completion=False))
    emulator.plan_campaign("spring", looks=2)

    done = run(lambda: create(deferrable=deferrable, adopt_older=True))

    assert done.state == "success"
    assert (done.returned["adopted"], done.returned["id"]) == (True, None)
    assert done.returned["mail_stats"]["sent_count"] == 100
    assert emulator.journal.count(SENDS) == 1


@both_ways
def test_a_further_try_waits_on_and_creates_nothing(run: Run, emulator: Emulator, deferrable: bool) -> None:
    def hurry(context: Any) -> None:
        if context["ti"].try_number == 2:
            emulator.set_campaign_state("spring", "done")

    done = run(lambda: create(deferrable=deferrable, timeout=1, retries=1, retry_delay=0, pre_execute=hurry))

    assert (done.state, done.tries) == ("success", 2)
    assert done.returned["adopted"] is True
    assert len(emulator.campaigns()) == emulator.journal.count(SENDS) == 1


@both_ways
def test_a_key_may_be_exchanged_meanwhile(
    run: Run, emulator: Emulator, connect: Callable[..., None], deferrable: bool
) -> None:
    def exchange() -> None:
        emulator.settings.api_key = "the new key"
        wait_until(lambda: emulator.journal.entries()[-1]["auth"] == "invalid", what="refused", interval=0.02)
        connect(password="the new key")
        emulator.set_campaign_state("spring", "done")

    with as_soon_as(lambda: answered(emulator, GETS) >= 3, exchange):
        done = run(lambda: create(deferrable=deferrable))

    assert done.state == "success"
    assert {entry["auth"] for entry in emulator.journal.entries(GETS)} == {"api_key", "invalid"}
