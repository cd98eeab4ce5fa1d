"""Every day the statistics as files in a lake, a folder per day: the way into BigQuery, Snowflake, Redshift, Athena.

Needs the connection ``mail_default`` and the extra ``parquet``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_object_storage import MailStatsToObjectStorageOperator

# [START howto_statistics_files]
with DAG(
    dag_id="mail_statistics_files",
    description="Campaign and transactional statistics as Parquet files, day by day",
    # At midnight in UTC, since the service's days are days in UTC.
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=True,
    max_active_runs=4,
    # Any path that Airflow reaches: s3://aws_default@bucket/mail, gs://..., abfss://..., file:///...
    params={"lake": "file:///data/mail"},
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
) as dag:
    MailStatsToObjectStorageOperator(task_id="campaigns", path="{{ params.lake }}/campaigns", lookback_days=7)
    MailStatsToObjectStorageOperator(
        task_id="transactional", kind="transactional", path="{{ params.lake }}/transactional", lookback_days=7
    )
# [END howto_statistics_files]
