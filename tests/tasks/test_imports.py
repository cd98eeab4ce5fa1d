"""Contacts from a DAG or a query: what becomes of their rows, which are rejected, and what further tries send.

What holds however tries end is in `tests/machines/test_importing.py`; files are in `test_object_storage_to_mail.py`.
"""

from __future__ import annotations

import datetime
import json
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from mail_emulator import Emulator
from tests.support.changes import at_every_request, at_request, time_out_task
from tests.support.clock import Clock
from tests.support.dags import AIRFLOW_VERSION
from tests.support.groups import grouped
from tests.support.task_parts import CHECKPOINT_KEY
from tests.support.tries import Tries
from tests.tasks.conftest import TASK, Done, Run, SqlDatabase
from tests.tasks.loading import error_of, executed
from tests.tasks.sending import AT_ONCE, DAY, remembers

IMPORTS = "contacts/imports"
REMEMBERS = AIRFLOW_VERSION >= (3, 3)
ADA, BOB = {"email": "ada@example.com", "name": "Ada"}, {"email": "bob@example.com", "name": "Bob"}
LISTS = {"column_names": ["email", "name"]}
ONE_BY_ONE: dict[str, Any] = {"chunk_size": 10, "max_in_flight": 1}


def imported(contacts: Any, **arguments: Any) -> MailImportContactsOperator:
    return MailImportContactsOperator(**{"task_id": TASK, "contacts": contacts} | grouped(arguments))


def queried(**arguments: Any) -> SqlToMailContactsOperator:
    sql = "SELECT email, name FROM people ORDER BY id"
    return SqlToMailContactsOperator(**{"task_id": TASK, "sql_conn_id": "crm", "sql": sql} | grouped(arguments))


def insert(database: SqlDatabase, rows: Any) -> None:
    database.execute("CREATE TABLE people (id INTEGER, email TEXT, name TEXT)")
    database.execute("INSERT INTO people", rows)


def names(emulator: Emulator) -> dict[str, str]:
    return {contact["email"]: contact["name"] for contact in emulator.contacts()}


def counts(result: dict[str, Any]) -> list[int]:
    return [result[name] for name in ("read", "accepted", "accepted_earlier", "rejected", "requests")]


# --- contacts that a DAG has at hand ---


def yielded() -> Iterator[dict[str, str]]:
    yield ADA
    yield BOB


@pytest.mark.parametrize(("contacts", "arguments"), [
    ((ADA, BOB), {}),
    ([list(ADA.values()), tuple(BOB.values())], LISTS),
    (lambda: [ADA, BOB], {}),
    (yielded, {"chunk_size": 1}),
    (lambda: (list(row.values()) for row in (ADA, BOB)), LISTS),
    ([[1, "ada@example.com", "Ada"], [2, "bob@example.com", "Bob"]],
     {"column_names": ["id", "mail", "name"], "columns": {"mail": "email", "name": "name"}}),
])  # fmt: skip
def test_rows_of_every_kind(emulator: Emulator, contacts: Any, arguments: dict[str, Any]) -> None:
    result = executed(imported(contacts, **arguments))
    assert names(emulator) == {"ada@example.com": "Ada", "bob@example.com": "Bob"}
    assert counts(result) == [2, 2, 0, 0, 2 if "chunk_size" in arguments else 1]


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
    assert list(names(emulator).values()) == ["{{ not.jinja }}", "Cem K.", "dora@example.com"]
    assert dag.get_task("one").upstream_task_ids == {"lists", "columns"}
    assert dag.get_task("two").upstream_task_ids == {"address"}


def test_keys_may_be_left_out(emulator: Emulator) -> None:
    rows = [{"email": "ada@example.com"}, BOB, {"phone_number": "+1"}]
    executed(imported(rows, columns={"email": "email", "name": "name", "phone_number": "phoneNumber"}))
    found = [(contact["email"], contact["name"], contact["phoneNumber"]) for contact in emulator.contacts()]
    assert found == [("ada@example.com",) * 2 + (None,), ("bob@example.com", "Bob", None), (None, "+1", "+1")]


EMAILS = {"column_names": ["email"]}


@pytest.mark.parametrize(("make", "words"), [
    (lambda: imported(lambda: None), "contacts: a list of rows is needed, not NoneType"),
    (lambda: imported([["ada@example.com"]]), "column_names: needed when contacts are lists and not dictionaries"),
    (lambda: imported(lambda: ["ada@example.com"], **EMAILS), "contacts: item 0 must be a dictionary such as"),
    (lambda: imported(lambda: iter(["ada@example.com"]), **EMAILS), "row 1 is of type str"),
    (lambda: imported(lambda: [["ada@example.com"], ADA], **EMAILS), "row 2 is of type dict"),
    (lambda: imported(lambda: [ADA, ["bob@example.com", "Bob"]]), "row 2 is of type list"),
    (lambda: imported(lambda: [ADA, BOB | {"city": "Y"}]), "row 2 has 'city', the first row has not"),
    (lambda: imported([ADA], max_reject_fraction=float("nan")), "Rejects: max_fraction: must be a number from 0 to 1"),
    (lambda: queried(sql="SELECT email, name AS email FROM people"), "columns: the source has more than one 'email'"),
    (lambda: queried(columns={"email": "email", "name": "email"}), "columns: duplicate properties: email"),
])  # fmt: skip
def test_invalid_rows_and_arguments_send_nothing(
    emulator: Emulator, crm: SqlDatabase, make: Callable[[], Any], words: str
) -> None:
    insert(crm, [(1, *ADA.values())])
    assert words in error_of(make)
    assert emulator.journal.count(IMPORTS) == 0


@pytest.mark.parametrize(("on_empty", "state"), [("error", "failed"), ("skip", "skipped"), ("continue", "success")])
def test_no_row_at_all(emulator: Emulator, on_empty: str, state: str) -> None:
    tries = Tries(emulator)
    assert tries.run_all(lambda: imported(lambda: iter(()), on_empty=on_empty)) == state
    assert (tries.number, emulator.journal.count()) == (1, 0)
    assert (tries.returned or {}).get("read") == (0 if state == "success" else None)


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
    ((*ids, reasons, requests),) = crm.query(query)
    assert ids == [import_id(first), "mail_default"]
    assert json.loads(reasons) == [{"field": "email", "reason": "is not an email address", "rows": 2}]
    assert requests == first.returned["requests"]

    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "nowhere")
    done = run(lambda: imported([ADA]))
    assert done.state == "success"
    assert "The row of this run could not be stored in table mail_imports" in done.log


# --- rows of a query ---


def test_columns_and_parameters_of_a_query(run: Run, emulator: Emulator, any_crm: SqlDatabase) -> None:
    """Columns called like properties need no mapping; with one, the others are left out."""
    any_crm.execute("CREATE TABLE customers (email TEXT, name TEXT, phone_number TEXT, since DATE, secret TEXT)")
    customers = [
        ("čeněk@example.com", "Čeněk 陈", "", "2026-01-31", "hush"),
        ("bob@example.com", None, None, None, None),
        (None, "Dora", "+49 30 4", None, None),
    ]
    any_crm.execute("INSERT INTO customers", customers)

    executed(queried(sql="SELECT email, name, phone_number FROM customers", list_name="all", list_description="D"))
    assert {(found["email"], found["name"], found["phoneNumber"]) for found in emulator.contacts("all")} == {
        ("čeněk@example.com", "Čeněk 陈", None),
        ("bob@example.com", "bob@example.com", None),
        (None, "Dora", "+49 30 4"),
    }
    assert [found["description"] for found in emulator.lists()] == ["D"]

    sql = f"SELECT email, secret, since, NULL AS name FROM customers WHERE name = {any_crm.hook.placeholder}"
    columns = {"email": "email", "since": "customer_since", "name": "name"}
    arguments = {"parameters": ["Čeněk 陈"], "columns": columns, "null_value": "unknown"}
    done = run(lambda: queried(sql=sql, list_name="one", **arguments))
    (contact,) = emulator.contacts("one")
    assert (contact["name"], contact["properties"]) == ("unknown", {"customer_since": "2026-01-31"})
    assert "hush" not in str(emulator.journal.entries(IMPORTS))
    assert "Čeněk" not in done.log


def test_the_log_shows_progress(run: Run, emulator: Emulator, crm: SqlDatabase, clock: Clock) -> None:
    insert(crm, [(number, f"{number}@example.com", None) for number in range(100)])
    with at_every_request(emulator, IMPORTS, lambda _: clock.sleep(20)):
        logs = [run(lambda given=given: queried(**ONE_BY_ONE, **given)).log for given in ({"count_first": True}, {})]
    lines = [next(line for line in log.splitlines() if "rows done" in line) for log in logs]
    assert re.search(r"\d+ rows done, 0 of them rejected, [\d,]+ rows/s, \d+% of 100, about \d+ s left", lines[0])
    assert "left" not in lines[1]


# --- rows that are rejected ---


ROWS = [
    (1, "ada@example.com", "Ada"),
    (2, "bob(at)example.com", "Bob"),
    (3, None, "Cem"),
    (4, "dora@example.com", None),
    (5, " ", ""),
    (6, "čeněk", "陈"),
]
BAD = [
    (2, "email", "is not an email address", ["bob(at)example.com", "Bob"]),
    (3, "email", "is empty", [None, "Cem"]),
    (5, "email", "is not an email address", [" ", ""]),
    (6, "email", "is not an email address", ["čeněk", "陈"]),
]
KEEP: dict[str, Any] = {"rejects_table": "rejects", "max_reject_fraction": 1}


def stored(database: SqlDatabase) -> list[tuple[Any, ...]]:
    rows = database.query("SELECT row_number, field, reason, row_json FROM rejects ORDER BY row_number")
    return [(*row[:3], json.loads(row[3])) for row in rows]


def import_id(done: Done) -> str:
    return f"{done.result.dag_id}/{TASK}/{done.result.run_id}"


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_rejected_rows_go_to_table_and_file_also_of_a_failure(
    run: Run, emulator: Emulator, crm: SqlDatabase, tmp_path: Path
) -> None:
    insert(crm, ROWS)
    path = tmp_path / "new" / "folder" / "rejects.jsonl"
    places = {"rejects_table": "rejects", "rejects_path": f"file://{path}"}
    done = run(lambda: queried(**places, chunk_size=2, retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    reasons = "email is not an email address (3), email is empty (1); rows 2, 3, 5, 6"
    ends = "That is more than Rejects(max_fraction=0.0) allows; the other 2 rows were accepted"
    assert f"4 of 6 rows were rejected: {reasons}. They are kept in file://{path}, rejects. {ends}" in done.log
    assert stored(crm) == BAD
    assert set(crm.query("SELECT import_id FROM rejects")) == {(import_id(done),)}
    assert written(path) == [
        {"row_number": number, "field": field, "reason": reason, "row": dict(zip(("email", "name"), row, strict=True))}
        for number, field, reason, row in BAD
    ]
    assert names(emulator).keys() == {"ada@example.com", "dora@example.com"}


@pytest.mark.parametrize(("count", "bad", "fraction", "fails"), [
    (100, 29, 0.29, False),  # 0.29 * 100 is less than 29
    (100, 30, 0.29, True),
    (2, 2, 1, False),
    (200, 1, 0, True),
])  # fmt: skip
def test_the_allowed_share_at_its_edge(emulator: Emulator, count: int, bad: int, fraction: float, fails: bool) -> None:
    contacts = [{"email": "none" if number < bad else f"{number}@example.com"} for number in range(count)]
    operator = imported(contacts, max_reject_fraction=fraction)
    if fails:
        assert f"{bad} of {count} rows were rejected" in error_of(lambda: operator)
    else:
        assert counts(executed(operator))[:4] == [count, count - bad, 0, bad]


def test_rejected_rows_are_kept_when_the_import_fails(
    run: Run, emulator: Emulator, crm: SqlDatabase, tmp_path: Path
) -> None:
    """Those of the service, too. When they cannot be kept, the error of the import remains the one that counts."""
    path = tmp_path / "rejects.jsonl"
    emulator.settings.refused_addresses = ("3@example.com",)
    # The first chunks go through, one of them bisected, then the key is rejected.
    emulator.faults.add("code_before", IMPORTS, count=None, skip=11, code=401)
    insert(crm, [(n, f"{n}@example.com" if n % 10 else "nobody", None) for n in range(100)])
    small: dict[str, Any] = KEEP | ONE_BY_ONE | {"rejects_path": str(path)}

    assert "connection 'mail_default'" in error_of(lambda: queried(**small))
    reason = "rejected by the service (code 400): invalid parameter: contactData[0] has an email that is refused"
    assert stored(crm)[:2] == [
        (1, "email", "is not an email address", ["nobody", None]),
        (4, "", reason, ["3@example.com", None]),
    ]
    assert sorted(record["row_number"] for record in written(path))[:3] == [1, 4, 11]
    assert emulator.contact_count() >= 17

    crm.execute("DROP TABLE rejects")
    crm.execute("CREATE TABLE rejects (import_id TEXT)")
    done = run(lambda: queried(**small))
    assert "the service rejected the credentials" in done.log
    assert "rejected rows could not be stored" in done.log


def test_a_further_try_replaces_the_rejected_rows(emulator: Emulator, crm: SqlDatabase, tmp_path: Path) -> None:
    """The first try meets a failure that passes, the second finds most rows corrected."""
    insert(crm, ROWS)
    path, tries = tmp_path / "rejects.jsonl", Tries(emulator)
    emulator.faults.add("http_error_before", IMPORTS, count=None)
    assert tries.run_all(lambda: queried(**KEEP, rejects_path=str(path)), 1) == "failed"
    assert [stored(crm), len(written(path))] == [BAD, len(BAD)]
    emulator.faults.clear()
    crm.execute("DELETE FROM people WHERE id IN (3, 5, 6)")
    tries.run(queried(**KEEP, rejects_path=str(path)))
    assert [stored(crm), len(written(path))] == [BAD[:1], 1]


@pytest.mark.parametrize("columns", [None, {"email": "email"}])
def test_rows_that_cannot_be_sent_can_be_kept(emulator: Emulator, tmp_path: Path, columns: Any) -> None:
    """In a file that its owner alone can read, also if there is one from a version that left it to the umask."""
    rows = [["ada@example.com", ""], ["half a pair: \ud83d", "B"], [b"bytes", "C"], [10**5000, "D"], ["e@example.com"]]
    path = tmp_path / "rejects.jsonl"
    if columns:
        path.write_text("a row\n" * 10)
        path.chmod(0o644)
    arguments: dict[str, Any] = {"columns": columns, "rejects_path": str(path), "max_reject_fraction": 1}
    executed(imported(lambda: rows, **LISTS, **arguments))
    assert [record["row_number"] for record in written(path)] == [2, 3, 4, 5]
    assert names(emulator).keys() == {"ada@example.com"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_old_rows_are_deleted_with_the_new_ones(run: Run, crm: SqlDatabase) -> None:
    insert(crm, ROWS[:5])
    first = run(lambda: queried(**KEEP))
    now = datetime.datetime.now(datetime.UTC)
    for row, days in ((2, 40), (3, 20)):
        then = (now - datetime.timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
        crm.execute(f"UPDATE rejects SET rejected_at = '{then}' WHERE row_number = {row}")
    second = run(lambda: queried(**KEEP, keep_days=30))
    kept = {(3, import_id(first)), (5, import_id(first)), *((row, import_id(second)) for row in (2, 3, 5))}
    assert set(crm.query("SELECT row_number, import_id FROM rejects")) == kept


# --- further tries ---


EVERYBODY = {f"p{number}@example.com": "One" for number in range(1, 101)}
Hundred = Callable[..., SqlToMailContactsOperator]


@pytest.fixture
def hundred(emulator: Emulator, crm: SqlDatabase) -> Hundred:
    """A function that makes a task of ten chunks, one after the other; in its first try the service takes only six.

    `between` happens before the second try.
    """
    insert(crm, [(number, *person) for number, person in enumerate(EVERYBODY.items(), 1)])
    emulator.faults.add("close_before", IMPORTS, skip=6, count=None)

    def make(between: Callable[[Any], Any] = lambda _: None, **arguments: Any) -> SqlToMailContactsOperator:
        def pre_execute(context: Any) -> None:
            if context["ti"].try_number == 2:
                emulator.faults.clear()
                between(context)

        return queried(**{"pre_execute": pre_execute} | ONE_BY_ONE | AT_ONCE | arguments)

    return make


def taken(emulator: Emulator) -> int:
    """How many chunks the service has taken."""
    return len(emulator.journal.processed(IMPORTS))


def test_a_retry_continues_after_what_was_accepted(
    run: Run, emulator: Emulator, hundred: Hundred, crm: SqlDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "crm")
    with at_request(emulator, IMPORTS, 8, lambda: clock.sleep(30)):
        done = run(lambda: hundred(list_name="all"))
    assert (done.state, done.tries) == ("success", 2)
    assert (names(emulator), emulator.contact_count("all")) == (EVERYBODY, 100)
    assert taken(emulator) == (6 + 4 if REMEMBERS else 6 + 10)
    assert counts(done.returned) == ([100, 100, 60, 0, 4] if REMEMBERS else [100, 100, 0, 0, 10])
    columns = "state, try_number, rows_read, rows_accepted, rows_accepted_earlier, rows_rejected"
    recorded = crm.query(f"SELECT {columns} FROM mail_imports")
    assert recorded == [("success", 2, 100, 100, 60 if REMEMBERS else 0, 0)], "one import, counted once"
    logged = [
        "The next try continues after what was accepted.",
        "6 chunks were accepted in earlier tries; those with unchanged rows are not sent again.",
        "rows done, 60 of them in earlier tries, 0 of them rejected",
        "100 rows read, 100 accepted (60 of them in earlier tries), 0 rejected, in 4 requests",
    ]
    assert [text for text in logged if (text in done.log) != REMEMBERS] == []
    assert "@example.com" not in done.log


def test_a_time_out_of_the_task_loses_nothing(run: Run, emulator: Emulator, hundred: Hundred, crm: SqlDatabase) -> None:
    """Neither what was accepted nor what was rejected until then."""
    crm.execute("UPDATE people SET email = 'nobody' WHERE id = 3")
    emulator.faults.clear()
    rejected: list[Any] = []

    def look(_: Any) -> None:
        rejected.extend(crm.query("SELECT row_number FROM rejects"))

    with at_request(emulator, IMPORTS, 7, time_out_task):
        done = run(lambda: hundred(look, **KEEP, execution_timeout=DAY))
    assert (done.state, done.tries) == ("success", 2)
    assert "AirflowTaskTimeout" in done.log
    assert rejected == crm.query("SELECT row_number FROM rejects") == [(3,)]
    assert names(emulator).keys() == EVERYBODY.keys() - {"p3@example.com"}
    # The request that was under way may have been given up although the service performed it, and others may follow
    # until the signal arrives.
    assert taken(emulator) in ((10, 11) if REMEMBERS else range(16, 21))


@remembers
def test_a_cleared_task_continues_only_after_a_failure(run: Run, emulator: Emulator, hundred: Hundred) -> None:
    done = run(lambda: hundred(retries=0))
    assert done.state == "failed"
    text, _ = done.result.state_store(TASK)[CHECKPOINT_KEY]
    assert json.loads(text)["version"] == 1

    assert done.result.clear_and_run(TASK).state == "success"
    assert (taken(emulator), names(emulator)) == (6 + 4, EVERYBODY)
    assert done.result.xcom(TASK)["accepted_earlier"] == 60
    assert CHECKPOINT_KEY not in done.result.state_store(TASK)

    emulator.add_contact("p7@example.com", name="Other")  # a user changes a contact in the service
    assert done.result.clear_and_run(TASK).state == "success"
    assert (taken(emulator), names(emulator)) == (6 + 4 + 10, EVERYBODY)


@remembers
def test_a_failure_to_keep_rejected_rows_costs_no_second_import(
    emulator: Emulator, hundred: Hundred, crm: SqlDatabase
) -> None:
    crm.execute("UPDATE people SET email = 'nobody' WHERE id = 3")
    crm.execute("CREATE TABLE rejects (import_id TEXT)")
    emulator.faults.clear()
    tries = Tries(emulator)
    assert tries.run_all(lambda: hundred(**KEEP), 1) == "failed"
    crm.execute("DROP TABLE rejects")
    assert tries.run(hundred(**KEEP))["accepted_earlier"] == 99
    assert (taken(emulator), crm.query("SELECT row_number FROM rejects")) == (10, [(3,)])
