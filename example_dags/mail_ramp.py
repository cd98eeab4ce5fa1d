"""A campaign over days, with more people each day, which goes on only while few mails bounce.

Needs the connections ``mail_default`` and ``crm`` (a table ``customers``).
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.utils.staged_send import staged_send

with DAG(
    dag_id="mail_ramp",
    description="A campaign of a new sender, over days",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    people = SqlToMailContactsOperator(
        task_id="people",
        sql_conn_id="crm",
        sql="SELECT email, full_name AS name FROM customers WHERE subscribed = 1",
        list_name="relaunch",
        exact_audience=True,
        rejects=Rejects(max_fraction=0.01),
    )
    # [START howto_ramp]
    staged_send(
        ramp=[2_000, 5_000, *[10_000] * 10],
        import_task=people,
        mail_name="relaunch {{ dag_run.run_after | ts_nodash }}",
        campaign={
            "sender_mail": "news@example.com",
            "subject": "We are back",
            "content": "<p>This is new: ...</p><p><a href='https://example.com/bye'>Unsubscribe</a></p>",
        },
        gate={"max_hard_bounce": 0.05, "max_age": timedelta(hours=20)},
        deferrable=True,
    )
    # [END howto_ramp]
