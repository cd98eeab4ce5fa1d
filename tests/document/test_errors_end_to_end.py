"""Every row of the specification's tables "Errors": what our client makes of it, and what the service then holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAuthError, MailRejectedError, MailServerError, MailValidationError
from mail_emulator import Emulator
from tests.document.fact_rows import ERRORS
from tests.document.fact_types import UNLISTED
from tests.document.models import REQUESTS, model_of, operation_of, unchecked

ROWS = {row.id: row for row in ERRORS}
Json = dict[str, Any]

VERSION: Json = {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": []}
RECEIPT = {"subject": "Receipt", "content": "<p>Thank you</p>", "senderMail": "news@example.com"}
SENDS, SINGLE, BATCH = (
    "campaigns.sends", "transactional.sends_customised.single", "transactional.sends_customised.batch",
)  # fmt: skip
BODIES: dict[str, Json] = {
    SENDS: {"mailName": "spring", "senderMail": "news@example.com", "sendListNames": ["customers"]},
    SINGLE: {**RECEIPT, "to": {"email": "ada@example.com"}},
    BATCH: {**RECEIPT, "messageVersions": [VERSION]},
}
ABSENT = object()
MISSING, BAD_DATE = {"templateName": "missing"}, {"sendDate": "2026-01-31 09:00"}
C, T = "errors.campaign", "errors.transactional"
CASES: list[tuple[str, str, Json, str]] = [
    (f"{C}.1", SENDS, {"mailName": ABSENT}, "mail_name"),
    (f"{C}.1", SENDS, {"senderMail": ""}, "sender_mail"),
    (f"{C}.2", SENDS, {"mailName": "é" * 101}, "mail_name"),
    (f"{C}.3", SENDS, BAD_DATE, "send_date"),
    (f"{C}.4", SENDS, {"attachment": {"fileName": "a.txt"}}, "attachment"),
    (f"{C}.4", SENDS, {"attachment": {"fileName": "", "fileData": "eA=="}}, "attachment"),
    (f"{C}.5", SENDS, {"sendListNames": ABSENT}, "send_list_names"),
    (f"{C}.5", SENDS, {"sendListNames": [], "onlySave": False}, "send_list_names"),
    (f"{C}.6", SENDS, {"sendListNames": ["customers", "unknown"]}, ""),
    (f"{C}.7", SENDS, {"repelListNames": ["unknown"]}, ""),
    *((f"{C}.{number}", SENDS, {}, "") for number in (8, 9, 10)),
    (f"{T}.1", SINGLE, {"subject": ABSENT}, "subject"),
    (f"{T}.1", BATCH, {"senderMail": ABSENT}, "sender_mail"),
    *((f"{T}.2", key, BAD_DATE, "send_date") for key in (SINGLE, BATCH)),
    (f"{T}.3", SINGLE, {"category": "é" * 50 + "a"}, "category"),
    (f"{T}.3", BATCH, {"uniqueMsgID": "é" * 25 + "a"}, "unique_msg_id"),
    # Without "to" and "messageVersions" a body is of neither form; the model of the one that was meant decides.
    (f"{T}.4", SINGLE, {"to": ABSENT}, "to: "),
    (f"{T}.4", BATCH, {"messageVersions": []}, "message_versions"),
    (f"{T}.4", BATCH, {"messageVersions": [{**VERSION, "to": []}]}, "message_versions[0].to"),
    (f"{T}.5", SINGLE, {"to": {"email": ""}}, "to.email"),
    (f"{T}.5", BATCH, {"messageVersions": [{**VERSION, "bcc": [{"email": ""}]}]}, "message_versions[0].bcc[0]"),
    (f"{T}.6", SINGLE, {"to": {"email": "ada@example"}}, "to.email"),
    (f"{T}.7", BATCH, {"messageVersions": [{**VERSION, **MISSING}]}, ""),
    (f"{T}.8", BATCH, {"senderName": "é" * 100 + "a"}, "sender_name"),
    *((f"{T}.9", key, {"senderMail": "somebody@else.example"}, "") for key in (SINGLE, BATCH)),
    *((f"{T}.10", key, {"replyTo": "no address"}, "reply_to") for key in (SINGLE, BATCH)),
    (f"{T}.11", BATCH, {"content": ABSENT}, "content or template_name"),
    (f"{T}.12", BATCH, {"content": ABSENT, **MISSING}, ""),
    *((f"{T}.13", key, {}, "") for key in (SINGLE, BATCH)),
]
"""Ways to meet each row: changes of the good body, and a part of what our own model says before anything is sent."""
ARRANGED: dict[str, Callable[[Emulator], Any]] = {
    f"{C}.8": lambda service: service.faults.add("code_before", "campaign/mail/sends", code=500),
    f"{C}.9": lambda service: service.faults.add("attachment_failed", "campaign/mail/sends"),
    f"{C}.10": lambda service: service.faults.add("task_check_failed", "campaign/mail/sends"),
    f"{T}.13": lambda service: setattr(service.settings, "email_credits", 0),
}


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("customers", ["ada@example.com", "bob@example.com"])
    return emulator


def test_every_row_has_a_case():
    assert {row for row, *_ in CASES} | {"errors.authentication.1"} == set(ROWS)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{row}-{key.rpartition('.')[2]}" for row, key, *_ in CASES])
def test_the_service_rejects_and_the_client_reports(number: int, service: Emulator, client: MailClient):
    """What our model can know is never sent: the service is asked all the same."""
    id, key, changes, message = CASES[number]
    row, model = ROWS[id], model_of(operation_of(key))
    service.settings.errors_as_http_status = number % 2 == 0
    ARRANGED.get(id, lambda service: None)(service)
    body = {name: value for name, value in {**BODIES[key], **changes}.items() if value is not ABSENT}
    request = unchecked(key, body) if message else model.model_validate(body)
    if message:
        with pytest.raises(MailValidationError) as invalid:
            model.model_validate(body)
        assert message in str(invalid.value)

    with pytest.raises(MailServerError if row.code == 500 else MailRejectedError) as raised:
        client.send(request)
    assert (raised.value.code, raised.value.operation) == (row.code, request.path)
    assert raised.value.service_message
    assert raised.value.service_message in str(raised.value)
    # After a rejection nothing has happened; after code 500 the client cannot know.
    assert raised.value.may_have_taken_effect is (row.code == 500)
    assert service.journal.count(request.path) == 1  # no repetition may create or send a second time
    assert service.messages() == []
    kept = [campaign["mailName"] for campaign in service.campaigns()]
    assert kept == (["spring"] if "is kept" in row.condition else [])


@pytest.mark.parametrize("key", BODIES)
def test_without_the_change_the_same_request_is_carried_out(key: str, service: Emulator, client: MailClient):
    assert client.send(unchecked(key, BODIES[key])).code == 200
    assert len(service.campaigns()) + len(service.messages()) == 1


def test_a_rejected_token_is_an_authentication_error(config: ClientConfig, emulator: Emulator):
    values = {"auth_type": "oauth", "access_token": SecretStr("not-a-token"), "api_key": None}
    operations = [one for one in REQUESTS if one.effect != UNLISTED]
    with MailClient(config.model_copy(update=values)) as client:
        for one in operations:
            with pytest.raises(MailAuthError) as raised:
                client.send(model_of(one).model_validate(one.minimal))
            assert raised.value.status == ROWS["errors.authentication.1"].code
            assert "not-a-token" not in repr(raised.value)
    entries = [(entry["operation"], entry["auth"], entry["processed"]) for entry in emulator.journal.entries()]
    assert entries == [(one.path, "invalid", False) for one in operations]


@pytest.mark.parametrize("status", [401, 403, 400])
def test_a_rejected_api_key_is_not_repeated(status: int, config: ClientConfig, emulator: Emulator):
    emulator.settings.bad_api_key_http_status = emulator.settings.bad_api_key_code = status
    request = model_of(operation_of("lists.get")).model_validate({})
    with (
        MailClient(config.model_copy(update={"api_key": SecretStr("wrong-key")})) as client,
        pytest.raises(MailAuthError if status == 401 else MailRejectedError),
    ):
        client.send(request)
    assert emulator.journal.count() == 1
