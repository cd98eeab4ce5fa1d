"""Load the contacts of a list into BigQuery, from Google Cloud Storage.

Needs the connections ``mail_default``, ``bigquery_default``, one of the storage, and the
variable ``mail_bucket``.
"""

from __future__ import annotations

import pendulum
from airflow.providers.google.cloud.transfers.gcs_to_bigquery import GCSToBigQueryOperator
from airflow.sdk import DAG

from airflow_provider_mail.transfers.mail_to_object_storage import MailContactsToObjectStorageOperator
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)

# [START howto_bigquery]
with DAG(
    dag_id="mail_contacts_to_bigquery",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 3, "retry_delay": pendulum.duration(minutes=5)},
    tags=["mail", "example"],
) as dag:
    contacts = MailContactsToObjectStorageOperator(
        task_id="contacts",
        list_name="newsletter",
        path="gs://{{ var.value.mail_bucket }}/mail/contacts",
        object_storage_conn_id="google_cloud_default",
        file_format="jsonl",
    )
    merged = {
        "sql_conn_id": "bigquery_default",
        "table": "crm.mail_contacts",
        "manifest": "{{ ti.xcom_pull('contacts')['manifest'] }}",
        "object_storage_conn_id": "google_cloud_default",
    }
    stage = MailCreateStageTableOperator(task_id="stage", **merged)
    copy = GCSToBigQueryOperator(
        task_id="copy",
        bucket="{{ var.value.mail_bucket }}",
        source_objects=["mail/contacts/{{ ti.xcom_pull('contacts')['load_id'] }}/part-*"],
        destination_project_dataset_table="{{ ti.xcom_pull('stage')['stage_table'] }}",
        source_format="NEWLINE_DELIMITED_JSON",
        write_disposition="WRITE_TRUNCATE",
        autodetect=None,  # the table exists
    )
    merge = MailMergeStageTableOperator(task_id="merge", **merged)

    contacts >> stage >> copy >> merge
# [END howto_bigquery]
