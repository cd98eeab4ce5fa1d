"""Every day, load the statistics of the day before, and reload earlier days, since recipients open mail for days.

Needs the connections ``mail_default`` and ``warehouse``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)

# [START howto_daily_statistics]
with DAG(
    dag_id="mail_daily_statistics",
    description="Campaign and transactional statistics, day by day",
    # At midnight UTC, since the service counts by days in UTC.
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    # To load earlier days, run `airflow backfill create`.
    catchup=False,
    max_active_runs=4,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
) as dag:
    # Snapshots keep the counts of each day.
    MailCampaignStatsToSqlOperator(task_id="campaigns", sql_conn_id="warehouse", lookback_days=7, snapshots=True)
    MailTransactionalStatsToSqlOperator(task_id="transactional", sql_conn_id="warehouse", lookback_days=7)
# [END howto_daily_statistics]
