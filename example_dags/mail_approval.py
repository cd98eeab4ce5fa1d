"""A campaign that a person approves: draft, preflight, approval, send, wait, load.

Needs the connections ``mail_default`` and ``warehouse``, and Airflow 3.1 or later. On 3.0 nothing is sent.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.exceptions import AirflowOptionalProviderFeatureException
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseOperator

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator, MailDeleteCampaignOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
except (ImportError, AirflowOptionalProviderFeatureException):
    CAN_APPROVE = False
else:
    CAN_APPROVE = True


def fail_without_approval() -> None:
    raise RuntimeError("asking a person needs Airflow 3.1 or later: nothing is sent")


with DAG(
    dag_id="mail_approval",
    description="A campaign that a person approves",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    tags=["mail", "example"],
) as dag:
    # [START howto_preflight]
    mail_name = "newsletter {{ dag_run.run_after | ts_nodash }}"
    campaign: dict[str, Any] = {
        "sender_mail": "news@example.com",
        "subject": "News of {{ dag_run.run_after.strftime('%B') }}",
        "content": (
            "<p>Hello {% raw %}{{name}}{% endraw %}, this is new: ...</p>"
            "<p><a href='https://example.com/bye'>Unsubscribe</a></p>"
        ),
        "send_list_names": ["newsletter"],
    }

    preflight = MailPreflightOperator(
        task_id="preflight",
        mail_name=mail_name,
        known_tags=["name"],
        max_recipients=100_000,
        max_growth=1.5,
        compare_with="newsletter ",
        **campaign,
    )
    # [END howto_preflight]

    # [START howto_draft]
    # For review on the platform. The service cannot send a draft, so it has its own name and is deleted at the end.
    draft = MailCreateCampaignOperator(task_id="draft", mail_name=f"{mail_name} (draft)", only_save=True, **campaign)
    delete_draft = MailDeleteCampaignOperator(
        task_id="delete_draft", mail_name=f"{mail_name} (draft)", trigger_rule="all_done"
    )
    # [END howto_draft]

    approve: BaseOperator
    if CAN_APPROVE:
        # [START howto_approval]
        approve = ApprovalOperator(
            task_id="approve",
            subject="Send {{ ti.xcom_pull('preflight')['mail_name'] }}?",
            body=(
                "{{ ti.xcom_pull('preflight')['table'] }}\n\n"
                "{% set page = ti.xcom_pull('draft', key='mail_campaign_url') %}"
                "{% if page %}[The draft]({{ page }}){% endif %}"
            ),
            response_timeout=timedelta(hours=24),
        )
        # [END howto_approval]
    else:
        approve = PythonOperator(task_id="approve", python_callable=fail_without_approval)

    # [START howto_send_approved]
    send = MailCreateCampaignOperator(task_id="send", mail_name=mail_name, **campaign)
    # [END howto_send_approved]

    wait = MailCampaignSensor(task_id="wait", mail_name=mail_name, deferrable=True, poke_interval=10)
    statistics = MailCampaignStatsToSqlOperator(
        task_id="statistics", sql_conn_id="warehouse", table="mail_campaign_stats", mail_name=mail_name
    )

    draft >> preflight >> approve >> send >> wait >> statistics
    send >> delete_draft
