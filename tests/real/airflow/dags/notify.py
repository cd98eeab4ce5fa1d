"""One DAG for each way in which Airflow mails; each writes to an address of its own."""

from __future__ import annotations

import datetime
import time

from airflow.sdk import DAG, task

from airflow_provider_mail.notifications.mail import MailNotifier
from airflow_provider_mail.version_compat import AIRFLOW_V_3_1_PLUS, AIRFLOW_V_3_2_PLUS


@task
def fail() -> None:
    raise ValueError("table <orders> is missing, tell jane@example.com")


with DAG("callback", schedule=None, on_failure_callback=MailNotifier(to="run@example.com")):
    fail.override(on_failure_callback=MailNotifier(to="task@example.com"))()

with DAG("backend", schedule=None):
    fail.override(email=["backend@example.com"], email_on_failure=True)()

if AIRFLOW_V_3_1_PLUS:
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    with DAG("decision", schedule=None):
        ApprovalOperator(task_id="approve", subject="Send it?", notifiers=[MailNotifier(to="decision@example.com")])

if AIRFLOW_V_3_2_PLUS:
    from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference, SyncCallback, Variable

    for name, callback in (("late_async", AsyncCallback), ("late_sync", SyncCallback)):
        alert = DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=datetime.timedelta(seconds=1),
            callback=callback(
                MailNotifier, kwargs={"to": [f"{name}@example.com"], "subject": "Late: {{ dag_run.dag_id }}{{ ti }}"}
            ),
        )
        with DAG(name, schedule=None, deadline=alert):

            @task
            def wait(variable: str) -> None:
                while Variable.get(variable, default=None) is None:
                    time.sleep(1)

            wait(f"end_{name}")
