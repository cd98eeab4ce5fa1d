"""What an import stores of itself in the table that `[mail] imports_conn_id` names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from tests.tasks.conftest import TASK, Run, SqlDatabase

COLUMNS = "list_name, state, rows_read, rows_accepted, rows_accepted_earlier, rows_rejected, try_number, sandbox"


@pytest.fixture(autouse=True)
def _configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "crm")


def imported(emails: Sequence[str], **arguments: Any) -> MailImportContactsOperator:
    contacts = [{"email": email} for email in emails]
    return MailImportContactsOperator(**{"task_id": TASK, "contacts": contacts} | arguments)


def stored(database: SqlDatabase) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.query(f"SELECT {COLUMNS} FROM mail_imports ORDER BY finished_at")]


def test_the_counts_and_the_reasons(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    rows = ["ada@example.com", "bob(at)example.com", "cem(at)example.com"]

    done = run(lambda: imported(rows, list_name="all", max_reject_fraction=1))

    assert done.state == "success"
    assert stored(crm) == [("all", "success", 3, 1, 0, 2, 1, 0)]
    ((import_id, conn_id, reasons, requests),) = crm.query(
        "SELECT import_id, mail_conn_id, reasons, requests FROM mail_imports"
    )
    assert (import_id, conn_id) == (f"{done.result.dag_id}/{TASK}/{done.result.run_id}", "mail_default")
    assert json.loads(reasons) == [{"field": "email", "reason": "is not an email address", "rows": 2}]
    assert requests == done.returned["requests"]
    assert "example.com" not in reasons


def test_how_it_ended(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    assert run(lambda: imported(["bob(at)example.com"])).state == "failed"
    assert run(lambda: imported([], on_empty="skip")).state == "skipped"
    assert run(lambda: imported(["ada@example.com"], sandbox_mode=True)).state == "success"

    assert stored(crm) == [
        (None, "failed", 1, 0, 0, 1, 1, 0),
        (None, "skipped", 0, 0, 0, 0, 1, 0),
        (None, "success", 1, 1, 0, 0, 1, 1),
    ]


def test_nothing_is_lost_without_the_database(
    run: Run, emulator: Emulator, crm: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__IMPORTS_CONN_ID", "nowhere")

    done = run(lambda: imported(["ada@example.com"]))

    assert done.state == "success"
    assert emulator.contact_count() == 1
    assert "The counts of the import could not be stored in mail_imports of connection 'nowhere'" in done.log
