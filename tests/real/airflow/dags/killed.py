"""A campaign that is waited for, in the triggerer or in a worker, by a task that is ended."""

from __future__ import annotations

import datetime

from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator

for deferrable in (True, False):
    with DAG("killed_deferred" if deferrable else "killed_running", schedule=None):
        MailCreateCampaignOperator(
            task_id="task", mail_name="{{ dag_run.conf['case'] }}", sender_mail="news@example.com", subject="Hi",
            content="<p>Hi</p>", send_date="{{ dag_run.conf['send_date'] }}", allow_past_send_date=True,
            send_list_names=["everybody"], wait_for_completion=True, deferrable=deferrable, poke_interval=2,
            cancel_on_kill=True, retries=1, retry_delay=datetime.timedelta(seconds=1),
        )  # fmt: skip
