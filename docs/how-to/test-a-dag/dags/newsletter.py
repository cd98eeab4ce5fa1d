"""The newsletter, as it runs in production."""

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator

with DAG("newsletter", schedule="@weekly", start_date=pendulum.datetime(2026, 1, 1), catchup=False) as dag:
    MailCreateCampaignOperator(
        task_id="campaign",
        sender_mail="news@example.com",
        subject="What is new",
        content="<p>Hello</p>",
        send_list_names=["customers"],
    )
