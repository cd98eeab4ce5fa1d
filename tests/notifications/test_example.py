"""The example DAG writes what the page says that it writes."""

from __future__ import annotations

from airflow_provider_mail.emulator import Emulator
from tests.notifications.conftest import addressees
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import Run
from tests.tasks.test_example_dags import example


def test_the_notifications(run: Run, emulator: Emulator) -> None:
    dag = example("mail_notifications")
    if AIRFLOW_VERSION >= (3, 2):
        assert dag.deadline
        # `dag.test()` cannot run a DAG with a deadline; that one is missed in tests/real/airflow/test_notifications.py.
        dag.deadline = None

    assert run(dag).result.state == "success"
    assert run(dag, conf={"rows": 0}).result.state == "failed"

    of_sales, of_the_team = emulator.messages()
    assert addressees(of_sales) == ["sales@example.com"]
    assert of_sales["subject"].endswith(" are in")
    assert of_sales["content"] == "<p>5 orders were loaded by load.</p>"
    assert addressees(of_the_team) == ["ada@example.com", "bob@example.com"]
    assert of_the_team["subject"] == "Failed: mail_notifications.load"
