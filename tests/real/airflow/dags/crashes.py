"""Tasks that are killed: a campaign, a batch in twenty requests, an import; and campaigns that wait."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from airflow.sdk import DAG

from airflow_provider_mail._task import imports
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

# However busy the machine is, an import that is killed shall have written down how far it was two seconds before.
imports.WRITE_SHARE = 0

CASE = "{{ dag_run.conf['case'] }}"
LETTER: dict[str, Any] = {"sender_mail": "news@example.com", "subject": "News", "content": "<p>News</p>"}
RETRIED: dict[str, Any] = {"task_id": "task", "retries": 4, "retry_delay": datetime.timedelta(seconds=1)}
WAITING = {
    "send_list_names": ["everybody"], "wait_for_completion": True, "deferrable": True, "poke_interval": 2,
    **LETTER, **RETRIED,
}  # fmt: skip


def messages() -> Iterator[dict[str, Any]]:
    for version in range(100):
        yield {"to": [f"user{20 * version + place}@example.com" for place in range(20)]}


with DAG("crash_campaign", schedule=None):
    MailCreateCampaignOperator(mail_name=CASE, **WAITING)

with DAG("crash_waiting", schedule=None):
    MailCreateCampaignOperator.partial(**WAITING).expand(mail_name=[f"{CASE} {number}" for number in range(20)])

with DAG("crash_outage", schedule=None):
    MailCreateCampaignOperator(mail_name=CASE, timeout=5, **WAITING | {"retries": 0})

with DAG("crash_batch", schedule=None):
    MailSendBatchOperator(
        campaign=CASE,
        messages=messages,
        versions_per_request=5,
        # What the user decides after a failure comes from a variable: the configuration of a run is fixed.
        on_ambiguous="{{ var.value.get('decision_' ~ dag_run.conf['case'], 'fail') }}",
        **LETTER,
        **RETRIED,
    )

with DAG("crash_import", schedule=None):
    SqlToMailContactsOperator(
        sql_conn_id="crm", sql="SELECT email, name FROM people ORDER BY id", list_name=CASE, chunk_size=1000,
        max_in_flight=2, **RETRIED,
    )  # fmt: skip
