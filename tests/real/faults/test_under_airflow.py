"""Tasks that mail people, under faults and the real Airflow: its retries, its task state store, its XCom, its database.

One DAG has a task for each case, and each task mails under a name of its own. Each must end as it does with
:class:`tests.support.tries.Tries`, by which tests run tasks without Airflow, and leave the same behind at the service.
"""

from __future__ import annotations

import datetime
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator
from mail_emulator import Emulator
from tests.faults.test_any_faults import FOREVER, VARIANTS, Fault
from tests.support.sampling import ALL_FAULTS
from tests.support.tries import Tries
from tests.tasks.conftest import (  # noqa: F401 - fixtures
    Run,
    _made_once,
    _mail_default,
    _passing,
    connect,
    errors,
    new_dag,
    run_in_airflow,
    run_with,
)

EACH = 40 if ALL_FAULTS else 3
TRIES = 3
CUSTOMERS = [f"c{number}@example.com" for number in range(3)]


@dataclass(frozen=True)
class Letter:
    """A task with the name that it mails under, and the fault that strikes its requests.

    :param on_ambiguous: of transactional mail. Default: it is a campaign.
    """

    label: str
    fault: Fault
    on_ambiguous: str = ""

    def operator(self, **options: Any) -> Any:
        given = {"task_id": self.label, "sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>"}
        if not self.on_ambiguous:
            return MailCreateCampaignOperator(mail_name=self.label, send_list_names=["customers"], **given, **options)
        messages = [{"to": f"p{number}@example.com"} for number in range(6)]
        choice = {"versions_per_request": 2, "on_ambiguous": self.on_ambiguous}
        return MailSendBatchOperator(campaign=self.label, messages=messages, **choice, **given, **options)

    def at_service(self, service: Emulator) -> Any:
        """What the task brought about."""
        mails = [message for message in service.messages() if message["campaign"] == self.label]
        people = Counter(person["email"] for message in mails for person in message["recipients"])
        return len(service.campaigns(self.label)), people


def letters() -> list[Letter]:
    """Some cases of each operator, drawn by a seed."""
    dice = random.Random(os.environ.get("MAIL_FAULT_SEED", "1"))
    usual = [(kind, params) for kind, params in VARIANTS if kind.operations is None and kind.outcome != "odd"]
    drawn = []
    for choice in ("", "fail", "skip", "resend"):
        for number, (kind, params) in enumerate(dice.sample(usual, EACH)):
            fault = Fault(kind.name, params, "*", dice.randint(0, 2), dice.choice([1, 2, 6, FOREVER]))
            drawn.append(Letter(f"{choice or 'create'}{number}", fault, choice))
    return drawn


def arrange(service: Emulator, letters: list[Letter]) -> None:
    service.reset()
    service.add_sender("news@example.com")
    service.add_list("customers", CUSTOMERS)
    for letter in letters:
        letter.fault.add(service, {"campaign" if letter.on_ambiguous else "mailName": letter.label})


def returned_by(returned: Any) -> Any:
    """What a task returned but for the service's own numbers."""
    return returned and {name: value for name, value in returned.items() if name not in ("mail_name", "guid")}


@pytest.mark.timeout(900)
def test_airflow_runs_tasks_as_the_tests_do(
    run_in_airflow: Run,  # noqa: F811
    new_dag: Callable[..., DAG],  # noqa: F811
    emulator: Emulator,
) -> None:
    cases = letters()
    arrange(emulator, cases)
    with new_dag() as dag:
        for letter in cases:
            letter.operator(retries=TRIES - 1, retry_delay=datetime.timedelta(0))

    result = run_in_airflow(dag).result

    under_airflow = {}
    for letter in cases:
        task, (campaigns, people) = result.task(letter.label), letter.at_service(emulator)
        returned = returned_by(result.xcom(letter.label))
        under_airflow[letter.label] = (task.state, task.try_number, returned, (campaigns, people))
        assert campaigns <= 1
        assert letter.on_ambiguous == "resend" or max(people.values(), default=0) <= 1, letter

    arrange(emulator, cases)
    for letter in cases:
        alone = Tries()
        alone.run_all(letter.operator, TRIES)
        without_airflow = (alone.state, alone.number, returned_by(alone.returned), letter.at_service(emulator))
        assert under_airflow[letter.label] == without_airflow, letter
    assert {state for state, *_ in under_airflow.values()} == {"success", "failed"}, "one of both never happened"
    assert any(tries > 1 for _, tries, *_ in under_airflow.values())
