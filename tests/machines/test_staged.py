"""A campaign in stages, and an A/B test, under faults at any request, a hold at any request, and gates that fail.

Whatever happens, nobody is mailed twice, no stage follows one that did not end well, and when all tasks succeed
everybody is mailed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.stages import Stage
from airflow_provider_mail.utils.staged_send import ab_send, staged_send
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.dags import RunResult
from tests.support.sampling import examples
from tests.support.task_runner import run_tasks

PEOPLE = [f"user{number}@example.com" for number in range(40)]
STAGES = {"canary": 0.3, "early": 0.6, "rest": 1}
AT_ONCE = {"retries": 2, "retry_delay": timedelta(0)}
CAMPAIGN = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "poke_interval": 1} | AT_ONCE
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("close_before", {}),
    ("close_after", {}),
    ("reset_after", {}),
    ("http_error_before", {"status": 503}),
    ("http_error_after", {"status": 500}),
    ("code_after", {"code": 500}),
    ("code_before", {"code": 403}),
    ("too_many_requests", {"retry_after": 1}),
    ("attachment_failed", {}),
]
OPERATIONS = ["contacts/imports", "campaign/mail/sends", "campaign/mail/get", "campaign/mail/stats/get"]
FAULTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(OPERATIONS), st.integers(0, 4), st.integers(1, 8)), max_size=3
)
names = itertools.count()


def audience(stage: Stage) -> MailImportContactsOperator:
    return MailImportContactsOperator(
        task_id=f"people_{stage.name}", contacts=[{"email": person} for person in PEOPLE],
        list_name=f"all {stage.name}", audience="exact", **AT_ONCE,
    )  # fmt: skip


def staged() -> DAG:
    gate = {"max_hard_bounce": 0.6, "max_age": 60, "poke_interval": 30} | AT_ONCE
    with DAG(f"staged_{next(names)}", schedule=None) as dag:
        staged_send(stages=STAGES, audience=audience, mail_name="spring", campaign=CAMPAIGN, gate=gate)
    return dag


def ab_test() -> DAG:
    wait = {"max_age": 60, "poke_interval": 30} | AT_ONCE
    with DAG(f"staged_{next(names)}", schedule=None) as dag:
        ab_send(
            test_fraction=0.5, audience=audience, mail_name="spring", campaign=CAMPAIGN, a={}, b={"subject": "Hello"},
            wait=wait, compare={"min_sent": 1, "confidence": 0.6, "on_no_difference": "leader"},
        )  # fmt: skip
    return dag


def mailed(emulator: Emulator) -> Counter[str]:
    sent = [found["mailName"] for found in emulator.campaigns() if found["state"] in ("sending", "done")]
    return Counter(person for name in sent for person in emulator.campaign_recipients(name))


def run_with_faults(emulator: Emulator, dag: DAG, faults: list[Any], hold: int | None, bounces: float) -> RunResult:
    emulator.reset()
    emulator.add_sender("news@example.com")
    emulator.change_settings(hard_bounce_rate=bounces, soft_bounce_rate=0)
    for (kind, options), operation, skip, count in faults:
        if kind != "attachment_failed" or operation == "campaign/mail/sends":
            emulator.faults.add(kind, operation, skip=skip, count=count, **options)
    with pytest.MonkeyPatch.context() as patch:

        def set_hold() -> None:
            patch.setenv("AIRFLOW_VAR_MAIL_HOLD", "x")

        with at_request(emulator, "campaign/mail/get", hold or 99, set_hold):
            result = run_tasks(dag)
    counts = mailed(emulator)
    assert set(counts.values()) <= {1}
    if result.state == "success":
        assert counts == Counter(PEOPLE)
    return result


def created(emulator: Emulator) -> set[str]:
    return {campaign["mailName"].removeprefix("spring ") for campaign in emulator.campaigns()}


def not_successful(result: RunResult) -> set[str]:
    return {task_id.partition(".")[2] for (task_id, _), task in result.tasks.items() if task.state != "success"}


HOLDS = st.none() | st.integers(1, 4)


@settings(max_examples=examples(25), suppress_health_check=[*HealthCheck])
@given(faults=FAULTS, hold=HOLDS, bounces=st.sampled_from([0.0, 0.0, 0.9]))
def test_nobody_twice_and_nobody_left_out(
    faults: list[Any], hold: int | None, bounces: float, emulator: Emulator
) -> None:
    ended_badly = not_successful(run_with_faults(emulator, staged(), faults, hold, bounces))
    for stage, following in itertools.pairwise(STAGES):
        if {f"send_{stage}", f"gate_{stage}"} & ended_badly:
            assert following not in created(emulator)


@settings(max_examples=examples(15), suppress_health_check=[*HealthCheck])
@given(faults=FAULTS, hold=HOLDS)
def test_an_ab_test_mails_nobody_twice(faults: list[Any], hold: int | None, emulator: Emulator) -> None:
    ended_badly = not_successful(run_with_faults(emulator, ab_test(), faults, hold, 0.0))
    assert {"send_rest_a", "send_rest_b"} & ended_badly
    if {"send_a", "send_b", "compare", "choose"} & ended_badly:
        assert "rest" not in created(emulator)
