"""Campaigns in stages and A/B tests under faults at any request, and gates that fail.

At any request a hold may be set, the credentials may be exchanged, or a clock may be set; and what a task has returned
may be lost, as of one that was skipped.

Whatever happens, nobody is mailed twice, no stage follows one that did not end well, and when all tasks succeed
everybody is mailed. With MAIL_ALL_FAULTS=1 in a thousand schedules.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from airflow.sdk import DAG
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.hold import FRESH_SECONDS
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.utils.staged_send import ab_send, staged_send
from mail_emulator import Emulator
from tests.machines import AT_ANY_REQUEST, UNCLEAR, happening, start
from tests.support.clock import Clock
from tests.support.flow_tries import FlowRun, FlowTries
from tests.support.sampling import ALL_FAULTS, examples

SCHEDULES = 1000 if ALL_FAULTS else examples(25)
TRIES = 3
PEOPLE = [f"user{number}@example.com" for number in range(40)]
MAX_BOUNCES = 0.6
CAMPAIGN = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "poke_interval": 1}
STAGES = {"canary": 0.3, "early": 0.6, "rest": 1}
KINDS = [*UNCLEAR, ("code_before", {"code": 403}), ("too_many_requests", {"retry_after": 1}), ("attachment_failed", {})]
IMPORTS, CREATES, LOOKS = "contacts/imports", "campaign/mail/sends", "campaign/mail/get"
OPERATIONS = [IMPORTS, CREATES, LOOKS, "campaign/mail/stats/get"]
FAULTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(OPERATIONS), st.integers(0, 4), st.integers(1, 8)), max_size=5
)


def importing(people: Sequence[str]) -> MailImportContactsOperator:
    contacts = [{"email": person} for person in people]
    return MailImportContactsOperator(task_id="people", contacts=contacts, list_name="all", exact_audience=True)


@functools.cache
def staged(
    people: Sequence[str] = tuple(PEOPLE), first: float = 0.3, names: Sequence[str] = tuple(STAGES), **arguments: Any
) -> DAG:
    """Return a DAG whose first stage has a share of some people."""
    gate = {"max_hard_bounce": MAX_BOUNCES, "max_age": 60, "poke_interval": 30}
    arguments = {"mail_name": "spring", "campaign": CAMPAIGN, "gate": gate, **arguments}
    stages = dict(zip(names, (first, *[*STAGES.values()][-len(names) + 1 :]), strict=True))
    with DAG("staged", schedule=None) as dag:
        staged_send(stages=stages, import_task=importing(people), **arguments)
    return dag


def mailed(emulator: Emulator) -> Counter[str]:
    """How many mails each person was sent."""
    sent = {found["mailName"] for found in emulator.campaigns() if found["state"] in ("sending", "done")}
    return Counter(person for name in sent for person in emulator.campaign_recipients(name))


def check(run: FlowRun, emulator: Emulator, bounces: float) -> None:
    """Nobody twice, nobody left out by a run that succeeded, and no stage without those before it.

    :param bounces: the share of the people to whom nothing can be delivered.
    """
    counts = mailed(emulator)
    assert set(counts.values()) <= {1}
    if run.succeeded:
        assert counts == Counter(PEOPLE)
    # A process may be killed in the middle of a body.
    created = {entry["body"]["mailName"] for entry in emulator.journal.entries(CREATES) if entry["body"]}
    if bounces > MAX_BOUNCES:
        assert created <= {"spring canary"}
    for stage, following in itertools.pairwise(STAGES):
        before = {run.states[f"staged_send.{task}_{stage}"] for task in ("send", "gate")}
        assert before == {"success"} or f"spring {following}" not in created


def begin(emulator: Emulator, faults: list[Any], **settings: Any) -> None:
    start(emulator)
    emulator.change_settings(**settings)
    for (kind, options), operation, skip, count in faults:
        if kind != "attachment_failed" or operation == CREATES:
            emulator.faults.add(kind, operation, skip=skip, count=count, **options)


@settings(max_examples=SCHEDULES, suppress_health_check=[*HealthCheck])
@given(
    faults=FAULTS, meanwhile=AT_ANY_REQUEST, lost=st.none() | st.integers(0, 6),
    bounces=st.sampled_from([0.0, 0.0, 0.9]),
)  # fmt: skip
def test_nobody_twice_and_nobody_left_out(
    faults: list[Any],
    meanwhile: tuple[str, int] | None,
    lost: int | None,
    bounces: float,
    emulator: Emulator,
    clock: Clock,
) -> None:
    begin(emulator, faults, hard_bounce_rate=bounces, soft_bounce_rate=0)
    run = FlowRun(staged(), emulator, most=TRIES)
    number = itertools.count()

    def run_task(tries: FlowTries, make: Callable[[], Any], most: int) -> None:
        tries.run_all(make, most)
        if next(number) == lost:
            tries.xcoms.clear()

    with happening(meanwhile, emulator, clock) as times:
        run.run(run_task)
    check(run, emulator, bounces)
    if times and meanwhile and meanwhile[0] == "hold":
        sent = [entry for path in (IMPORTS, CREATES) for entry in emulator.journal.entries(path)]
        assert all(entry["real_ms"] / 1000 < times[0] + FRESH_SECONDS for entry in sent)
    event(f"{meanwhile[0] if times and meanwhile else 'nothing'}: {Counter(run.states.values())['success']} succeeded")
    # The hold is released, the service has recovered, and the tasks that failed are cleared.
    emulator.faults.clear()
    run.run()
    check(run, emulator, bounces)
    event(f"after clearing {'all' if run.succeeded else 'not all'} tasks succeeded")


@functools.cache
def ab_test(
    people: Sequence[str] = tuple(PEOPLE), fraction: float = 0.5, winner: str = "leader", **arguments: Any
) -> DAG:
    with DAG("ab", schedule=None) as dag:
        ab_send(
            test_fraction=fraction, import_task=importing(people), campaign=CAMPAIGN,
            version_a={}, version_b={"subject": "Hello"},
            wait={"max_age": 60, "poke_interval": 30},
            compare={"min_sent": 1, "confidence": 0.999, "on_no_difference": winner},
            **{"mail_name": "spring", **arguments},
        )  # fmt: skip
    return dag


SOURCES = st.integers(0, 60).flatmap(lambda first: st.integers(1, 20).map(lambda more: (first, 40 + more)))


def clearing(dag_of: Callable[..., DAG], ends: Sequence[str], **changes: Any) -> Callable[..., None]:
    """Return a test of a group that is cleared several times.

    Each pass ends at one of its tasks, which is ended from outside; then all are cleared.

    :param dag_of: returns the DAG file.
    :param ends: the tasks.
    :param changes: what differs in the DAG file when the run is cleared, beside the source.
    """
    changes |= {"group_id": "renamed", "seed": "other", "mail_name": "summer", "on_changed_plan": "mail_others"}
    options = {name: st.sampled_from(value if isinstance(value, list) else [value]) for name, value in changes.items()}

    @settings(max_examples=SCHEDULES, suppress_health_check=[*HealthCheck])
    @given(
        faults=FAULTS, meanwhile=AT_ANY_REQUEST,
        ends=st.lists(st.sampled_from([*ends, None]), min_size=1, max_size=3),
        changes=st.lists(st.fixed_dictionaries({"people": SOURCES}, optional=options), min_size=3, max_size=3),
    )  # fmt: skip
    def test(
        faults: list[Any],
        meanwhile: tuple[str, int] | None,
        ends: list[str | None],
        changes: list[dict[str, Any]],
        emulator: Emulator,
        clock: Clock,
    ) -> None:
        begin(emulator, faults)
        people = [f"user{number}@example.com" for number in range(100)]
        run = FlowRun(dag_of(), emulator, most=TRIES)
        source: Sequence[str] = PEOPLE
        for end, change in zip(ends, changes, strict=False):
            with happening(meanwhile, emulator, clock):
                run.run(functools.partial(_run_unless, end))
            check_cleared(run, emulator, source)
            emulator.faults.clear()
            source = people[slice(*change["people"])]
            run.clear(dag_of(**{**change, "people": tuple(source)}))
        run.run()
        check_cleared(run, emulator, source)
        event(f"{'all' if run.succeeded else 'not all'} tasks succeeded")

    return test


def _run_unless(end: str | None, tries: FlowTries, make: Callable[[], Any], most: int) -> None:
    if end and make().task_id.endswith(f".{end}"):
        tries.state = "failed"
    else:
        tries.run_all(make, most)


def check_cleared(run: FlowRun, emulator: Emulator, source: Sequence[str]) -> None:
    counts = mailed(emulator)
    assert set(counts.values()) <= {1}
    assert not run.succeeded or set(source) <= counts.keys()
    states = {task_id.partition(".")[2]: state for task_id, state in run.states.items()}
    if "send_rest_a" not in states:
        return
    assert "success" not in (states["send_rest_a"], states["send_rest_b"]) or "skipped" in states.values()
    if "failed" in (states["send_a"], states["send_b"]):
        assert "success" not in (states["send_rest_a"], states["send_rest_b"])


test_a_run_that_is_cleared_with_another_plan_mails_nobody_twice = clearing(
    staged,
    ["send_canary", "send_early", "send_rest"],
    first=[0.01, 0.1, 0.3, 0.59],
    names=[("first", "early", "rest"), ("early", "canary", "rest"), ("canary", "rest")],
)
test_an_ab_test_mails_nobody_twice = clearing(
    ab_test,
    ["send_a", "send_b", "compare", "choose", "send_rest_a", "send_rest_b"],
    fraction=[0.1, 0.5, 0.9],
    winner=["a", "b"],
)
