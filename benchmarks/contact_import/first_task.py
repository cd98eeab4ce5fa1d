"""A task of 100 rows in a process that has imported Airflow alone, as each task is: with all that it imports.

    python benchmarks/contact_import/first_task.py ours|careful

The environment is that of `benchmarks.contact_import.variants`. Prints what :func:`benchmarks.support.measure` prints.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

from airflow.providers.common.compat.sdk import BaseHook
from airflow.sdk import BaseOperator  # noqa: F401 - what every task has

from benchmarks.support import measure

SQL = os.environ["BENCHMARK_SQL"]
COLUMNS = {"email": "email", "name": "name", "phone": "phoneNumber"}


def ours() -> int:
    from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator

    operator = SqlToMailContactsOperator(task_id="first", sql_conn_id="contacts_db", sql=SQL, columns=COLUMNS)
    ti = SimpleNamespace(dag_id="benchmark", task_id="first", run_id="1", map_index=-1, try_number=1)
    return int(operator.execute({"ti": ti})["accepted"])  # type: ignore[typeddict-item]


def careful() -> int:
    import httpx

    rows = BaseHook.get_hook("contacts_db").get_records(SQL)
    mapping = [{"columnNum": number, "propertyName": name} for number, name in enumerate(COLUMNS.values())]
    with httpx.Client(base_url=os.environ["BENCHMARK_SERVICE"], headers={"ApiKey": "benchmark"}) as client:
        body = {"contactData": [list(row) for row in rows], "contactDataMapping": mapping, "updateMode": 1}
        answer = client.post("/v5/contacts/imports", json=body).json()
    if answer["code"] != 200:
        raise RuntimeError(json.dumps(answer))
    return len(rows)


if __name__ == "__main__":
    measure({"ours": ours, "careful": careful}[sys.argv[1]])
