"""Many tasks that create a campaign each, for later, or send a batch or import contacts, in many requests."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator

NEWS = {"sender_mail": "news@example.com", "subject": "News", "content": "<p>News</p>"}
PEOPLE = [f"user{number}@example.com" for number in range(40)]

with DAG("hold", schedule=None, max_active_tasks=300):
    MailCreateCampaignOperator.partial(
        task_id="task", send_list_names=["everybody"], send_date="2999-01-01T00:00:00Z", **NEWS
    ).expand(mail_name=[f"campaign {number}" for number in range(40)])
    MailSendBatchOperator.partial(
        task_id="batch", messages=[{"to": person} for person in PEOPLE], versions_per_request=1, **NEWS
    ).expand(category=[f"batch{number}" for number in range(20)])
    MailImportContactsOperator.partial(
        task_id="import", contacts=[{"email": person} for person in PEOPLE], chunk_size=1
    ).expand(list_name=[f"list {number}" for number in range(20)])
