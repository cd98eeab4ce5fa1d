"""Daily loads in three timezones, to be backfilled."""

from __future__ import annotations

import datetime

from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_mail.transfers.mail_to_sql import (
    MailCampaignStatsToSqlOperator,
    MailTransactionalStatsToSqlOperator,
)

# With days that are read again, runs at the same time meet in the same rows; without, a day left out would be missed.
DAILY = {"utc": ("UTC", 2), "berlin": ("Europe/Berlin", 0), "new_york": ("America/New_York", 0)}

for name, (zone, lookback_days) in DAILY.items():
    with DAG(
        f"daily_{name}",
        schedule=CronDataIntervalTimetable("@daily", zone),
        start_date=datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        # The scheduler adds no run of its own.
        end_date=datetime.datetime(2024, 12, 31, tzinfo=datetime.UTC),
        catchup=False,
        default_args={"depends_on_past": name == "new_york"},
    ):
        MailCampaignStatsToSqlOperator(
            task_id="campaigns", sql_conn_id="warehouse", table=f"{name}_campaigns", lookback_days=lookback_days
        )
        MailTransactionalStatsToSqlOperator(
            task_id="transactional", sql_conn_id="warehouse", table=f"{name}_days", lookback_days=lookback_days
        )
