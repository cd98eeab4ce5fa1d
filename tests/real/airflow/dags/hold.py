"""Many tasks that create a campaign each, for later."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator

with DAG("hold", schedule=None, max_active_tasks=300):
    MailCreateCampaignOperator.partial(
        task_id="task",
        sender_mail="news@example.com",
        subject="News",
        content="<p>News</p>",
        send_list_names=["everybody"],
        send_date="2999-01-01T00:00:00Z",
    ).expand(mail_name=[f"campaign {number}" for number in range(60)])
