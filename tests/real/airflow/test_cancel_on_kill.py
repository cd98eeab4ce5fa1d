"""`cancel_on_kill` in a real Airflow: who ends a task cancels its campaign; what ends a process does not."""

from __future__ import annotations

import datetime
from collections import Counter

import pytest

from mail_emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until

CREATES, CANCELS, LOOKS = "campaign/mail/sends", "campaign/mail/cancel", "campaign/mail/get"
DEFERRED, RUNNING, TASK = "killed_deferred", "killed_running", "task"


@pytest.fixture(scope="module")
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("everybody", count=10)
    return emulator


def start(airflow: RunningAirflow, dag_id: str, case: str, *, hours: int = 1) -> str:
    """A run whose campaign has the name of the case, and is sent in so many hours."""
    send_date = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
    return airflow.start_run(dag_id, conf={"case": case, "send_date": send_date.isoformat()})


def mark(airflow: RunningAirflow, dag_id: str, run_id: str, state: str) -> None:
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{TASK}"
    airflow.api.request("PATCH", path, json={"new_state": state})


def cancelled(service: Emulator) -> set[str]:
    return {each["mailName"] for each in service.campaigns() if each["cancelled"]}


def requested(service: Emulator, operation: str, kind: str) -> list[str]:
    """Names of the campaigns of running or deferred tasks in these requests, one for each.

    Without the sandboxed requests, which only find out whether a campaign could be cancelled.
    """
    bodies = [entry["body"] or {} for entry in service.journal.entries(operation)]
    names = [body.get("mailName") or "" for body in bodies if not body.get("sandboxMode")]
    return sorted(name for name in names if name.startswith(kind))


def test_a_running_task(airflow: RunningAirflow, service: Emulator) -> None:
    runs = {case: start(airflow, RUNNING, case) for case in ("running cleared", "running failed")}

    def created() -> bool:
        return {each["mailName"] for each in service.campaigns()} >= set(runs)

    def polls() -> Counter[str]:
        return Counter(requested(service, LOOKS, "running"))

    wait_until(created, what="two campaigns")
    before = polls()
    # Each polls its campaign: no request is under way that creates one.
    wait_until(lambda: all(polls()[case] > before[case] for case in runs), what="polls")
    mark(airflow, RUNNING, runs["running failed"], "failed")
    airflow.clear(RUNNING, runs["running cleared"])
    wait_until(lambda: cancelled(service), what="the campaign is cancelled")
    log = "but not the task: campaign 'running cleared' is not cancelled"
    wait_until(lambda: log in airflow.log(RUNNING, runs["running cleared"], TASK), what="it is not cancelled")
    assert requested(service, CANCELS, "running") == ["running failed"]
    assert requested(service, CREATES, "running") == sorted(runs)
    assert airflow.task(RUNNING, runs["running failed"], TASK)["state"] == "failed"


@pytest.mark.ci
@pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="earlier triggers do not know why they end")
def test_a_deferred_task(airflow: RunningAirflow, service: Emulator) -> None:
    service.plan_campaign("deferred and sent", seconds=1e6)
    runs = {"deferred and sent": start(airflow, DEFERRED, "deferred and sent", hours=0)}
    failed, success, cleared = cases = [f"deferred and {end}" for end in ("failed", "success", "cleared")]
    runs |= {case: start(airflow, DEFERRED, case) for case in cases}
    for run_id in runs.values():
        airflow.wait_for_task(DEFERRED, run_id, TASK, "deferred")

    let_another_triggerer_take_over(airflow, runs[failed])
    for kill in (True, False):
        before = triggerers(airflow)
        if kill:
            airflow.kill("triggerer")
        airflow.restart("triggerer")  # else by SIGTERM
        wait_for_another_triggerer(airflow, before)
    assert {airflow.task(DEFERRED, run_id, TASK)["state"] for run_id in runs.values()} == {"deferred"}
    assert requested(service, CANCELS, "deferred") == []

    airflow.clear(DEFERRED, runs[cleared])
    mark(airflow, DEFERRED, runs[failed], "failed")
    mark(airflow, DEFERRED, runs[success], "success")
    wait_until(lambda: {failed, success} <= cancelled(service), what="two are cancelled")

    def deferred_again() -> bool:
        task = airflow.task(DEFERRED, runs[cleared], TASK)
        return bool(task["try_number"] == 2 and task["state"] == "deferred")

    wait_until(deferred_again, what="the next try waits")
    assert airflow.xcom(DEFERRED, runs[cleared], TASK, "campaign")["adopted"] is True

    service.set_campaign_state("deferred and sent", "done")
    assert airflow.wait_for_run(DEFERRED, runs["deferred and sent"]) == "success"
    assert airflow.xcom(DEFERRED, runs["deferred and sent"], TASK)["mail_stats"]["sent_count"] == 10
    assert requested(service, CANCELS, "deferred") == [failed, success]
    assert requested(service, CREATES, "deferred") == sorted(runs)
    assert airflow.task(DEFERRED, runs[cleared], TASK)["state"] == "deferred"


def let_another_triggerer_take_over(airflow: RunningAirflow, run_id: str) -> None:
    """For a moment there is another one, and all triggers are its own: as when triggerers cannot reach the database."""

    def logged() -> str:
        """With what the triggerer has printed, which has what comes after the end of a trigger."""
        return airflow.log(DEFERRED, run_id, TASK) + airflow.components["triggerer"].log.read_text(errors="replace")

    wait_until(lambda: None not in triggerers(airflow), what="a triggerer runs them")
    [(other,)] = airflow.query(
        "INSERT INTO job (job_type, state, hostname, start_date, latest_heartbeat) "
        "VALUES ('TriggererJob', 'running', 'elsewhere', CURRENT_TIMESTAMP, '2100-01-01 00:00:00') RETURNING id"
    )
    airflow.query("UPDATE trigger SET triggerer_id = %s RETURNING id", other)
    wait_until(
        lambda: "was not cancelled: the task was not ended" in logged(),
        what="the triggerer that has lost its triggers ends them",
    )
    airflow.query("UPDATE job SET end_date = CURRENT_TIMESTAMP, state = 'success' WHERE id = %s RETURNING id", other)
    wait_for_another_triggerer(airflow, {other})


def triggerers(airflow: RunningAirflow) -> set[int | None]:
    """Those that run the triggers."""
    return {triggerer for _, triggerer in airflow.triggers()}


def wait_for_another_triggerer(airflow: RunningAirflow, before: set[int | None]) -> None:
    def runs_all() -> bool:
        now = triggerers(airflow)
        return len(now) == 1 and None not in now and not now & before

    wait_until(runs_all, what="another triggerer runs all triggers")
