"""One contact, lists, templates, senders and the webhook configuration from a DAG."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.contacts import MailDeleteContactOperator, MailUpsertContactOperator
from airflow_provider_mail.operators.lists import MailCreateListOperator, MailDeleteListOperator
from airflow_provider_mail.operators.senders import (
    MailAddSenderOperator,
    MailDeleteSenderOperator,
    MailVerifySenderOperator,
)
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator, MailDeleteTemplateOperator
from airflow_provider_mail.operators.webhooks import MailSaveWebhookOperator
from tests.tasks.conftest import TASK, Connect, Run

SECRET = "https://events.example.com/path-token-Zq4711"


def test_a_contact(run: Run, emulator: Emulator) -> None:
    emulator.add_list("friends")

    def upsert() -> object:
        return MailUpsertContactOperator(
            task_id=TASK, contact_email="{{ 'Ada' | lower }}@example.com", name="Ada L.", list_name="friends"
        )

    for _ in range(2):
        done = run(upsert)
        assert done.returned == {"sandbox": False}
        assert "ada@" not in (done.log + done.rendered()).lower()
        assert "Ada L." not in done.log + done.rendered()
    assert emulator.journal.entries("contacts/upsert")[0]["body"] == {
        "email": "ada@example.com",
        "name": "Ada L.",
        "listName": "friends",
    }
    assert [each["email"] for each in emulator.contacts("friends")] == ["ada@example.com"]


@pytest.mark.parametrize("name", ["{{ none }}", "Dr. {{ none }}"])
def test_a_contact_is_not_called_none(run: Run, emulator: Emulator, name: str) -> None:
    done = run(lambda: MailUpsertContactOperator(task_id=TASK, contact_email="ada@example.com", name=name))
    assert done.state == "failed"
    assert "name: " in done.log
    assert emulator.journal.count("contacts/upsert") == 0


def test_a_contact_is_erased_with_a_receipt(run: Run, emulator: Emulator) -> None:
    emulator.add_contact("ada@example.com")
    emulator.add_contact("not.ada@example.com")

    def delete(**options: Any) -> object:
        return MailDeleteContactOperator(task_id=TASK, contact_email="ada@example.com", reference="GDPR-17", **options)

    done = run(delete)
    receipt = done.returned
    at = datetime.datetime.fromisoformat(receipt.pop("at"))
    assert abs(at - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=5)
    assert receipt == {"deleted": True, "gone": True, "reference": "GDPR-17", "sandbox": False}
    assert "ada@" not in done.log + done.rendered()
    assert [each["email"] for each in emulator.contacts()] == ["not.ada@example.com"]
    assert run(delete).returned["deleted"] is False


@pytest.mark.parametrize("stored", ["ada@münchen.de", "ada@xn--mnchen-3ya.de"])
@pytest.mark.parametrize("given", ["ada@münchen.de", "ada@mu\u0308nchen.de ", "ada@xn--mnchen-3ya.de"])
def test_a_contact_is_erased_in_every_spelling(run: Run, emulator: Emulator, stored: str, given: str) -> None:
    emulator.add_contact(stored)

    done = run(lambda: MailDeleteContactOperator(task_id=TASK, contact_email=given, ignore_if_missing=False))

    assert (done.returned["deleted"], done.returned["gone"]) == (True, True)
    assert emulator.contacts() == []


def test_an_erasure_is_asked_for_although_the_contact_is_not_found(run: Run, emulator: Emulator) -> None:
    """The service may refuse to tell for another reason than that there is no such contact."""
    emulator.add_contact("ada@example.com")
    emulator.faults.add("code_before", "contacts/get", code=403, message="not today", http_status=200)
    done = run(lambda: MailDeleteContactOperator(task_id=TASK, contact_email="ada@example.com"))
    assert done.state == "success"
    assert emulator.contact("ada@example.com") is None


def test_a_contact_that_is_still_there_is_no_receipt(run: Run, emulator: Emulator) -> None:
    emulator.add_contact("ada@example.com")
    emulator.faults.add("code_before", "contacts/delete", code=200, message="", http_status=200)
    done = run(lambda: MailDeleteContactOperator(task_id=TASK, contact_email="ada@example.com"))
    assert done.state == "failed"
    assert "still returns it" in done.log


def test_a_list(run: Run, emulator: Emulator) -> None:
    def create() -> object:
        return MailCreateListOperator(
            task_id=TASK, list_name="friends {{ 1 + 1 }}", list_description="of {{ dag.owner }}"
        )

    done = run(create)
    assert done.returned == {"list_name": "friends 2", "created": True, "sandbox": False}
    assert emulator.journal.entries("lists/add")[0]["body"] == {
        "listName": "friends 2",
        "listDescription": "of airflow",
    }
    assert run(create).returned == {"list_name": "friends 2", "created": False, "sandbox": False}

    def delete(**options: Any) -> object:
        return MailDeleteListOperator(task_id=TASK, list_name="friends 2", **options)

    assert run(delete).returned == {"list_name": "friends 2", "deleted": True, "sandbox": False}
    assert run(delete).returned == {"list_name": "friends 2", "deleted": False, "sandbox": False}
    done = run(lambda: delete(ignore_if_missing=False, retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    assert "no resource of that name" in done.log
    assert emulator.journal.count("lists/delete") == 1


def test_a_template_from_a_file(run: Run, emulator: Emulator, tmp_path: Path, new_dag: Any) -> None:
    (tmp_path / "hello.html").write_text("<p>{{ ds_nodash[:0] }}Hello {% raw %}{{name}}{% endraw %}</p>")

    def dag(**options: Any) -> DAG:
        with new_dag(template_searchpath=[str(tmp_path)]) as dag:
            MailCreateTemplateOperator(
                task_id=TASK,
                template_name="hello",
                template_content="hello.html",
                template_subject="Hello {% raw %}{{name}}{% endraw %}",
                editor_type="CLASSIC",
                **options,
            )
        return dag

    done = run(dag())
    assert done.returned == {"template_name": "hello", "created": True, "sandbox": False}
    assert emulator.journal.entries("campaign/mail/template/add")[0]["body"] == {
        "templateName": "hello",
        "templateContent": "<p>Hello {{name}}</p>",
        "templateSubject": "Hello {{name}}",
        "editorType": "CLASSIC",
    }
    (tmp_path / "hello.html").write_text("<p>Hi</p>")
    done = run(dag())
    assert done.state == "failed"
    assert "differs in template_content: set replace=True to store this one" in done.log
    assert run(dag(replace=True)).returned["created"]
    assert [row["content"] for row in emulator.templates()] == ["<p>Hi</p>"]
    done = run(lambda: MailDeleteTemplateOperator(task_id=TASK, template_name="hello"))
    assert done.returned == {"template_name": "hello", "deleted": True, "sandbox": False}
    assert emulator.templates() == []


def test_a_sender(run: Run, emulator: Emulator) -> None:
    done = run(lambda: MailAddSenderOperator(task_id=TASK, sender_email="new.example.com", sender_type=1))
    assert done.returned == {
        "sender_email": "new.example.com",
        "sender_type": "1",
        "created": True,
        "sandbox": False,
    }
    assert emulator.journal.entries("verified_senders/add")[0]["body"] == {
        "senderEmail": "new.example.com",
        "senderType": "1",
    }

    def verify(**options: Any) -> object:
        return MailVerifySenderOperator(task_id=TASK, from_domain="new.example.com", selector="mail", **options)

    done = run(verify)
    assert done.state == "failed"
    assert "is not valid: check its DNS entries for MX, SPF, DKIM, DMARC" in done.log
    assert run(lambda: verify(fail_if_invalid=False)).returned["valid"] is False
    emulator.set_dns("new.example.com", selector="mail")
    assert run(verify).returned == dict.fromkeys(("valid", "good_mx", "good_spf", "good_dkim", "good_dmarc"), True)

    done = run(lambda: MailDeleteSenderOperator(task_id=TASK, sender_email="new.example.com"))
    assert done.returned == {"sender_email": "new.example.com", "deleted": True, "sandbox": False}


def test_the_webhook_configuration(run: Run, emulator: Emulator) -> None:
    def save() -> object:
        return MailSaveWebhookOperator(
            task_id=TASK,
            trans_event={"opened": True, "spam_report": False},
            trans_callback_url=SECRET,
            trans_callback_url_extra={"news@example.com": f"{SECRET}/news"},
            trans_enable=True,
        )

    done = run(save)
    assert done.returned == {
        "changed": [
            *("trans_event.spam_report", "trans_event.opened"),
            *("trans_callback_url", "trans_enable", "trans_callback_url_extra"),
        ]
    }
    assert emulator.webhook()["transCallbackUrl"] == SECRET
    assert "Zq4711" not in done.log
    assert "Zq4711" not in done.rendered()
    assert run(save).returned == {"changed": []}
    assert emulator.journal.count("webhook/save") == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: MailCreateTemplateOperator(
            task_id=TASK, template_name="a", template_content="<p>Hi</p>", template_subject="b"
        ),
        lambda: MailSaveWebhookOperator(task_id=TASK, trans_enable=True),
    ],
)
def test_without_a_sandbox_mode_nothing_is_sent(run: Run, emulator: Emulator, connect: Connect, make: Any) -> None:
    connect(sandbox=True)
    done = run(make)
    assert done.state == "failed"
    assert "has no sandboxMode and the connection is in sandbox mode: nothing was sent" in done.log
    assert emulator.templates() == []
    assert emulator.webhook()["transEnable"] is None


def test_in_a_sandbox_a_list_is_only_checked(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(sandbox=True)
    done = run(lambda: MailCreateListOperator(task_id=TASK, list_name="friends"))
    assert done.returned == {"list_name": "friends", "created": False, "sandbox": True}
    assert "friends" not in [row["name"] for row in emulator.lists()]
