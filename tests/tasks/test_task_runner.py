"""The task runner of the tests ends as a run in Airflow does: states, tries, XComs, rendered fields, state store.

That it does so with every operator is in `test_everything.py`.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.operators.transactional import MailSendBatchOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException
from mail_emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import Run
from tests.tasks.sending import AT_ONCE, HELLO, letters

DAY = datetime.datetime(2026, 3, 10, 9, tzinfo=datetime.UTC)


def tasks() -> None:
    @task(**AT_ONCE)
    def third_time(ti: Any = None, dag_run: Any = None, task_reschedule_count: Any = None) -> list[Any]:
        ti.xcom_push(f"try {ti.try_number}", ti.try_number)  # cleared before the next try
        if ti.try_number < 3:
            raise ValueError("not yet")
        return [ti.try_number, ti.max_tries, ti.xcom_pull(key="try 1"), dag_run.run_type, task_reschedule_count]

    @task.branch
    def choose() -> str:
        return "left"

    def ends(task_id: str, error: type[Exception] | None = None, **options: Any) -> Any:
        """A task that ends with an error, or without one."""

        @task(task_id=task_id, **AT_ONCE | options)
        def end() -> int:
            if error:
                raise error("it ends")
            return 1

        return end()

    third_time()
    for name, error in (("fails", ValueError), ("at_once", AirflowFailException), ("skips", AirflowSkipException)):
        after = ends(f"after_{name}")
        ends(name, error) >> [after, ends(f"whatever_{name}", trigger_rule="all_done")]
        after >> ends(f"at_last_{name}", trigger_rule="all_done")
    sides = [ends("left"), ends("right")]
    choose() >> sides >> ends("joined", trigger_rule="none_failed_min_one_success")
    sides[1] >> ends("after_right", trigger_rule="none_failed_min_one_success")
    for name in ("done", "failed", "nobody"):
        MailCampaignSensor(task_id=name, mail_name=name, timeout=60, deferrable=True, poke_interval=20, **AT_ONCE)


def tasks_with_a_state() -> None:
    @task(**AT_ONCE)
    def counts(task_state_store: Any = None, ti: Any = None) -> list[Any]:
        seen = task_state_store.get("seen", default=[])
        task_state_store.set("seen", [*seen, {"try": ti.try_number}])
        task_state_store.set("gone", 1, retention=datetime.timedelta(days=1))
        task_state_store.delete("gone")
        if len(seen) < 2:
            raise ValueError("once more")
        return list(seen)

    counts()
    MailSendBatchOperator(task_id="send", messages=letters(12), versions_per_request=5, **HELLO)


def test_both_end_alike(run: Run, run_in_airflow: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for runner in (run, run_in_airflow):
        # Airflow 3.1 keeps a DAG for the next one with its name.
        with DAG("alike", schedule="@daily") as dag:
            tasks()
            if AIRFLOW_VERSION >= (3, 3):
                tasks_with_a_state()
        with Emulator() as service:
            service.add_sender("news@example.com")
            service.add_campaign("done", sent=1)
            service.add_campaign("failed", state="failed")
            mail = {"conn_type": "mail", "host": service.base_url, "password": service.api_key}
            monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(mail))
            outcomes.append(runner(dag, logical_date=DAY).result.outcome())
    assert outcomes[0] == outcomes[1]
