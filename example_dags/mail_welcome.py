"""A welcome series as a daily query: each mail once per person, and nobody gets more than three mails a week.

Needs the connections ``mail_default`` and ``shop`` (a table ``customers``), and a memory: set ``[mail]
memory_conn_id``, such as to ``shop``, and run ``airflow mail memory create`` once.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator

with DAG(
    dag_id="mail_welcome",
    description="A welcome series, each mail once per person",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_once_per]
    for number, (days, subject) in enumerate([(0, "Welcome"), (3, "Three tips"), (10, "How is it going?")], start=1):
        SqlToMailBatchOperator(
            task_id=f"welcome_{number}",
            sql_conn_id="shop",
            # Everybody for whom the mail is due; who had it is left out by the memory.
            sql="SELECT email, full_name FROM customers "
            "WHERE signed_up_on <= '{{ (dag_run.run_after - macros.timedelta(days=params.days)) | ds }}'",
            params={"days": days},
            columns={"full_name": "name"},
            sender_mail="shop@example.com",
            subject=subject,
            content="<p>{% raw %}Dear {{name}}, ...{% endraw %}</p>",
            once_per=f"welcome-{number}",
            at_most=(3, timedelta(days=7)),
            on_empty="skip",
        )
    # [END howto_once_per]
