"""Imports over several tries in Airflow: what a retry sends, what a cleared task sends, and what is told of it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail._task.import_checkpoint import KEY
from airflow_provider_mail.api.flows import import_contacts
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from tests.support.dags import AIRFLOW_VERSION, RunResult
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.sending import AT_ONCE, change_retries, clears_faults, remembers
from tests.tasks.waiting import timed_out_when

IMPORTS = "contacts/imports"
REMEMBERS = AIRFLOW_VERSION >= (3, 3)
SMALL: dict[str, Any] = {"chunk_size": 10, "max_in_flight": 1}

Imported = Callable[..., SqlToMailContactsOperator]


def people(database: SqlDatabase, count: int = 100) -> None:
    database.execute("CREATE TABLE people (id INTEGER, email TEXT, name TEXT)")
    database.execute("INSERT INTO people", [(number, address(number), "One") for number in range(1, count + 1)])


def address(number: int) -> str:
    return f"p{number}@example.com"


@pytest.fixture
def imported(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Imported:
    """A function that makes a task of ten chunks, one after the other; in its first try the service takes only six.

    `between` happens before the second try.
    """
    change_retries(monkeypatch, attempts=1)
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


def everybody(called: str = "One", count: int = 100) -> dict[str, str]:
    return {address(number): called for number in range(1, count + 1)}


def record(result: RunResult) -> Any:
    """What the task has written down."""
    text, _ = result.state_store(TASK).get(KEY, (None, None))
    return None if text is None else json.loads(text)


def test_a_retry_goes_on_behind_what_was_accepted(
    run: Run, emulator: Emulator, imported: Imported, any_crm: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_mail._task.progress.LOG_INTERVAL", 0.0)
    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "crm")
    people(any_crm)

    done = run(lambda: imported(list_name="all"))

    assert (done.state, done.tries) == ("success", 2)
    assert names(emulator) == everybody()
    assert emulator.contact_count("all") == 100
    assert taken(emulator) == (6 + 4 if REMEMBERS else 6 + 10)
    counts = {name: done.returned[name] for name in ("read", "accepted", "accepted_earlier", "rejected", "requests")}
    earlier, requests = (60, 4) if REMEMBERS else (0, 10)
    assert counts == {
        "read": 100,
        "accepted": 100,
        "accepted_earlier": earlier,
        "rejected": 0,
        "requests": requests,
    }
    columns = "state, try_number, rows_read, rows_accepted, rows_accepted_earlier, rows_rejected"
    recorded = any_crm.query(f"SELECT {columns} FROM mail_imports")
    assert [tuple(row) for row in recorded] == [("success", 2, 100, 100, earlier, 0)], "one import, counted once"
    if REMEMBERS:
        assert "The next try continues after what was accepted." in done.log
        assert "Resumed: 60 rows were accepted in earlier tries and are not sent; continuing with row 61." in done.log
        assert "100 rows done, 60 of them in earlier tries, 0 of them rejected" in done.log
        assert "100 rows read, 100 accepted (60 of them in earlier tries), 0 rejected, in 4 requests" in done.log
        assert record(done.result) is None
    else:
        assert "The next try imports everything." in done.log
    assert "@example.com" not in done.log


def test_without_resume_every_try_imports_everything(
    run: Run, emulator: Emulator, imported: Imported, crm: SqlDatabase
) -> None:
    people(crm)

    done = run(lambda: imported(resume=False))

    assert (done.state, done.tries) == ("success", 2)
    assert taken(emulator) == 6 + 10
    assert done.returned["accepted_earlier"] == 0
    assert "The next try imports everything." in done.log


@remembers
def test_a_cleared_task_that_had_failed_goes_on(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, imported: Imported, crm: SqlDatabase
) -> None:
    people(crm)
    with new_dag() as dag:
        imported(retries=0)
    done = run(dag)
    assert done.state == "failed"
    told = record(done.result)
    assert told["version"] == 1
    assert len(json.dumps(told)) < 300
    assert "example" not in json.dumps(told)

    assert done.result.clear_and_run(TASK).state == "success"

    assert taken(emulator) == 6 + 4
    assert names(emulator) == everybody()
    assert done.result.xcom(TASK)["accepted_earlier"] == 60


@remembers
def test_a_cleared_task_that_had_succeeded_imports_everything_again(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, imported: Imported, crm: SqlDatabase
) -> None:
    people(crm)
    with new_dag() as dag:
        imported()
    done = run(dag)
    assert done.state == "success"
    # Meanwhile somebody has changed a contact in the service.
    emulator.add_contact(address(7), name="Other")
    before = taken(emulator)

    assert done.result.clear_and_run(TASK).state == "success"

    assert taken(emulator) == before + 10
    assert names(emulator) == everybody()
    assert done.result.xcom(TASK)["accepted_earlier"] == 0


@remembers
def test_rows_that_changed_between_two_tries_are_sent(
    run: Run, emulator: Emulator, imported: Imported, any_crm: SqlDatabase
) -> None:
    people(any_crm)

    def change(_: Any) -> None:
        any_crm.execute("UPDATE people SET name = 'Two' WHERE id >= 35")

    done = run(lambda: imported(change))

    assert (done.state, done.tries) == ("success", 2)
    assert names(emulator) == everybody("Two") | everybody("One", 34)
    assert done.returned["accepted_earlier"] == 30
    assert "Resumed: 30 rows were accepted in earlier tries and are not sent; continuing with row 31." in done.log
    assert "Everything from row 31 on is imported again: the rows differ" in done.log


@remembers
@pytest.mark.parametrize(
    "left",
    [{"version": 0, "mark": 60}, "garbage", ["*"] * 1000, {"version": 1, "digests": "x" * 100_000}],
    ids=["older", "text", "a list", "too long"],
)
def test_a_record_that_is_not_understood_is_told_and_left_alone(
    run: Run, emulator: Emulator, imported: Imported, crm: SqlDatabase, left: Any
) -> None:
    people(crm)

    done = run(lambda: imported(lambda context: context["task_state_store"].set(KEY, left)))

    assert (done.state, done.tries) == ("success", 2)
    assert taken(emulator) == 6 + 10
    assert names(emulator) == everybody()
    assert "Everything is imported again: the record of an earlier try was not written by this version" in done.log
    assert record(done.result) is None


@remembers
@pytest.mark.parametrize("broken", ["get", "set", "delete"])
def test_a_store_that_fails_is_told_and_fails_no_import(
    run: Run, emulator: Emulator, imported: Imported, crm: SqlDatabase, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    from airflow.sdk.execution_time.context import TaskStateStoreAccessor

    def full(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the disk is full")

    people(crm)
    monkeypatch.setattr(TaskStateStoreAccessor, broken, full)

    done = run(imported)

    assert (done.state, done.tries) == ("success", 2)
    assert names(emulator) == everybody()
    what = {"get": "read", "set": "written", "delete": "deleted"}[broken]
    assert f"task state could not be {what}" in done.log
    assert "the disk is full" in done.log
    assert taken(emulator) == (6 + 4 if broken == "delete" else 6 + 10)


@remembers
@pytest.mark.parametrize("keep", ["table", "file"])
def test_rows_that_are_set_aside_are_there_once_whichever_try_met_them(
    run: Run, emulator: Emulator, imported: Imported, any_crm: SqlDatabase, tmp_path: Path, keep: str
) -> None:
    people(any_crm)
    bad, refused = (5, 60, 61, 99), (12, 13, 80)
    any_crm.execute(f"UPDATE people SET email = 'nobody' WHERE id IN {bad}")
    emulator.change_settings(refused_addresses=tuple(map(address, refused)))
    emulator.faults.clear()
    # Ten are halved to find two, three others are accepted; then it ends.
    emulator.faults.add("close_before", IMPORTS, skip=20, count=None)
    path = tmp_path / "rejects.jsonl"
    where: dict[str, str] = {"rejects_table": "rejects"} if keep == "table" else {"rejects_path": str(path)}

    done = run(lambda: imported(max_reject_fraction=0.07, **where))

    assert (done.state, done.tries) == ("success", 2)
    assert done.returned["accepted_earlier"] > 10
    counts = tuple(done.returned[name] for name in ("read", "accepted", "rejected"))
    assert counts == (100, 93, 7)
    if keep == "table":
        kept = any_crm.query("SELECT row_number, field FROM rejects ORDER BY row_number")
    else:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        kept = sorted((record["row_number"], record["field"]) for record in records)
    assert kept == sorted([*((number, "email") for number in bad), *((number, "") for number in refused)])
    assert names(emulator).keys() == everybody().keys() - set(map(address, (*bad, *refused)))


@remembers
def test_the_share_that_is_allowed_counts_the_rows_of_all_tries(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, imported: Imported, crm: SqlDatabase
) -> None:
    people(crm)
    crm.execute("UPDATE people SET email = 'nobody' WHERE id IN (3, 4)")
    with new_dag() as dag:
        imported(max_reject_fraction=0.01, retries=1)
    done = run(dag)

    assert (done.state, done.tries) == ("failed", 2)
    assert "2 of 100 rows were rejected" in done.log
    assert "the other 98 rows were accepted" in done.log

    # Who mends the rows and clears the task imports what was mended.
    crm.execute("UPDATE people SET email = 'p' || id || '@example.com' WHERE id IN (3, 4)")
    before = taken(emulator)
    assert done.result.clear_and_run(TASK).state == "success"
    assert names(emulator) == everybody()
    assert taken(emulator) == before + 10


@remembers
def test_rejected_rows_that_could_not_be_kept_cost_no_second_import(
    run: Run, emulator: Emulator, imported: Imported, crm: SqlDatabase
) -> None:
    people(crm)
    crm.execute("UPDATE people SET email = 'nobody' WHERE id = 3")
    crm.execute("CREATE TABLE rejects (import_id TEXT)")
    emulator.faults.clear()

    def mend(_: Any) -> None:
        crm.execute("DROP TABLE rejects")

    done = run(lambda: imported(mend, rejects_table="rejects", max_reject_fraction=0.5))

    assert (done.state, done.tries) == ("success", 2)
    assert taken(emulator) == 10
    assert done.returned["accepted_earlier"] == 99
    assert crm.query("SELECT row_number FROM rejects") == [(3,)]


@remembers
def test_a_task_that_is_ended_by_its_time_out_goes_on(
    run: Run, emulator: Emulator, imported: Imported, crm: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    people(crm)
    emulator.faults.clear()
    emulator.faults.add("delay", IMPORTS, skip=6, count=None, seconds=1)
    monkeypatch.setattr(import_contacts, "GRACE_SECONDS", 30.0)
    first_try: list[int] = []

    with timed_out_when(lambda: emulator.journal.count(IMPORTS) > 6):
        done = run(
            lambda: imported(
                lambda context: first_try.append(taken(emulator)), execution_timeout=datetime.timedelta(minutes=1)
            )
        )

    assert "AirflowTaskTimeout" in done.log
    assert (done.state, done.tries) == ("success", 2)
    # What is under way is waited for, so it is known to be accepted.
    assert 7 <= first_try[0] < 10
    assert done.returned["accepted_earlier"] == 10 * first_try[0]
    assert names(emulator) == everybody()


@remembers
def test_rows_of_a_function_that_gives_others_each_time_all_arrive(
    run: Run, emulator: Emulator, imported: Imported
) -> None:
    """A function that takes rows from a queue cannot be asked for the same ones twice: none may be lost."""
    queue = [{"email": address(number), "name": "One"} for number in range(1, 201)]

    def contacts() -> Any:
        while queue:
            yield queue.pop(0)

    fixed: dict[str, Any] = {**SMALL, **AT_ONCE, "task_id": TASK, "pre_execute": clears_faults(emulator)}
    done = run(lambda: MailImportContactsOperator(contacts=contacts, **fixed))

    assert (done.state, done.tries) == ("success", 2)
    assert "Everything from row 1 on is imported again" in done.log
    # What the second try took is there, and what the first had accepted.
    assert names(emulator).keys() >= {address(number) for number in range(1, 61)} | {address(200)}
    assert done.returned["accepted"] == done.returned["read"]
    assert done.returned["accepted_earlier"] == 0


@remembers
def test_mapped_tasks_remember_each_for_itself(
    run_in_airflow: Run, new_dag: Callable[..., DAG], emulator: Emulator, imported: Imported, crm: SqlDatabase
) -> None:
    people(crm)
    halves = ["SELECT email, name FROM people WHERE id <= 50", "SELECT email, name FROM people WHERE id > 50"]
    emulator.faults.clear()
    # Until the second try: after the chunk that fails, the first try may still send others.
    emulator.faults.add("close_before", IMPORTS, skip=7, count=None)

    fixed: dict[str, Any] = {"task_id": TASK, "sql_conn_id": "crm", "pre_execute": clears_faults(emulator)}
    with new_dag() as dag:
        SqlToMailContactsOperator.partial(**fixed, **SMALL, **AT_ONCE).expand(sql=halves)
    done = run_in_airflow(dag)

    assert done.result.state == "success"
    assert names(emulator) == everybody()
    earlier = [done.result.xcom(TASK, map_index=index)["accepted_earlier"] for index in (0, 1)]
    # Whichever of the two came second had two chunks accepted.
    assert sorted(earlier) == [0, 20]
