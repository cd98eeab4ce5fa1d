"""The example DAGs: they parse without a warning, and do what they say."""

from __future__ import annotations

import datetime
import importlib.util
import runpy
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.env import ROOT
from tests.tasks.airflow_api import airflow_api
from tests.tasks.conftest import Connect, Done, Run, SqlDatabase
from tests.tasks.inboxes import new_inbox, push

EXAMPLES = sorted(path for path in (ROOT / "example_dags").glob("*.py") if path.name != "demo.py")


def example(name: str) -> DAG:
    """The one DAG of a file, as the dag-processor would find it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "example_dags" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (dag,) = [value for value in vars(module).values() if isinstance(value, DAG)]
    return dag


@pytest.mark.filterwarnings("error::DeprecationWarning:__main__")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_parsing_warns_of_nothing(path: Path) -> None:
    runpy.run_path(str(path), run_name="__main__")


def test_the_campaign(run: Run, emulator: Emulator, crm: SqlDatabase, warehouse: SqlDatabase) -> None:
    crm.execute("CREATE TABLE customers (email TEXT, full_name TEXT, phone TEXT, subscribed INTEGER)")
    people: list[tuple[Any, ...]] = [(f"user{number}@example.com", f"User {number}", None, 1) for number in range(200)]
    crm.execute("INSERT INTO customers", [*people, ("nobody", "Nobody", None, 1), ("off@example.com", "Off", None, 0)])

    done = run(example("mail_campaign"))

    assert done.result.state == "success"
    (list_name,) = done.result.xcom("sync_contacts")["send_list_names"]
    assert emulator.contact_count(list_name) == 200
    (campaign,) = emulator.campaigns()
    name = done.result.xcom("send_newsletter", "mail_name")
    assert campaign["mailName"] == name
    assert len(emulator.campaign_recipients(name)) == done.result.xcom("wait_until_sent")["sent_count"] == 200
    assert warehouse.query("SELECT mail_name, sent_count FROM mail_campaign_stats") == [(name, 200)]
    rejects = crm.query("SELECT row_number, field, reason FROM newsletter_rejects")
    assert rejects == [(201, "email", "is not an email address")]
    (sent,) = emulator.journal.entries("campaign/mail/sends")
    assert sent["body"]["content"] == "<p>Hello {{name}}, this is new: ...</p>"

    # Who has unsubscribed since gets no second mail, although an import removes no contact.
    crm.execute("UPDATE customers SET subscribed = 0 WHERE email = 'user7@example.com'")
    second = run(example("mail_campaign")).result.xcom("send_newsletter", "mail_name")
    assert second != name
    assert set(emulator.campaign_recipients(second)) == {row[0] for row in people} - {"user7@example.com"}


def test_the_resources(run: Run, emulator: Emulator) -> None:
    emulator.set_dns("mail.example.com", selector="mail")
    before = emulator.lists()
    for _ in range(2):
        assert {task.state for task in run(example("mail_resources")).result.tasks.values()} == {"success"}
    assert [row["content"] for row in emulator.templates()] == ["<p>Hello {{name}}.</p>"]
    assert {"entry": "mail.example.com", "type": 1} in emulator.senders()
    assert emulator.webhook()["transCallbackUrl"] == "https://events.example.com/mail/in"
    assert (emulator.contact("ada@example.com"), emulator.lists()) == (None, before)


def test_events_are_drained_and_compared_and_suppress_addresses(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    warehouse.execute("CREATE TABLE customers (email TEXT, full_name TEXT, subscribed INTEGER)")
    warehouse.execute("INSERT INTO customers", [(f"{name}@example.com", name, 1) for name in ("good", "left")])
    left = {"EventCode": "Unsubscribed", "Email": "left@example.com", "TriggeredDateTimeV2": "2026-03-01T12:00:00Z"}
    events = [left | {"UniqueMsgID": name} for name in ("m1", "m1", "m2")]
    push(new_inbox(warehouse), *events)
    assert run(example("mail_drain_events")).result.xcom("drain")["by_code"] == {"Unsubscribed": 2}
    done = run(example("mail_reconcile_events"), logical_date=datetime.datetime(2026, 1, 10, tzinfo=datetime.UTC))
    assert done.result.state == "success"
    assert warehouse.query("SELECT COUNT(*), SUM(tolerated) FROM mail_event_differences") == [(54, 54)]

    assert run(example("mail_suppress_addresses")).result.state == "success"
    assert [contact["email"] for contact in emulator.contacts()] == ["good@example.com"]


# --- mail_approval.py: a campaign goes out when a person has agreed, and only then ---


asks = pytest.mark.skipif(
    AIRFLOW_VERSION < (3, 3),
    reason="3.0 asks nobody; dag.test() of 3.1 and 3.2 cannot: see tests/real/extra/test_demo.py",
)


@pytest.fixture
def account(emulator: Emulator, crm: SqlDatabase, warehouse: SqlDatabase, connect: Connect) -> Emulator:
    """What the examples need in which a person is asked."""
    connect(campaign_url="https://app.example.com/{guid}")
    emulator.add_list("newsletter", count=12)
    emulator.add_list("newsroom", ["ida@example.com"])
    crm.execute("CREATE TABLE customers (email TEXT, full_name TEXT, subscribed INTEGER)")
    crm.execute("INSERT INTO customers", [(f"user{number}@example.com", "U", 1) for number in range(10_000)])
    emulator.change_settings(hard_bounce_rate=0, soft_bounce_rate=0)
    return emulator


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
def test_a_person_agrees(run_in_airflow: Run, account: Emulator, warehouse: SqlDatabase, clock: Clock) -> None:
    account.add_campaign("newsletter 2025-12-01", sent=10, send_date="2025-12-01T00:00:00Z")
    person = Person(clock, "Approve")

    done = run_in_airflow(example("mail_approval"))

    assert set(states(done).values()) == {"success"}, states(done)
    (question,) = person.asked
    name = done.result.xcom("send", "mail_name")
    assert question["subject"] == f"Send {name}?"
    table = done.result.xcom("preflight")["table"]
    assert "12 contacts in the target lists; 1.5 times the 10 of 'newsletter 2025-12-01'" in table
    draft = done.result.xcom("draft")["guid"]
    assert question["body"] == f"{table}\n\n[The draft](https://app.example.com/{draft})"

    _, drafted, sent = account.campaigns()
    assert (drafted["mailName"], drafted["mailStatus"], drafted["removed"]) == (f"{name} (draft)", -1, True)
    assert (sent["mailName"], sent["mailStatus"]) == (name, 2)
    assert len(account.campaign_recipients(name)) == 12
    assert warehouse.query("SELECT mail_name, sent_count FROM mail_campaign_stats") == [(name, 12)]


@asks
def test_a_person_agrees_to_stages(
    run_in_airflow: Run, account: Emulator, warehouse: SqlDatabase, clock: Clock
) -> None:
    person = Person(clock, "Approve", "mail_staged")
    done = run_in_airflow(example("mail_staged"))
    assert set(states(done).values()) == {"success"}, states(done)
    (question,) = person.asked
    assert "[The test](https://app.example.com/" in question["body"]
    test, canary, rest = account.campaigns()
    assert [test["mailName"].rpartition(" ")[2] for test in (test, canary, rest)] == ["(test)", "canary", "rest"]
    few, many = (account.campaign_recipients(campaign["mailName"]) for campaign in (canary, rest))
    assert 50 < len(few) < 150
    assert len({*few, *many}) == len(few) + len(many) == 10_000
    assert sum(count for (count,) in warehouse.query("SELECT sent_count FROM mail_campaign_stats")) == 10_001


@asks
def test_a_person_rejects_it(run_in_airflow: Run, account: Emulator, clock: Clock) -> None:
    """What exists is the draft, which is deleted."""
    Person(clock, "Reject")
    ends = states(run_in_airflow(example("mail_approval")))
    assert (ends["approve"], set(ends.values())) == ("success", {"success", "skipped"})
    (draft,) = account.campaigns()
    assert (draft["removed"], account.campaign_recipients(draft["mailName"])) == (True, [])


@pytest.mark.skipif(AIRFLOW_VERSION >= (3, 1), reason="a person can be asked")
def test_without_a_question_nothing_is_sent(run: Run, account: Emulator) -> None:
    done = run(example("mail_approval"))
    ends = [states(done)[name] for name in ("approve", "send", "delete_draft")]
    assert ends == ["failed", "upstream_failed", "success"]
    assert "asking a person needs Airflow 3.1 or later: nothing is sent" in done.log
    assert [campaign["mailStatus"] for campaign in account.campaigns()] == [-1]


def test_an_ab_test(run: Run, account: Emulator, warehouse: SqlDatabase) -> None:
    done = run(example("mail_ab_test"))
    assert states(done)["ab_send.sent"] == "success"
    comparison = done.result.xcom("ab_send.compare")
    # Too few for a difference.
    assert (comparison["winner"], comparison["decision"]) == ("a", "no difference")
    bodies = [entry["body"] for entry in account.journal.entries("campaign/mail/sends")]
    sent = [(body["mailName"].rpartition(" ")[2], body["subject"]) for body in bodies]
    news = sent[0][1]
    assert sent == [("a", news), ("b", "What you have missed"), ("rest", news)]
    assert warehouse.query("SELECT SUM(sent_count + unsent_count) FROM mail_campaign_stats") == [(10_000,)]
