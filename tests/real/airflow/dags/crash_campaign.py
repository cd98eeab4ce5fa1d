"""Campaigns whose creation is killed: one for each run, and twenty that wait at once."""

from __future__ import annotations

import datetime

from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from tests.real.airflow.crashing import Mortal

CAMPAIGN = {
    "sender_mail": "news@example.com",
    "subject": "News",
    "content": "<p>News</p>",
    "send_list_names": ["everybody"],
    "wait_for_completion": True,
    "deferrable": True,
    "poke_interval": 2,
    "retries": 4,
    "retry_delay": datetime.timedelta(seconds=1),
}


class MortalCampaign(Mortal, MailCreateCampaignOperator):
    """One that is killed."""


with DAG("crash_campaign", schedule=None, max_active_runs=300, max_active_tasks=300):
    MortalCampaign(task_id="task", mail_name="{{ dag_run.conf['case'] }}", **CAMPAIGN)

with DAG("crash_waiting", schedule=None):
    MailCreateCampaignOperator.partial(task_id="task", **CAMPAIGN).expand(
        mail_name=[f"waiting{number}" for number in range(20)]
    )
