"""An A/B test under faults at any request, and a hold at any request."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from airflow.sdk import DAG
from hypothesis import HealthCheck, given, settings

from airflow_provider_mail.utils.staged_send import ab_send
from mail_emulator import Emulator
from tests.machines.test_staged import CREATES, FAULTS, HOLDS, LOOKS, PEOPLE, audience, mailed
from tests.support.changes import at_request
from tests.support.sampling import examples
from tests.support.task_runner import run_tasks

names = itertools.count()


def ab_test() -> DAG:
    campaign = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "poke_interval": 1}
    with DAG(f"ab_{next(names)}", schedule=None) as dag:
        ab_send(
            test_fraction=0.5, audience=audience, mail_name="spring", campaign=campaign, a={}, b={"subject": "Hello"},
            wait={"max_age": 60, "poke_interval": 30},
            compare={"min_sent": 1, "confidence": 0.6, "on_no_difference": "leader"},
        )  # fmt: skip
    return dag


@settings(max_examples=examples(5), suppress_health_check=[*HealthCheck])
@given(faults=FAULTS, hold=HOLDS)
def test_an_ab_test_mails_nobody_twice(faults: list[Any], hold: tuple[str, int] | None, emulator: Emulator) -> None:
    emulator.reset()
    emulator.add_sender("news@example.com")
    for (kind, options), operation, skip, count in faults:
        if kind != "attachment_failed" or operation == CREATES:
            emulator.faults.add(kind, operation, skip=skip, count=count, **options)
    operation, number = hold or (LOOKS, 0)
    with (
        pytest.MonkeyPatch.context() as patch,
        at_request(emulator, operation, number, lambda: patch.setenv("AIRFLOW_VAR_MAIL_HOLD", "x")),
    ):
        result = run_tasks(ab_test())
    counts = mailed(emulator)
    assert set(counts.values()) <= {1}
    if result.state == "success":
        assert counts == Counter(PEOPLE)
    ended_badly = {task_id.partition(".")[2] for (task_id, _), task in result.tasks.items() if task.state != "success"}
    assert {"send_rest_a", "send_rest_b"} & ended_badly
    if {"send_a", "send_b", "compare", "choose"} & ended_badly:
        assert "spring rest" not in {campaign["mailName"] for campaign in emulator.campaigns()}
