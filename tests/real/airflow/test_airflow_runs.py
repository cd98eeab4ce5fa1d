"""The harness itself: deferred tasks hold no slot, and what is killed comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.processes import wait_until


def test_the_work_of_a_lost_machine_goes_on(airflow: RunningAirflow, tmp_path: Path) -> None:
    """A deferred task outlives scheduler and triggerer; a running one is lost with its scheduler, and tried again."""
    airflow.set_connection("fs_default", {"conn_type": "fs"})
    file = tmp_path / "file"
    run_id = airflow.start_run("waiting", conf={"text": "forty-two", "file": str(file)})
    lost = airflow.start_run("stubborn")
    airflow.wait_for_task("stubborn", lost, "sleep_once", "running")
    airflow.wait_for_task("waiting", run_id, "wait", "deferred")
    assert airflow.slots()["occupied"] == 1
    assert airflow.slots()["deferred"] == 1
    ((classpath, _),) = airflow.triggers()
    assert classpath.startswith("airflow.providers.standard.triggers.file.")

    killed = ("scheduler", "triggerer")
    for component in killed:
        airflow.kill(component)
        assert airflow.components[component].session() == []
    for component in killed:
        airflow.restart(component)
    file.touch()

    assert airflow.wait_for_run("waiting", run_id) == "success"
    assert {key: ti["state"] for key, ti in airflow.tasks("waiting", run_id).items()} == {
        ("wait", -1): "success",
        ("answer", -1): "success",
    }
    assert airflow.xcom("waiting", run_id, "answer") == {"text": "forty-two"}
    assert airflow.xcom("waiting", run_id, "answer", key="nothing") is None
    airflow.wait_for_log("waiting", run_id, "answer", "the answer is forty-two")
    wait_until(lambda: not airflow.triggers(), what="the end of the trigger")

    assert airflow.wait_for_run("stubborn", lost) == "success"
    assert airflow.xcom("stubborn", lost, "sleep_once") == 2


def test_a_killed_task_is_tried_again(airflow: RunningAirflow) -> None:
    run_id = airflow.start_run("stubborn")
    airflow.wait_for_task("stubborn", run_id, "sleep_once", "running")
    assert airflow.slots()["occupied"] == 1

    airflow.kill_task("stubborn", run_id, "sleep_once")

    if AIRFLOW_VERSION >= (3, 1):
        assert airflow.wait_for_run("stubborn", run_id) == "success"
        assert airflow.xcom("stubborn", run_id, "sleep_once") == 2
    else:  # Airflow 3.0 fails a task whose process was killed, whatever its retries
        assert airflow.wait_for_run("stubborn", run_id) == "failed"
        assert airflow.task("stubborn", run_id, "sleep_once")["try_number"] == 1


def test_what_is_wrong_is_said(airflow: RunningAirflow) -> None:
    with pytest.raises(TimeoutError, match="DAG nowhere: not within 1 s") as caught:
        airflow.start_run("nowhere", timeout=1)
    assert "--- scheduler" in "".join(caught.value.__notes__)

    with pytest.raises(RuntimeError, match="airflow no-such-command"):
        airflow.run_command("no-such-command")
