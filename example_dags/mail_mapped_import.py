"""A large import over many workers: one mapped task per key range, all under one rate limit.

Needs the connections ``mail_default`` and ``crm`` (a table ``customers`` with a column ``id``), and the pool ``mail``:
``airflow pools set mail 4 "imports at once"``.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_mail.arguments import Rejects
from airflow_provider_mail.transfers.key_ranges import key_ranges
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

with DAG(
    dag_id="mail_mapped_import",
    description="A million contacts in eight tasks",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_mapped_import]
    ranges = task(key_ranges)(
        sql_conn_id="crm",
        sql="SELECT id, email, full_name FROM customers WHERE subscribed = 1",
        key="id",
        ranges=8,
    )

    SqlToMailContactsOperator.partial(
        task_id="import_contacts",
        sql_conn_id="crm",
        columns={"email": "email", "full_name": "name"},
        list_name="newsletter",
        exact_audience=True,
        max_in_flight=4,
        rejects=Rejects(max_fraction=0.01),
        pool="mail",
    ).expand_kwargs(ranges)
    # [END howto_mapped_import]
