"""An import from Postgres in as many tasks as `MAIL_TEST_RANGES` says."""

from __future__ import annotations

import os

from airflow.sdk import DAG, task

from airflow_provider_mail.transfers.key_ranges import key_ranges
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

with DAG("mapped_import", schedule=None, max_active_tasks=100):
    query = {"sql_conn_id": "crm", "sql": "SELECT id, email, name FROM people", "key": "id"}
    ranges = task(key_ranges)(**query, ranges=int(os.environ["MAIL_TEST_RANGES"]))
    SqlToMailContactsOperator.partial(
        task_id="task", sql_conn_id="crm", columns={"email": "email", "name": "name"}, list_name="everybody",
        chunk_size=int(os.environ["MAIL_TEST_CHUNK"]), max_in_flight=2, pool="mail",
    ).expand_kwargs(ranges)  # fmt: skip
