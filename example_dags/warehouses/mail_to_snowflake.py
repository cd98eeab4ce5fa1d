"""Load the contacts of a list into Snowflake, from an external stage.

Needs the connections ``mail_default``, ``snowflake_default``, one of the storage, and the
variables ``mail_lake`` (a path) and ``mail_external_stage``.
"""

from __future__ import annotations

import pendulum
from airflow.providers.snowflake.transfers.copy_into_snowflake import CopyFromExternalStageToSnowflakeOperator
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_object_storage import MailContactsToObjectStorageOperator
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)


# [START howto_snowflake]
class CopyToSnowflake(CopyFromExternalStageToSnowflakeOperator):
    """Also takes templates for the table and the folder."""

    template_fields = (*CopyFromExternalStageToSnowflakeOperator.template_fields, "table", "stage", "prefix")


with DAG(
    dag_id="mail_contacts_to_snowflake",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
) as dag:
    contacts = MailContactsToObjectStorageOperator(
        task_id="contacts",
        list_name="newsletter",
        path="{{ var.value.mail_lake }}/contacts",
        object_storage_conn_id="aws_default",
        file_format="jsonl",
    )
    merged = {
        "sql_conn_id": "snowflake_default",
        "table": "mail_contacts",
        "manifest": "{{ ti.xcom_pull('contacts')['manifest'] }}",
        "object_storage_conn_id": "aws_default",
    }
    stage = MailCreateStageTableOperator(task_id="stage", **merged)
    copy = CopyToSnowflake(
        task_id="copy",
        table="{{ ti.xcom_pull('stage')['stage_table'] }}",
        # An external stage of the folder `mail_lake`.
        stage="{{ var.value.mail_external_stage }}",
        prefix="contacts/{{ ti.xcom_pull('contacts')['load_id'] }}/part-",
        file_format="(TYPE = JSON)",
        copy_options="MATCH_BY_COLUMN_NAME = CASE_INSENSITIVE",
    )
    merge = MailMergeStageTableOperator(task_id="merge", **merged)

    contacts >> stage >> copy >> merge
# [END howto_snowflake]
