"""Every night, load the contacts of a list and all campaigns into tables.

Needs the connections ``mail_default`` and ``warehouse``. The table of contacts holds personal data.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_sql import MailCampaignsToSqlOperator, MailContactsToSqlOperator

with DAG(
    dag_id="mail_contacts_to_warehouse",
    description="The contacts of a list and the campaigns, as tables",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    # The service returns the current state only; past days cannot be loaded.
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
) as dag:
    # [START howto_contacts]
    contacts = MailContactsToSqlOperator(task_id="contacts", list_name="newsletter", sql_conn_id="warehouse")
    # [END howto_contacts]

    # [START howto_campaigns]
    campaigns = MailCampaignsToSqlOperator(task_id="campaigns", sql_conn_id="warehouse")
    # [END howto_campaigns]
