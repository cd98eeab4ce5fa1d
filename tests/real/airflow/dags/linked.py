"""Tasks that the page links to: one waits in the triggerer, one in a worker, one fails; and a load of campaigns."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignsToSqlOperator

with DAG("linked", schedule=None):
    for task_id in ("deferred", "running", "failed"):
        MailCreateCampaignOperator(
            task_id=task_id, sender_mail="news@example.com", subject="News", content="<p>News</p>",
            send_list_names=["everybody"], wait_for_completion=True, deferrable=task_id != "running", poke_interval=1,
        )  # fmt: skip

with DAG("linked_load", schedule=None):
    MailCampaignsToSqlOperator(task_id="load", sql_conn_id="page_warehouse")
