"""`[email] email_backend`: as Airflow calls it, for tasks that fail and for DAG authors."""

from __future__ import annotations

import base64
import datetime
import re
from email.header import Header
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task

from airflow_provider_mail.api.errors import MailAuthError, MailConfigError, MailValidationError
from airflow_provider_mail.utils.emailer import send_email
from mail_emulator import Emulator
from tests.notifications.conftest import PEOPLE, addressees, bodies
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import Connect, Run

CONTENT = "<p>Hello</p>"
ADA = {"email": "ada@example.com"}


@pytest.fixture(autouse=True)
def _back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__EMAIL__EMAIL_BACKEND", "airflow_provider_mail.utils.emailer.send_email")


@pytest.mark.skipif(AIRFLOW_VERSION == (3, 2), reason="Airflow 3.2 mails about tasks with SMTP, whatever the setting")
@pytest.mark.parametrize("template", ["Airflow's", "own"])
def test_a_task_that_fails_is_mailed_about(
    run: Run, emulator: Emulator, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if template == "own":
        (tmp_path / "failed.html").write_text("Try {{ try_number }} out of {{ max_tries + 1 }}: {{ exception_html }}")
        monkeypatch.setenv("AIRFLOW__EMAIL__HTML_CONTENT_TEMPLATE", str(tmp_path / "failed.html"))
    elif AIRFLOW_VERSION < (3, 3):
        pytest.skip("Airflow 3.0 cannot render its own: a task instance there has no mark_success_url")

    def build() -> None:
        @task(email=PEOPLE, email_on_failure=True, email_on_retry=True, retries=1, retry_delay=datetime.timedelta(0))
        def load() -> None:
            raise ValueError("{{rows}} are missing")

        load()

    assert run(build).result.state == "failed"
    messages = emulator.messages()
    assert len(messages) == 2
    for number, message in enumerate(messages, 1):
        assert addressees(message) == PEOPLE
        assert (message["sender"], message["sender_name"]) == ("news@example.com", "Airflow")
        assert re.fullmatch("(?=Airflow alert: ).*load.*", message["subject"])
        assert len(message["subject"]) <= 150
        assert f"Try {number} out of 2" in message["content"]
        assert "&#123;&#123;rows}} are missing" in message["content"]
        assert "{{" not in message["content"]
    assert messages[0]["unique_msg_id"] != messages[1]["unique_msg_id"]


def test_all_arguments_of_airflow_are_understood(emulator: Emulator, tmp_path: Path) -> None:
    from airflow.utils.email import send_email as airflows

    (tmp_path / "report.csv").write_bytes(b"a;b")
    copies: dict[str, Any] = {"cc": "carl@example.com", "bcc": ["dora@example.com"]}
    files, headers = [str(tmp_path / "report.csv")], {"Reply-To": "data@example.com"}
    airflows(PEOPLE, "Report", CONTENT, files=files, custom_headers=headers, **copies)
    (body,) = bodies(emulator)
    version = {"to": PEOPLE, "cc": ["carl@example.com"], "bcc": ["dora@example.com"]}
    assert body == {
        "subject": "Report", "content": CONTENT, "senderMail": "news@example.com", "senderName": "Airflow",
        "replyTo": "data@example.com", "uniqueMsgID": body["uniqueMsgID"],
        "attachment": {"fileName": "report.csv", "fileData": base64.b64encode(b"a;b").decode()},
        "messageVersions": [{name: [{"email": each} for each in emails] for name, emails in version.items()}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({}, {"to": ADA, "senderMail": "news@example.com"}),
        ({"to": ["ada@example.com"]}, {"to": ADA}),
        ({"to": ("ada@example.com",)}, {"to": ADA}),
        ({"conn_id": ""}, {}),
        ({"conn_id": "smtp_default"}, {}),
        ({"conn_id": "mail_alerts"}, {}),
        ({"from_email": "Me <me@example.com>"}, {"senderMail": "me@example.com", "senderName": "Me"}),
        ({"custom_headers": {"REPLY-TO": "Help Desk <help@x.com>"}}, {"replyTo": "help@x.com"}),
        ({"custom_headers": {"REPLY-TO": '"Desk, Help" <help@x.com>'}}, {"replyTo": "help@x.com"}),
        ({"custom_headers": {"REPLY-TO": Header("help@x.com")}}, {"replyTo": "help@x.com"}),
    ],
)
def test_an_argument_becomes_a_field(
    emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch, arguments: Any, fields: dict[str, Any]
) -> None:
    emulator.add_sender("me@example.com")
    if arguments.get("conn_id") == "mail_alerts":
        monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")
        connect("mail_alerts")
    send_email(**{"to": "ada@example.com", "subject": "Report", "html_content": CONTENT} | arguments)
    (body,) = bodies(emulator)
    assert {name: body[name] for name in fields} == fields
    assert (len(emulator.messages()), body["content"]) == (1, CONTENT)


def test_in_a_task_the_default_is_that_of_the_notifier(run: Run, emulator: Emulator) -> None:
    def build() -> None:
        @task
        def report() -> None:
            send_email("ada@example.com", None, None)

        report()

    done = run(build)
    (message,) = emulator.messages()
    assert message["subject"] == f"Running: {done.result.dag_id}.report"
    assert "Open the log" in message["content"]


def test_a_dry_run_checks_and_sends_nothing(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    send_email("ada@example.com", "Report", CONTENT, dryrun=True)
    assert "Mail: dryrun: everything is in order; nothing was sent." in caplog.text
    send_email("no address", "Report", CONTENT, dryrun=True)
    assert "Mail: not sent" in caplog.text
    assert emulator.journal.count() == 0
    send_email("ada@example.com", "Report", CONTENT, custom_headers={"X-Priority": "1", "X-Team": "data"})
    assert len(emulator.messages()) == 1
    assert "skipped: x-priority, x-team" in caplog.text


def test_nothing_is_not_mailed_as_none_and_errors_may_be_raised(
    emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a task wants it whose work is the mail."""

    def send(error: type[Exception], words: str, to: str = "ada@example.com", subject: Any = "Report") -> None:
        with pytest.raises(error, match=words):
            send_email(to, subject, CONTENT, raise_errors=True)

    for nothing in (None, "", "None", "\n"):
        send_email("ada@example.com", nothing, nothing)
        message = emulator.messages()[-1]
        assert message["subject"] == "(no subject)"
        assert "Left out of this message: subject: is " in message["content"]
        assert "; content: is " in message["content"]
        send(MailValidationError, "subject: is ", subject=nothing)
    send(MailValidationError, r"to\[1\]\.email: is not an email address", to="ada@example.com, no address")
    connect(password="wrong")
    send(MailAuthError, "credentials")
    monkeypatch.setenv("AIRFLOW__EMAIL__FROM_EMAIL", "")
    send(MailConfigError, "from_email")
    assert len(emulator.messages()) == 4
