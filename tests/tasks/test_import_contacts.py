"""`MailImportContactsOperator`: contacts that a DAG has at hand, and the record that every import leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.loading import executed

IMPORTS = "contacts/imports"
ADA, BOB = {"email": "ada@example.com", "name": "Ada"}, {"email": "bob@example.com", "name": "Bob"}
LISTS = {"column_names": ["email", "name"]}


def imported(contacts: Any, **arguments: Any) -> MailImportContactsOperator:
    return MailImportContactsOperator(**{"task_id": TASK, "contacts": contacts} | arguments)


def names(emulator: Emulator) -> list[tuple[str, str]]:
    return [(contact["email"], contact["name"]) for contact in emulator.contacts()]


def yielded() -> Iterator[dict[str, str]]:
    yield ADA
    yield BOB


@pytest.mark.parametrize(
    ("contacts", "arguments"),
    [
        ((ADA, BOB), {}),
        ([list(ADA.values()), tuple(BOB.values())], LISTS),
        (lambda: [ADA, BOB], {}),
        (yielded, {"chunk_size": 1}),
        (lambda: (list(row.values()) for row in (ADA, BOB)), LISTS),
        ([[1, "ada@example.com", "Ada"], [2, "bob@example.com", "Bob"]],
         {"column_names": ["id", "mail", "name"], "columns": {"mail": "email", "name": "name"}}),
    ],
)  # fmt: skip
def test_rows_of_every_kind(emulator: Emulator, contacts: Any, arguments: dict[str, Any]) -> None:
    result = executed(imported(contacts, **arguments))
    assert sorted(names(emulator)) == [("ada@example.com", "Ada"), ("bob@example.com", "Bob")]
    requests = 2 if "chunk_size" in arguments else 1
    assert [result[name] for name in ("read", "accepted", "requests")] == [2, 2, requests]


def test_rows_from_other_tasks_and_templates(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    """What a task returns is not a template; what the DAG file holds is one."""
    with new_dag(params={"name": "Cem"}) as dag:
        lists = task(lambda: [["bob@example.com", "{{ not.jinja }}"]], task_id="lists")
        columns = task(lambda: ["email", "name"], task_id="columns")
        address = task(lambda: "dora@example.com", task_id="address")
        imported(lists(), task_id="one", column_names=columns())
        imported([{"email": "cem@example.com", "name": "{{ params.name }} K."}, {"email": address()}], task_id="two")

    done = run(dag)

    assert done.result.state == "success", done.log
    assert [name for _, name in names(emulator)] == ["{{ not.jinja }}", "Cem K.", "dora@example.com"]
    assert dag.get_task("one").upstream_task_ids == {"lists", "columns"}
    assert dag.get_task("two").upstream_task_ids == {"address"}


@pytest.mark.parametrize(
    ("contacts", "arguments", "words"),
    [
        (lambda: None, {}, "contacts: a list of rows is needed, not NoneType"),
        ([["ada@example.com"]], {}, "column_names: needed when contacts are lists and not dictionaries"),
        (lambda: ["ada@example.com"], {"column_names": ["email"]}, "row 1 is of type str"),
        (lambda: [["ada@example.com"], ADA], {"column_names": ["email"]}, "row 2 is of type dict"),
        (lambda: [ADA, ["bob@example.com", "Bob"]], {}, "row 2 is of type list"),
        (lambda: [ADA, BOB | {"phone_number": "+1"}], {}, "row 2 has 'phone_number', the first row has not"),
    ],
)
def test_invalid_rows_end_the_task(emulator: Emulator, contacts: Any, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((AirflowFailException, ValueError)) as raised:
        executed(imported(contacts, **arguments))
    assert words in str(raised.value)
    assert emulator.journal.count(IMPORTS) == 0


def test_keys_may_be_left_out(emulator: Emulator) -> None:
    rows = [{"email": "ada@example.com"}, BOB, {"phone_number": "+1"}]
    executed(imported(rows, columns={"email": "email", "name": "name", "phone_number": "phoneNumber"}))
    found = [(contact["email"], contact["name"], contact["phoneNumber"]) for contact in emulator.contacts()]
    assert found == [("ada@example.com",) * 2 + (None,), ("bob@example.com", "Bob", None), (None, "+1", "+1")]


@pytest.mark.parametrize(("on_empty", "state"), [("error", "failed"), ("skip", "skipped"), ("continue", "success")])
def test_no_row_at_all(run: Run, emulator: Emulator, on_empty: str, state: str) -> None:
    done = run(lambda: imported(lambda: iter(()), on_empty=on_empty, retries=2))
    assert (done.state, done.tries, emulator.journal.count()) == (state, 1, 0)
    assert (done.returned or {}).get("read") == (0 if state == "success" else None)


def test_an_import_records_how_it_ended(
    run: Run, emulator: Emulator, crm: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the table that `[mail] imports_conn_id` names."""
    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "crm")
    bad = [{"email": "bob(at)example.com"}, {"email": "cem(at)example.com"}]

    first = run(lambda: imported([{"email": "ada@example.com"}, *bad], list_name="all", max_reject_fraction=1))
    run(lambda: imported(bad))
    run(lambda: imported([], on_empty="skip"))
    run(lambda: imported([ADA], sandbox_mode=True))

    columns = "list_name, state, rows_read, rows_accepted, rows_accepted_earlier, rows_rejected, try_number, sandbox"
    assert crm.query(f"SELECT {columns} FROM mail_imports ORDER BY finished_at") == [
        ("all", "success", 3, 1, 0, 2, 1, 0),
        (None, "failed", 2, 0, 0, 2, 1, 0),
        (None, "skipped", 0, 0, 0, 0, 1, 0),
        (None, "success", 1, 1, 0, 0, 1, 1),
    ]
    query = "SELECT import_id, mail_conn_id, reasons, requests FROM mail_imports WHERE list_name = 'all'"
    ((import_id, conn_id, reasons, requests),) = crm.query(query)
    assert (import_id, conn_id) == (f"{first.result.dag_id}/{TASK}/{first.result.run_id}", "mail_default")
    assert json.loads(reasons) == [{"field": "email", "reason": "is not an email address", "rows": 2}]
    assert requests == first.returned["requests"]

    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "nowhere")
    done = run(lambda: imported([ADA]))
    assert done.state == "success"
    assert "The row of this run could not be stored in table mail_imports" in done.log
