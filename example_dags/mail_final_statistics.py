"""Wait until a campaign's counts are final, load them, and report the table to Airflow and OpenLineage.

Needs the connections ``mail_default`` and ``warehouse``.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset

from airflow_provider_mail.assets import campaign_stats_asset
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator

with DAG(
    dag_id="mail_final_statistics",
    description="The final statistics of one campaign",
    schedule=None,
    params={"mail_name": "spring sale"},
    tags=["mail", "example"],
) as dag:
    # [START howto_settled_sensor]
    final = MailStatsSettledSensor(
        task_id="final",
        mail_name="{{ params.mail_name }}",
        stable_checks=3,
        min_interval=timedelta(hours=6),
        max_age=timedelta(days=14),
        # Look for the campaign among those sent in the 30 days before this run.
        lookback_days=30,
        deferrable=True,
        poke_interval=3600,
        timeout=21 * 24 * 3600,
        outlets=[campaign_stats_asset()],
    )
    # [END howto_settled_sensor]

    # [START howto_assets]
    load = MailCampaignStatsToSqlOperator(
        task_id="load",
        sql_conn_id="warehouse",
        mail_name="{{ params.mail_name }}",
        lookback_days=30,
        inlets=[campaign_stats_asset()],
        outlets=[Asset("postgres://db.example.com:5432/dwh/public/mail_campaign_stats")],
    )
    # [END howto_assets]

    final >> load
