"""A DAG that catches up in a real Airflow: one campaign for each run that is not too late, one after the other."""

from __future__ import annotations

from mail_emulator import Emulator
from tests.support.airflow import RunningAirflow
from tests.support.processes import wait_until


def test_runs_that_depend_on_the_past_send_in_order(airflow: RunningAirflow, emulator: Emulator) -> None:
    emulator.add_list("everybody", ["ada@example.com"])
    emulator.change_settings(sending_seconds=1e6)
    airflow.unpause("catching_up")
    wait_until(lambda: len(airflow.run_states("catching_up")) == 4, what="a run for each day")
    late, later, yesterday, today = sorted(airflow.run_states("catching_up"))

    airflow.wait_for_task("catching_up", yesterday, "send", "deferred")
    assert airflow.task_states("catching_up", today)["send", -1] is None
    emulator.set_campaign_state(f"catching_up/send/{yesterday}", "done")
    airflow.wait_for_task("catching_up", today, "send", "deferred")
    emulator.set_campaign_state(f"catching_up/send/{today}", "done")

    assert airflow.wait_for_run("catching_up", today) == "success"
    states = [airflow.task_states("catching_up", run_id)["send", -1] for run_id in (late, later, yesterday, today)]
    assert states == ["skipped", "skipped", "success", "success"]
    subjects = [entry["body"]["subject"] for entry in emulator.journal.entries("campaign/mail/sends")]
    assert subjects == [f"News of {run_id[len('scheduled__') :][:10]}" for run_id in (yesterday, today)]
