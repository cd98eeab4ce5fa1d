"""Content that is the name of a file: what is in it is mailed, and never the name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail._task.mixin import from_file
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator
from mail_emulator import Emulator
from tests.tasks.conftest import Run, SqlDatabase
from tests.tasks.sending import CAMPAIGN, SENDS, campaign

FILE = "<p>{% raw %}{{name}}{% endraw %}: {{ params.day }}</p>\n<p>Unsubscribe</p>"
TEXT = "<p>{{name}}: Monday</p>\n<p>Unsubscribe</p>"
MAIL = {"sender_mail": "news@example.com", "subject": "news.html", "service_tags": ["name"]}
NAMES = ["newsletter.html", "newsletter.txt", "It's new.HTM"]


@pytest.fixture
def dag(emulator: Emulator, new_dag: Callable[..., DAG], tmp_path: Path) -> DAG:
    emulator.add_list("newsletter", ["ada@example.com"])
    for name in NAMES:
        (tmp_path / name).write_text(FILE)
    (tmp_path / "carts.sql").write_text("SELECT 'ada@example.com' AS email")
    return new_dag(template_searchpath=str(tmp_path), params={"day": "Monday"})


def test_the_file_is_mailed_or_stored(run: Run, dag: DAG, emulator: Emulator, crm: SqlDatabase) -> None:
    attachment = {"file_name": "terms.txt", "file_data": "eA=="}
    given = MAIL | {"content": "newsletter.html"}
    with dag:
        for number, content in enumerate([*NAMES, "{% include 'news' ~ 'letter.html' %}"]):
            campaign(task_id=f"campaign{number}", mail_name=f"{number}", content=content)
        MailSendOperator(task_id="one", to="ada@example.com", attachment=attachment, **given)
        MailSendBatchOperator(task_id="batch", messages=[{"to": "ada@example.com"}], **given)
        SqlToMailBatchOperator(task_id="sql", sql_conn_id=crm.conn_id, sql="carts.sql", **given)
        MailCreateTemplateOperator(
            task_id="template", template_name="hello.html", template_subject="x", template_content="newsletter.html"
        )

    assert run(dag).result.state == "success"

    campaigns = [entry["body"] for entry in emulator.journal.entries("campaign/mail/sends")]
    messages = [entry["body"] for entry in emulator.journal.entries(SENDS)]
    assert [body["content"] for body in campaigns + messages] == [TEXT] * 7
    assert {body["subject"] for body in messages} == {"news.html"}
    assert [(body.get("attachment") or {}).get("fileName") for body in messages].count("terms.txt") == 1
    assert [(stored["name"], stored["content"]) for stored in emulator.templates()] == [("hello.html", TEXT)]


def test_a_name_of_another_task_in_a_message_or_of_no_file(run: Run, dag: DAG, emulator: Emulator) -> None:
    with dag:
        name = task(lambda: "newsletter.html", task_id="name")()
        campaign(content=name)
        MailPreflightOperator(task_id="preflight", **CAMPAIGN | {"content": name})
        campaign(task_id="missing", content="newsletters.html")
        message = {"to": "ada@example.com", "content": "newsletter.html"}
        MailSendBatchOperator(task_id="batch", messages=[message], **MAIL)

    done = run(dag)

    states = {name: ti.state for (name, _), ti in done.result.tasks.items() if name != "name"}
    assert states == dict.fromkeys(("task", "preflight", "missing", "batch"), "failed")
    assert done.log.count(" content: is only the name of a file") >= 2
    assert "messages[0].content: is only the name of a file" in done.log
    assert "newsletters.html" in done.log
    assert emulator.journal.count() == 0


def test_what_is_no_name_of_a_file() -> None:
    for content in (None, "", "<p>a.html</p>", "Look at\na.html", "{{ params.name }}.html", "a.pdf", ["a.html"]):
        assert from_file(content) == content
