"""`MailStatsGateOperator`: what passes, what does not, and what a person decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail._task.rates import Rate, wilson_bounds
from airflow_provider_mail.sensors.gate import MailStatsGateOperator
from airflow_provider_mail.warehouse.load import load
from airflow_provider_mail.warehouse.tables.events import EVENTS
from mail_emulator import Emulator
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


def event(number: int, code: str, name: str = "spring") -> tuple[Any, ...]:
    values = dict.fromkeys(column.name for column in EVENTS.columns)
    values |= {"mail_conn_id": "mail_default", "event_id": f"{name}{number}{code}", "event_code": code, "raw": "{}"}
    values |= {"email": f"user{number}@example.com", "mail_name": name, "received_at": datetime.now(UTC)}
    return tuple((values | {"push_id": 1, "push_index": number}).values())


@pytest.mark.parametrize(
    ("reports", "delivered", "problem"),
    [(1, 1000, None), (20, 1000, "spam_reports: 20 of 1,000"), (0, 0, "mail_events has no event of the campaign")],
)
def test_spam_is_counted_in_the_events(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, reports: int, delivered: int, problem: str | None
) -> None:
    counting(emulator)
    rows = [event(number, "Delivered") for number in range(delivered)]
    rows += [event(number, "SpamReport") for number in range(reports)] + [event(1, "SpamReport", "another")]
    load(warehouse.hook, EVENTS, "mail_events", rows, now=datetime.now(UTC))
    done = run(lambda: gate(max_spam=0.01, sql_conn_id="warehouse"))
    assert done.state == ("failed" if problem else "success")
    assert (problem or "spam_reports | 1 of 1,000") in done.log


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "max_hard_bounce, max_soft_bounce, max_unsubscribe, max_spam: give at least one"),
        ({"max_spam": 0.1}, "sql_conn_id: needed with max_spam"),
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
