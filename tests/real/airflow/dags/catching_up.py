"""A campaign a day since three days ago: each waits for the one before, and the older ones are too late."""

from __future__ import annotations

import datetime

from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator

TODAY = datetime.datetime.combine(datetime.datetime.now(datetime.UTC), datetime.time(), datetime.UTC)

with DAG(
    "catching_up",
    schedule="@daily",
    start_date=TODAY - datetime.timedelta(days=3),
    end_date=TODAY,
    catchup=True,
    default_args={"depends_on_past": True},
):
    MailCreateCampaignOperator(
        task_id="send", sender_mail="news@example.com", subject="News of {{ ds }}", content="<p>News</p>",
        send_list_names=["everybody"], wait_for_completion=True, deferrable=True, poke_interval=1,
        max_run_age=datetime.timedelta(days=2), on_old_run="skip",
    )  # fmt: skip
