"""A campaign that a person approves, in a real Airflow: what `dag.test()` of 3.1 and 3.2 cannot do, and 3.3's can."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.skipif(
        AIRFLOW_VERSION not in ((3, 1), (3, 2)), reason="3.0 asks nobody; on 3.3 tests/tasks/test_approval_example.py"
    ),
]

DAG_ID = "mail_approval"
PAGE = "https://app.example.com"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.add_sender("news@example.com")
        emulator.add_list("newsletter", count=12)
        emulator.add_campaign("newsletter 2025-12-01", sent=10, send_date="2025-12-01T00:00:00Z")
        emulator.change_settings(sending_seconds=1.0)
        yield emulator
        assert emulator.crashes() == []


@pytest.fixture(scope="module", autouse=True)
def connections(airflow: RunningAirflow, emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> None:
    airflow.set_mail_connection("mail_default", emulator, campaign_url=f"{PAGE}/{{guid}}")
    warehouse = tmp_path_factory.mktemp("warehouse") / "warehouse.db"
    airflow.set_connection("warehouse", {"conn_type": "sqlite", "host": str(warehouse)})


def states(airflow: RunningAirflow, run_id: str) -> dict[str, str]:
    return {name: instance["state"] for (name, _), instance in airflow.tasks(DAG_ID, run_id).items()}


def decide(airflow: RunningAirflow, run_id: str, answer: str) -> dict[str, Any]:
    """Answer the question once it is asked; what was asked."""
    airflow.wait_for_task(DAG_ID, run_id, "approve", "deferred")
    path = f"/dags/{DAG_ID}/dagRuns/{run_id}"
    (question,) = wait_until(
        lambda: airflow.api.request("GET", f"{path}/hitlDetails").json()["hitl_details"], what="a question"
    )
    # An answer before the scheduler has heard that the worker is done with the task makes Airflow fail the task.
    time.sleep(5)
    airflow.api.request(
        "PATCH", f"{path}/taskInstances/approve/-1/hitlDetails", json={"chosen_options": [answer], "params_input": {}}
    )
    return dict(question)


def test_a_person_declines_and_then_agrees(airflow: RunningAirflow, emulator: Emulator) -> None:
    run_id = airflow.start_run(DAG_ID)
    decide(airflow, run_id, "Reject")
    assert airflow.wait_for_run(DAG_ID, run_id) == "success"
    assert states(airflow, run_id)["send"] == "skipped"
    assert [each["mailStatus"] for each in emulator.campaigns() if not each["removed"]] == [2]

    run_id = airflow.start_run(DAG_ID)
    question = decide(airflow, run_id, "Approve")
    airflow.wait_for_run(DAG_ID, run_id)
    failed = [name for name, state in states(airflow, run_id).items() if state != "success"]
    assert not failed, airflow.log(DAG_ID, run_id, failed[0])
    name = airflow.xcom(DAG_ID, run_id, "send", "mail_name")
    draft = airflow.xcom(DAG_ID, run_id, "draft")["guid"]
    assert question["subject"] == f"Send {name}?"
    assert question["body"].endswith(f"[The draft]({PAGE}/{draft})")
    (sent,) = emulator.campaigns(name)
    assert (sent["mailStatus"], sent["mailStats"]["sentCount"]) == (2, 12)

    links = airflow.api.request("GET", f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/send/links").json()
    assert links["extra_links"] == {"Campaign": f"{PAGE}/{sent['guid']}"}
