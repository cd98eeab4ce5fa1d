"""A campaign that reaches everybody at nine o'clock by their own clocks.

Needs the connections ``mail_default`` and ``crm`` (a table ``customers``).
"""

from __future__ import annotations

from datetime import time

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.utils.staged_send import local_time_send

with DAG(
    dag_id="mail_local_time",
    description="A campaign at nine o'clock in each time zone",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_local_time]
    people = SqlToMailContactsOperator(
        task_id="people",
        sql_conn_id="crm",
        sql="""
            SELECT email, full_name AS name,
                CASE WHEN email LIKE '%.us' THEN 'America/New_York' ELSE 'Europe/Berlin' END AS time_zone
            FROM customers WHERE subscribed = 1
        """,
        list_name="morning",
        exact_audience=True,
        rejects=Rejects(max_fraction=0.01),
    )
    local_time_send(
        import_task=people,
        mail_name="morning {{ dag_run.run_after | ts_nodash }}",
        campaign={
            "sender_mail": "news@example.com",
            "subject": "Good morning",
            "content": "<p>This is new: ...</p><p><a href='https://example.com/bye'>Unsubscribe</a></p>",
        },
        send_time=time(9),
        time_zone_column="time_zone",
        default_time_zone="Europe/Berlin",
        deferrable=True,
    )
    # [END howto_local_time]
