"""example_dags/mail_approval.py: a campaign goes out when a person has agreed, and only then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.airflow_api import airflow_api
from tests.tasks.conftest import Connect, Done, Run, SqlDatabase
from tests.tasks.test_example_dags import example

asks = pytest.mark.skipif(
    AIRFLOW_VERSION < (3, 3),
    reason="3.0 asks nobody; dag.test() of 3.1 and 3.2 cannot: see tests/real/airflow",
)


@pytest.fixture
def newsletter(
    run_in_airflow: Run, emulator: Emulator, warehouse: SqlDatabase, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Done]:
    """A function that runs the example."""
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.1)
    connect(campaign_url="https://app.example.com/{guid}")
    emulator.settings.sending_seconds = 1.0
    emulator.add_list("newsletter", count=12)
    emulator.add_campaign("newsletter 2025-12-01", sent=10, send_date="2025-12-01T00:00:00Z")
    dag = example("mail_approval")
    dag.get_task("wait").poke_interval = 0.3  # type: ignore[attr-defined]
    return lambda: run_in_airflow(dag)


@contextmanager
def a_person(answer: str) -> Iterator[list[dict[str, Any]]]:
    """Somebody who answers the question once it is asked, as the user interface does; gives what was asked."""
    api = airflow_api()
    asked: list[dict[str, Any]] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set() and not asked:
            time.sleep(0.2)
            path = "/dags/mail_approval/dagRuns/~/hitlDetails?response_received=false"
            for question in api.request("GET", path).json()["hitl_details"]:
                task = question["task_instance"]
                if task["state"] == "running":
                    continue  # it is about to wait, and does not yet
                where = f"/dags/mail_approval/dagRuns/{task['dag_run_id']}/taskInstances/approve/-1/hitlDetails"
                api.request("PATCH", where, json={"chosen_options": [answer], "params_input": {}})
                asked.append(question)

    person = threading.Thread(target=look)
    person.start()
    try:
        yield asked
    finally:
        over.set()
        person.join()


def states(done: Done) -> dict[str, str]:
    return {name: each.state for (name, _), each in done.result.tasks.items()}


@asks
def test_a_person_agrees(newsletter: Callable[[], Done], emulator: Emulator, warehouse: SqlDatabase) -> None:
    with a_person("Approve") as asked:
        done = newsletter()

    assert set(states(done).values()) == {"success"}, states(done)
    (question,) = asked
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
def test_a_person_does_not(newsletter: Callable[[], Done], emulator: Emulator) -> None:
    with a_person("Reject"):
        done = newsletter()

    assert done.result.state == "success"
    assert states(done) == dict.fromkeys(("draft", "preflight", "approve", "delete_draft"), "success") | dict.fromkeys(
        ("send", "wait", "statistics"), "skipped"
    )
    assert [body["onlySave"] for body in real_sends(emulator)] == [True]


def test_nobody_is_asked_about_what_is_wrong(newsletter: Callable[[], Done], emulator: Emulator) -> None:
    emulator.add_campaign("newsletter 2025-12-08", sent=5, send_date="2025-12-08T00:00:00Z")

    done = newsletter()

    assert done.result.state == "failed"
    assert states(done)["preflight"] == "failed"
    assert {states(done)[name] for name in ("approve", "send")} == {"upstream_failed"}
    assert "growth: " in done.log
    assert [body["onlySave"] for body in real_sends(emulator)] == [True]


@pytest.mark.skipif(AIRFLOW_VERSION >= (3, 1), reason="there is somebody to ask")
def test_where_nobody_can_be_asked_nothing_is_sent(newsletter: Callable[[], Done], emulator: Emulator) -> None:
    done = newsletter()

    assert (states(done)["approve"], states(done)["send"]) == ("failed", "upstream_failed")
    assert "asking a person needs Airflow 3.1 or later: nothing is sent" in done.log
    assert states(done)["delete_draft"] == "success"
    assert [body["onlySave"] for body in real_sends(emulator)] == [True]


def real_sends(emulator: Emulator) -> list[dict[str, Any]]:
    bodies = [entry["body"] for entry in emulator.journal.entries("campaign/mail/sends")]
    return [body for body in bodies if not body.get("sandboxMode")]
