"""`cancel_on_kill` in a real Airflow: who ends a task cancels its campaign; what ends a process does not."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator

import pytest

from airflow_provider_mail.emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until

CREATES, CANCELS, LOOKS = "campaign/mail/sends", "campaign/mail/cancel", "campaign/mail/get"
DEFERRED, RUNNING, TASK = "killed_deferred", "killed_running", "task"
HOUR = 3600.0


@pytest.fixture(scope="module")
def service() -> Iterator[Emulator]:
    with Emulator() as service:
        service.add_sender("news@example.com")
        service.add_list("everybody", count=10)
        yield service
        assert service.crashes() == []


@pytest.fixture(scope="module", autouse=True)
def connection(airflow: RunningAirflow, service: Emulator) -> None:
    airflow.set_mail_connection("mail_default", service)


def start(airflow: RunningAirflow, dag_id: str, case: str, seconds: float = HOUR) -> str:
    """A run whose campaign has the name of the case and is sent in so many seconds."""
    send_date = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return airflow.start_run(dag_id, conf={"case": case, "send_date": send_date.isoformat()})


def mark(airflow: RunningAirflow, dag_id: str, run_id: str, state: str) -> None:
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{TASK}"
    airflow.api.request("PATCH", path, json={"new_state": state})


def clear(airflow: RunningAirflow, dag_id: str, run_id: str) -> None:
    body = {"dry_run": False, "dag_run_id": run_id, "task_ids": [TASK], "only_failed": False}
    airflow.api.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)


def cancelled(service: Emulator, names: Collection[str]) -> set[str]:
    return {each["mailName"] for each in service.campaigns() if each["cancelled"] and each["mailName"] in names}


def there(service: Emulator, names: Collection[str]) -> bool:
    return {each["mailName"] for each in service.campaigns()} >= set(names)


def asked(service: Emulator, what: str, names: Collection[str]) -> list[str]:
    """Names of the campaigns that the service was asked to create, cancel or show, one for each time.

    Without the sandboxed requests, which only find out whether a campaign could be cancelled.
    """
    bodies = [entry["body"] or {} for entry in service.journal.entries(what)]
    return sorted(body["mailName"] for body in bodies if body.get("mailName") in names and not body.get("sandboxMode"))


def test_a_running_task(airflow: RunningAirflow, service: Emulator) -> None:
    runs = {case: start(airflow, RUNNING, case) for case in ("running failed", "running cleared")}
    # Each has looked at its campaign: nothing is under way that creates one.
    wait_until(lambda: set(asked(service, LOOKS, runs)) == set(runs) and there(service, runs), what="two campaigns")

    mark(airflow, RUNNING, runs["running failed"], "failed")
    clear(airflow, RUNNING, runs["running cleared"])

    wait_until(lambda: "running failed" in cancelled(service, runs), what="the campaign is cancelled")

    log = "but not the task: campaign 'running cleared' is not cancelled"
    wait_until(lambda: log in airflow.log(RUNNING, runs["running cleared"], TASK), what="it goes on")
    assert asked(service, CANCELS, runs) == ["running failed"]
    assert airflow.task(RUNNING, runs["running failed"], TASK)["state"] == "failed"
    if AIRFLOW_VERSION >= (3, 1):  # Airflow 3.0 leaves a running task that was cleared in the state "restarting"
        _the_next_try_is_ended(airflow, service, runs["running cleared"])
    assert asked(service, CREATES, runs) == sorted(runs)


def _the_next_try_is_ended(airflow: RunningAirflow, service: Emulator, run_id: str) -> None:
    """It has adopted the campaign of the try before, so now that one is cancelled."""

    def runs() -> bool:
        task = airflow.task(RUNNING, run_id, TASK)
        return bool(task["try_number"] == 2 and task["state"] == "running")

    def looks() -> int:
        return len(asked(service, LOOKS, ["running cleared"]))

    wait_until(runs, what="the next try")
    # Airflow calls it running before its process knows what to do about a signal.
    before = looks()
    wait_until(lambda: looks() > before, what="it waits for the campaign")
    mark(airflow, RUNNING, run_id, "success")
    wait_until(lambda: cancelled(service, ["running cleared"]), what="that is cancelled, too")
    assert airflow.task(RUNNING, run_id, TASK)["state"] == "success"


@pytest.mark.ci
@pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="earlier triggers are not told")
def test_a_deferred_task(airflow: RunningAirflow, service: Emulator) -> None:
    # The first is sent while the test still runs: it needs a recipient then. Its trigger sleeps until that time.
    others = ("failed", "success", "cleared")
    runs = {"left alone": start(airflow, DEFERRED, "left alone", seconds=45)}
    runs |= {case: start(airflow, DEFERRED, case) for case in others}
    for case in others:
        airflow.wait_for_task(DEFERRED, runs[case], TASK, "deferred")

    def everybody_waits() -> bool:
        return all(airflow.task(DEFERRED, runs[case], TASK)["state"] == "deferred" for case in others)

    _another_triggerer_takes_over(airflow, runs["failed"])
    assert everybody_waits()

    before = triggerers(airflow)
    airflow.kill("triggerer")
    airflow.restart("triggerer")
    _wait_for_another_triggerer(airflow, before)
    before = triggerers(airflow)
    airflow.restart("triggerer")  # by SIGTERM
    _wait_for_another_triggerer(airflow, before)
    assert everybody_waits()
    assert asked(service, CANCELS, runs) == []

    clear(airflow, DEFERRED, runs["cleared"])
    mark(airflow, DEFERRED, runs["failed"], "failed")
    mark(airflow, DEFERRED, runs["success"], "success")

    wait_until(lambda: cancelled(service, runs) == {"failed", "success"}, what="two are cancelled")

    def deferred_again() -> bool:
        task = airflow.task(DEFERRED, runs["cleared"], TASK)
        return bool(task["try_number"] == 2 and task["state"] == "deferred")

    wait_until(deferred_again, what="the next try waits")
    assert airflow.xcom(DEFERRED, runs["cleared"], TASK, "adopted") is True

    assert airflow.wait_for_run(DEFERRED, runs["left alone"]) == "success"
    assert airflow.xcom(DEFERRED, runs["left alone"], TASK)["mail_stats"]["sent_count"] == 10
    assert asked(service, CANCELS, runs) == ["failed", "success"]
    assert cancelled(service, runs) == {"failed", "success"}
    assert asked(service, CREATES, runs) == sorted(runs)
    assert airflow.task(DEFERRED, runs["cleared"], TASK)["state"] == "deferred"


def _another_triggerer_takes_over(airflow: RunningAirflow, run_id: str) -> None:
    """For a moment there is another one, and all triggers are its own: as when triggerers cannot reach the database."""
    wait_until(lambda: None not in triggerers(airflow), what="a triggerer runs them")
    with airflow.metadata.connect() as connection:
        (other,) = connection.execute(
            "INSERT INTO job (job_type, state, hostname, start_date, latest_heartbeat) "
            "VALUES ('TriggererJob', 'running', 'elsewhere', now(), now() + interval '1 hour') RETURNING id"
        ).fetchone()
        connection.execute("UPDATE trigger SET triggerer_id = %s", (other,))
        wait_until(
            lambda: (
                "was not cancelled: the task was not ended" in airflow.log(DEFERRED, run_id, TASK) + printed(airflow)
            ),
            what="the triggerer that has lost its triggers thinks that they were killed",
        )
        connection.execute("UPDATE job SET end_date = now(), state = 'success' WHERE id = %s", (other,))
    _wait_for_another_triggerer(airflow, {other})


def printed(airflow: RunningAirflow) -> str:
    """What the triggerer has written; there it says what comes after the end of a trigger."""
    return airflow.components["triggerer"].log.read_text(errors="replace")


def triggerers(airflow: RunningAirflow) -> set[int | None]:
    """Who runs the triggers there are."""
    return {triggerer for _, triggerer in airflow.triggers()}


def _wait_for_another_triggerer(airflow: RunningAirflow, before: set[int | None]) -> None:
    def runs_all() -> bool:
        now = triggerers(airflow)
        return len(now) == 1 and None not in now and not now & before

    wait_until(runs_all, what="another triggerer runs all triggers")
