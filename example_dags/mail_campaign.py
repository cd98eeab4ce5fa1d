"""The main job: import contacts, send them a campaign, and load its statistics and the list of all campaigns.

Needs the connections ``mail_default``, ``crm`` (a table ``customers``) and ``warehouse``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignStatsToSqlOperator, MailCampaignsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

with DAG(
    dag_id="mail_campaign",
    description="Import contacts, send a campaign, load its statistics",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_sql_to_mail_contacts]
    sync_contacts = SqlToMailContactsOperator(
        task_id="sync_contacts",
        sql_conn_id="crm",
        sql="SELECT email, full_name, phone FROM customers WHERE subscribed = 1",
        columns={"email": "email", "full_name": "name", "phone": "phoneNumber"},
        list_name="newsletter",
        exact_audience=True,
        list_description="Customers who subscribed to the newsletter",
        rejects=Rejects(max_fraction=0.01, table="newsletter_rejects"),
    )
    # [END howto_sql_to_mail_contacts]

    # [START howto_create_campaign]
    send_newsletter = MailCreateCampaignOperator(
        task_id="send_newsletter",
        sender_mail="news@example.com",
        sender_name="Example News",
        subject="News of {{ dag_run.run_after.strftime('%B') }}",
        content="<p>Hello {% raw %}{{name}}{% endraw %}, this is new: ...</p>",
        audience=sync_contacts.output,
        max_run_age=7 * 86_400,
        on_old_run="skip",
    )
    # [END howto_create_campaign]

    # [START howto_campaign_sensor]
    wait_until_sent = MailCampaignSensor(
        task_id="wait_until_sent",
        mail_name="{{ ti.xcom_pull('send_newsletter')['mail_name'] }}",
        deferrable=True,
        poke_interval=10,
        timeout=6 * 60 * 60,
    )
    # [END howto_campaign_sensor]

    # [START howto_campaign_stats_to_sql]
    load_statistics = MailCampaignStatsToSqlOperator(
        task_id="load_statistics",
        sql_conn_id="warehouse",
        table="mail_campaign_stats",
        mail_name="{{ ti.xcom_pull('send_newsletter')['mail_name'] }}",
    )
    # [END howto_campaign_stats_to_sql]

    # With subjects, lists and states, also of campaigns that are scheduled: for the page in Airflow.
    load_campaigns = MailCampaignsToSqlOperator(task_id="load_campaigns", sql_conn_id="warehouse")

    sync_contacts >> send_newsletter >> wait_until_sent >> load_statistics >> load_campaigns
