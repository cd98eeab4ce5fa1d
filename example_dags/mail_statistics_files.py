"""Every day, write the statistics as files, one folder per day, to be loaded into BigQuery, Snowflake or Athena.

Needs the connection ``mail_default``, the extra ``parquet``, and the variable ``mail_lake``: any path that Airflow
can reach, such as ``s3://aws_default@bucket/mail``, ``gs://...``, ``abfss://...`` or ``file:///...``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_object_storage import MailStatsToObjectStorageOperator

with DAG(
    dag_id="mail_statistics_files",
    description="Campaign and transactional statistics as Parquet files, day by day",
    # At midnight UTC, since the service counts by days in UTC.
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    # To load earlier days, run `airflow backfill create`.
    catchup=False,
    max_active_runs=4,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
) as dag:
    # [START howto_statistics_files]
    MailStatsToObjectStorageOperator(task_id="campaigns", path="{{ var.value.mail_lake }}/campaigns", lookback_days=7)
    MailStatsToObjectStorageOperator(
        task_id="transactional", kind="transactional", path="{{ var.value.mail_lake }}/transactional", lookback_days=7
    )
    # [END howto_statistics_files]
