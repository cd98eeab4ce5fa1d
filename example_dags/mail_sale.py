"""A campaign to people who had no more than two other mails in the week, once per person.

Needs the connections ``mail_default`` and ``shop`` (a table ``customers``), and a memory: set ``[mail]
memory_conn_id``, such as to ``shop``, and run ``airflow mail memory create`` once.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Suppress
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

with DAG(
    dag_id="mail_sale",
    description="A campaign to people who were not mailed too often",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_once_per_campaign]
    people = SqlToMailContactsOperator(
        task_id="people",
        sql_conn_id="shop",
        sql="SELECT email, full_name AS name FROM customers",
        list_name="summer sale",
        exact_audience=True,
        suppress=Suppress(once_per="summer-sale", at_most=(3, timedelta(days=7))),
    )
    MailCreateCampaignOperator(
        task_id="send",
        audience=people.output,
        sender_mail="shop@example.com",
        subject="Summer sale",
        content="<p>{% raw %}Dear {{name}}, ...{% endraw %}</p>",
    )
    # [END howto_once_per_campaign]
