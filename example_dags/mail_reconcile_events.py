"""Compare the events that were received with the service's statistics of the same days.

Needs the connections ``mail_default`` and ``warehouse``, and ``[mail] inbox_conn_id``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.operators.events import MailReconcileEventsOperator
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator

with DAG(
    dag_id="mail_reconcile_events",
    description="Are all events there?",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 3, "retry_delay": pendulum.duration(hours=1)},
    tags=["mail", "example"],
) as dag:
    # Load what was pushed until now.
    drain = MailEventsToSqlOperator(task_id="drain", sql_conn_id="warehouse")

    # [START howto_reconcile]
    reconcile = MailReconcileEventsOperator(
        task_id="reconcile",
        sql_conn_id="warehouse",
        # Each day again for a week, in which opens and clicks still arrive.
        lookback_days=7,
        tolerance=5,
        tolerance_fraction=0.001,
    )
    # [END howto_reconcile]

    drain >> reconcile
