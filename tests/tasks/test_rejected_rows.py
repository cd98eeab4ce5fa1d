"""Rows that cannot be imported: rejected with row number, field and reason, and never lost."""

from __future__ import annotations

import datetime
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Done, Run, SqlDatabase
from tests.tasks.loading import error_of, executed

IMPORTS = "contacts/imports"
ROWS = [
    (1, "ada@example.com", "Ada"),
    (2, "bob(at)example.com", "Bob"),
    (3, None, "Cem"),
    (4, "dora@example.com", None),
    (5, " ", ""),
]
BAD = [
    (2, "email", "is not an email address", ["bob(at)example.com", "Bob"]),
    (3, "email", "is empty", [None, "Cem"]),
    (5, "email", "is not an email address", [" ", ""]),
]
ALL: dict[str, Any] = {"rejects_table": "rejects", "max_reject_fraction": 1}


def customers(database: SqlDatabase, rows: Any = ROWS) -> None:
    database.execute("CREATE TABLE customers (id INTEGER, email TEXT, name TEXT)")
    database.execute("INSERT INTO customers", rows)


def imported(**arguments: Any) -> SqlToMailContactsOperator:
    sql = "SELECT email, name FROM customers ORDER BY id"
    return SqlToMailContactsOperator(**{"task_id": TASK, "sql_conn_id": "crm", "sql": sql} | arguments)


def stored(database: SqlDatabase) -> list[tuple[Any, ...]]:
    rows = database.query("SELECT row_number, field, reason, row_json FROM rejects ORDER BY row_number")
    return [(*row[:3], json.loads(row[3]) if isinstance(row[3], str) else row[3]) for row in rows]


def import_id(done: Done) -> str:
    return f"{done.result.dag_id}/{TASK}/{done.result.run_id}"


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_rejected_rows_go_to_table_and_file_also_of_a_failure(
    run: Run, emulator: Emulator, any_crm: SqlDatabase, tmp_path: Path
) -> None:
    customers(any_crm, [*ROWS, (6, "čeněk", "陈")])
    path = tmp_path / "new" / "folder" / "rejects.jsonl"

    places = {"rejects_table": "rejects", "rejects_path": f"file://{path}"}
    done = run(lambda: imported(**places, chunk_size=2, retries=2))

    assert (done.state, done.tries) == ("failed", 1)
    reasons = "email is not an email address (3), email is empty (1); rows 2, 3, 5, 6"
    ends = "That is more than max_reject_fraction=0.0 allows; the other 2 rows were accepted"
    assert f"4 of 6 rows were rejected: {reasons}. They are kept in file://{path}, rejects. {ends}" in done.log
    bad = [*BAD, (6, "email", "is not an email address", ["čeněk", "陈"])]
    assert stored(any_crm) == bad
    assert set(any_crm.query("SELECT import_id FROM rejects")) == {(import_id(done),)}
    assert written(path) == [
        {"row_number": number, "field": field, "reason": reason, "row": dict(zip(("email", "name"), row, strict=True))}
        for number, field, reason, row in bad
    ]
    assert {contact["email"] for contact in emulator.contacts()} == {"ada@example.com", "dora@example.com"}


@pytest.mark.parametrize(
    ("rows", "bad", "fraction", "fails"),
    [
        (100, 29, 0.29, False),  # 0.29 * 100 is less than 29
        (100, 30, 0.29, True),
        (2, 2, 1, False),
        (200, 1, 0, True),
    ],
)
def test_the_allowed_share_at_its_edge(
    emulator: Emulator, crm: SqlDatabase, rows: int, bad: int, fraction: float, fails: bool
) -> None:
    customers(crm, [(number, "none" if number < bad else f"{number}@example.com", None) for number in range(rows)])
    operator = imported(max_reject_fraction=fraction)
    if fails:
        assert f"{bad} of {rows} rows were rejected" in error_of(lambda: operator)
    else:
        result = executed(operator)
        assert (result["read"], result["accepted"], result["rejected"]) == (rows, rows - bad, bad)


def test_rejected_rows_are_kept_when_the_import_fails(
    run: Run, emulator: Emulator, crm: SqlDatabase, tmp_path: Path
) -> None:
    """Those of the service, too. When they cannot be kept, the error of the import remains the one that counts."""
    path = tmp_path / "rejects.jsonl"
    emulator.settings.refused_addresses = ("3@example.com",)
    # The first chunks go through, one of them bisected, then the key is rejected.
    emulator.faults.add("code_before", IMPORTS, count=None, skip=11, code=401)
    customers(crm, [(n, f"{n}@example.com" if n % 10 else "nobody", None) for n in range(100)])
    small: dict[str, Any] = {"chunk_size": 10, "max_in_flight": 1, "rejects_path": str(path)}

    assert "connection 'mail_default'" in error_of(lambda: imported(**ALL, **small))
    reason = "rejected by the service (code 400): invalid parameter: contactData[0] has an email that is refused"
    assert stored(crm)[:2] == [
        (1, "email", "is not an email address", ["nobody", None]),
        (4, "", reason, ["3@example.com", None]),
    ]
    assert sorted(record["row_number"] for record in written(path))[:3] == [1, 4, 11]
    assert emulator.contact_count() >= 17

    crm.execute("DROP TABLE rejects")
    crm.execute("CREATE TABLE rejects (import_id TEXT)")
    done = run(lambda: imported(**ALL, **small))
    assert "the service rejected the credentials" in done.log
    assert "rejected rows could not be stored" in done.log


def test_a_further_try_replaces_the_rejected_rows(
    run: Run, emulator: Emulator, crm: SqlDatabase, tmp_path: Path
) -> None:
    """The first try meets a failure that passes, the second finds most rows corrected."""
    path = tmp_path / "rejects.jsonl"
    customers(crm)
    emulator.faults.add("http_error_before", IMPORTS, count=None)

    def correct(context: Any) -> None:
        if context["ti"].try_number == 2:
            emulator.faults.clear()
            crm.execute("DELETE FROM customers WHERE id IN (3, 5)")

    done = run(lambda: imported(**ALL, rejects_path=str(path), retries=1, retry_delay=0, pre_execute=correct))

    assert (done.state, done.tries) == ("success", 2)
    assert stored(crm) == BAD[:1]
    assert [record["row_number"] for record in written(path)] == [2]


@pytest.mark.parametrize("columns", [None, {"email": "email"}])
def test_rows_that_cannot_be_sent_can_be_kept(emulator: Emulator, tmp_path: Path, columns: Any) -> None:
    rows = [["ada@example.com", ""], ["half a pair: \ud83d", "B"], [b"bytes", "C"], [10**5000, "D"], ["e@example.com"]]
    path = tmp_path / "rejects.jsonl"
    arguments: dict[str, Any] = {"columns": columns, "rejects_path": str(path), "max_reject_fraction": 1}
    names = ["email", "name"]
    executed(MailImportContactsOperator(task_id=TASK, contacts=lambda: rows, column_names=names, **arguments))
    assert [record["row_number"] for record in written(path)] == [2, 3, 4, 5]
    assert [contact["email"] for contact in emulator.contacts()] == ["ada@example.com"]


def test_old_rows_are_deleted_with_the_new_ones(run: Run, crm: SqlDatabase) -> None:
    customers(crm)
    first = run(lambda: imported(**ALL))
    now = datetime.datetime.now(datetime.UTC)
    for row, days in ((2, 40), (3, 20)):
        then = (now - datetime.timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
        crm.execute(f"UPDATE rejects SET rejected_at = '{then}' WHERE row_number = {row}")
    second = run(lambda: imported(**ALL, keep_days=30))
    kept = {(3, import_id(first)), (5, import_id(first)), *((row, import_id(second)) for row in (2, 3, 5))}
    assert set(crm.query("SELECT row_number, import_id FROM rejects")) == kept


def test_a_file_of_rejected_rows_is_its_owner_s_alone(emulator: Emulator, tmp_path: Path) -> None:
    """Also one from a version that left it to the umask."""
    for path in (tmp_path / "new.jsonl", tmp_path / "old.jsonl"):
        if path.stem == "old":
            path.write_text("a row\n" * 10)
            path.chmod(0o644)
        executed(
            MailImportContactsOperator(
                task_id=TASK, contacts=[{"email": ""}], max_reject_fraction=1, rejects_path=str(path)
            )
        )
        assert (stat.S_IMODE(path.stat().st_mode), len(written(path))) == (0o600, 1)
