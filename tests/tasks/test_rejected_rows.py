"""Rows that cannot be imported: rejected with row number, field and reason, and never lost."""

from __future__ import annotations

import datetime
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail._task.rejected_rows import RejectSpool
from airflow_provider_mail.api.flows.validate_rows import Reject
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from tests.tasks.conftest import TASK, Done, Run, SqlDatabase

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


def customers(database: SqlDatabase, rows: Any = ROWS) -> None:
    database.execute("CREATE TABLE customers (id INTEGER, email TEXT, name TEXT)")
    database.execute("INSERT INTO customers", rows)


def imported(**arguments: Any) -> SqlToMailContactsOperator:
    sql = "SELECT email, name FROM customers ORDER BY id"
    return SqlToMailContactsOperator(**{"task_id": TASK, "sql_conn_id": "crm", "sql": sql} | arguments)


def stored(database: SqlDatabase, table: str = "rejects") -> list[tuple[Any, ...]]:
    rows = database.query(f"SELECT row_number, field, reason, row_json FROM {table} ORDER BY row_number")
    return [(*row[:3], json.loads(row[3]) if isinstance(row[3], str) else row[3]) for row in rows]


def import_ids(database: SqlDatabase) -> set[str]:
    return {name for (name,) in database.query("SELECT import_id FROM rejects")}


@pytest.mark.parametrize("chunk_size", [5000, 2, 1])
def test_to_a_table(run: Run, emulator: Emulator, any_crm: SqlDatabase, chunk_size: int) -> None:
    customers(any_crm)

    done = run(lambda: imported(rejects_table="rejects", max_reject_fraction=1, chunk_size=chunk_size))

    assert done.state == "success"
    assert stored(any_crm) == BAD
    assert import_ids(any_crm) == {f"{done.result.dag_id}/{TASK}/{done.result.run_id}"}
    assert {contact["email"] for contact in emulator.contacts()} == {"ada@example.com", "dora@example.com"}
    assert (done.returned["read"], done.returned["accepted"], done.returned["rejected"]) == (5, 2, 3)
    assert done.returned["rejects_table"] == "rejects"


def test_to_a_file(run: Run, crm: SqlDatabase, tmp_path: Path) -> None:
    customers(crm, [*ROWS, (6, "čeněk", "陈")])
    path = tmp_path / "not" / "there" / "rejects.jsonl"

    done = run(lambda: imported(rejects_path=f"file://{path}", max_reject_fraction=1))

    assert done.state == "success"
    assert done.returned["rejects_path"] == f"file://{path}"
    keys = ("row_number", "field", "reason", "row")
    written = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert written == [
        dict(zip(keys, row, strict=True)) for row in [*BAD, (6, "email", "is not an email address", ["čeněk", "陈"])]
    ]


def test_to_both_when_the_task_fails(run: Run, emulator: Emulator, crm: SqlDatabase, tmp_path: Path) -> None:
    customers(crm)
    path = tmp_path / "rejects.jsonl"

    done = run(lambda: imported(rejects_table="rejects", rejects_path=str(path), retries=2))

    assert done.state == "failed"
    assert done.tries == 1
    reasons = "email is not an email address (2), email is empty (1); rows 2, 3, 5"
    assert f"3 of 5 rows were rejected: {reasons}." in done.log
    assert f"They are kept in {path}, rejects" in done.log
    assert "more than max_reject_fraction=0.0 allows; the other 2 rows were accepted" in done.log
    assert stored(crm) == BAD
    assert len(path.read_text().splitlines()) == 3
    assert emulator.contact_count() == 2


@pytest.mark.parametrize(
    ("rows", "bad", "fraction", "state"),
    [
        (100, 29, 0.29, "success"),  # 0.29 * 100 is less than 29
        (100, 30, 0.29, "failed"),
        (3, 1, 1 / 3, "success"),
        (200, 1, 0.005, "success"),
        (200, 2, 0.005, "failed"),
        (2, 2, 1, "success"),
        (200, 1, 0, "failed"),
    ],
)
def test_the_share_at_its_edge(run: Run, crm: SqlDatabase, rows: int, bad: int, fraction: float, state: str) -> None:
    customers(crm, [(number, "none" if number < bad else f"{number}@example.com", None) for number in range(rows)])

    done = run(lambda: imported(max_reject_fraction=fraction))

    assert done.state == state
    assert f"{bad} of {rows} rows were rejected" in done.log
    assert "Set rejects_path to keep them" in done.log


def test_what_the_service_refuses_is_found_by_halving(run: Run, emulator: Emulator, any_crm: SqlDatabase) -> None:
    refused = ("7@example.com", "8@example.com", "450@example.com")
    emulator.settings.refused_addresses = refused
    customers(any_crm, [(number, f"{number}@example.com", None) for number in range(500)])

    done = run(lambda: imported(rejects_table="rejects", max_reject_fraction=0.01, chunk_size=250, list_name="all"))

    assert done.state == "success"
    assert emulator.contact_count("all") == 497
    assert not {contact["email"] for contact in emulator.contacts("all")} & set(refused)
    reason = "rejected by the service (code 400): invalid parameter: contactData[0] has an email that is refused"
    assert stored(any_crm) == [(row, "", reason, [f"{row - 1}@example.com", None]) for row in (8, 9, 451)]
    assert (done.returned["accepted"], done.returned["rejected"]) == (497, 3)
    assert done.returned["requests"] == emulator.journal.count("contacts/imports") < 60


def test_a_refusal_of_everything_is_no_matter_of_rows(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    emulator.faults.add("code_before", "contacts/imports", count=None, code=403, message="no more contacts")
    customers(crm, [(number, f"{number}@example.com", None) for number in range(500)])

    done = run(lambda: imported(rejects_table="rejects", max_reject_fraction=1, retries=2))

    assert done.state == "failed"
    assert done.tries == 1
    assert "no more contacts" in done.log
    assert emulator.contacts() == []


@pytest.mark.parametrize("keep", ["table", "file"])
def test_kept_also_when_the_import_fails_midway(
    run: Run, emulator: Emulator, any_crm: SqlDatabase, tmp_path: Path, keep: str
) -> None:
    path = tmp_path / "rejects.jsonl"
    where: dict[str, str] = {"rejects_table": "rejects"} if keep == "table" else {"rejects_path": str(path)}
    # The first chunks go through, then the key is refused.
    emulator.faults.add("code_before", "contacts/imports", count=None, skip=2, code=401)
    rows = [(number, f"{number}@example.com" if number % 10 else "nobody", None) for number in range(100)]
    customers(any_crm, rows)

    done = run(lambda: imported(chunk_size=10, max_in_flight=1, max_reject_fraction=1, **where))

    assert done.state == "failed"
    assert "Import ended early" in done.log
    assert "connection 'mail_default'" in done.log
    kept = stored(any_crm) if keep == "table" else [json.loads(line) for line in path.read_text().splitlines()]
    assert len(kept) >= 3
    assert emulator.contact_count() == 18


def test_the_errors_do_not_hide_each_other(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    emulator.faults.add("code_before", "contacts/imports", count=None, code=401)
    customers(crm)
    crm.execute("CREATE TABLE rejects (import_id TEXT)")

    done = run(lambda: imported(rejects_table="rejects", retries=2))

    assert done.state == "failed"
    assert done.tries == 1
    assert "the service rejected the credentials" in done.log
    assert "3 rejected rows could not be stored" in done.log


def test_a_further_try_replaces_what_the_one_before_it_kept(
    run: Run, new_dag: Callable[..., Any], emulator: Emulator, any_crm: SqlDatabase, tmp_path: Path
) -> None:
    path = tmp_path / "rejects.jsonl"
    customers(any_crm)
    # The first try meets a failure that passes, the second finds the rows mended.
    emulator.faults.add("http_error_before", "contacts/imports", count=None)

    def mended(context: Any) -> None:
        emulator.faults.clear()
        any_crm.execute("DELETE FROM customers WHERE id IN (3, 5)")

    def make() -> None:
        imported(
            rejects_table="rejects",
            rejects_path=str(path),
            max_reject_fraction=1,
            retries=1,
            retry_delay=0,
            pre_execute=lambda context: mended(context) if context["ti"].try_number == 2 else None,
        )

    done = run(make)

    assert done.state == "success"
    assert done.tries == 2
    assert stored(any_crm) == BAD[:1]
    assert [json.loads(line)["row_number"] for line in path.read_text().splitlines()] == [2]


def test_nothing_set_aside_leaves_nothing_behind(run: Run, crm: SqlDatabase, tmp_path: Path) -> None:
    customers(crm, ROWS[:1])

    done = run(lambda: imported(rejects_table="rejects", rejects_path=str(tmp_path / "rejects.jsonl")))

    assert done.state == "success"
    assert "rejects_table" not in done.returned
    assert "rejects_path" not in done.returned
    assert stored(crm) == []
    assert (tmp_path / "rejects.jsonl").read_text() == ""


def lists(rows: list[Any], **arguments: Any) -> Callable[[], MailImportContactsOperator]:
    return lambda: MailImportContactsOperator(
        **{"task_id": TASK, "contacts": rows, "column_names": ["id", "email", "name"]} | arguments
    )


def rejected(done: Done, path: Path) -> list[tuple[int, str, str]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert done.returned["rejected"] == len(records)
    return [(record["row_number"], record["field"], record["reason"]) for record in records]


def test_rows_of_the_wrong_width(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    rows = [[1, "ada@example.com", "Ada"], [2, "bob@example.com"], [], [4, "dora@example.com", "Dora", "?"]]
    path = tmp_path / "rejects.jsonl"
    keep: dict[str, Any] = {"rejects_path": str(path), "max_reject_fraction": 1}
    columns = {"email": "email", "name": "name"}

    mapped = run(lists(rows, columns=columns, **keep))

    assert [(number, field) for number, field, _ in rejected(mapped, path)] == [(2, ""), (3, ""), (4, "")]
    assert [contact["email"] for contact in emulator.contacts()] == ["ada@example.com"]

    whole = run(lists(rows, columns={"id": "number"} | columns, **keep))

    assert [(number, field) for number, field, _ in rejected(whole, path)] == [(2, ""), (3, ""), (4, "")]


def test_text_that_is_no_text_can_be_kept(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    rows = [["ada@example.com", "half a pair: \ud83d"], ["bob@example.com", b"bytes"], ["x", 1.5]]

    done = run(lists(rows, column_names=["email", "name"], rejects_path=str(path), max_reject_fraction=1))

    assert done.state == "success", done.log
    assert [number for number, *_ in rejected(done, path)] == [1, 2, 3]


def test_the_first_rows_are_told_in_whatever_order_they_come() -> None:
    with RejectSpool() as spool:
        for number in (70, 12, 3, 12):
            spool.add(Reject(row_number=number, field="email", reason="is empty", row=(None,)))
        assert spool.summary().endswith("; rows 3, 12, 70, ...")


@pytest.mark.parametrize("there", [False, True])
def test_a_file_is_its_owners_alone(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "rejects.jsonl"
    if there:
        path.write_text("from a version that left it to the umask")
        path.chmod(0o644)
    before = os.umask(0o022)
    try:
        with RejectSpool() as spool:
            spool.add(Reject(row_number=1, field="email", reason="is empty", row=(None,)))
            spool.write(f"file://{path}")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["row_number"] == 1


def test_old_rows_are_deleted_with_the_new_ones(run: Run, any_crm: SqlDatabase) -> None:
    customers(any_crm)
    first = run(lambda: imported(rejects_table="rejects", max_reject_fraction=1))
    now = datetime.datetime.now(datetime.UTC)
    for row, days in ((2, 40), (3, 20)):
        then = (now - datetime.timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
        any_crm.execute(f"UPDATE rejects SET rejected_at = '{then}' WHERE row_number = {row}")

    second = run(lambda: imported(rejects_table="rejects", max_reject_fraction=1, keep_days=30))

    kept = any_crm.query("SELECT row_number FROM rejects ORDER BY row_number, import_id")
    assert [number for (number,) in kept] == [2, 3, 3, 5, 5]
    ids = {f"{done.result.dag_id}/{TASK}/{done.result.run_id}" for done in (first, second)}
    assert import_ids(any_crm) == ids


def test_old_rows_stay_where_the_new_ones_cannot_be_stored(run: Run, crm: SqlDatabase) -> None:
    customers(crm)
    run(lambda: imported(rejects_table="rejects", max_reject_fraction=1))
    crm.execute("UPDATE rejects SET rejected_at = '2020-01-01 00:00:00.000000+00:00'")
    crm.execute("CREATE TRIGGER no BEFORE INSERT ON rejects BEGIN SELECT RAISE(ABORT, 'full'); END")

    done = run(lambda: imported(rejects_table="rejects", max_reject_fraction=1, keep_days=30))

    assert done.state == "failed"
    assert stored(crm) == BAD


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rejects_table": "rejects", "keep_days": 0}, "keep_days: must be a number, more than 0"),
        ({"rejects_table": "rejects", "keep_days": "30"}, "keep_days: must be a number"),
        ({"keep_days": 30}, "keep_days: is for the rows of rejects_table"),
    ],
)
def test_a_number_of_days_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        imported(**arguments)


def test_any_number_of_rejects_takes_little_memory(tmp_path: Path) -> None:
    from airflow_provider_mail.api.flows.validate_rows import Reject

    with RejectSpool() as spool:
        for number in range(1, 50_001):
            spool.add(Reject(row_number=number, field="email", reason="is empty", row=(None, "x" * 50)))
        assert spool._file._rolled
        assert spool.summary() == "email is empty (50000); rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."
        spool.write(str(tmp_path / "rejects.jsonl"))
        assert [reject.row_number for reject in spool] == list(range(1, 50_001))


def test_a_number_that_python_does_not_write_is_set_aside() -> None:
    with RejectSpool() as spool:
        spool.add(
            Reject(row_number=7, field="name", reason="too long", row=("ada@example.com", 10**5000, [10**5000], 5))
        )
        (kept,) = spool
    assert kept.row[0] == "ada@example.com"
    assert [str(value).partition(" with")[0] for value in kept.row[1:]] == [
        "a value of type int",
        "a value of type list",
        "5",
    ]


def test_an_import_with_such_a_number_goes_on(run: Run, emulator: Emulator, tmp_path: Path) -> None:
    rows = [{"email": "ada@example.com", "name": 10**5000}, {"email": "bob@example.com", "name": "Bob"}]
    path = f"file://{tmp_path}/rejects.jsonl"

    done = run(
        lambda: MailImportContactsOperator(
            task_id=TASK, contacts=lambda: rows, max_reject_fraction=0.5, rejects_path=path
        )
    )

    assert done.state == "success"
    assert [contact["email"] for contact in emulator.contacts()] == ["bob@example.com"]
