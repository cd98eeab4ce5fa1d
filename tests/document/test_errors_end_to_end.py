"""Every row of the specification's tables "Errors": what our client makes of it, and what the service then holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAuthError, MailRejectedError, MailServerError, MailValidationError
from airflow_provider_mail.emulator import Emulator
from tests.document.fact_rows import ERRORS
from tests.document.fact_types import UNLISTED
from tests.document.models import REQUESTS, model_of
from tests.document.unchecked import operation, unchecked

ROWS = {row.id: row for row in ERRORS}

CAMPAIGN = {"mailName": "spring", "senderMail": "news@example.com", "sendListNames": ["customers"]}
VERSION = {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": []}
RECEIPT = {"subject": "Receipt", "content": "<p>Thank you</p>", "senderMail": "news@example.com"}
SENDS, SINGLE, BATCH = (
    "campaigns.sends", "transactional.sends_customised.single", "transactional.sends_customised.batch",
)  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    SENDS: CAMPAIGN,
    SINGLE: {**RECEIPT, "to": {"email": "ada@example.com"}},
    BATCH: {**RECEIPT, "messageVersions": [VERSION]},
}
ABSENT = object()


@dataclass(frozen=True)
class Case:
    """One way to meet a row: the good body with changes, sent to a service that was arranged for it.

    ``message`` is part of what our own model says before anything is sent; ``None`` where only the service can know.
    """

    row: str
    key: str
    changes: dict[str, Any] = field(default_factory=dict)
    message: str | None = None
    arrange: Callable[[Emulator], Any] = lambda service: None

    @property
    def body(self) -> dict[str, Any]:
        body = {**BODIES[self.key], **self.changes}
        return {name: value for name, value in body.items() if value is not ABSENT}


def version(**changes: Any) -> dict[str, Any]:
    return {"messageVersions": [{**VERSION, **changes}]}


def fault(kind: str, **parameters: Any) -> Callable[[Emulator], Any]:
    return lambda service: service.faults.add(kind, "campaign/mail/sends", **parameters)


def no_credits(service: Emulator) -> None:
    service.settings.email_credits = 0


MISSING, BAD_DATE = {"templateName": "missing"}, {"sendDate": "2026-01-31 09:00"}
C, T = "errors.campaign", "errors.transactional"
CASES = [
    Case(f"{C}.1", SENDS, {"mailName": ABSENT}, "mail_name"),
    Case(f"{C}.1", SENDS, {"senderMail": ""}, "sender_mail"),
    Case(f"{C}.2", SENDS, {"mailName": "é" * 101}, "mail_name"),
    Case(f"{C}.3", SENDS, BAD_DATE, "send_date"),
    Case(f"{C}.4", SENDS, {"attachment": {"fileName": "a.txt"}}, "attachment"),
    Case(f"{C}.4", SENDS, {"attachment": {"fileName": "", "fileData": "eA=="}}, "attachment"),
    Case(f"{C}.5", SENDS, {"sendListNames": ABSENT}, "send_list_names"),
    Case(f"{C}.5", SENDS, {"sendListNames": [], "onlySave": False}, "send_list_names"),
    Case(f"{C}.6", SENDS, {"sendListNames": ["customers", "unknown"]}),
    Case(f"{C}.7", SENDS, {"repelListNames": ["unknown"]}),
    Case(f"{C}.8", SENDS, arrange=fault("code_before", code=500)),
    Case(f"{C}.9", SENDS, arrange=fault("attachment_failed")),
    Case(f"{C}.10", SENDS, arrange=fault("task_check_failed")),
    Case(f"{T}.1", SINGLE, {"subject": ABSENT}, "subject"),
    Case(f"{T}.1", BATCH, {"senderMail": ABSENT}, "sender_mail"),
    *(Case(f"{T}.2", key, BAD_DATE, "send_date") for key in (SINGLE, BATCH)),
    Case(f"{T}.3", SINGLE, {"category": "é" * 50 + "a"}, "category"),
    Case(f"{T}.3", BATCH, {"uniqueMsgID": "é" * 25 + "a"}, "unique_msg_id"),
    # Without "to" and "messageVersions" a body is of neither form; the model of the one that was meant decides.
    Case(f"{T}.4", SINGLE, {"to": ABSENT}, "to: "),
    Case(f"{T}.4", BATCH, {"messageVersions": []}, "message_versions"),
    Case(f"{T}.4", BATCH, version(to=[]), "message_versions[0].to"),
    Case(f"{T}.5", SINGLE, {"to": {"email": ""}}, "to.email"),
    Case(f"{T}.5", BATCH, version(bcc=[{"email": ""}]), "message_versions[0].bcc[0]"),
    Case(f"{T}.6", SINGLE, {"to": {"email": "ada@example"}}, "to.email"),
    Case(f"{T}.7", BATCH, version(**MISSING)),
    Case(f"{T}.8", BATCH, {"senderName": "é" * 100 + "a"}, "sender_name"),
    *(Case(f"{T}.9", key, {"senderMail": "somebody@else.example"}) for key in (SINGLE, BATCH)),
    *(Case(f"{T}.10", key, {"replyTo": "no address"}, "reply_to") for key in (SINGLE, BATCH)),
    Case(f"{T}.11", BATCH, {"content": ABSENT}, "content or template_name"),
    Case(f"{T}.12", BATCH, {"content": ABSENT, **MISSING}),
    *(Case(f"{T}.13", key, arrange=no_credits) for key in (SINGLE, BATCH)),
]


def numbered(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=f"{case.row}-{case.key.rpartition('.')[2]}-{n}") for n, case in enumerate(cases)]


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("customers", ["ada@example.com", "bob@example.com"])
    return emulator


def test_every_row_has_a_case():
    assert {case.row for case in CASES} | {"errors.authentication.1"} == set(ROWS)


@pytest.mark.parametrize("http_status_too", [False, True], ids=["in_the_body", "as_http_status"])
@pytest.mark.parametrize("case", numbered(CASES))
def test_the_service_rejects_and_the_client_reports(
    case: Case, http_status_too: bool, service: Emulator, client: MailClient
):
    """What our model can know is never sent: the service is asked all the same."""
    row, model = ROWS[case.row], model_of(operation(case.key))
    assert case.key.startswith(row.operation)
    assert case.key.endswith(row.form)
    service.settings.errors_as_http_status = http_status_too
    case.arrange(service)
    if case.message is None:
        request: Any = model.model_validate(case.body)
    else:
        with pytest.raises(MailValidationError) as invalid:
            model.model_validate(case.body)
        assert case.message in str(invalid.value)
        request = unchecked(case.key, case.body)

    with pytest.raises(MailServerError if row.code == 500 else MailRejectedError) as raised:
        client.send(request)

    assert raised.value.code == row.code
    assert raised.value.operation == request.path
    assert raised.value.service_message
    assert raised.value.service_message in str(raised.value)
    # After a rejection nothing has happened; after code 500 the client cannot know.
    assert raised.value.may_have_taken_effect is (row.code == 500)
    assert service.journal.count(request.path) == 1  # no repetition may create or send a second time
    assert service.messages() == []
    kept = [campaign["mailName"] for campaign in service.campaigns()]
    assert kept == (["spring"] if "is kept" in row.condition else [])


@pytest.mark.parametrize("case", numbered([Case("", key) for key in BODIES]))
def test_without_the_change_the_same_request_is_carried_out(case: Case, service: Emulator, client: MailClient):
    assert client.send(unchecked(case.key, case.body)).code == 200
    assert len(service.campaigns()) + len(service.messages()) == 1


@pytest.mark.parametrize("key", [request.key for request in REQUESTS if request.effect != UNLISTED])
def test_a_rejected_token_is_an_authentication_error(key: str, config: ClientConfig, emulator: Emulator):
    row = ROWS["errors.authentication.1"]
    values = {"auth_type": "oauth", "access_token": SecretStr("not-a-token"), "api_key": None}
    request = model_of(operation(key)).model_validate(operation(key).minimal)
    with MailClient(config.model_copy(update=values)) as client, pytest.raises(MailAuthError) as raised:
        client.send(request)
    assert raised.value.status == row.code
    (entry,) = emulator.journal.entries()
    assert (entry["auth"], entry["processed"]) == ("invalid", False)
    assert "not-a-token" not in repr(raised.value)


@pytest.mark.parametrize("status", [401, 403, 400])
def test_a_rejected_api_key_is_not_repeated(status: int, config: ClientConfig, emulator: Emulator):
    emulator.settings.bad_api_key_http_status = emulator.settings.bad_api_key_code = status
    request = model_of(operation("lists.get")).model_validate({})
    with (
        MailClient(config.model_copy(update={"api_key": SecretStr("wrong-key")})) as client,
        pytest.raises(MailAuthError if status == 401 else MailRejectedError),
    ):
        client.send(request)
    assert emulator.journal.count() == 1
