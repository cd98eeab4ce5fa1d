"""Import contacts from a file in a data lake, and send a personalized reminder for each row of a query.

Needs the connections ``mail_default`` and ``shop`` (a table ``carts``), a template ``cart_reminder``, a file
``customers.csv.gz``, and its folder in the variable ``mail_lake``: any path that Airflow can reach, such as
``s3://aws_default@bucket/export``, ``gs://...``, ``abfss://...`` or ``file:///...``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator

with DAG(
    dag_id="mail_batch_from_sql",
    description="Contacts from a file, reminders from a query",
    schedule="@daily",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_object_storage_to_mail_contacts]
    import_contacts = ObjectStorageToMailContactsOperator(
        task_id="import_contacts",
        path="{{ var.value.mail_lake }}/customers.csv.gz",
        columns={"mail": "email", "full_name": "name"},
        list_name="customers",
        rejects=Rejects(max_fraction=0.01, path="{{ var.value.mail_lake }}/rejected.jsonl"),
    )
    # [END howto_object_storage_to_mail_contacts]

    # [START howto_sql_to_mail_batch]
    remind = SqlToMailBatchOperator(
        task_id="remind",
        sql_conn_id="shop",
        # Depends on the run only and has a fixed order, so that every try reads the same rows.
        sql="SELECT email, name, item FROM carts WHERE left_on = '{{ dag_run.run_after | ds }}' ORDER BY id",
        name_column="name",
        sender_mail="shop@example.com",
        template_name="cart_reminder",
        mail_params={"name": "customer"},
        on_empty="skip",
    )
    # [END howto_sql_to_mail_batch]

    import_contacts >> remind
