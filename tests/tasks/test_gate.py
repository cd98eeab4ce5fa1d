"""`MailStatsGateOperator`: what passes, what does not, and what a person decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail._task.statistics import Rate, wilson_bounds
from airflow_provider_mail.sensors.gate import MailStatsGateOperator
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.tables.events import EVENTS
from mail_emulator import Emulator
from tests.support.changes import post
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.sensing import WAYS
from tests.tasks.test_example_dags import Person, asks


def gate(way: str = "poke", **arguments: Any) -> MailStatsGateOperator:
    return MailStatsGateOperator(
        **{"task_id": TASK, "mail_name": "spring", "max_age": 600, "poke_interval": 60, **WAYS[way], **arguments}
    )


def counting(emulator: Emulator, sent: int = 1000, **counts: int) -> None:
    emulator.add_campaign("spring", send_date=datetime.now(UTC).replace(microsecond=0))
    zeros = dict.fromkeys(("hardBounce", "softBounce", "unsubscribeCount"), 0)
    emulator.set_campaign_stats("spring", **{"sentCount": sent, **zeros, **counts})


@given(total=st.integers(1, 10**6), share=st.floats(0, 1))
def test_a_bound_is_as_far_from_the_share_as_chance_allows(total: int, share: float) -> None:
    """The definition of the score interval: the observed share lies 1.645 standard errors of the bound from it."""
    count = round(total * share)
    for bound in wilson_bounds(count, total, 0.95):
        distance = abs(count / total - bound)
        assert distance == pytest.approx(1.6448536 * (bound * (1 - bound) / total) ** 0.5, abs=1e-6)


def test_without_mails_nothing_is_known() -> None:
    assert wilson_bounds(0, 0, 0.95) == (0.0, 1.0)


@given(total=st.integers(1, 10**7), share=st.floats(0, 1), confidence=st.floats(0.5, 0.9999))
def test_the_share_lies_between_its_bounds(total: int, share: float, confidence: float) -> None:
    rate = Rate("a", round(total * share), total, 0.1, confidence)
    assert -1e-9 <= rate.lower <= rate.share + 1e-9 <= rate.upper + 2e-9 <= 1 + 3e-9


LIMIT = {"max_hard_bounce": 0.02}
OUTCOMES = [
    # the limits, the counts, and what does not pass
    (LIMIT, {"hardBounce": 12}, None),
    (LIMIT, {"hardBounce": 30}, "hard_bounce: 30 of 1,000 (3.00%), the true share lies between 2.2"),
    (LIMIT, {"hardBounce": 15}, "the limit is 2.00%"),
    (LIMIT, {"sent": 50}, "hard_bounce: 0 of 50 (0.00%), the true share lies between 0.00% and 5.13%"),
    ({"max_hard_bounce": 0.1, "min_sent": 100}, {"sent": 50}, "min_sent: 50 mails were sent, 100 are needed"),
    (LIMIT, {"sent": 0}, "hard_bounce: 0 of 0"),
    ({"max_soft_bounce": 0.1, "max_unsubscribe": 0.01}, {"softBounce": 50, "unsubscribeCount": 1}, None),
    ({"max_soft_bounce": 0.1, "max_unsubscribe": 0.01}, {"unsubscribeCount": 20}, "unsubscribe_count: 20 of 1,000"),
    ({"max_bounce": 0.05}, {"hardBounce": 20, "softBounce": 15}, None),
    ({"max_bounce": 0.05}, {"hardBounce": 30, "softBounce": 30}, "bounce: 60 of 1,000 (6.00%)"),
    ({"max_hard_bounce": 0.5, "confidence": 0.999}, {"sent": 4}, "hard_bounce: 0 of 4"),
]


@pytest.mark.parametrize(("limits", "counts", "problem"), OUTCOMES)
def test_what_passes(
    run: Run, emulator: Emulator, limits: dict[str, Any], counts: dict[str, int], problem: str | None
) -> None:
    counting(emulator, **counts)
    done = run(lambda: gate(**limits))
    report = done.result.xcom(TASK, "gate")
    assert done.state == ("failed" if problem else "success")
    assert (problem or "") in "; ".join(report["problems"])
    assert (problem or "pass") in done.log
    if problem is None:
        assert (done.returned["decision"], done.returned["problems"]) == ("pass", [])
        assert {rate["verdict"] for rate in done.returned["rates"]} == {"ok"}


@pytest.mark.parametrize("way", WAYS if AIRFLOW_VERSION >= (3, 3) else ["poke", "deferrable"])
def test_it_waits_for_the_bounces(run: Run, emulator: Emulator, clock: Clock, way: str) -> None:
    counting(emulator)
    clock.after(500, lambda: emulator.set_campaign_stats("spring", sentCount=1000, hardBounce=300))
    done = run(lambda: gate(way, **LIMIT))
    assert (done.state, done.result.xcom(TASK, "gate")["rates"][0]["verdict"]) == ("failed", "exceeded")


def test_a_breach_may_skip_the_rest(run: Run, emulator: Emulator) -> None:
    counting(emulator, hardBounce=300)
    assert run(lambda: gate(on_breach="skip", **LIMIT)).state == "skipped"


def test_in_a_sandbox_there_is_nothing_to_decide(run: Run, emulator: Emulator, connect: Any) -> None:
    connect(sandbox=True)
    done = run(lambda: gate(**LIMIT))
    assert (done.state, done.returned["decision"]) == ("success", "sandbox")


def event(number: int, code: str, name: str = "spring", push: int = 1, days: float = 0) -> tuple[Any, ...]:
    values = dict.fromkeys(column.name for column in EVENTS.columns)
    values |= {"mail_conn_id": "mail_default", "event_id": f"{name}{number}{code}{push}", "event_code": code}
    values |= {"email": f"user{number}@example.com", "mail_name": name, "raw": "{}", "push_id": push}
    return tuple((values | {"received_at": datetime.now(UTC) + timedelta(days=days), "push_index": number}).values())


def events(**numbers: int) -> list[tuple[Any, ...]]:
    """Events of the campaign, each code for the first recipients; and others that are not to be counted."""
    others = [event(1, "SpamReport", "another"), *(event(number, "Bounced", days=-2) for number in range(900, 950))]
    return others + [event(number, code) for code, count in numbers.items() for number in range(count)]


SPAM, EVENTS_ONLY = {"max_spam": 0.01}, {"source": "events", "max_bounce": 0.05, "max_unsubscribe": 0.02}
IN_EVENTS: list[tuple[dict[str, Any], dict[str, int], str]] = [
    # the limits, the events, what the log says
    (SPAM, {"Delivered": 1000, "SpamReport": 1}, "spam_reports | 1 of 1,000"),
    (SPAM, {"Delivered": 1000, "SpamReport": 20}, "not pass: spam_reports: 20 of 1,000"),
    (SPAM, {}, "not pass: max_spam: mail_events has no event of the campaign"),
    # The statistics count 1,000 mails and 300 bounces.
    (EVENTS_ONLY, {"Delivered": 800, "Bounced": 20, "Unsubscribed": 3, "Opened": 400}, "| bounce | 20 of 800 |"),
    (EVENTS_ONLY, {"Delivered": 800, "Bounced": 60}, "not pass: bounce: 60 of 800 (7.50%)"),
    (EVENTS_ONLY, {"Delivered": 800, "Unsubscribed": 30}, "not pass: unsubscribe_count: 30 of 800"),
    (EVENTS_ONLY | {"min_sent": 900}, {"Delivered": 800}, "not pass: min_sent: 800 mails were sent, 900 are needed"),
    (EVENTS_ONLY, {}, "max_bounce, max_unsubscribe: mail_events has no event of the campaign"),
    (EVENTS_ONLY | SPAM, {"Delivered": 800, "SpamReport": 30}, "not pass: spam_reports: 30 of 800"),
]


@pytest.mark.parametrize(("limits", "numbers", "said"), IN_EVENTS)
def test_counts_in_the_events(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, limits: dict[str, Any], numbers: dict[str, int], said: str
) -> None:
    counting(emulator, hardBounce=300)
    again = [event(number, "Bounced", push=2) for number in range(numbers.get("Bounced", 0))]
    load(warehouse.hook, EVENTS, "mail_events", events(**numbers) + again, now=datetime.now(UTC))
    done = run(lambda: gate(sql_conn_id="warehouse", **limits))
    assert said in done.log
    assert done.state == ("failed" if "not pass" in done.log else "success")


def test_events_that_are_not_pushed_are_no_zero(run: Run, emulator: Emulator, any_warehouse: SqlDatabase) -> None:
    counting(emulator)
    post(emulator, "webhook/save", transEvent={"delivered": True, "bounced": False, "spamReport": True})
    load(any_warehouse.hook, EVENTS, "mail_events", events(Delivered=1000), now=datetime.now(UTC))
    done = run(lambda: gate(sql_conn_id="warehouse", source="events", max_bounce=0.05, max_spam=0.01))
    problem = "max_bounce: the service does not push events Bounced, so the count may be too small"
    report = done.result.xcom(TASK, "gate")
    (found,) = report["problems"]
    assert (done.state, report["sent"], problem in found) == ("failed", 1000, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "max_hard_bounce, max_soft_bounce, max_bounce, max_unsubscribe, max_spam: give at least one"),
        ({"max_spam": 0.1}, "sql_conn_id: needed with max_spam and source='events'"),
        ({"max_bounce": 0.1, "source": "events"}, "sql_conn_id: needed with max_spam and source='events'"),
        (
            {**LIMIT, "max_soft_bounce": 0.1, "source": "events", "sql_conn_id": "warehouse"},
            "max_hard_bounce, max_soft_bounce: events do not show which bounces are hard; use max_bounce",
        ),
        ({"max_bounce": 0.1, "source": "table"}, "source: 'table' is none of statistics, events"),
        ({"max_hard_bounce": 2}, "max_hard_bounce: must be a number from 0 to 1, not 2"),
        ({**LIMIT, "on_breach": "stop"}, "on_breach: 'stop' is none of fail, skip, ask"),
        ({**LIMIT, "confidence": 95}, "confidence: must be a number"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("'", ".")):
        gate(**arguments)


@pytest.mark.skipif(AIRFLOW_VERSION >= (3, 1), reason="a person can be asked")
def test_before_3_1_nobody_can_be_asked() -> None:
    with pytest.raises(ValueError, match=r"on_breach: 'ask' needs Airflow 3\.1 or later"):
        gate(on_breach="ask", **LIMIT)


@asks
@pytest.mark.parametrize("choice", ["Approve", "Reject"])
def test_a_person_decides(run_in_airflow: Run, new_dag: Any, emulator: Emulator, clock: Clock, choice: str) -> None:
    counting(emulator, hardBounce=300)
    with new_dag() as dag:
        gate(on_breach="ask", max_age=timedelta(0), **LIMIT)
    person = Person(clock, choice, dag.dag_id, TASK)
    done = run_in_airflow(dag)
    (question,) = person.asked
    assert question["subject"] == "Go on after campaign spring?"
    assert "hard_bounce: 300 of 1,000 (30.00%)" in question["body"]
    assert done.state == ("success" if choice == "Approve" else "failed")
    assert choice == "Reject" or done.returned["decision"] == "approved"
