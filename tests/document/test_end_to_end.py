"""Our client at the emulator: each operation, the errors that only the service can know, and the states of a campaign.

The models reject the other errors before anything is sent. `tests/api` has the operations in sandbox mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from airflow_provider_mail import api
from airflow_provider_mail.api import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAuthError, MailRejectedError, MailServerError
from airflow_provider_mail.api.lists import GetLists
from mail_emulator import Emulator
from tests.document.examples import EXAMPLES
from tests.document.fact_rows import ERRORS
from tests.document.fact_types import UNLISTED, Operation
from tests.document.models import REQUESTS, model_of, operation_of
from tests.support.sampling import examples

SAVED = {"webhook.save": {"transCallbackUrl": "https://hooks.example/in"}}
SENDABLE = {operation.key: operation for operation in REQUESTS if operation.effect != UNLISTED}


def test_every_operation_has_an_example():
    assert SENDABLE.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("size", ["smallest", "example"])
@pytest.mark.parametrize("operation", SENDABLE.values(), ids=SENDABLE)
def test_an_operation_reaches_the_service(
    operation: Operation, size: str, emulator: Emulator, client: MailClient, config: ClientConfig
):
    """The smallest with an access token, which opens every operation."""
    example, is_smallest = EXAMPLES[operation.key], size == "smallest"
    example.arrange(emulator)
    body = (operation.minimal or SAVED.get(operation.key, {})) if is_smallest else example.received
    request = model_of(operation).model_validate(body) if is_smallest else example.request
    token = {"auth_type": "oauth", "access_token": SecretStr(emulator.issue_token()), "api_key": None}
    with MailClient(config.model_copy(update=token)) as opened:
        response = (opened if is_smallest else client).send(request)
    (entry,) = emulator.journal.entries()
    assert (entry["method"], entry["operation"], entry["body"]) == (operation.method, operation.path, body)
    assert entry["headers"]["content-type"] == "application/json"
    auth = "oauth" if is_smallest else "api_key"
    assert (entry["auth"], entry["processed"], entry["code"]) == (auth, True, 200)
    assert (response.code, response.message or "") == (200, "")


ROWS = {row.id: row for row in ERRORS}
SENDS, SINGLE, BATCH = (
    "campaigns.sends", "transactional.sends_customised.single", "transactional.sends_customised.batch",
)  # fmt: skip
MISSING, ELSE = {"templateName": "missing"}, {"senderMail": "somebody@else.example"}
C, T = "errors.campaign", "errors.transactional"
CASES: list[tuple[str, str, dict[str, Any]]] = [
    (f"{C}.6", SENDS, {"sendListNames": ["customers", "unknown"]}),
    (f"{C}.7", SENDS, {"repelListNames": ["unknown"]}),
    *((f"{C}.{number}", SENDS, {}) for number in (8, 9, 10)),
    (f"{T}.7", BATCH, {"messageVersions": [{"to": [{"email": "ada@example.com"}], "cc": [], "bcc": [], **MISSING}]}),
    *((f"{T}.9", key, ELSE) for key in (SINGLE, BATCH)),
    (f"{T}.12", BATCH, MISSING),
    *((f"{T}.13", key, {}) for key in (SINGLE, BATCH)),
]
"""Changes of the smallest body."""
ARRANGED: dict[str, Callable[[Emulator], Any]] = {
    f"{C}.8": lambda service: service.faults.add("code_before", "campaign/mail/sends", code=500),
    f"{C}.9": lambda service: service.faults.add("attachment_failed", "campaign/mail/sends"),
    f"{C}.10": lambda service: service.faults.add("task_check_failed", "campaign/mail/sends"),
    f"{T}.13": lambda service: service.change_settings(email_credits=0),
}


@pytest.mark.parametrize(("id", "key", "changes"), CASES)
@pytest.mark.parametrize("as_status", [False, True])
def test_the_service_rejects_and_the_client_reports(
    id: str, key: str, changes: dict[str, Any], as_status: bool, emulator: Emulator, client: MailClient
):
    emulator.add_list("customers", ["ada@example.com"])
    emulator.change_settings(errors_as_http_status=as_status)
    ARRANGED.get(id, lambda service: None)(emulator)
    row, operation = ROWS[id], operation_of(key)
    body = {**operation.minimal, "senderMail": "news@example.com", **changes}
    with pytest.raises(MailServerError if row.code == 500 else MailRejectedError) as raised:
        client.send(model_of(operation).model_validate(body))
    assert (raised.value.code, raised.value.operation) == (row.code, operation.path)
    assert raised.value.service_message
    assert raised.value.service_message in str(raised.value)
    # After a rejection nothing has happened; after code 500 the client cannot know.
    assert raised.value.may_have_taken_effect is (row.code == 500)
    assert emulator.journal.count(operation.path) == 1  # no repetition may create or send a second time
    kept = [campaign["mailName"] for campaign in emulator.campaigns()]
    assert (kept, emulator.messages()) == (["spring"] if "is kept" in row.condition else [], [])


KEY = {"api_key": SecretStr("planted")}
TOKEN = {"auth_type": "oauth", "access_token": SecretStr("planted"), "api_key": None}


@pytest.mark.parametrize(("credentials", "status"), [(KEY, 401), (KEY, 403), (KEY, 400), (TOKEN, 401)])
def test_rejected_credentials_are_not_repeated(
    credentials: dict[str, Any], status: int, config: ClientConfig, emulator: Emulator
):
    emulator.change_settings(bad_api_key_http_status=status, bad_api_key_code=status)
    with (
        MailClient(config.model_copy(update=credentials)) as client,
        pytest.raises(MailAuthError if status == 401 else MailRejectedError) as raised,
    ):
        client.send(GetLists())
    assert "planted" not in repr(raised.value)
    assert [entry["auth"] for entry in emulator.journal.entries()] == ["invalid"]


# What is accepted reads back unchanged, whatever it is made of.

anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
"""Every character that has a form in UTF-8."""


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str | None]]]:
    """Properties in some order, one of them the address, and rows of them with different addresses."""
    known = ("email", "name", "phoneNumber")
    others = draw(st.lists(anything.filter(lambda name: name not in known), unique=True, max_size=3))
    properties = draw(st.permutations(["email", *draw(st.sets(st.sampled_from(["name", "phoneNumber"]))), *others]))
    emails = draw(st.lists(st.emails(), min_size=1, max_size=5, unique_by=str.lower))
    rows = [[email if name == "email" else draw(st.none() | anything) for name in properties] for email in emails]
    return list(properties), rows


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_an_import(table: tuple[list[str], list[list[str | None]]], client: api.MailClient):
    properties, rows = table
    mapping = [{"columnNum": n, "propertyName": name} for n, name in enumerate(properties)]
    body = {"contactData": rows, "contactDataMapping": mapping, "updateMode": 1, "listName": "imported"}
    client.send(api.ImportContacts.model_validate(body))
    found = [
        contact for page in client.pages(api.GetListContacts(list_name="imported", page_size=3)) for contact in page
    ]
    by_email = {contact.email: contact for contact in found}
    assert len(found) == len(rows)
    for row in rows:
        given_values = dict(zip(properties, row, strict=True))
        contact = by_email[given_values.pop("email")]
        assert contact.name == (given_values.pop("name", None) or contact.email)
        assert contact.phone_number == given_values.pop("phoneNumber", None)
        assert contact.properties == {name: value for name, value in given_values.items() if value is not None}
        client.send(api.DeleteContact(email=str(contact.email)))
    client.send(api.DeleteList(list_name="imported"))
