"""Mail about tasks and runs: on failure, on success, and when a deadline is missed.

Needs the connection ``mail_default`` and a sender in ``[email] from_email``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_mail.notifications.mail import MailNotifier

options: dict[str, Any] = {}
try:
    from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference
except ImportError:
    pass  # deadlines need Airflow 3.2
else:
    # [START howto_mail_deadline]
    late = DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(minutes=30),
        callback=AsyncCallback(MailNotifier, kwargs={"to": ["oncall@example.com"]}),
    )
    # [END howto_mail_deadline]
    options["deadline"] = late

# [START howto_mail_on_failure]
notify_team = MailNotifier(to=["ada@example.com", "Bob <bob@example.com>"])
default_args = {"on_failure_callback": notify_team}
# [END howto_mail_on_failure]

# [START howto_mail_own_words]
notify_sales = MailNotifier(
    to="sales@example.com",
    subject="Orders of {{ dag_run.run_after.strftime('%d %B') }} are in",
    content="<p>{{ params.rows }} orders were loaded by {{ ti.task_id | e }}.</p>",
)
# [END howto_mail_own_words]

with DAG(
    dag_id="mail_notifications",
    description="Mail about tasks and runs",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args=default_args,
    params={"rows": 5},
    tags=["mail", "example"],
    **options,
) as dag:

    @task(on_success_callback=notify_sales)
    def load(params: dict[str, Any]) -> None:
        if not params["rows"]:
            raise ValueError("there are no orders")

    load()
