"""People's addresses are in the service, in the tables that hold contacts, and nowhere in Airflow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.errors import without_addresses
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from tests.tasks.conftest import TASK, Done, Run, SqlDatabase

GOOD, BAD = "planted-good@example.com", "planted-bad(at)example.com"
PLANTED = ("planted", "Plantagenet", "+49 171 7777777")
PEOPLE = [(GOOD, "Plantagenet", "+49 171 7777777"), (BAD, "Plantagenet", None)]


def assert_nothing_planted(done: Done, own_xcoms: str = TASK) -> None:
    pushed = {key: value for key, value in done.result.xcoms().items() if key[0] == own_xcoms}
    for place in (done.log, done.rendered(), json.dumps(list(pushed.values()))):
        for word in PLANTED:
            assert word not in place


def imported(**arguments: Any) -> SqlToMailContactsOperator:
    return SqlToMailContactsOperator(
        **{"task_id": TASK, "sql_conn_id": "crm", "sql": "SELECT * FROM people", "max_reject_fraction": 1} | arguments
    )


@pytest.fixture
def people(any_crm: SqlDatabase) -> SqlDatabase:
    any_crm.execute("CREATE TABLE people (email TEXT, name TEXT, phone_number TEXT)")
    any_crm.execute("INSERT INTO people", PEOPLE)
    return any_crm


def test_a_good_import(run: Run, emulator: Emulator, people: SqlDatabase, tmp_path: Path) -> None:
    done = run(lambda: imported(rejects_table="rejects", rejects_path=str(tmp_path / "rejects.jsonl")))

    assert done.state == "success"
    assert [contact["email"] for contact in emulator.contacts()] == [GOOD]
    assert BAD in str(people.query("SELECT row_json FROM rejects"))
    assert_nothing_planted(done)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "code_before", "code": 400, "message": f"who is {GOOD}?"},
        {"kind": "code_before", "code": 500, "message": f"{GOOD}, really?"},
        {"kind": "code_before", "code": 401, "message": f"not for <{GOOD}>"},
        {"kind": "html_before"},
        {"kind": "cut_json"},
        {"kind": "close_after"},
        {"kind": "redirect", "location": f"http://127.0.0.1:9/?to={GOOD}"},
    ],
    ids=lambda fault: f"{fault['kind']} {fault.get('code', '')}",
)
def test_every_failure(
    run: Run, emulator: Emulator, people: SqlDatabase, fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_mail.api.retry.RetryRule.base_seconds", 0.0, raising=False)
    emulator.faults.add(operation="contacts/imports", count=None, **fault)
    people.execute("DELETE FROM people WHERE name IS NULL")

    done = run(lambda: imported(max_reject_fraction=0))

    assert done.state == "failed"
    assert emulator.journal.count("contacts/imports") > 0
    assert_nothing_planted(done)


def test_a_rejects_table_that_cannot_be_written(run: Run, people: SqlDatabase) -> None:
    people.execute("CREATE TABLE rejects (import_id TEXT)")

    done = run(lambda: imported(rejects_table="rejects"))

    assert done.state == "failed"
    assert "table rejects on connection 'crm'" in done.log
    assert_nothing_planted(done)


def test_a_query_that_fails_at_a_row(run: Run, make_database: Callable[[str, str], SqlDatabase]) -> None:
    database = make_database("postgres", "crm")
    database.execute("CREATE TABLE people (email TEXT, name TEXT)")
    database.execute("INSERT INTO people", [row[:2] for row in PEOPLE])

    done = run(lambda: imported(sql="SELECT email, name::int AS phone_number FROM people"))

    assert done.state == "failed"
    assert "`sql` on connection 'crm'" in done.log
    assert_nothing_planted(done)


def test_rows_from_another_task_are_not_shown(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    with new_dag() as dag:

        @task
        def people() -> list[dict[str, str]]:
            return [{"email": GOOD, "name": "Plantagenet"}]

        @task
        def parts() -> list[list[dict[str, str]]]:
            return [[{"email": GOOD, "name": "Plantagenet"}]]

        MailImportContactsOperator(task_id=TASK, contacts=people())
        MailImportContactsOperator(task_id="literal", contacts=[{"email": GOOD}])
        MailImportContactsOperator.partial(task_id="mapped").expand(contacts=parts())

    done = run(dag)

    assert done.result.state == "success", done.log
    assert [contact["email"] for contact in emulator.contacts()] == [GOOD]
    assert '"contacts": "not shown (1)"' in done.rendered()
    for word in PLANTED:
        assert word not in done.rendered()


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("invalid email: ada@example.com", "invalid email: ***@example.com"),
        ("<ada.l+x@mail.example.com>, 'bob@x.org'", "<***@mail.example.com>, '***@x.org'"),
        ("[čeněk@example.com](dora@example.com)", "[***@example.com](***@example.com)"),
        ("at 12 @ noon; nobody @example", "at 12 @ noon; nobody @example"),
    ],
)
def test_addresses_are_cut_down_to_their_domains(text: str, cut: str) -> None:
    assert without_addresses(text) == cut
