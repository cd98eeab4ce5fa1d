"""One contact, lists, templates, senders and the webhook configuration from a DAG."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.version_compat import AirflowException
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run
from tests.tasks.everything import OPERATORS
from tests.tasks.loading import error_of, executed

SECRET = "https://events.example.com/path-token-Zq4711"
ADA = {"contact_email": "ada@example.com"}


def new(kind: str, **arguments: Any) -> Any:
    return lambda: OPERATORS[f"Mail{kind}Operator"](task_id=TASK, **arguments)


def returned(kind: str, **arguments: Any) -> dict[str, Any]:
    return executed(new(kind, **arguments)())


def test_a_contact_is_erased_with_a_receipt(run: Run, emulator: Emulator) -> None:
    for email in ("ada@example.com", "not.ada@example.com"):
        emulator.add_contact(email)
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    done = run(new("DeleteContact", **ADA, reference="GDPR-17"))
    receipt = done.returned
    assert before <= datetime.datetime.fromisoformat(receipt.pop("deleted_at")) <= datetime.datetime.now(datetime.UTC)
    known = {"spellings": 1, "audiences": [], "reference": "GDPR-17", "sandbox": False}
    assert receipt == {"deleted": True, "gone": True} | known
    assert "ada@" not in (done.log + done.rendered()).lower()
    assert [each["email"] for each in emulator.contacts()] == ["not.ada@example.com"]
    assert returned("DeleteContact", **ADA)["deleted"] is False


@pytest.mark.parametrize(
    ("stored", "given"), [("ada@münchen.de", "ada@mu\u0308nchen.de "), ("ada@xn--mnchen-3ya.de", "ada@münchen.de")]
)
def test_a_contact_is_erased_in_every_spelling(emulator: Emulator, stored: str, given: str) -> None:
    emulator.add_contact(stored)
    receipt = returned("DeleteContact", contact_email=given, ignore_if_missing=False)
    assert (receipt["deleted"], receipt["gone"], emulator.contacts()) == (True, True, [])


def test_a_contact_is_saved_in_the_spelling_of_imports(emulator: Emulator) -> None:
    """Where the service tells spellings apart, a list would have the person twice."""
    emulator.change_settings(contact_identity="exact")
    people = [{"email": "ada@xn--mnchen-3ya.de", "name": "Ada"}]
    returned("ImportContacts", contacts=people, list_name="friends")
    returned("UpsertContact", contact_email="Ada@Mu\u0308nchen.de", name="Ada L.", list_name="friends")
    assert [(each["email"], each["name"]) for each in emulator.contacts()] == [("ada@xn--mnchen-3ya.de", "Ada L.")]


def test_an_erasure_is_requested_although_the_contact_is_not_found(emulator: Emulator) -> None:
    """The service may reject the look-up for another reason than that there is no such contact."""
    emulator.add_contact("ada@example.com")
    emulator.faults.add("code_before", "contacts/get", code=403, message="not today", http_status=200)
    returned("DeleteContact", **ADA)
    assert emulator.contact("ada@example.com") is None


def test_a_contact_that_is_still_there_is_no_receipt(emulator: Emulator) -> None:
    emulator.add_contact("ada@example.com")
    emulator.faults.add("code_before", "contacts/delete", code=200, message="", http_status=200)
    with pytest.raises(AirflowException, match="still returns it"):
        returned("DeleteContact", **ADA)


def test_a_template_is_replaced_only_on_request(emulator: Emulator) -> None:
    def create(content: str, **options: Any) -> Any:
        names = {"template_name": "hello", "template_subject": "Hi", "editor_type": "CLASSIC"}
        return new("CreateTemplate", **names, template_content=content, **options)

    assert executed(create("<p>1</p>")()) == {"template_name": "hello", "created": True, "sandbox": False}
    assert "differs in template_content: set replace=True to store this one" in error_of(create("<p>2</p>"))
    assert executed(create("<p>2</p>", replace=True)())["created"]
    assert [row["content"] for row in emulator.templates()] == ["<p>2</p>"]


def test_a_sender(emulator: Emulator) -> None:
    returned("AddSender", sender_email="new.example.com", sender_type=1)
    verify = {"from_domain": "new.example.com", "selector": "mail"}
    with pytest.raises(AirflowException, match="is not valid: check its DNS entries for MX, SPF, DKIM, DMARC"):
        returned("VerifySender", **verify)
    assert returned("VerifySender", **verify, fail_if_invalid=False)["valid"] is False
    emulator.set_dns("new.example.com", selector="mail")
    checks = ("valid", "good_mx", "good_spf", "good_dkim", "good_dmarc")
    assert returned("VerifySender", **verify) == dict.fromkeys(checks, True)


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
    assert "Zq4711" not in done.log + done.rendered()
    assert executed(save()) == {"changed": []}
    assert emulator.journal.count("webhook/save") == 1
    assert returned("SaveWebhook", trans_enable=False) == {"changed": ["trans_enable"]}
    assert (emulator.webhook()["transEnable"], emulator.webhook()["transCallbackUrl"]) == (False, SECRET)
