"""A campaign in stages under faults at any request, a hold at any request, and gates that fail.

Whatever happens, nobody is mailed twice, no stage follows one that did not end well, and when all tasks succeed
everybody is mailed. With MAIL_ALL_FAULTS=1 in a thousand schedules.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter
from typing import Any

import pytest
from airflow.sdk import DAG
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.hold import FRESH_SECONDS
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.stages import Stage
from airflow_provider_mail.utils.staged_send import staged_send
from mail_emulator import Emulator
from tests.support.changes import at_request
from tests.support.flow_tries import FlowRun
from tests.support.sampling import ALL_FAULTS, examples

SCHEDULES = 1000 if ALL_FAULTS else examples(25)
TRIES = 3
PEOPLE = [f"user{number}@example.com" for number in range(40)]
STAGES = {"canary": 0.3, "early": 0.6, "rest": 1}
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
IMPORTS, CREATES, LOOKS = "contacts/imports", "campaign/mail/sends", "campaign/mail/get"
OPERATIONS = [IMPORTS, CREATES, LOOKS, "campaign/mail/stats/get"]
FAULTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(OPERATIONS), st.integers(0, 4), st.integers(1, 8)), max_size=5
)
HOLDS = st.none() | st.tuples(st.sampled_from([IMPORTS, CREATES, LOOKS]), st.integers(1, 6))
"""At which request a hold is set."""


def audience(stage: Stage) -> MailImportContactsOperator:
    return MailImportContactsOperator(
        task_id=f"people_{stage.name}", contacts=[{"email": person} for person in PEOPLE],
        list_name=f"all {stage.name}", audience="exact",
    )  # fmt: skip


@functools.cache
def staged() -> DAG:
    campaign = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "poke_interval": 1}
    gate = {"max_hard_bounce": 0.6, "max_age": 60, "poke_interval": 30}
    with DAG("staged", schedule=None) as dag:
        staged_send(stages=STAGES, audience=audience, mail_name="spring", campaign=campaign, gate=gate)
    return dag


def mailed(emulator: Emulator) -> Counter[str]:
    """How many mails each person was sent."""
    sent = {found["mailName"] for found in emulator.campaigns() if found["state"] in ("sending", "done")}
    return Counter(person for name in sent for person in emulator.campaign_recipients(name))


def check(run: FlowRun, emulator: Emulator) -> None:
    """Nobody twice, nobody left out by a run that succeeded, and no stage without those before it."""
    counts = mailed(emulator)
    assert set(counts.values()) <= {1}
    if run.succeeded:
        assert counts == Counter(PEOPLE)
    created = {entry["body"]["mailName"] for entry in emulator.journal.entries(CREATES)}
    for stage, following in itertools.pairwise(STAGES):
        before = {run.states[f"staged_send.{task}_{stage}"] for task in ("send", "gate")}
        assert before == {"success"} or f"spring {following}" not in created


@settings(max_examples=SCHEDULES, suppress_health_check=[*HealthCheck])
@given(faults=FAULTS, hold=HOLDS, bounces=st.sampled_from([0.0, 0.0, 0.9]))
def test_nobody_twice_and_nobody_left_out(
    faults: list[Any], hold: tuple[str, int] | None, bounces: float, emulator: Emulator
) -> None:
    emulator.reset()
    emulator.add_sender("news@example.com")
    emulator.change_settings(hard_bounce_rate=bounces, soft_bounce_rate=0)
    for (kind, options), operation, skip, count in faults:
        if kind != "attachment_failed" or operation == CREATES:
            emulator.faults.add(kind, operation, skip=skip, count=count, **options)
    run = FlowRun(staged(), emulator, most=TRIES)
    held_at: list[float] = []
    with pytest.MonkeyPatch.context() as patch:

        def set_hold() -> None:
            held_at.append(time.time())
            patch.setenv("AIRFLOW_VAR_MAIL_HOLD", "x")

        operation, number = hold or (LOOKS, 0)
        with at_request(emulator, operation, number, set_hold):
            run.run()
    check(run, emulator)
    for entry in emulator.journal.entries(CREATES):
        assert not held_at or entry["real_ms"] / 1000 < held_at[0] + FRESH_SECONDS
    event(f"{'held, ' if held_at else ''}{Counter(run.states.values())['success']} tasks succeeded")
    # The hold is released, the service has recovered, and the tasks that failed are cleared.
    emulator.faults.clear()
    run.run()
    check(run, emulator)
    event(f"after clearing {'all' if run.succeeded else 'not all'} tasks succeeded")
