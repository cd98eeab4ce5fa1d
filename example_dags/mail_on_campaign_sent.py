"""Whenever a campaign has gone out, load its statistics: no schedule, no waiting task.

Needs the connections ``mail_default`` and ``warehouse``.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetWatcher, task

from airflow_provider_mail.assets import campaigns_asset
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger

# [START howto_campaign_events]
gone_out = AssetWatcher(
    name="campaign_gone_out",
    # Campaigns are named after DAG, task and run unless you name them: these are the ones of the DAG mail_campaign.
    trigger=MailCampaignEventTrigger(name_prefix="mail_campaign/", mail_status=[2], poke_interval=30),
)

with DAG(
    dag_id="mail_on_campaign_sent",
    description="The statistics of each campaign that has gone out",
    schedule=campaigns_asset(watchers=[gone_out]),
    tags=["mail", "example"],
) as dag:

    @task
    def names(triggering_asset_events: Any = None) -> list[str]:
        """One run may stand for many events, one event for many campaigns, and the same one may be told twice."""
        payloads = [event.extra["payload"] for events in triggering_asset_events.values() for event in events]
        return sorted({campaign["mail_name"] for payload in payloads for campaign in payload["campaigns"]})

    MailCampaignStatsToSqlOperator.partial(task_id="load", sql_conn_id="warehouse").expand(mail_name=names())
# [END howto_campaign_events]
