"""One contact, lists, templates, senders and the webhook configuration from a DAG."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Done, Run
from tests.tasks.everything import OPERATORS

SECRET = "https://events.example.com/path-token-Zq4711"
ADA = {"contact_email": "ada@example.com"}


def new(kind: str, **arguments: Any) -> Any:
    return lambda: OPERATORS[f"Mail{kind}Operator"](task_id=TASK, **arguments)


def shows(done: Done, text: str) -> bool:
    return text.lower() in (done.log + done.rendered()).lower()


def test_a_contact_is_not_called_none(run: Run, emulator: Emulator) -> None:
    for name in ("{{ none }}", "Dr. {{ none }}"):
        done = run(new("UpsertContact", **ADA, name=name))
        assert (done.state, "name: " in done.log) == ("failed", True)
    assert emulator.journal.count("contacts/upsert") == 0


def test_a_contact_is_erased_with_a_receipt(run: Run, emulator: Emulator) -> None:
    for email in ("ada@example.com", "not.ada@example.com"):
        emulator.add_contact(email)
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    done = run(new("DeleteContact", **ADA, reference="GDPR-17"))
    receipt = done.returned
    assert before <= datetime.datetime.fromisoformat(receipt.pop("at")) <= datetime.datetime.now(datetime.UTC)
    assert receipt == {"deleted": True, "gone": True, "reference": "GDPR-17", "sandbox": False}
    assert not shows(done, "ada@")
    assert [each["email"] for each in emulator.contacts()] == ["not.ada@example.com"]
    assert run(new("DeleteContact", **ADA)).returned["deleted"] is False


@pytest.mark.parametrize(
    ("stored", "given"),
    [("ada@münchen.de", "ada@mu\u0308nchen.de "), ("ada@xn--mnchen-3ya.de", "ada@münchen.de")],
)
def test_a_contact_is_erased_in_every_spelling(run: Run, emulator: Emulator, stored: str, given: str) -> None:
    emulator.add_contact(stored)
    receipt = run(new("DeleteContact", contact_email=given, ignore_if_missing=False)).returned
    assert (receipt["deleted"], receipt["gone"], emulator.contacts()) == (True, True, [])


def test_an_erasure_is_requested_although_the_contact_is_not_found(run: Run, emulator: Emulator) -> None:
    """The service may reject the look-up for another reason than that there is no such contact."""
    emulator.add_contact("ada@example.com")
    emulator.faults.add("code_before", "contacts/get", code=403, message="not today", http_status=200)
    assert run(new("DeleteContact", **ADA)).state == "success"
    assert emulator.contact("ada@example.com") is None


def test_a_contact_that_is_still_there_is_no_receipt(run: Run, emulator: Emulator) -> None:
    emulator.add_contact("ada@example.com")
    emulator.faults.add("code_before", "contacts/delete", code=200, message="", http_status=200)
    done = run(new("DeleteContact", **ADA))
    assert (done.state, "still returns it" in done.log) == ("failed", True)


def test_a_template_from_a_file(run: Run, emulator: Emulator, tmp_path: Path, new_dag: Any) -> None:
    file = tmp_path / "hello.html"
    file.write_text("<p>{{ ds_nodash[:0] }}Hello {% raw %}{{name}}{% endraw %}</p>")

    def dag(**options: Any) -> DAG:
        with new_dag(template_searchpath=[str(tmp_path)]) as dag:
            template = {"template_content": "hello.html", "template_subject": "Hi", "editor_type": "CLASSIC"}
            new("CreateTemplate", template_name="hello", **template, **options)()
        return dag

    assert run(dag()).returned == {"template_name": "hello", "created": True, "sandbox": False}
    assert [row["content"] for row in emulator.templates()] == ["<p>Hello {{name}}</p>"]
    file.write_text("<p>Hi</p>")
    assert "differs in template_content: set replace=True to store this one" in run(dag()).log
    assert run(dag(replace=True)).returned["created"]
    assert [row["content"] for row in emulator.templates()] == ["<p>Hi</p>"]


def test_a_sender(run: Run, emulator: Emulator) -> None:
    domain = {"sender_email": "new.example.com"}
    run(new("AddSender", **domain, sender_type=1))
    verify = {"from_domain": "new.example.com", "selector": "mail"}
    assert "is not valid: check its DNS entries for MX, SPF, DKIM, DMARC" in run(new("VerifySender", **verify)).log
    assert run(new("VerifySender", **verify, fail_if_invalid=False)).returned["valid"] is False
    emulator.set_dns("new.example.com", selector="mail")
    checks = ("valid", "good_mx", "good_spf", "good_dkim", "good_dmarc")
    assert run(new("VerifySender", **verify)).returned == dict.fromkeys(checks, True)


def test_the_webhook_configuration(run: Run, emulator: Emulator) -> None:
    save = new(
        "SaveWebhook",
        trans_event={"opened": True, "spam_report": False},
        trans_callback_url=SECRET,
        trans_callback_url_extra={"news@example.com": f"{SECRET}/news"},
        trans_enable=True,
    )
    done = run(save)
    changed = "trans_event.spam_report trans_event.opened trans_callback_url trans_enable trans_callback_url_extra"
    assert done.returned == {"changed": changed.split()}
    assert not shows(done, "Zq4711")
    assert run(save).returned == {"changed": []}
    assert emulator.journal.count("webhook/save") == 1
    assert run(new("SaveWebhook", trans_enable=False)).returned == {"changed": ["trans_enable"]}
    assert (emulator.webhook()["transEnable"], emulator.webhook()["transCallbackUrl"]) == (False, SECRET)
