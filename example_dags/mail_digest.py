"""One mail for many alerts: the first failure at once, and one summary of those of the next ten minutes.

Needs the connections ``mail_default`` and ``warehouse``, a sender in ``[email] from_email``, and a memory: set ``[mail]
memory_conn_id``, such as to ``warehouse``, and run ``airflow mail memory create`` once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_mail.notifications.mail import MailNotifier, send_digests

# [START howto_digest]
notify_team = MailNotifier(to="data-team@example.com", digest=timedelta(minutes=10))
# [END howto_digest]

with DAG(
    dag_id="mail_digest",
    description="One mail for many alerts",
    schedule="*/5 * * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    default_args={"on_failure_callback": notify_team},
    params={"rows": 5},
    tags=["mail", "example"],
) as dag:

    @task
    def load(table: str, params: dict[str, Any]) -> None:
        if not params["rows"]:
            raise ConnectionError(f"the warehouse does not answer: {table} was not loaded")

    # [START howto_send_digests]
    @task(trigger_rule="all_done")
    def send_summaries() -> int:
        return send_digests()
        # [END howto_send_digests]

    [load.override(task_id=f"load_{table}")(table) for table in ("orders", "customers", "returns")] >> send_summaries()
