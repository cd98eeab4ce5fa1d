"""Transactional mail: a receipt to one recipient, personalized reminders to many.

Sent at most once: a message that may have been sent is not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator


def due_reminders() -> Iterator[dict[str, Any]]:
    """Called in the task. Every try must yield the same messages in the same order."""
    for email, name, item in [("ada@example.com", "Ada", "Engine"), ("bob@example.com", "Bob", "Key")]:
        yield {"to": {"email": email, "name": name}, "params": {"item": item}}


with DAG(
    dag_id="mail_transactional",
    description="A receipt for one and reminders for many",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    tags=["mail", "example"],
) as dag:
    # [START howto_send]
    receipt = MailSendOperator(
        task_id="receipt",
        sender_mail="news@example.com",
        to={"email": "ada@example.com", "name": "Ada"},
        subject="Your receipt",
        content="<p>Thank you.</p>",
    )
    # [END howto_send]

    # [START howto_send_batch]
    reminders = MailSendBatchOperator(
        task_id="reminders",
        sender_mail="news@example.com",
        subject="Your cart",
        content="<p>{% raw %}{{item}}{% endraw %} is waiting for you.</p>",
        messages=due_reminders,
    )
    # [END howto_send_batch]
