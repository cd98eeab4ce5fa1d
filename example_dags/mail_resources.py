"""Create a list, a template, a sender, the webhook configuration and a single contact.

Every task may run repeatedly: what exists and is equal is not changed.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.operators.contacts import MailDeleteContactOperator, MailUpsertContactOperator
from airflow_provider_mail.operators.lists import MailCreateListOperator, MailDeleteListOperator
from airflow_provider_mail.operators.senders import MailAddSenderOperator, MailVerifySenderOperator
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.webhooks import MailSaveWebhookOperator

with DAG(
    dag_id="mail_resources",
    description="A list, a template, a sender and the webhook configuration",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    tags=["mail", "example"],
) as dag:
    # [START howto_list]
    create_list = MailCreateListOperator(
        task_id="create_list", list_name="friends", list_description="People who asked for it"
    )
    # [END howto_list]

    # [START howto_upsert_contact]
    contact = MailUpsertContactOperator(
        task_id="contact",
        contact_email="ada@example.com",
        name="Ada",
        list_name="friends",
    )
    # [END howto_upsert_contact]

    # [START howto_template]
    template = MailCreateTemplateOperator(
        task_id="template",
        template_name="welcome",
        template_subject="Welcome, {% raw %}{{name}}{% endraw %}",
        # Or the name of an .html file in the DAG's folder.
        template_content="<p>Hello {% raw %}{{name}}{% endraw %}.</p>",
        editor_type="CLASSIC",
        replace=True,
    )
    # [END howto_template]

    # [START howto_sender]
    sender = MailAddSenderOperator(task_id="sender", sender_email="mail.example.com", sender_type=1)
    verify = MailVerifySenderOperator(
        task_id="verify",
        from_domain="mail.example.com",
        selector="mail",
        retries=10,
        retry_delay=pendulum.duration(minutes=30),
    )
    # [END howto_sender]

    # [START howto_webhook]
    webhook = MailSaveWebhookOperator(
        task_id="webhook",
        trans_event={"bounced": True, "spam_report": True, "opened": False},
        trans_callback_url="{{ var.value.get('mail_webhook_url', 'https://events.example.com/mail/in') }}",
        trans_enable=True,
    )
    # [END howto_webhook]

    # [START howto_delete_contact]
    erase = MailDeleteContactOperator(
        task_id="erase", contact_email="ada@example.com", reference="{{ params.get('request', 'none') }}"
    )
    # [END howto_delete_contact]

    # [START howto_delete_list]
    delete_list = MailDeleteListOperator(task_id="delete_list", list_name="friends")
    # [END howto_delete_list]

    create_list >> contact >> erase >> delete_list
    sender >> verify
