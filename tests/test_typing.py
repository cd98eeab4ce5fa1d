"""What a DAG's author sees of our types: arguments take values, functions and what other tasks return."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DAG = """
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_mail.operators.contacts import (
    MailDeleteContactOperator,
    MailImportContactsOperator,
    MailUpsertContactOperator,
)
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator, SqlToMailContactsOperator


@task
def rows() -> list[dict[str, Any]]:
    return [{"to": "ada@example.com"}]


@task
def text() -> str:
    return "ada@example.com"


def streamed() -> Iterator[dict[str, Any]]:
    yield {"to": "ada@example.com"}


with DAG("typed", schedule=None):
    for contacts in (rows(), rows().map(dict), [{"email": "ada@example.com"}], streamed):
        MailImportContactsOperator(task_id="import", contacts=contacts)
    MailImportContactsOperator(task_id="import", contacts=rows())
    MailSendBatchOperator(task_id="batch", sender_mail="shop@example.com", messages=rows(), mail_params=rows())
    MailSendBatchOperator(task_id="batch", sender_mail="shop@example.com", messages=streamed)
    MailSendBatchOperator(task_id="batch", sender_mail="shop@example.com", messages=[{"to": "ada@example.com"}])
    MailSendOperator(task_id="one", sender_mail=text(), to=text(), subject=text(), content=text(), attachment=rows())
    MailUpsertContactOperator(task_id="upsert", contact_email=text(), phone_number=text(), name=text())
    MailDeleteContactOperator(task_id="delete", contact_email=text())
    MailCreateTemplateOperator(task_id="template", template_name="x", template_content=text(), template_subject=text())
    SqlToMailBatchOperator(task_id="sql", sql_conn_id="x", sql="x", parameters=rows(), sender_mail="shop@example.com")
    SqlToMailContactsOperator(task_id="contacts", sql_conn_id="x", sql="x", parameters=rows())

    MailImportContactsOperator(task_id="wrong", contacts=7)  # type: ignore[arg-type]
    MailSendBatchOperator(task_id="wrong", sender_mail="shop@example.com", messages=7)  # type: ignore[arg-type]
"""


def test_what_another_task_returns_is_a_value_for_mypy(tmp_path: Path) -> None:
    (tmp_path / "typed_dag.py").write_text(DAG)
    # A DAG's author has neither our settings nor our plugins.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "typed_dag.py"]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
