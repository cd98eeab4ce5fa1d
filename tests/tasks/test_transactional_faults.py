"""Every fault that can hit a send, at every place, alone and several in a row, with every choice of `on_ambiguous`.

One DAG has a task for each case; each task sends to people of its own, and what the service got is compared with what
the task said. Half of the cases are run (fewer below Airflow 3.3), chosen evenly; all with MAIL_ALL_FAULTS=1.
"""

from __future__ import annotations

import datetime
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from airflow_provider_mail.operators.transactional import LEDGER_KEY, MailSendBatchOperator
from tests.support.dags import AIRFLOW_VERSION, RunResult
from tests.support.processes import wait_until
from tests.tasks.conftest import Connect, Run
from tests.tasks.sending import HELLO, SENDS, change_retries

REMEMBERS = AIRFLOW_VERSION >= (3, 3)
# Without a memory there is nothing to resend but everything.
CHOICES = ["fail", "resend", "skip"] if REMEMBERS else ["fail", "skip"]
REQUESTS, IN_ONE = 3, 2
PEOPLE = REQUESTS * IN_ONE

Meaning = Literal["fine", "waits", "refused", "unknown"]


@dataclass(frozen=True)
class Variant:
    """A fault with parameters, and what a client must take it for."""

    kind: str
    meaning: Meaning
    params: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return " ".join([self.kind, *map(str, self.params.values())])


def _statuses(kind: str, *statuses: int) -> list[Variant]:
    return [Variant(kind, "unknown", {"status": status}) for status in statuses]


VARIANTS = [
    Variant("delay", "unknown", {"seconds": 1.5}),
    Variant("delay_answer", "unknown", {"seconds": 1.5}),
    Variant("drip", "unknown", {"bytes_per_second": 4}),
    Variant("drip", "fine", {"bytes_per_second": 1000}),
    Variant("refuse", "unknown"),
    Variant("close_before", "unknown"),
    Variant("reset_before", "unknown"),
    Variant("close_after", "unknown"),
    Variant("reset_after", "unknown"),
    Variant("cut_body", "unknown", {"share": 0.0}),
    Variant("cut_body", "unknown", {"share": 0.5, "reset": True}),
    Variant("too_many_requests", "waits", {"retry_after": 0}),
    Variant("too_many_requests", "waits", {"retry_after": 0, "form": "date"}),
    Variant("too_many_requests", "waits", {"retry_after": None}),
    *_statuses("http_error_before", 408, 500, 502, 503, 504),
    *_statuses("http_error_after", 500, 502, 503, 504),
    Variant("code_before", "unknown"),
    Variant("code_before", "unknown", {"code": 500, "http_status": 500}),
    Variant("code_before", "refused", {"code": 400}),
    Variant("code_before", "refused", {"code": 401, "http_status": 401}),
    Variant("code_before", "refused", {"code": 403, "http_status": 403}),
    Variant("code_after", "unknown"),
    Variant("redirect", "refused"),
    Variant("html_before", "unknown"),
    Variant("html_before", "unknown", {"status": 503}),
    Variant("html_before", "refused", {"status": 404}),
    Variant("html_after", "unknown"),
    Variant("html_after", "unknown", {"status": 502}),
    Variant("cut_json", "unknown"),
    Variant("empty_body", "unknown"),
    Variant("no_code", "unknown"),
    Variant("extra_fields", "fine"),
    Variant("code_as_text", "fine"),
]
SLOW = {"delay", "delay_answer", "drip"}


@dataclass(frozen=True)
class Case:
    number: int
    variant: Variant
    position: int
    in_a_row: int
    choice: str

    @property
    def name(self) -> str:
        return f"case{self.number}"

    def __str__(self) -> str:
        return f"{self.variant} at request {self.position}, {self.in_a_row} in a row, on_ambiguous={self.choice}"

    def task(self) -> MailSendBatchOperator:
        return MailSendBatchOperator(
            task_id=self.name,
            mail_conn_id="mail_hasty" if self.variant.kind in SLOW else "mail_default",
            campaign=self.name,
            messages=[{"to": f"p{number}.{self.name}@example.com"} for number in range(PEOPLE)],
            versions_per_request=IN_ONE,
            on_ambiguous=self.choice,
            retries=3,
            retry_delay=datetime.timedelta(0),
            **HELLO,
        )


def chosen_cases() -> list[Case]:
    """All cases, or an even choice of them."""
    everything = bool(os.environ.get("MAIL_ALL_FAULTS"))
    cases = []
    for row, variant in enumerate(VARIANTS):
        for position, in_a_row, (column, choice) in product(range(REQUESTS), (1, 2), enumerate(CHOICES)):
            if REMEMBERS:
                # Each fault alone at some places and twice in a row at the others.
                chosen = (row + position + in_a_row + column) % 2
            else:
                # Each fault once: a try there costs more than a second, and there never is a second one.
                chosen = position == row % REQUESTS and in_a_row == 1 and column == row % len(CHOICES)
            if everything or chosen:
                cases.append(Case(len(cases), variant, position, in_a_row, choice))
    return cases


def test_every_fault_that_can_hit_a_send_is_here() -> None:
    can = {name for name, kind in FAULT_KINDS.items() if kind.operations is None}
    assert {variant.kind for variant in VARIANTS} == can
    assert all(
        FAULT_KINDS[variant.kind].outcome in ("odd", "slow") for variant in VARIANTS if variant.meaning == "fine"
    )


@pytest.mark.slow
def test_what_the_service_got_is_what_the_task_said(
    run: Run,
    emulator: Emulator,
    connect: Connect,
    new_dag: Callable[..., DAG],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    change_retries(monkeypatch, base_seconds=0.01)
    connect("mail_hasty", timeout=0.4)
    cases = chosen_cases()
    faults = {
        case: emulator.faults.add(
            case.variant.kind,
            SENDS,
            skip=case.position,
            count=case.in_a_row,
            where={"campaign": case.name},
            **case.variant.params,
        )
        for case in cases
    }
    with new_dag() as dag:
        for case in cases:
            case.task()

    result = run(dag).result
    # What was delayed is carried out after the client has given up.
    wait_until(
        lambda: all(entry["seconds"] is not None for entry in emulator.journal.entries(SENDS)),
        what="the last request",
        timeout=10,
    )

    struck = {fault["id"]: fault["struck"] for fault in emulator.faults.list()}
    got = _got(emulator)
    remembered = _remembered(result)
    problems = []
    totals: Counter[str] = Counter()
    for case in cases:
        mails = [got.get(f"p{number}.{case.name}@example.com", 0) for number in range(PEOPLE)]
        task = result.task(case.name)
        told = result.xcom(case.name)
        try:
            judge(case, mails, task.state, task.try_number, told, remembered.get(case.name), struck[faults[case]])
        except AssertionError as error:
            problems.append(f"{case}: {mails} {task} {told} {remembered.get(case.name)}: {error}")
        twice = sum(mail > 1 for mail in mails)
        totals.update({"cases": 1, task.state: 1, f"mailed twice with {case.choice}": twice})
        if task.state == "success" and case.choice == "fail":
            totals["left out by a green task with fail"] += sum(mail == 0 for mail in mails)
    with capfd.disabled():
        print(f"\nfault matrix of sends: {dict(totals)}")
    assert not problems, f"{len(problems)} of {len(cases)} cases:\n" + "\n".join(problems)


def judge(case: Case, mails: list[int], state: str, tries: int, told: Any, remembered: Any, struck: int) -> None:
    """Compare what people got with what the task said.

    :raises AssertionError: what is wrong.
    """
    meaning, choice = case.variant.meaning, case.choice
    assert struck >= 1, "the fault did not strike"
    before, there, behind = _parts(mails, case.position)
    if choice != "resend":
        assert max(mails) <= 1, "mailed twice"
    assert set(before) <= {1}, "not everybody was mailed whom nothing befell"

    if meaning in ("fine", "waits"):
        assert (state, tries) == ("success", 1)
        assert mails == [1] * PEOPLE
        assert _numbers(told) == (REQUESTS, PEOPLE, 0, 0)
    elif meaning == "refused" or choice == "fail":
        assert (state, tries) == ("failed", 1)
        assert set(behind) <= {0}, "went on behind a request that failed"
        assert meaning == "unknown" or set(there) == {0}
        if remembered is not None:
            assert _numbers(remembered) == (case.position, len(before), 0, 0)
            assert (remembered["under_way"] is not None) == (meaning == "unknown")
    elif choice == "skip":
        # Two in a row befall two requests.
        skipped = min(case.in_a_row, REQUESTS - case.position)
        assert (state, tries) == ("success", 1)
        assert _numbers(told) == (REQUESTS - skipped, PEOPLE - skipped * IN_ONE, skipped, skipped * IN_ONE)
        assert mails.count(0) <= told["unknown_recipients"], "left out without saying so"
        assert set(behind[(skipped - 1) * IN_ONE :]) <= {1}
    else:
        assert (state, tries) == ("success", 1 + case.in_a_row)
        assert _numbers(told) == (REQUESTS, PEOPLE, 0, 0)
        assert min(mails) >= 1, "left out"
        assert set(behind) <= {1}, "mailed twice whom nothing befell"


def _parts(mails: list[int], position: int) -> tuple[list[int], list[int], list[int]]:
    """Those before the request that the fault hits first, those in it, those behind it."""
    start = position * IN_ONE
    return mails[:start], mails[start : start + IN_ONE], mails[start + IN_ONE :]


def _numbers(told: dict[str, Any]) -> tuple[int, ...]:
    return tuple(told[name] for name in ("requests", "recipients", "unknown_requests", "unknown_recipients"))


def _got(emulator: Emulator) -> Counter[str]:
    return Counter(person["email"] for message in emulator.messages() for person in message["recipients"])


def _remembered(result: RunResult) -> dict[str, Any]:
    """What the tasks wrote down, by task; nothing where Airflow has no store."""
    if not REMEMBERS:
        return {}
    from airflow.models.task_state_store import TaskStateStoreModel as Model
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.execute(
            select(Model.task_id, Model.value).where(Model.dag_id == result.dag_id, Model.key == LEDGER_KEY)
        ).all()
    return {task_id: json.loads(value) for task_id, value in rows}
