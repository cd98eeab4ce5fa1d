"""Content that is the name of a file: what is in it is mailed, and never the name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail._task.arguments import from_file
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator
from tests.tasks.conftest import TASK, Run, SqlDatabase

NewDag = Callable[..., DAG]
SENDER = "news@example.com"
FILE = "<p>{% raw %}{{name}}{% endraw %}: {{ params.day }}</p>\n<p>Unsubscribe</p>"
TEXT = "<p>{{name}}: Monday</p>\n<p>Unsubscribe</p>"


@pytest.fixture(autouse=True)
def _service(emulator: Emulator) -> None:
    emulator.add_list("newsletter", ["ada@example.com"])


@pytest.fixture
def dag(new_dag: NewDag, tmp_path: Path) -> DAG:
    for name in ("newsletter.html", "newsletter.txt", "It's new.HTM"):
        (tmp_path / name).write_text(FILE)
    (tmp_path / "carts.sql").write_text("SELECT 'ada@example.com' AS email")
    return new_dag(template_searchpath=str(tmp_path), params={"day": "Monday"})


def campaign(operator: Any = MailCreateCampaignOperator, **arguments: Any) -> Any:
    given = {
        "task_id": TASK,
        "sender_mail": SENDER,
        "subject": "News",
        "send_list_names": ["newsletter"],
    }
    return operator(**given | arguments)


def contents(emulator: Emulator) -> list[Any]:
    """Of everything that the service was sent to keep or to mail."""
    paths = ("campaign/mail/sends", "transactional/mail/sends_customised", "campaign/mail/template/add")
    bodies = [entry["body"] for path in paths for entry in emulator.journal.entries(path)]
    return [body.get("content", body.get("templateContent")) for body in bodies]


@pytest.mark.parametrize(
    "content", ["newsletter.html", "newsletter.txt", "It's new.HTM", "{% include 'news' ~ 'letter.html' %}"]
)
def test_of_a_campaign(run: Run, dag: DAG, emulator: Emulator, content: str) -> None:
    with dag:
        campaign(content=content)
    assert run(dag).state == "success"
    assert contents(emulator) == [TEXT]


def test_of_messages_and_a_template(run: Run, dag: DAG, emulator: Emulator) -> None:
    mail = {"sender_mail": SENDER, "subject": "news.html", "content": "newsletter.html", "service_tags": ["name"]}
    attachment = {"file_name": "terms.txt", "file_data": "eA=="}
    with dag:
        MailSendOperator(task_id="one", to="ada@example.com", attachment=attachment, **mail)
        MailSendBatchOperator(task_id="batch", messages=[{"to": "ada@example.com"}], **mail)
        MailCreateTemplateOperator(
            task_id="template", template_name="hello.html", template_subject="x", template_content="newsletter.html"
        )
    assert run(dag).result.state == "success"
    assert contents(emulator) == [TEXT, TEXT, TEXT]
    assert [template["name"] for template in emulator.templates()] == ["hello.html"]
    bodies = [entry["body"] for entry in emulator.journal.entries("transactional/mail/sends_customised")]
    assert {body["subject"] for body in bodies} == {"news.html"}
    assert "terms.txt" in [(body.get("attachment") or {}).get("fileName") for body in bodies]


def test_of_a_batch_from_a_query_in_a_file(run: Run, dag: DAG, emulator: Emulator, crm: SqlDatabase) -> None:
    with dag:
        SqlToMailBatchOperator(
            task_id=TASK,
            sql_conn_id="crm",
            sql="carts.sql",
            sender_mail=SENDER,
            subject="x",
            content="newsletter.html",
            service_tags=["name"],
        )
    assert run(dag).state == "success"
    assert contents(emulator) == [TEXT]


def test_of_mapped_tasks(run_in_airflow: Run, dag: DAG, emulator: Emulator) -> None:
    with dag:
        campaign(
            lambda **given: MailCreateCampaignOperator.partial(**given).expand(
                content=["newsletter.html", "newsletter.txt"]
            )
        )
    assert run_in_airflow(dag).result.state == "success"
    assert contents(emulator) == [TEXT, TEXT]


def test_a_file_that_is_not_there(run: Run, dag: DAG, emulator: Emulator) -> None:
    with dag:
        campaign(content="newsletters.html")
    done = run(dag)
    assert done.state == "failed"
    assert "newsletters.html" in done.log
    assert emulator.journal.count() == 0


def test_a_name_that_another_task_returned_or_in_a_message(run: Run, dag: DAG, emulator: Emulator) -> None:
    @task
    def name() -> str:
        return "newsletter.html"

    with dag:
        for operator in (MailCreateCampaignOperator, MailPreflightOperator):
            campaign(operator, task_id=operator.__name__, content=name.override(task_id=f"of_{operator.__name__}")())
        MailSendBatchOperator(
            task_id="batch",
            sender_mail=SENDER,
            subject="x",
            messages=[{"to": "ada@example.com", "content": "newsletter.html"}],
        )
    done = run(dag)
    assert done.result.state == "failed"
    assert [ti.state for (name, _), ti in done.result.tasks.items() if name.startswith("Mail")] == ["failed"] * 2
    assert " content: is only the name of a file" in done.log
    assert "messages[0].content: is only the name of a file" in done.log
    assert emulator.journal.count() == 0


@pytest.mark.parametrize(
    "content", [None, "", "<p>a.html</p>", "Look at\na.html", "{{ params.name }}.html", "a.pdf", ["a.html"]]
)
def test_what_is_no_name_of_a_file(content: Any) -> None:
    assert from_file(content) == content
