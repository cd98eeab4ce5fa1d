"""example_dags/mail_approval.py: a campaign goes out when a person has agreed, and only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.airflow_api import airflow_api
from tests.tasks.conftest import Connect, Done, Run, SqlDatabase
from tests.tasks.test_example_dags import example

asks = pytest.mark.skipif(
    AIRFLOW_VERSION < (3, 3),
    reason="3.0 asks nobody; dag.test() of 3.1 and 3.2 cannot: see tests/real/extra/test_demo.py",
)


@pytest.fixture
def newsletter(run_in_airflow: Run, emulator: Emulator, warehouse: SqlDatabase, connect: Connect) -> Callable[[], Done]:
    """A function that runs the example."""
    connect(campaign_url="https://app.example.com/{guid}")
    emulator.add_list("newsletter", count=12)
    emulator.add_campaign("newsletter 2025-12-01", sent=10, send_date="2025-12-01T00:00:00Z")
    dag = example("mail_approval")
    return lambda: run_in_airflow(dag)


class Person:
    """A user who looks every minute for a question, and responds to it as the user interface does."""

    def __init__(self, clock: Clock, choice: str, dag_id: str = "mail_approval", task_id: str = "approve") -> None:
        self.asked: list[dict[str, Any]] = []
        self._dag_id, self._task_id = dag_id, task_id
        self._clock, self._choice = clock, choice
        clock.after(60, self._look)

    def _look(self) -> None:
        path = f"/dags/{self._dag_id}/dagRuns/~/hitlDetails?response_received=false"
        for question in airflow_api().request("GET", path).json()["hitl_details"]:
            task = question["task_instance"]
            if task["state"] != "running":  # else it is about to wait, and does not yet
                run = f"/dags/{self._dag_id}/dagRuns/{task['dag_run_id']}"
                where = f"{run}/taskInstances/{self._task_id}/-1/hitlDetails"
                airflow_api().request("PATCH", where, json={"chosen_options": [self._choice], "params_input": {}})
                self.asked.append(question)
        if not self.asked:
            self._clock.after(60, self._look)


def states(done: Done) -> dict[str, str]:
    return {name: each.state for (name, _), each in done.result.tasks.items()}


@asks
def test_a_person_agrees(
    newsletter: Callable[[], Done], emulator: Emulator, warehouse: SqlDatabase, clock: Clock
) -> None:
    person = Person(clock, "Approve")

    done = newsletter()

    assert set(states(done).values()) == {"success"}, states(done)
    (question,) = person.asked
    name = done.result.xcom("send", "mail_name")
    assert question["subject"] == f"Send {name}?"
    table = done.result.xcom("preflight")["table"]
    assert "12 contacts in the target lists; 1.5 times the 10 of 'newsletter 2025-12-01'" in table
    draft = done.result.xcom("draft")["guid"]
    assert question["body"] == f"{table}\n\n[The draft](https://app.example.com/{draft})"

    _, drafted, sent = emulator.campaigns()
    assert (drafted["mailName"], drafted["mailStatus"], drafted["removed"]) == (f"{name} (draft)", -1, True)
    assert (sent["mailName"], sent["mailStatus"]) == (name, 2)
    assert len(emulator.campaign_recipients(name)) == 12
    assert warehouse.query("SELECT mail_name, sent_count FROM mail_campaign_stats") == [(name, 12)]


@asks
def test_a_person_rejects_it(newsletter: Callable[[], Done], emulator: Emulator, clock: Clock) -> None:
    Person(clock, "Reject")

    done = newsletter()

    assert done.result.state == "success"
    skipped = dict.fromkeys(("send", "wait", "statistics"), "skipped")
    assert states(done) == dict.fromkeys(("draft", "preflight", "approve", "delete_draft"), "success") | skipped
    assert only_saved(emulator) == [True]


def test_what_is_wrong_is_not_asked_about(newsletter: Callable[[], Done], emulator: Emulator) -> None:
    emulator.add_campaign("newsletter 2025-12-08", sent=5, send_date="2025-12-08T00:00:00Z")

    done = newsletter()

    ends = [states(done)[name] for name in ("preflight", "approve", "send")]
    assert ends == ["failed", "upstream_failed", "upstream_failed"]
    assert "growth: " in done.log
    assert only_saved(emulator) == [True]


@pytest.mark.skipif(AIRFLOW_VERSION >= (3, 1), reason="a person can be asked")
def test_without_a_question_nothing_is_sent(newsletter: Callable[[], Done], emulator: Emulator) -> None:
    done = newsletter()

    ends = [states(done)[name] for name in ("approve", "send", "delete_draft")]
    assert ends == ["failed", "upstream_failed", "success"]
    assert "asking a person needs Airflow 3.1 or later: nothing is sent" in done.log
    assert only_saved(emulator) == [True]


def only_saved(emulator: Emulator) -> list[bool]:
    """Whether each campaign that the service was to create was a draft."""
    bodies = [entry["body"] for entry in emulator.journal.entries("campaign/mail/sends")]
    return [body.get("onlySave") for body in bodies if not body.get("sandboxMode")]
