"""Imports over several tries in Airflow: what a retry sends, what a cleared task sends, and what it reports.

What holds however the tries end is in `tests/machines/test_importing.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from mail_emulator import Emulator
from tests.support.changes import at_request, time_out_task
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.task_parts import CHECKPOINT_KEY
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.sending import AT_ONCE, DAY, remembers

IMPORTS = "contacts/imports"
REMEMBERS = AIRFLOW_VERSION >= (3, 3)
SMALL: dict[str, Any] = {"chunk_size": 10, "max_in_flight": 1}

Imported = Callable[..., SqlToMailContactsOperator]


def address(number: int) -> str:
    return f"p{number}@example.com"


@pytest.fixture
def people(crm: SqlDatabase) -> SqlDatabase:
    """A table of a hundred people."""
    crm.execute("CREATE TABLE people (id INTEGER, email TEXT, name TEXT)")
    crm.execute("INSERT INTO people", [(number, address(number), "One") for number in range(1, 101)])
    return crm


@pytest.fixture
def imported(emulator: Emulator, people: SqlDatabase) -> Imported:
    """A function that makes a task of ten chunks, one after the other; in its first try the service takes only six.

    `between` happens before the second try.
    """
    emulator.faults.add("close_before", IMPORTS, skip=6, count=None)

    def make(between: Callable[[Any], Any] = lambda context: None, **arguments: Any) -> SqlToMailContactsOperator:
        def pre_execute(context: Any) -> None:
            if context["ti"].try_number == 2:
                emulator.faults.clear()
                between(context)

        sql = "SELECT email, name FROM people ORDER BY id"
        fixed: dict[str, Any] = {"task_id": TASK, "sql_conn_id": "crm", "sql": sql, "pre_execute": pre_execute}
        return SqlToMailContactsOperator(**fixed | SMALL | AT_ONCE | arguments)

    return make


def taken(emulator: Emulator) -> int:
    """How many chunks the service has taken."""
    return len(emulator.journal.processed(IMPORTS))


def names(emulator: Emulator) -> dict[str, str]:
    return {contact["email"]: contact["name"] for contact in emulator.contacts()}


EVERYBODY = {address(number): "One" for number in range(1, 101)}


def test_a_retry_continues_after_what_was_accepted(
    run: Run, emulator: Emulator, imported: Imported, crm: SqlDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "crm")

    with at_request(emulator, IMPORTS, 8, lambda: clock.sleep(30)):
        done = run(lambda: imported(list_name="all"))

    assert (done.state, done.tries) == ("success", 2)
    assert names(emulator) == EVERYBODY
    assert emulator.contact_count("all") == 100
    assert taken(emulator) == (6 + 4 if REMEMBERS else 6 + 10)
    counts = [done.returned[name] for name in ("read", "accepted", "accepted_earlier", "rejected", "requests")]
    assert counts == ([100, 100, 60, 0, 4] if REMEMBERS else [100, 100, 0, 0, 10])
    columns = "state, try_number, rows_read, rows_accepted, rows_accepted_earlier, rows_rejected"
    recorded = crm.query(f"SELECT {columns} FROM mail_imports")
    assert recorded == [("success", 2, 100, 100, counts[2], 0)], "one import, counted once"
    logged = [
        "The next try continues after what was accepted.",
        "Resumed: 60 rows were accepted in earlier tries and are not sent; continuing with row 61.",
        "rows done, 60 of them in earlier tries, 0 of them rejected",
        "100 rows read, 100 accepted (60 of them in earlier tries), 0 rejected, in 4 requests",
    ]
    assert [text for text in logged if (text in done.log) != REMEMBERS] == []
    assert "@example.com" not in done.log


def test_a_time_out_of_the_task_loses_nothing(
    run: Run, emulator: Emulator, imported: Imported, people: SqlDatabase
) -> None:
    """Neither what was accepted nor what was rejected until then."""
    people.execute("UPDATE people SET email = 'nobody' WHERE id = 3")
    emulator.faults.clear()
    rejected: list[Any] = []
    keep: dict[str, Any] = {"rejects_table": "rejects", "max_reject_fraction": 0.5, "execution_timeout": DAY}

    def look(_: Any) -> None:
        rejected.extend(people.query("SELECT row_number FROM rejects"))

    with at_request(emulator, IMPORTS, 7, time_out_task):
        done = run(lambda: imported(look, **keep))

    assert (done.state, done.tries) == ("success", 2)
    assert "AirflowTaskTimeout" in done.log
    assert rejected == people.query("SELECT row_number FROM rejects") == [(3,)]
    assert names(emulator) == {email: name for email, name in EVERYBODY.items() if email != address(3)}
    # The request that was under way may have been given up although the service performed it.
    assert taken(emulator) in ((10, 11) if REMEMBERS else (16, 17))


@remembers
def test_a_cleared_task_continues_only_after_a_failure(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, imported: Imported
) -> None:
    with new_dag() as dag:
        imported(retries=0)
    done = run(dag)
    assert done.state == "failed"
    text, _ = done.result.state_store(TASK)[CHECKPOINT_KEY]
    assert json.loads(text)["version"] == 1

    assert done.result.clear_and_run(TASK).state == "success"
    assert taken(emulator) == 6 + 4
    assert names(emulator) == EVERYBODY
    assert done.result.xcom(TASK)["accepted_earlier"] == 60
    assert CHECKPOINT_KEY not in done.result.state_store(TASK)

    emulator.add_contact(address(7), name="Other")  # a user changes a contact in the service
    assert done.result.clear_and_run(TASK).state == "success"
    assert taken(emulator) == 6 + 4 + 10
    assert names(emulator) == EVERYBODY


@remembers
def test_a_failure_to_keep_rejected_rows_costs_no_second_import(
    run: Run, emulator: Emulator, imported: Imported, people: SqlDatabase
) -> None:
    people.execute("UPDATE people SET email = 'nobody' WHERE id = 3")
    people.execute("CREATE TABLE rejects (import_id TEXT)")
    emulator.faults.clear()

    def correct(_: Any) -> None:
        people.execute("DROP TABLE rejects")

    done = run(lambda: imported(correct, rejects_table="rejects", max_reject_fraction=0.5))

    assert (done.state, done.tries) == ("success", 2)
    assert taken(emulator) == 10
    assert done.returned["accepted_earlier"] == 99
    assert people.query("SELECT row_number FROM rejects") == [(3,)]
