"""The same cases under the real Airflow: its retries, its task state store, its XCom, its database.

One DAG has a task for each case, and each task mails under a name of its own. Each must end as it does with
:class:`tests.faults.tries.Task`, on which the matrix runs, and leave the same behind at the service.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.emulator import Emulator
from tests.faults.cases import EVERYTHING, SEED, Case, all_cases
from tests.faults.flow_changes import CUSTOMERS
from tests.faults.task_sends import SENDS, CreateCampaign, Send
from tests.faults.tasks import TRIES
from tests.faults.tries import Task
from tests.faults.workload import Trial
from tests.support.passing_time import PassingTime
from tests.tasks.conftest import (  # noqa: F401 - fixtures
    Run,
    _made_once,
    _mail_default,
    connect,
    errors,
    new_dag,
    run_in_airflow,
    run_with,
)

EACH = 40 if EVERYTHING else 3
CHOSEN = [workload for workload in SENDS if workload.name.endswith(("and go on", "batch, fail", "skip", "resend"))]


@dataclass(frozen=True)
class Letter:
    """A case with the name that its task mails under."""

    workload: CreateCampaign | Send
    case: Case
    label: str

    def operator(self, **options: Any) -> Any:
        name = "mail_name" if isinstance(self.workload, CreateCampaign) else "campaign"
        return self.workload.operator(task_id=self.label, **{name: self.label}, **options)

    def add_faults(self, service: Emulator) -> None:
        name = "mailName" if isinstance(self.workload, CreateCampaign) else "campaign"
        for strike in self.case.strikes:
            strike.arrange(service, where={name: self.label})

    def at_service(self, service: Emulator) -> Any:
        """Campaigns, and mails to each person, once each unless the task may resend."""
        mails = [message for message in service.messages() if message["campaign"] == self.label]
        people = Counter(person["email"] for message in mails for person in message["recipients"])
        campaigns = len(service.campaigns(self.label))
        assert campaigns <= 1
        may_resend = isinstance(self.workload, Send) and self.workload.on_ambiguous == "resend"
        assert may_resend or max(people.values(), default=0) <= 1
        return campaigns, people


def reported(result: Any) -> Any:
    """What a task returned without the service's own numbers."""
    return result and {name: value for name, value in result.items() if name not in ("mail_name", "id", "guid")}


@pytest.fixture
def letters(task_trial: Trial) -> list[Letter]:
    """Some cases of each workload, drawn by the seed."""
    dice = random.Random(SEED)
    letters = []
    for number, workload in enumerate(CHOSEN):
        assert isinstance(workload, CreateCampaign | Send)
        task_trial.prepare(workload)
        every = all_cases(task_trial.paths(workload, Case.none()), {})
        cases = [case for case in every if not case.is_hasty and not case.variant.harmless]
        letters += [Letter(workload, case, f"w{number}c{place}") for place, case in enumerate(dice.sample(cases, EACH))]
    return letters


def fresh(service: Emulator, letters: list[Letter]) -> None:
    service.reset()
    service.add_sender("news@example.com")
    service.add_list("customers", CUSTOMERS)
    for letter in letters:
        letter.add_faults(service)


@pytest.mark.timeout(900)
def test_airflow_does_what_the_matrix_takes_it_to_do(
    letters: list[Letter],
    run_in_airflow: Run,  # noqa: F811
    new_dag: Callable[..., DAG],  # noqa: F811
    emulator: Emulator,
    passing: PassingTime,
) -> None:
    fresh(emulator, letters)
    with new_dag() as dag:
        for letter in letters:
            letter.operator(retries=TRIES - 1, retry_delay=datetime.timedelta(0))
    result = run_in_airflow(dag).result
    under_airflow = {}
    for letter in letters:
        task, returned = result.task(letter.label), reported(result.xcom(letter.label))
        under_airflow[letter.label] = (task.state, task.try_number, returned, letter.at_service(emulator))

    fresh(emulator, letters)
    for letter in letters:
        alone = Task(letter.operator)
        alone.run(TRIES)
        without_airflow = (alone.state, alone.tries, reported(alone.returned), letter.at_service(emulator))
        assert under_airflow[letter.label] == without_airflow, f"{letter.workload}: {letter.case}"
    assert {state for state, *_ in under_airflow.values()} == {"success", "failed"}
    assert any(tries > 1 for _, tries, *_ in under_airflow.values())
