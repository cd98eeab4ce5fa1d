"""Load the contacts of a list into Redshift, by the manifest.

Needs the connections ``mail_default``, ``redshift_default``, one of the storage, and the
variable ``mail_bucket``.
"""

from __future__ import annotations

import pendulum
from airflow.providers.amazon.aws.transfers.s3_to_redshift import S3ToRedshiftOperator
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_object_storage import MailContactsToObjectStorageOperator
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)

# [START howto_redshift]
with DAG(
    dag_id="mail_contacts_to_redshift",
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
        file_format="jsonl",
    )
    merged = {
        "sql_conn_id": "redshift_default",
        "table": "mail_contacts",
        "manifest": "{{ ti.xcom_pull('contacts')['manifest'] }}",
        "object_storage_conn_id": "aws_default",
    }
    stage = MailCreateStageTableOperator(task_id="stage", **merged)
    copy = S3ToRedshiftOperator(
        task_id="copy",
        s3_bucket="{{ var.value.mail_bucket }}",
        s3_key="mail/contacts/{{ ti.xcom_pull('contacts')['load_id'] }}/manifest.json",
        table="{{ ti.xcom_pull('stage')['stage_table'] }}",
        copy_options=["FORMAT AS JSON 'auto'", "TIMEFORMAT 'auto'", "MANIFEST"],
        method="REPLACE",
        redshift_conn_id="redshift_default",
        aws_conn_id="aws_default",
    )
    merge = MailMergeStageTableOperator(task_id="merge", **merged)

    contacts >> stage >> copy >> merge
# [END howto_redshift]
