"""Every Monday, mail each manager the open orders of their own, as a table and as a CSV file.

Needs the connections ``mail_default`` and ``shop`` (a table ``orders``).
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.transfers.sql_to_mail_report import SqlToMailReportOperator

with DAG(
    dag_id="mail_report",
    description="Each manager gets a mail with the open orders of their own",
    schedule="0 7 * * 1",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2},
    tags=["mail", "example"],
) as dag:
    # [START howto_sql_to_mail_report]
    SqlToMailReportOperator(
        task_id="open_orders",
        sql_conn_id="shop",
        sql="SELECT owner_email, customer, item, amount, due_on FROM orders WHERE paid = 0 ORDER BY due_on, id",
        group_by="owner_email",
        columns={"customer": "Customer", "item": "Item", "amount": "Amount (EUR)", "due_on": "Due"},
        sender_mail="shop@example.com",
        subject="Open orders on {{ dag_run.run_after | ds }}",
        content="<p>These orders are not paid yet:</p>",
        max_rows=25,
        file_name="open-orders.csv",
    )
    # [END howto_sql_to_mail_report]
