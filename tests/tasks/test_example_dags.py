"""The example DAGs: they parse without a warning, and do what they say."""

from __future__ import annotations

import datetime
import importlib.util
import re
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
    name = done.result.xcom("send_newsletter")["mail_name"]
    assert campaign["mailName"] == name
    assert len(emulator.campaign_recipients(name)) == done.result.xcom("wait_until_sent")["sent_count"] == 200
    assert warehouse.query("SELECT mail_name, sent_count FROM mail_campaign_stats") == [(name, 200)]
    rejects = crm.query("SELECT row_number, field, reason FROM newsletter_rejects")
    assert rejects == [(201, "email", "is not an email address")]
    (sent,) = emulator.journal.entries("campaign/mail/sends")
    assert sent["body"]["content"] == "<p>Hello {{name}}, this is new: ...</p>"

    # Who has unsubscribed since gets no second mail, although an import removes no contact.
    crm.execute("UPDATE customers SET subscribed = 0 WHERE email = 'user7@example.com'")
    second = run(example("mail_campaign")).result.xcom("send_newsletter")["mail_name"]
    assert second != name
    assert set(emulator.campaign_recipients(second)) == {row[0] for row in people} - {"user7@example.com"}


@pytest.mark.parametrize("age", [0, 70])
def test_the_main_job_of_the_readme_loads_what_it_sent(
    run: Run, emulator: Emulator, crm: SqlDatabase, warehouse: SqlDatabase, age: int
) -> None:
    """Also in a backfill or with catchup, where the campaign goes out long after the run's logical date.

    :param age: of the logical date, in days.
    """
    crm.execute("CREATE TABLE customers (email TEXT, name TEXT, subscribed INTEGER)")
    crm.execute("INSERT INTO customers", [(f"user{number}@example.com", f"User {number}", 1) for number in range(20)])
    now = datetime.datetime.now(datetime.UTC)
    emulator.add_campaign("planned", send_date=now + datetime.timedelta(days=9), subject="Later", state="scheduled")
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(block, "README.md", "exec"), names)

    done = run(names["dag"], logical_date=now - datetime.timedelta(days=age))

    assert done.result.state == "success"
    name = done.result.xcom("campaign")["mail_name"]
    assert warehouse.query("SELECT mail_name, sent_count FROM mail_campaign_stats") == [(name, 20)]
    subjects = warehouse.query("SELECT mail_name, subject, sent_count FROM mail_campaigns ORDER BY subject")
    assert subjects == [("planned", "Later", None), (name, "What is new", 20)]


def test_the_daily_statistics(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    day = datetime.datetime(2026, 1, 10, tzinfo=datetime.UTC)
    emulator.clock.freeze(day)
    emulator.add_campaigns(18, first_day="2026-01-01", per_day=2)
    emulator.set_transactional_day("2026-01-09", sentCount=40)
    succeed_twice(run, "mail_daily_statistics", logical_date=day)
    # The day before and seven days before that: the first day's two campaigns are out of the window.
    counted = [(one["mailName"], one["mailStats"]["openCount"]) for one in emulator.campaigns()]
    assert warehouse.query("SELECT mail_name, open_count FROM mail_campaign_stats ORDER BY mail_name") == counted[2:]
    assert warehouse.query("SELECT sent_count FROM mail_transactional_stats WHERE stats_date = '2026-01-09'") == [(40,)]


def succeed_twice(run: Run, name: str, **options: Any) -> None:
    for _ in range(2):
        assert {task.state for task in run(example(name), **options).result.tasks.values()} == {"success"}


def test_the_resources(run: Run, emulator: Emulator) -> None:
    emulator.set_dns("mail.example.com", selector="mail")
    before = emulator.lists()
    succeed_twice(run, "mail_resources")
    assert [row["content"] for row in emulator.templates()] == ["<p>Hello {{name}}.</p>"]
    assert {"entry": "mail.example.com", "type": 1} in emulator.senders()
    assert emulator.webhook()["transCallbackUrl"] == "https://events.example.com/mail/in"
    assert (emulator.contact("ada@example.com"), emulator.lists()) == (None, before)
    writes = ("lists/add", "campaign/mail/template/add", "webhook/save")
    assert [emulator.journal.count(operation) for operation in writes] == [2, 1, 1]


def test_the_cleanup(run: Run, emulator: Emulator) -> None:
    emulator.add_list("newsletter", count=3)
    emulator.add_campaign("spring", send_date="2999-01-01T09:00:00+00:00", state="scheduled")
    emulator.add_template("welcome", subject="Welcome", content="<p>Hello</p>")
    emulator.add_sender("old.example.com")
    succeed_twice(run, "mail_cleanup")
    (campaign,) = emulator.campaigns()
    assert (campaign["cancelled"], campaign["removed"], emulator.templates()) == (True, True, [])
    assert {row["entry"] for row in emulator.senders()} == {"news@example.com"}
    assert len(emulator.journal.processed("campaign/mail/cancel")) == 1


def test_transactional_mail(run_in_airflow: Run, emulator: Emulator) -> None:
    assert run_in_airflow(example("mail_transactional")).state == "success"
    assert {(mail["form"], mail["subject"], mail["content"]) for mail in emulator.messages()} == {
        ("single", "Your receipt", "<p>Thank you.</p>"),
        ("batch", "Your cart", "<p>Engine is waiting for you.</p>"),
        ("batch", "Your cart", "<p>Key is waiting for you.</p>"),
    }


def test_contacts_and_campaigns(run: Run, emulator: Emulator, warehouse: SqlDatabase) -> None:
    emulator.add_list("newsletter", count=30)
    emulator.add_campaign("spring", send_date="2026-03-01T09:00:00+00:00", sent=30)
    succeed_twice(run, "mail_contacts_to_warehouse")
    assert warehouse.query("SELECT count(DISTINCT email) FROM mail_contacts") == [(30,)]
    assert warehouse.query("SELECT mail_name, mail_status FROM mail_campaigns") == [("spring", 2)]


def test_addresses_that_mail_does_not_reach_are_not_imported(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    happened = {
        "good": [], "bounced": ["Bounced"] * 3, "moved": [*["Bounced"] * 3, "Delivered"], "once": ["Bounced"],
        "left": ["Unsubscribed"], "angry": ["SpamReport"], "dropped": ["Dropped"], "off": [],
    }  # fmt: skip
    warehouse.execute("CREATE TABLE customers (email TEXT, full_name TEXT, subscribed INTEGER)")
    people = [(f"{name}@example.com", name, int(name != "off")) for name in happened]
    warehouse.execute("INSERT INTO customers", people)
    events = [
        {
            "EventCode": code, "Email": f"{name.title()}@example.com", "UniqueMsgID": f"{name}-{day}",
            "TriggeredDateTimeV2": f"2026-03-0{day}T09:00:00Z",
        }
        for name, codes in happened.items()
        for day, code in enumerate(codes, 1)
    ]  # fmt: skip
    push(new_inbox(warehouse), *events)

    done = run(example("mail_suppress_addresses"))

    assert done.result.xcom("drain")["stored"] == len(events)
    imported = {contact["email"] for contact in emulator.contacts()}
    assert imported == {"good@example.com", "moved@example.com", "once@example.com"}


def test_the_drain_and_the_comparison_of_events(
    run: Run, emulator: Emulator, warehouse: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    opened = {"EventCode": "Opened", "UniqueMsgID": "m1", "TriggeredDateTimeV2": "2026-03-01T12:00:00Z"}
    push(new_inbox(warehouse), opened, opened, opened | {"TriggeredDateTimeV2": "2026-03-01T12:00:01Z"})
    done = run(example("mail_drain_events"))
    assert (done.result.state, done.result.xcom("drain")["by_code"]) == ("success", {"Opened": 2})
    assert warehouse.query("SELECT count(*) FROM mail_events") == [(2,)]
    done = run(example("mail_reconcile_events"), logical_date=datetime.datetime(2026, 1, 10, tzinfo=datetime.UTC))
    assert done.result.state == "success"
    assert warehouse.query("SELECT COUNT(*), SUM(tolerated) FROM mail_event_differences") == [(54, 54)]


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
    name = done.result.xcom("send")["mail_name"]
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
@pytest.mark.parametrize(("name", "recipients"), [("mail_approval", [0]), ("mail_staged", [1])])
def test_a_person_rejects_it(
    run_in_airflow: Run, account: Emulator, clock: Clock, name: str, recipients: list[int]
) -> None:
    """What exists is the draft, which is deleted, or the test. The demo has who agrees to stages."""
    Person(clock, "Reject", name)
    done = run_in_airflow(example(name))
    ends = states(done)
    assert (ends["approve"], set(ends.values())) == ("success", {"success", "skipped"})
    assert [len(account.campaign_recipients(campaign["mailName"])) for campaign in account.campaigns()] == recipients


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


def test_a_ramp(run: Run, account: Emulator) -> None:
    done = run(example("mail_ramp"))
    assert states(done)["staged_send.sent"] == "success", done.log
    assert [len(account.campaign_recipients(one["mailName"])) for one in account.campaigns()] == [2_000, 5_000, 3_000]


def test_local_times(run_in_airflow: Run, account: Emulator) -> None:
    done = run_in_airflow(example("mail_local_time"))
    assert done.state == "success", done.log
    (campaign,) = account.campaigns()
    assert len(account.campaign_recipients(campaign["mailName"])) == 10_000


def test_an_audience_from_files(run: Run, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_MAIL_LAKE", f"file://{tmp_path}")
    folder = tmp_path / "people" / "latest"
    folder.mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    for number, no in enumerate(("0", "1", "0")):
        (folder / f"part-{number}.csv").write_text(
            f'Id,First Name,Email,Email Opt Out\n{number},"A \\"B\\"",user{number}@example.com,{no}\n9,C,,0\n'
        )
    done = run(example("mail_audience_from_files"))
    counts = [done.result.xcom("people")[name] for name in ("accepted", "opted_out", "without_address")]
    assert (done.result.state, counts) == ("success", [2, 1, 3])
    (campaign,) = emulator.campaigns()
    assert emulator.campaign_recipients(campaign["mailName"]) == ["user0@example.com", "user2@example.com"]
