"""`[email] email_backend`: as Airflow calls it, for tasks that fail and for DAG authors."""

from __future__ import annotations

import base64
import datetime
from email.header import Header
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task

from airflow_provider_mail.api.errors import MailAuthError, MailConfigError, MailValidationError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.utils.emailer import send_email
from tests.notifications.conftest import PEOPLE, addressees, bodies
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import Connect, Run

CONTENT = "<p>Hello</p>"

honoured = pytest.mark.skipif(
    AIRFLOW_VERSION == (3, 2), reason="Airflow 3.2 mails about tasks with SMTP, whatever the setting"
)


@pytest.fixture(autouse=True)
def _back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__EMAIL__EMAIL_BACKEND", "airflow_provider_mail.utils.emailer.send_email")


@pytest.fixture(params=["Airflow's template", "a template of one's own"])
def _template(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Airflow's template":
        if AIRFLOW_VERSION < (3, 3):
            pytest.skip("Airflow 3.0 cannot render its own: a task instance there has no mark_success_url")
        return
    own = tmp_path / "failed.html"
    own.write_text("Try {{ try_number }} out of {{ max_tries + 1 }}: {{ exception_html }}")
    monkeypatch.setenv("AIRFLOW__EMAIL__HTML_CONTENT_TEMPLATE", str(own))


@honoured
@pytest.mark.usefixtures("_template")
def test_a_task_that_fails(run: Run, emulator: Emulator) -> None:
    def build() -> None:
        @task(email=PEOPLE, email_on_failure=True, email_on_retry=True, retries=1, retry_delay=datetime.timedelta(0))
        def load() -> None:
            raise ValueError("{{rows}} are missing")

        load()

    done = run(build)

    assert done.result.state == "failed"
    messages = emulator.messages()
    assert len(messages) == 2
    for number, message in enumerate(messages, 1):
        assert addressees(message) == PEOPLE
        assert (message["sender"], message["sender_name"]) == ("news@example.com", "Airflow")
        assert message["subject"].startswith("Airflow alert: ")
        assert "load" in message["subject"]
        assert len(message["subject"]) <= 150
        assert f"Try {number} out of 2" in message["content"]
        assert "{{" not in message["content"]
        assert "&#123;&#123;rows}} are missing" in message["content"]
    assert messages[0]["unique_msg_id"] != messages[1]["unique_msg_id"]


def test_as_a_dag_author_calls_it(emulator: Emulator, tmp_path: Path) -> None:
    from airflow.utils.email import send_email as airflows

    (tmp_path / "report.csv").write_bytes(b"a;b")
    airflows(
        PEOPLE,
        "Report",
        CONTENT,
        files=[str(tmp_path / "report.csv")],
        cc="carl@example.com",
        bcc=["dora@example.com"],
        custom_headers={"Reply-To": "data@example.com"},
    )

    (body,) = bodies(emulator)
    assert body == {
        "subject": "Report",
        "content": CONTENT,
        "senderMail": "news@example.com",
        "senderName": "Airflow",
        "replyTo": "data@example.com",
        "uniqueMsgID": body["uniqueMsgID"],
        "attachment": {"fileName": "report.csv", "fileData": base64.b64encode(b"a;b").decode()},
        "messageVersions": [
            {
                "to": [{"email": address} for address in PEOPLE],
                "cc": [{"email": "carl@example.com"}],
                "bcc": [{"email": "dora@example.com"}],
            }
        ],
    }


@pytest.mark.parametrize("to", [["ada@example.com"], "ada@example.com", ("ada@example.com",)])
def test_one_person(emulator: Emulator, to: Any) -> None:
    send_email(to, "Report", CONTENT)
    (body,) = bodies(emulator)
    assert body["to"] == {"email": "ada@example.com"}


@pytest.mark.parametrize("nothing", [None, "", "None", "\n"])
def test_nothing_is_not_mailed_as_none(emulator: Emulator, nothing: Any) -> None:
    send_email("ada@example.com", nothing, nothing)

    (message,) = emulator.messages()
    assert message["subject"] == "(no subject)"
    assert "Left out of this message: subject: is " in message["content"]
    assert "; content: is " in message["content"]
    with pytest.raises(MailValidationError, match="subject: is "):
        send_email("ada@example.com", nothing, CONTENT, raise_errors=True)


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


@pytest.mark.parametrize("header", ["Help Desk <help@x.com>", '"Desk, Help" <help@x.com>', Header("help@x.com")])
def test_replies_go_to_the_address_of_the_header(emulator: Emulator, header: Any) -> None:
    send_email("ada@example.com", "Report", CONTENT, custom_headers={"REPLY-TO": header})
    (body,) = bodies(emulator)
    assert (body["replyTo"], body["content"]) == ("help@x.com", CONTENT)


@pytest.mark.parametrize("conn_id", [None, "", "smtp_default"])
def test_the_connection_by_default(emulator: Emulator, conn_id: str | None) -> None:
    send_email("ada@example.com", "Report", CONTENT, conn_id=conn_id)
    assert len(emulator.messages()) == 1


def test_another_connection(emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_MAIL_DEFAULT")
    connect("mail_alerts")
    send_email("ada@example.com", "Report", CONTENT, conn_id="mail_alerts")
    assert len(emulator.messages()) == 1


def test_a_sender_of_its_own(emulator: Emulator) -> None:
    emulator.add_sender("reports@example.com")
    send_email("ada@example.com", "Report", CONTENT, from_email="Reports <reports@example.com>")
    (message,) = emulator.messages()
    assert (message["sender"], message["sender_name"]) == ("reports@example.com", "Reports")


def test_a_dry_run_checks_and_sends_nothing(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    send_email("ada@example.com", "Report", CONTENT, dryrun=True)
    assert "Mail: dryrun: everything is in order; nothing was sent." in caplog.text
    send_email("nobody", "Report", CONTENT, dryrun=True)
    assert "Mail: not sent" in caplog.text
    assert emulator.journal.count() == 0


def test_headers_that_the_service_does_not_have(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    send_email("ada@example.com", "Report", CONTENT, custom_headers={"X-Priority": "1", "X-Team": "data"})
    assert len(emulator.messages()) == 1
    assert "skipped: x-priority, x-team" in caplog.text


def test_a_task_whose_work_is_the_mail_wants_the_error(
    emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MailValidationError, match=r"to\[1\]\.email: is not an email address"):
        send_email("ada@example.com, nobody", "Report", CONTENT, raise_errors=True)
    connect(password="wrong")
    with pytest.raises(MailAuthError):
        send_email("ada@example.com", "Report", CONTENT, raise_errors=True)
    monkeypatch.setenv("AIRFLOW__EMAIL__FROM_EMAIL", "")
    with pytest.raises(MailConfigError, match="from_email"):
        send_email("ada@example.com", "Report", CONTENT, raise_errors=True)
    assert emulator.messages() == []
