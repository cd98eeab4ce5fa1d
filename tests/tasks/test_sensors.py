"""Waits of tasks: sensors in each of three ways, and `MailCreateCampaignOperator`, which creates its campaign once.

How a wait for a campaign ends is in `tests/machines/test_waiting.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import MailStats
from airflow_provider_mail.links import LINK_KEY
from airflow_provider_mail.operators.campaigns import CAMPAIGN_KEY, MailCreateCampaignOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.sensors.senders import MailSenderSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.task_runner import stored
from tests.tasks.conftest import TASK, Connect, Run, SqlDatabase
from tests.tasks.lineage_run import activate_assets
from tests.tasks.sending import campaign, remembers
from tests.tasks.sensing import REPEATING, WAYS, repeating
from tests.tasks.test_example_dags import example
from tests.tasks.triggering import steady_clock  # noqa: F401

GETS, SENDS, STATS = "campaign/mail/get", "campaign/mail/sends", "campaign/mail/stats/get"
DAY = 86_400
SENT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
"""Before noon, when the waits begin."""
STORES = AIRFLOW_VERSION >= (3, 3)


@dataclass(frozen=True)
class Awaited:
    """What a sensor waits for.

    :param reach: lets the service reach it.
    :param waiting: what the log says until then.
    :param observations: polls that have to show it.
    """

    sensor: Any
    operation: str
    arguments: dict[str, Any]
    reach: Callable[[Emulator], None]
    waiting: str
    observations: int
    result: dict[str, Any]


def sent(emulator: Emulator) -> None:
    emulator.add_campaign("spring", send_date=SENT)
    emulator.set_campaign_stats("spring", sentCount=100, openCount=7, hardBounce=2)


# fmt: off
COUNTS = dict.fromkeys(("click_count", "soft_bounce", "unsent_count", "unsubscribe_count"), 0) | {
    "sent_count": 100, "open_count": 7, "hard_bounce": 2}
RECORD = {"mail_name": "spring", "mail_send_date": SENT.isoformat().replace("+00:00", "Z")}
SENDER = "mail.example.com"
CHECKS = dict.fromkeys(("valid", "good_mx", "good_spf", "good_dkim", "good_dmarc"), True)
AWAITED = {
    "campaign": Awaited(MailCampaignSensor, GETS, {"mail_name": "spring"}, sent,
                        "campaign 'spring' was never seen: the service has none of", 1,
                        COUNTS | {"delivered_count": 0}),
    "stats": Awaited(MailStatsSettledSensor, STATS, {"mail_name": "spring", "min_interval": 40, "max_age": 10**8},
                     sent, "there are no statistics of a campaign 'spring' (yet)", 3, COUNTS | RECORD),
    "sender": Awaited(MailSenderSensor, "verified_senders/get", {"sender_email": SENDER},
                      lambda emulator: emulator.add_sender(SENDER.upper()),
                      f"there is no sender '{SENDER}' (yet)", 1, CHECKS),
    "checks": Awaited(MailSenderSensor, "verified_senders/verify", {"sender_email": SENDER, "selector": "mail"},
                      lambda emulator: emulator.set_dns(SENDER, selector="mail"),
                      f"sender '{SENDER}' is not valid yet: DKIM", 1, CHECKS),
}
# fmt: on
# What the base of all sensors does: one in all ways, the others in some.
EACH = [
    *(("campaign", way) for way in REPEATING),
    *(("stats", way) for way in REPEATING if STORES or way != "reschedule"),
    *(("sender", way) for way in REPEATING),
    ("checks", "poke"),
]


@pytest.fixture(autouse=True)
def _others(emulator: Emulator, request: pytest.FixtureRequest) -> None:
    """What is not waited for, or is not as it should be yet; and people."""
    emulator.add_campaign("winter")
    emulator.add_sender("other.example.com")
    emulator.add_list("newsletter", count=100)
    emulator.settings.sending_seconds = 10**6
    if "checks" in request.node.name:
        emulator.add_sender(SENDER, verified=False)
        emulator.set_dns(SENDER, dkim=False, selector="mail")


def wait(kind: str, way: str, **arguments: Any) -> Any:
    given = {"task_id": TASK, "poke_interval": 50, "timeout": DAY, "retries": 2, "retry_delay": 0}
    return AWAITED[kind].sensor(**given | AWAITED[kind].arguments | WAYS[way] | arguments)


@contextmanager
def exchanged_key(emulator: Emulator, connect: Connect, after: int) -> Iterator[None]:
    """After so many polls the key is another one; three polls later the connection has it, and the campaign is sent."""

    def exchange() -> None:
        emulator.settings.api_key = "the new key"

    def correct() -> None:
        connect(password="the new key")
        emulator.set_campaign_state("spring", "done")

    with at_request(emulator, GETS, after, exchange), at_request(emulator, GETS, after + 3, correct):
        yield


# --- what all sensors do alike ---


@pytest.mark.parametrize(("kind", "way"), EACH)
def test_reached_at_last(run: Run, emulator: Emulator, kind: str, way: str) -> None:
    awaited = AWAITED[kind]
    with at_request(emulator, awaited.operation, 5, lambda: awaited.reach(emulator)):
        done = run(lambda: wait(kind, way))
    assert (done.state, done.tries, done.returned) == ("success", 1, awaited.result)
    assert awaited.waiting in done.log
    assert emulator.journal.count(awaited.operation) == 5 + awaited.observations


@pytest.mark.parametrize(
    ("kind", "way", "soft_fail"), [*((*each, False) for each in EACH), *(("campaign", way, True) for way in REPEATING)]
)
def test_the_time_is_up(run: Run, emulator: Emulator, kind: str, way: str, soft_fail: bool) -> None:
    if kind == "stats":  # which waits for no campaign that does not exist
        emulator.add_campaign("spring", send_date=datetime.now(UTC) + timedelta(days=1))
    done = run(lambda: wait(kind, way, timeout=1000, soft_fail=soft_fail))
    # Another try after the time is up would only double it.
    assert (done.state, done.tries) == ("skipped" if soft_fail else "failed", 1)
    assert 20 <= emulator.journal.count(AWAITED[kind].operation) <= 22
    seen = re.escape(AWAITED[kind].waiting)
    if way == "reschedule" and not STORES:  # each poll but the first knows nothing of the one before
        seen = rf"campaign 'spring' was not found \(yet\)|{seen}"
    assert soft_fail or re.search(rf"the wait timed out.*: ({seen})", done.log)


@repeating
def test_a_rejected_key_fails_at_once(run: Run, emulator: Emulator, connect: Connect, way: str) -> None:
    connect("mail_team", password="wrong")
    done = run(lambda: wait("campaign", way, mail_conn_id="mail_team"))
    assert (done.state, done.tries, emulator.journal.count()) == ("failed", 1, 1)
    assert "connection 'mail_team': /v5/" in done.log
    assert "rejected the credentials" in done.log


@pytest.mark.parametrize("has_store", [True, False])
@repeating
def test_rejections_after_the_first_poll_are_tolerated(
    run: Run, emulator: Emulator, connect: Connect, way: str, has_store: bool
) -> None:
    emulator.add_campaign("spring", state="sending")
    forget = {} if has_store else {"pre_execute": lambda context: context.pop("task_state_store", None)}
    with exchanged_key(emulator, connect, 1):
        done = run(lambda: wait("campaign", way, **forget))
    assert (done.state, done.tries) == ("success", 1)
    assert [entry["auth"] for entry in emulator.journal.entries(GETS)] == ["api_key", *["invalid"] * 3, "api_key"]


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *(("campaign", way) for way in (WAYS if STORES else ["poke", "deferrable"])),  # to count them
        *((kind, way) for kind in ("stats", "sender") for way in ("poke", "deferrable")),
    ],
)
def test_polls_that_fail_for_too_long_end_the_try(run: Run, emulator: Emulator, kind: str, way: str) -> None:
    AWAITED[kind].reach(emulator)
    # So long a pause is not waited for: each poll is one request.
    count = 4 if way == "deferrable" else 3
    emulator.faults.add("too_many_requests", AWAITED[kind].operation, count=count, retry_after=999)
    done = run(lambda: wait(kind, way, poll_error_timeout=0))
    assert (done.state, done.tries) == ("success", 2)
    assert "connection 'mail_default': 3 polls in a row failed" in done.log


def test_a_sensor_that_fails_silently_polls_again(run: Run, emulator: Emulator) -> None:
    emulator.add_campaign("spring")
    emulator.faults.add("too_many_requests", GETS, count=3, retry_after=999)
    done = run(lambda: wait("campaign", "poke", poll_error_timeout=0, silent_fail=True))
    assert (done.state, done.tries) == ("success", 1)
    assert "Sensor poke failed" in done.log


def test_after_failed_polls_a_sensor_waits_longer(run: Run, emulator: Emulator) -> None:
    """Twice as long each time, however often Airflow calls it; after one that succeeds, as often as before."""
    emulator.add_campaign("spring", state="sending")
    emulator.faults.add("too_many_requests", GETS, skip=1, count=7, retry_after=999)
    with at_request(emulator, GETS, 4, lambda: emulator.set_campaign_state("spring", "done")):
        done = run(lambda: wait("campaign", "poke", poke_interval=1, retries=0))
    assert done.state == "success"
    moments = [entry["real_ms"] / 1000 for entry in emulator.journal.entries(GETS)]
    least = [1, 1, 1, 2, 4, 8, 16, 32, 1, 1, 1]  # not less than the interval of the sensor
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert [pause >= seconds - 0.01 for pause, seconds in zip(pauses, least, strict=True)] == [True] * len(least)


# --- the sensor of campaigns ---


@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize(("way", "state"), [("poke", "failed"), ("reschedule", "draft"), ("deferrable", "draft")])
def test_will_not_be_sent(run: Run, emulator: Emulator, way: str, state: Any, soft_fail: bool) -> None:
    emulator.add_campaign("spring", state=state)
    done = run(lambda: wait("campaign", way, soft_fail=soft_fail))
    assert (done.state, done.tries) == ("skipped" if soft_fail else "failed", 1)
    assert soft_fail or "campaign 'spring'" in done.log


def test_a_draft_is_confirmed_no_longer_than_the_timeout(run: Run, emulator: Emulator) -> None:
    """One poke confirms it, where the next one, in another process, would not know of it."""
    emulator.add_campaign("spring", state="draft")
    forget = {"pre_execute": lambda context: context.pop("task_state_store", None)}
    began = time.monotonic()
    done = run(lambda: wait("campaign", "reschedule", timeout=100, retries=0, **forget))
    assert (done.state, time.monotonic() - began < 200) == ("failed", True)


@pytest.mark.parametrize("way", WAYS if STORES else ["poke", "deferrable"])
def test_a_campaign_that_is_removed_is_noticed(run: Run, emulator: Emulator, way: str) -> None:
    emulator.add_campaign("spring", state="sending")
    with at_request(emulator, GETS, 2, lambda: emulator.set_campaign_state("spring", "removed")):
        done = run(lambda: wait("campaign", way))
    assert (done.state, done.tries, "has disappeared" in done.log) == ("failed", 1, True)
    assert 8 <= emulator.journal.count(GETS) <= 10  # it has to be missing for five minutes


# --- the sensor of final statistics ---


def test_the_days_begin_before_the_run(run: Run, emulator: Emulator) -> None:
    missing = {"mail_name": "missing", "timeout": 50}
    run(lambda: wait("stats", "poke", **missing), logical_date=datetime(2026, 3, 10, 9, tzinfo=UTC))
    first = emulator.journal.entries(STATS)[0]["body"]
    days = ("2026-03-02", f"{datetime.now(UTC).date()}")
    assert (first["mailName"], first["startDate"], first["endDate"]) == ("missing", *days)


def test_something_has_to_end_the_wait() -> None:
    with pytest.raises(ValueError, match="stable_checks, max_age: one of them"):
        wait("stats", "deferrable", stable_checks=None, max_age=None)


@pytest.mark.skipif(STORES, reason="3.3 has a task state store")
def test_without_stored_state_rescheduling_needs_an_age(run: Run, emulator: Emulator) -> None:
    with pytest.raises(ValueError, match=r"stable_checks: Airflow before 3\.3 keeps nothing between the polls"):
        wait("stats", "reschedule", max_age=None)
    emulator.add_campaign("spring")
    if AIRFLOW_VERSION >= (3, 1):
        done = run(lambda: wait("stats", "reschedule", max_age=100))
        assert done.state == "success"
        assert "only max_age ends the wait" in done.log


@remembers
def test_a_new_try_keeps_the_observations(run: Run, emulator: Emulator) -> None:
    sent(emulator)
    emulator.faults.add("too_many_requests", STATS, count=4, skip=2, retry_after=999)
    done = run(lambda: wait("stats", "poke", poll_error_timeout=0))
    # Two observations, three failed polls that end the try, one more in the second, and one observation.
    assert (done.state, done.tries) == ("success", 2)
    assert emulator.journal.count(STATS) == 2 + 4 + 1


def test_the_example(run_in_airflow: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_campaign("spring sale", send_date=SENT - timedelta(days=3))
    emulator.set_campaign_stats("spring sale", sentCount=100, openCount=7)
    dag = example("mail_final_statistics")
    activate_assets(dag)
    done = run_in_airflow(dag)
    assert done.state == "success"
    assert done.result.xcom("final")["open_count"] == 7
    assert warehouse.query("SELECT mail_name, open_count FROM mail_campaign_stats") == [("spring sale", 7)]


# --- the operator, after it has created its campaign ---

both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["sync", "deferrable"])
FIRST_POLL = 3
"""One lookup before creating, one after, and then the wait."""


def create(**arguments: Any) -> MailCreateCampaignOperator:
    patient = {"wait_for_completion": True, "poke_interval": 70, "timeout": DAY, "retry_delay": 0}
    return campaign(**patient | arguments)


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


@both_ways
def test_sent_while_the_key_is_exchanged(run: Run, emulator: Emulator, connect: Connect, deferrable: bool) -> None:
    with exchanged_key(emulator, connect, 2):
        done = run(lambda: create(deferrable=deferrable))
    created = emulator.campaigns("spring")[0]
    flags = dict.fromkeys(("adopted", "incomplete", "sandbox"), False)
    stats = done.returned.pop("mail_stats")
    assert done.returned == {"mail_name": "spring", "guid": created["guid"]} | flags
    assert (stats["sent_count"], emulator.journal.count(SENDS)) == (100, 1)
    auths = [entry["auth"] for entry in emulator.journal.entries(GETS)]
    assert auths == [*["api_key"] * 2, *["invalid"] * 3, "api_key"]


@both_ways
@pytest.mark.parametrize("days", [0, 2])
def test_the_timeout_counts_from_the_send_time(run: Run, emulator: Emulator, deferrable: bool, days: int) -> None:
    """The send time is by the service's clock, which `make demo-ui` moves."""
    emulator.settings.sending_seconds = 0.0
    emulator.clock.advance(days=days)
    began = time.time()
    done = run(lambda: create(deferrable=deferrable, send_date=in_seconds(days * DAY + 1000), timeout=300))
    assert done.state == "success"
    moments = [entry["real_ms"] / 1000 - began for entry in emulator.journal.entries(GETS)][FIRST_POLL:]
    assert moments[-1] == pytest.approx(1000, abs=90)
    if deferrable:  # else the task holds its worker slot anyway
        assert len(moments) <= 5


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
    done = run(lambda: create(deferrable=deferrable, timeout=600, retries=1, pre_execute=send))
    assert "the wait timed out: campaign 'spring': sending (mailStatus 1)" in done.log
    assert (done.state, done.tries, emulator.journal.count(SENDS)) == ("success", 2, 1)
    guid = emulator.campaigns("spring")[0]["guid"]
    assert (done.returned["adopted"], done.returned["guid"]) == (True, guid)

    failed = run(lambda: create(deferrable=deferrable, mail_name="summer", timeout=600))
    created = emulator.campaigns("summer")[0]
    flags = dict.fromkeys(("adopted", "incomplete", "sandbox"), False)
    assert failed.result.xcom(TASK, key=CAMPAIGN_KEY) == {"mail_name": "summer", "guid": created["guid"]} | flags
    assert failed.result.xcom(TASK, key=LINK_KEY) == f"https://app.example.com/{created['guid']}"
    assert failed.returned is None


@remembers
@both_ways
def test_a_cleared_task_sends_nothing_that_was_sent(run: Run, emulator: Emulator, deferrable: bool) -> None:
    """Although the campaign is gone, and was sent before its send time."""
    send_date = in_seconds(80_000)
    with at_request(emulator, GETS, FIRST_POLL, lambda: emulator.set_campaign_state("spring", "done")):
        done = run(lambda: create(deferrable=deferrable, send_date=send_date))
    assert (done.state, datetime.now(UTC) < send_date) == ("success", True)
    emulator.set_campaign_state("spring", "removed")
    assert done.result.clear_and_run(TASK).state == "failed"
    assert emulator.journal.count(SENDS) == 1


def test_sandbox_mode_returns_counts_of_nothing(run: Run, emulator: Emulator) -> None:
    """So that the tasks after it read the same keys as in earnest."""
    done = run(lambda: create(sandbox_mode=True))
    assert emulator.campaigns("spring") == []
    assert done.returned["sandbox"] is True
    assert done.returned["mail_stats"] == dict.fromkeys(MailStats.model_fields, 0)


@pytest.mark.parametrize("kind", AWAITED)
def test_the_execution_timeout_also_ends_a_deferred_wait(run: Run, clock: Clock, kind: str) -> None:
    began = clock.monotonic()
    done = run(lambda: wait(kind, "deferrable", execution_timeout=timedelta(seconds=60), timeout=86_400))
    if kind != "stats":  # which does not defer for a name that is not known
        assert (done.state, "(execution_timeout: 60 s)" in done.log) == ("failed", True)
    assert clock.monotonic() - began < 1000


@pytest.mark.parametrize(("name", "message"), [
    ("sprin", "there is no campaign 'sprin'; the nearest names are 'spring'"),
    ("spring", "campaign 'spring' has failed, and has no statistics"),
])  # fmt: skip
@pytest.mark.parametrize("way", WAYS if STORES else ["poke", "deferrable"])
def test_statistics_that_there_will_never_be(
    run: Run, emulator: Emulator, clock: Clock, way: str, name: str, message: str
) -> None:
    emulator.add_campaign("spring")
    emulator.set_campaign_state("spring", "failed")
    began = clock.monotonic()
    done = run(lambda: MailStatsSettledSensor(task_id=TASK, mail_name=name, poke_interval=50, **WAYS[way]))
    assert message in done.log
    assert (done.state, clock.monotonic() - began < 1000) == ("failed", True)
