"""Cancel and delete a campaign that must not be sent; delete a template and a sender that are no longer used.

Every task may run repeatedly: deleting something that does not exist succeeds.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCancelCampaignOperator, MailDeleteCampaignOperator
from airflow_provider_mail.operators.senders import MailDeleteSenderOperator
from airflow_provider_mail.operators.templates import MailDeleteTemplateOperator

with DAG(
    dag_id="mail_cleanup",
    description="Cancel a campaign; delete a campaign, a template and a sender",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    params={"mail_name": "spring"},
    tags=["mail", "example"],
) as dag:
    # [START howto_end_campaign]
    cancel = MailCancelCampaignOperator(task_id="cancel", mail_name="{{ params.mail_name }}")
    delete = MailDeleteCampaignOperator(task_id="delete", mail_name="{{ params.mail_name }}")
    # [END howto_end_campaign]

    # [START howto_delete_template]
    delete_template = MailDeleteTemplateOperator(task_id="delete_template", template_name="welcome")
    # [END howto_delete_template]

    # [START howto_delete_sender]
    delete_sender = MailDeleteSenderOperator(task_id="delete_sender", sender_email="old.example.com")
    # [END howto_delete_sender]

    cancel >> delete
