"""Load the contacts of a list into Databricks, from cloud storage.

Needs the connections ``mail_default``, ``databricks_default``, one of the storage, and the
variable ``mail_bucket``.
"""

from __future__ import annotations

import pendulum
from airflow.providers.databricks.operators.databricks_sql import DatabricksCopyIntoOperator
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_object_storage import MailContactsToObjectStorageOperator
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)

# [START howto_databricks]
with DAG(
    dag_id="mail_contacts_to_databricks",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
) as dag:
    contacts = MailContactsToObjectStorageOperator(
        task_id="contacts",
        list_name="newsletter",
        path="s3://{{ var.value.mail_bucket }}/mail/contacts",
        object_storage_conn_id="aws_default",
        file_format="parquet",
    )
    merged = {
        "sql_conn_id": "databricks_default",
        "table": "crm.mail_contacts",
        "manifest": "{{ ti.xcom_pull('contacts')['manifest'] }}",
        "object_storage_conn_id": "aws_default",
    }
    stage = MailCreateStageTableOperator(task_id="stage", **merged)
    copy = DatabricksCopyIntoOperator(
        task_id="copy",
        table_name="{{ ti.xcom_pull('stage')['stage_table'] }}",
        file_location="s3://{{ var.value.mail_bucket }}/mail/contacts/{{ ti.xcom_pull('contacts')['load_id'] }}",
        file_format="PARQUET",
        pattern="part-*.parquet",
        databricks_conn_id="databricks_default",
    )
    merge = MailMergeStageTableOperator(task_id="merge", **merged)

    contacts >> stage >> copy >> merge
# [END howto_databricks]
