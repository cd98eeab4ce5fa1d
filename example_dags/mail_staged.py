"""A campaign in safe steps: audience, preflight, test, approval, one percent, gate, all others, statistics.

Needs the connections ``mail_default``, ``crm`` (a table ``customers``) and ``warehouse``, a list ``newsroom`` of the
people who look at the test, and Airflow 3.1 or later. On 3.0 nothing is sent.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.exceptions import AirflowOptionalProviderFeatureException
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseOperator

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.seed_test import MailSendTestOperator
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.utils.staged_send import staged_send

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
except (ImportError, AirflowOptionalProviderFeatureException):
    CAN_APPROVE = False
else:
    CAN_APPROVE = True


def fail_without_approval() -> None:
    raise RuntimeError("asking a person needs Airflow 3.1 or later: nothing is sent")


with DAG(
    dag_id="mail_staged",
    description="A campaign that goes to one percent first",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_staged_send]
    people = SqlToMailContactsOperator(
        task_id="people",
        sql_conn_id="crm",
        sql="SELECT email, full_name AS name FROM customers WHERE subscribed = 1",
        list_name="newsletter",
        exact_audience=True,
        rejects=Rejects(max_fraction=0.01),
    )
    mail_name = "newsletter {{ dag_run.run_after | ts_nodash }}"
    campaign: dict[str, Any] = {
        "sender_mail": "news@example.com",
        "subject": "News of {{ dag_run.run_after.strftime('%B') }}",
        "content": "<p>This is new: ...</p><p><a href='https://example.com/bye'>Unsubscribe</a></p>",
    }

    staged = staged_send(
        stages={"canary": 0.01, "rest": 1},
        import_task=people,
        mail_name=mail_name,
        campaign=campaign,
        gate={"max_hard_bounce": 0.05, "max_unsubscribe": 0.05, "min_sent": 52, "max_age": timedelta(hours=1)},
    )
    # [END howto_staged_send]

    preflight = MailPreflightOperator(
        task_id="preflight",
        mail_name=f"{mail_name} canary",
        audience=people.output,
        max_recipients=100_000,
        **campaign,
    )
    # [START howto_send_test]
    test = MailSendTestOperator(task_id="test", mail_name=mail_name, seed_list_names="newsroom", **campaign)
    # [END howto_send_test]

    approve: BaseOperator
    if CAN_APPROVE:
        approve = ApprovalOperator(
            task_id="approve",
            subject="Send {{ ti.xcom_pull('test')['mail_name'] | replace(' (test)', '') }} to one percent?",
            body=(
                "{{ ti.xcom_pull('preflight')['table'] }}\n\n"
                "{% set page = ti.xcom_pull('test', key='mail_campaign_url') %}"
                "{% if page %}[The test]({{ page }}){% endif %}"
            ),
            response_timeout=timedelta(hours=24),
        )
    else:
        approve = PythonOperator(task_id="approve", python_callable=fail_without_approval)

    statistics = MailCampaignStatsToSqlOperator(
        task_id="statistics", sql_conn_id="warehouse", table="mail_campaign_stats", mail_name=mail_name
    )

    staged.check >> preflight >> test >> approve >> staged.sends["canary"]
    staged.sends["rest"] >> statistics
