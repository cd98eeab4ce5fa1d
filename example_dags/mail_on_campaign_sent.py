"""Load the statistics of each campaign when it is sent, without a schedule and without a waiting task.

Needs the connections ``mail_default`` and ``warehouse``.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetWatcher, task

from airflow_provider_mail.assets import campaigns_asset
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger

# [START howto_campaign_events]
campaign_sent = AssetWatcher(
    name="campaign_sent",
    # By default a campaign's name begins with the DAG's id: these are the campaigns of the DAG mail_campaign.
    trigger=MailCampaignEventTrigger(name_prefix="mail_campaign/", mail_status=["complete"], poke_interval=30),
)

with DAG(
    dag_id="mail_on_campaign_sent",
    description="Load the statistics of each campaign when it is sent",
    schedule=campaigns_asset(watchers=[campaign_sent]),
    tags=["mail", "example"],
) as dag:

    @task
    def names(triggering_asset_events: Any = None) -> list[str]:
        """A run may have several events, an event several campaigns, and a campaign may be reported twice."""
        payloads = [event.extra["payload"] for events in triggering_asset_events.values() for event in events]
        return sorted({campaign["mail_name"] for payload in payloads for campaign in payload["campaigns"]})

    MailCampaignStatsToSqlOperator.partial(task_id="load", sql_conn_id="warehouse").expand(mail_name=names())
# [END howto_campaign_events]
