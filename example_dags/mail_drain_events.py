"""Every five minutes, load what the service has pushed into the table ``mail_events``.

Needs the connection ``warehouse``, and ``[mail] inbox_conn_id``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.assets import events_asset
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator

with DAG(
    dag_id="mail_drain_events",
    description="Pushed events, each of them once",
    schedule="*/5 * * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    # A run that takes longer also drains what arrives in the meantime.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=1)},
    tags=["mail", "example"],
) as dag:
    # [START howto_drain_events]
    # The asset starts other DAGs when something new was stored.
    MailEventsToSqlOperator(task_id="drain", sql_conn_id="warehouse", keep_days=7, outlets=[events_asset()])
    # [END howto_drain_events]
