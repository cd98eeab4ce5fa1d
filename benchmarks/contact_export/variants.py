"""What export_contacts.py measures, each in a new process: ``python -m benchmarks.contact_export.variants NAME``.

Prints one line of JSON: seconds, CPU seconds, peak memory over what the imports alone take (MiB), and records.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from benchmarks.contact_export.service import PAGE, body
from benchmarks.support import Run, imported, measure

PATH = "/v5/contacts/list/get"
LIST = "everybody"
TABLE = "mail_contacts"

# Import before the measurement what the operator imports when it runs.
LAZILY_IMPORTED = (
    "airflow_provider_mail.api.client",
    "airflow_provider_mail.api.contacts",
    "airflow_provider_mail.api.flows.concurrent_pages",
    "airflow_provider_mail._task.exceptions",
    "airflow_provider_mail.hooks.mail",
    "airflow_provider_mail.warehouse.tables.contacts",
    "airflow_provider_mail.warehouse.load",
)


def http_hook() -> Run:
    """The usual DAG code: the official hook, page by page, `insert_rows`."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
    from airflow.providers.http.hooks.http import HttpHook

    sql_hook = imported("contacts_db")
    get_hook_lineage_collector()  # the hooks load Airflow's plugins when they are first used
    columns = ("id", "email", "name", "phone_number", "properties", "create_date", "modify_time", "create_user_id")

    def run() -> int:
        sql_hook.run(f"CREATE TABLE {TABLE} ({', '.join(f'{name} text' for name in columns)}, PRIMARY KEY (id))")
        http, rows, index = HttpHook(method="POST", http_conn_id="http_default"), [], 1
        while True:
            asked = {"listName": LIST, "pageSize": PAGE, "pageIndex": index}
            page = http.run(PATH, json=asked, headers={"ApiKey": "benchmark"}).json()["contactList"]
            if not page:
                break
            rows += [
                (one["id"], one["email"], one["name"], one["phoneNumber"], json.dumps(one["properties"]),
                 one["createDate"], one["modifyTime"], one["createUserId"])
                for one in page
            ]  # fmt: skip
            index += 1
        sql_hook.insert_rows(TABLE, rows, target_fields=columns, replace=True, replace_index=["id"], commit_every=5000)
        return len(rows)

    return run


def ours() -> Run:
    """Run the operator as a task does."""
    from airflow_provider_mail.transfers.mail_to_sql import MailContactsToSqlOperator

    imported("contacts_db", *LAZILY_IMPORTED)
    in_flight = int(os.environ["BENCHMARK_IN_FLIGHT"])

    def run() -> int:
        operator = MailContactsToSqlOperator(
            task_id="export_contacts", sql_conn_id="contacts_db", list_name=LIST, table=TABLE, max_in_flight=in_flight
        )
        return int(operator.execute({})["records"])  # type: ignore[typeddict-item]

    return run


def no_http() -> Run:
    """Parse and load prepared pages: the lower bound of the operator."""
    from airflow_provider_mail.api.contacts import GetListContacts
    from airflow_provider_mail.warehouse.load import load
    from airflow_provider_mail.warehouse.tables.contacts import CONTACTS, contact_row

    sql_hook = imported("contacts_db")
    contacts = int(os.environ["BENCHMARK_CONTACTS"])
    request = GetListContacts(list_name=LIST)

    def rows() -> Iterator[tuple[Any, ...]]:
        import pydantic_core

        moment = datetime.now(UTC)
        for index in range(1, -(-contacts // PAGE) + 1):
            for contact in request.read(pydantic_core.from_json(body(index, contacts))).records:
                yield contact_row(contact, mail_conn_id="mail", team="", list_name=LIST, observed_at=moment)

    return lambda: load(sql_hook, CONTACTS, TABLE, rows()).rows


VARIANTS: dict[str, Callable[[], Run]] = {variant.__name__: variant for variant in (http_hook, ours, no_http)}

if __name__ == "__main__":
    measure(VARIANTS[sys.argv[1]]())
