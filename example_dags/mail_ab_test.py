"""Two subjects, each to a tenth of the people; the one that more people open goes to all others.

Needs the connections ``mail_default``, ``crm`` (a table ``customers``) and ``warehouse``.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.utils.staged_send import ab_send

with DAG(
    dag_id="mail_ab_test",
    description="Two subjects to a few people, the better one to all others",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    mail_name = "subjects {{ dag_run.run_after | ts_nodash }}"
    people = SqlToMailContactsOperator(
        task_id="people",
        sql_conn_id="crm",
        sql="SELECT email, full_name AS name FROM customers WHERE subscribed = 1",
        list_name="subjects",
        exact_audience=True,
        rejects=Rejects(max_fraction=0.01),
    )
    # [START howto_ab_send]
    test = ab_send(
        test_fraction=0.2,
        import_task=people,
        mail_name=mail_name,
        campaign={
            "sender_mail": "news@example.com",
            "content": "<p>This is new: ...</p><p><a href='https://example.com/bye'>Unsubscribe</a></p>",
        },
        version_a={"subject": "News of {{ dag_run.run_after.strftime('%B') }}"},
        version_b={"subject": "What you have missed"},
        wait={"max_age": timedelta(hours=4)},
        compare={"metric": "open_rate", "min_sent": 500},
    )
    # [END howto_ab_send]
    statistics = MailCampaignStatsToSqlOperator(
        task_id="statistics", sql_conn_id="warehouse", table="mail_campaign_stats", mail_name=mail_name
    )
    test.group >> statistics
