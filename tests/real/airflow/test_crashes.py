"""Tasks are killed with SIGKILL in a real Airflow, while the service holds a request of theirs.

In `tests/machines` a worker ends before and after every request and every write, without Airflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mail_emulator import Emulator
from tests.support.airflow import COMPONENTS, RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(1800)

CREATES, LOOKS = "campaign/mail/sends", "campaign/mail/get"
SENDS, IMPORTS = "transactional/mail/sends_customised", "contacts/imports"
NAMED_BY = {"crash_campaign": "mailName", "crash_batch": "campaign", "crash_import": "listName"}
"""The field by which a fault knows the requests of a run."""
REMEMBERS = AIRFLOW_VERSION >= (3, 3)
EVERYBODY = [f"reader{number:02}@example.com" for number in range(20)]
PEOPLE = {f"user{number}@example.com" for number in range(2000)}
ROWS, CHUNKS = 40_000, 40
WAITS = 20
MOST_AGAIN = 20
"""Chunks that were under way when an import was killed, or were accepted in the two seconds before."""


@pytest.fixture(scope="module")
def service(emulator: Emulator) -> Emulator:
    emulator.change_settings(journal_body_bytes=2000)
    emulator.add_list("everybody", EVERYBODY)
    return emulator


@pytest.fixture(scope="module", autouse=True)
def crm(airflow: RunningAirflow, postgres_server: PostgresServer) -> Iterator[None]:
    with postgres_server.database() as crm:
        airflow.set_connection("crm", crm.airflow_connection)
        with crm.connect() as connection:
            connection.execute(
                "CREATE TABLE people AS SELECT id, 'person' || id || '@example.com' AS email, 'Person ' || id AS name "
                f"FROM generate_series(1, {ROWS}) AS id"
            )
        yield


def kill(
    airflow: RunningAirflow, service: Emulator, dag_id: str, case: str, operation: str, skip: int, how: str = "delay"
) -> str:
    """Start a run, kill its task while the service holds a request, and return the id of the run."""
    number = service.faults.add(how, operation, skip=skip, where={NAMED_BY[dag_id]: case}, seconds=60)
    run_id = airflow.start_run(dag_id, conf={"case": case})
    wait_until(lambda: any(one["id"] == number and one["struck"] for one in service.faults.list()), what="the request")
    airflow.kill_task(dag_id, run_id, "task")
    return run_id


def returned(airflow: RunningAirflow, dag_id: str, run_id: str) -> dict[str, Any]:
    """What a later try than the first returned; Airflow 3.0 fails a task that was killed, whatever its retries."""
    if airflow.wait_for_run(dag_id, run_id) == "failed" and AIRFLOW_VERSION < (3, 1):
        airflow.clear(dag_id, run_id)
    assert airflow.wait_for_run(dag_id, run_id) == "success"
    assert airflow.task(dag_id, run_id, "task")["try_number"] > 1
    return dict(airflow.xcom(dag_id, run_id, "task"))


def mails(service: Emulator, case: str) -> Counter[str]:
    """How many mails each address got."""
    messages = [message for message in service.messages() if message["campaign"] == case]
    return Counter(person["email"] for message in messages for person in message["recipients"])


def test_campaigns_are_created_once_and_an_import_loses_nobody(airflow: RunningAirflow, service: Emulator) -> None:
    # Of an import, two at once, six a second: what a try that is killed has done is stored every two seconds.
    service.change_settings(latency_seconds=0.3)
    importing = kill(airflow, service, "crash_import", "imported", IMPORTS, 25)
    service.change_settings(latency_seconds=0.0)
    # Two faults at once: the response is lost, then the process.
    service.faults.add("close_after", CREATES, where={"mailName": "lost"})
    campaigns = {
        # Held until the next try has looked for the campaign in vain; then the request of the dead one is processed.
        "held": kill(airflow, service, "crash_campaign", "held", CREATES, 0),
        "lost": kill(airflow, service, "crash_campaign", "lost", LOOKS, 1),
    }
    for case, run_id in campaigns.items():
        assert returned(airflow, "crash_campaign", run_id)
        assert service.campaign_recipients(case) == EVERYBODY
    creations = Counter(entry["body"]["mailName"] for entry in service.journal.processed(CREATES))
    assert creations == dict.fromkeys(campaigns, 1)

    result = returned(airflow, "crash_import", importing)
    earlier = result["accepted_earlier"] // (ROWS // CHUNKS)
    assert service.contact_count("imported") == ROWS
    assert (result["read"], result["accepted"], result["rejected"]) == (ROWS, ROWS, 0)
    assert result["requests"] + earlier == CHUNKS
    if REMEMBERS:
        assert service.journal.count(IMPORTS) - CHUNKS <= MOST_AGAIN


@pytest.mark.ci
@pytest.mark.parametrize("decision", ["skip", "resend"])
def test_a_killed_batch_mails_nobody_twice(airflow: RunningAirflow, service: Emulator, decision: str) -> None:
    """Unless the user wants the request in doubt to be sent again."""
    case = f"batch{decision}"
    how = "delay" if decision == "skip" else "delay_answer"
    run_id = kill(airflow, service, "crash_batch", case, SENDS, 9, how)
    assert airflow.wait_for_run("crash_batch", run_id) == "failed"
    before = mails(service, case)
    assert (max(before.values()), before.keys() <= PEOPLE) == (1, True)
    airflow.set_variable(f"decision_{case}", decision)
    airflow.clear("crash_batch", run_id)
    if not REMEMBERS and decision == "skip":
        assert airflow.wait_for_run("crash_batch", run_id) == "failed"
        assert mails(service, case) == before
        return
    result, after = returned(airflow, "crash_batch", run_id), mails(service, case)
    assert result["recipients"] + result["unknown_recipients"] == len(PEOPLE)
    if decision == "resend":
        assert after.keys() == PEOPLE
        # Without a task state store, "resend" lets every try send everything.
        assert sum(after.values()) - len(PEOPLE) <= (100 if REMEMBERS else sum(before.values()))
    else:
        assert (max(after.values()), len(after) >= result["recipients"]) == (1, True)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_is_killed_while_campaigns_are_created_and_while_they_wait(
    airflow: RunningAirflow, service: Emulator, component: str
) -> None:
    def states() -> Counter[str | None]:
        return Counter(airflow.task_states("crash_waiting", run_id).values())

    def created() -> list[str]:
        names = (entry["body"]["mailName"] for entry in service.journal.processed(CREATES))
        return sorted(name for name in names if name.startswith(f"{component} "))

    def kill_and_restart() -> None:
        airflow.kill(component)
        airflow.restart(component)

    names = sorted(f"{component} {number}" for number in range(WAITS))
    service.change_settings(sending_seconds=1e6, latency_seconds=0.5)
    run_id = airflow.start_run("crash_waiting", conf={"case": component})
    batch = airflow.start_run("crash_batch", conf={"case": component.replace("-", "")})
    wait_until(lambda: created() and mails(service, component.replace("-", "")), what="both in their middle")
    kill_and_restart()
    service.change_settings(latency_seconds=0.0)
    if component == "scheduler" and AIRFLOW_VERSION < (
        3,
        1,
    ):  # It fails the tasks that were killed, whatever their retries.
        wait_until(lambda: states().keys() <= {"deferred", "failed", "upstream_failed"}, what="no task runs")
        airflow.clear("crash_waiting", run_id)
    wait_until(lambda: states() == {"deferred": WAITS}, what="all wait")
    kill_and_restart()

    service.clock.advance(days=30)
    assert airflow.wait_for_run("crash_waiting", run_id) == "success"
    assert created() == names
    assert all(service.campaign_recipients(name) == EVERYBODY for name in names)
    state, got = airflow.wait_for_run("crash_batch", batch), mails(service, component.replace("-", ""))
    assert max(got.values()) == 1
    assert state == "failed" or got.keys() == PEOPLE


def test_waits_end_while_no_triggerer_runs(airflow: RunningAirflow, service: Emulator) -> None:
    """Airflow's own deadline ends them, and each looks once more: one campaign was sent meanwhile, one was not."""
    service.change_settings(sending_seconds=1e6)
    runs = {
        case: airflow.start_run("crash_outage", conf={"case": case}) for case in ("sent meanwhile", "still sending")
    }
    for run_id in runs.values():
        airflow.wait_for_task("crash_outage", run_id, "task", "deferred")
    airflow.kill("triggerer")
    service.set_campaign_state("sent meanwhile", "done")
    assert airflow.wait_for_run("crash_outage", runs["sent meanwhile"]) == "success"
    assert airflow.wait_for_run("crash_outage", runs["still sending"]) == "failed"
    assert airflow.xcom("crash_outage", runs["sent meanwhile"], "task")["mail_stats"]["sent_count"] == len(EVERYBODY)
    airflow.wait_for_log("crash_outage", runs["still sending"], "task", "and no triggerer ended it")


def test_a_run_that_waits_is_deleted_and_started_again(airflow: RunningAirflow, service: Emulator) -> None:
    """Its record is gone with it: the campaign is found by its name, and is not created again."""
    service.change_settings(sending_seconds=1e6)
    run_id = airflow.start_run("crash_outage", conf={"case": "deleted"})
    airflow.wait_for_task("crash_outage", run_id, "task", "deferred")
    path = f"/dags/crash_outage/dagRuns/{run_id}"
    airflow.api.request("PATCH", path, json={"state": "failed"})
    assert airflow.wait_for_run("crash_outage", run_id) == "failed"
    airflow.api.request("DELETE", path)
    wait_until(lambda: run_id not in airflow.run_states("crash_outage"), what="the run is gone")
    again = airflow.start_run("crash_outage", conf={"case": "deleted"})
    assert airflow.wait_for_run("crash_outage", again) == "failed"
    airflow.wait_for_log("crash_outage", again, "task", "It was not adopted, and nothing was sent")
    assert [entry["body"]["mailName"] for entry in service.journal.processed(CREATES)].count("deleted") == 1
