"""What all sensors do alike, whatever they wait for, in each of the three ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.sensors.senders import MailSenderSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sensing import REPEATING, WAYS, repeating
from tests.tasks.triggering import steady_clock  # noqa: F401

SENT = datetime.now(UTC).replace(microsecond=0)
STORES = AIRFLOW_VERSION >= (3, 3)


@dataclass(frozen=True)
class Awaited:
    """What a sensor waits for."""

    sensor: Any
    operation: str
    arguments: dict[str, Any]
    reach: Callable[[Emulator], None]
    """Let the service reach it."""
    waiting: str
    """What the log says until then."""
    observations: int
    """Polls that have to show it."""
    result: dict[str, Any]


def sent(emulator: Emulator) -> None:
    emulator.add_campaign("spring", send_date=SENT)
    emulator.set_campaign_stats("spring", sentCount=100, openCount=7, hardBounce=2)


COUNTS = dict.fromkeys(("click_count", "soft_bounce", "unsent_count", "unsubscribe_count"), 0) | {
    "sent_count": 100,
    "open_count": 7,
    "hard_bounce": 2,
}
RECORD = {"mail_name": "spring", "mail_send_date": SENT.isoformat().replace("+00:00", "Z")}
SENDER = "mail.example.com"
CHECKS = dict.fromkeys(("mx", "spf", "dkim", "dmarc", "valid"), True)
# fmt: off
AWAITED = {
    "campaign": Awaited(MailCampaignSensor, "campaign/mail/get", {"mail_name": "spring"}, sent,
                        "campaign 'spring' was never seen: the service has none of", 1,
                        COUNTS | {"delivered_count": 0}),
    "stats": Awaited(MailStatsSettledSensor, "campaign/mail/stats/get",
                     {"mail_name": "spring", "min_interval": 40, "max_age": 10**9}, sent,
                     "there are no statistics of a campaign 'spring' (yet)", 3, COUNTS | RECORD),
    "sender": Awaited(MailSenderSensor, "verified_senders/get", {"sender_email": SENDER},
                      lambda emulator: emulator.add_sender(SENDER.upper()),
                      f"there is no sender '{SENDER}' (yet)", 1, CHECKS),
    "checks": Awaited(MailSenderSensor, "verified_senders/verify", {"sender_email": SENDER, "selector": "mail"},
                      lambda emulator: emulator.set_dns(SENDER, selector="mail"),
                      f"sender '{SENDER}' is not valid yet: DKIM", 1, CHECKS),
}
# fmt: on
every_kind = pytest.mark.parametrize("kind", AWAITED)
# What the base of all sensors does: one in all ways, the others in one.
in_all_ways = pytest.mark.parametrize(
    ("kind", "way"), [("stats", "poke"), ("sender", "poke"), *(("campaign", way) for way in REPEATING)]
)


@pytest.fixture(autouse=True)
def _others(emulator: Emulator, request: pytest.FixtureRequest) -> None:
    """What is not waited for, or is not as it should be yet."""
    emulator.add_campaign("winter")
    emulator.add_sender("other.example.com")
    if "checks" in request.node.name:
        emulator.add_sender(SENDER, verified=False)
        emulator.set_dns(SENDER, dkim=False, selector="mail")


def wait(kind: str, way: str, **arguments: Any) -> Any:
    given = {"task_id": TASK, "poke_interval": 50, "timeout": 86_400, "retries": 2, "retry_delay": 0}
    return AWAITED[kind].sensor(**given | AWAITED[kind].arguments | WAYS[way] | arguments)


def needs_state(kind: str, way: str) -> None:
    if way == "reschedule" and kind == "stats" and not STORES:
        pytest.skip("stores no observations between polls before 3.3")


@every_kind
@repeating
def test_reached_at_last(run: Run, emulator: Emulator, kind: str, way: str) -> None:
    needs_state(kind, way)
    awaited = AWAITED[kind]

    with at_request(emulator, awaited.operation, 5, lambda: awaited.reach(emulator)):
        done = run(lambda: wait(kind, way))

    assert (done.state, done.tries, done.returned) == ("success", 1, awaited.result)
    assert awaited.waiting in done.log
    assert emulator.journal.count(awaited.operation) == 5 + awaited.observations


@pytest.mark.parametrize(("kind", "soft_fail"), [*((kind, False) for kind in AWAITED), ("campaign", True)])
@repeating
def test_the_time_is_up(run: Run, emulator: Emulator, kind: str, way: str, soft_fail: bool) -> None:
    done = run(lambda: wait(kind, way, timeout=1000, soft_fail=soft_fail))

    # Another try after the time is up would only double it.
    assert (done.state, done.tries) == ("skipped" if soft_fail else "failed", 1)
    assert 20 <= emulator.journal.count(AWAITED[kind].operation) <= 22
    if soft_fail:
        return
    seen = re.escape(AWAITED[kind].waiting)
    if way == "reschedule" and not STORES:  # each poll but the first knows nothing of the one before
        seen = rf"campaign 'spring' was not found \(yet\)|{seen}"
    assert re.search(rf"the wait timed out.*: ({seen})", done.log)


@in_all_ways
def test_a_rejected_key_fails_at_once(run: Run, emulator: Emulator, connect: Connect, kind: str, way: str) -> None:
    connect("mail_team", password="wrong")

    done = run(lambda: wait(kind, way, mail_conn_id="mail_team"))

    assert (done.state, done.tries, emulator.journal.count()) == ("failed", 1, 1)
    assert "connection 'mail_team': /v5/" in done.log
    assert "rejected the credentials" in done.log


@in_all_ways
def test_polls_that_fail_for_too_long_end_the_try(run: Run, emulator: Emulator, kind: str, way: str) -> None:
    needs_state("stats", way)  # to count them
    AWAITED[kind].reach(emulator)
    # So long a pause is not waited for: each poll is one request.
    count = 4 if way == "deferrable" else 3
    emulator.faults.add("too_many_requests", AWAITED[kind].operation, count=count, retry_after=999)

    done = run(lambda: wait(kind, way, poll_error_timeout=0))

    assert (done.state, done.tries) == ("success", 2)
    assert "connection 'mail_default': 3 polls in a row failed" in done.log
