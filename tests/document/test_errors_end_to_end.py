"""Every row of the document's tables "Errors": what our client makes of it, and what the service then holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailRejectedError,
    MailServerError,
    MailValidationError,
)
from airflow_provider_mail.emulator import Emulator
from tests.document.fact_rows import ERRORS
from tests.document.fact_types import UNLISTED
from tests.document.models import REQUESTS, model_of
from tests.document.unchecked import operation, unchecked

ROWS = {row.id: row for row in ERRORS}

CAMPAIGN = {"mailName": "spring", "senderMail": "news@example.com", "sendListNames": ["customers"]}
SINGLE = {
    "subject": "Receipt",
    "content": "<p>Thank you</p>",
    "senderMail": "news@example.com",
    "to": {"email": "ada@example.com"},
}
VERSION = {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": []}
BATCH = {
    "subject": "Receipt",
    "content": "<p>Thank you</p>",
    "senderMail": "news@example.com",
    "messageVersions": [VERSION],
}
BODIES = {
    "campaigns.sends": CAMPAIGN,
    "transactional.sends_customised.single": SINGLE,
    "transactional.sends_customised.batch": BATCH,
}
SINGLE_KEY, BATCH_KEY = "transactional.sends_customised.single", "transactional.sends_customised.batch"

ABSENT = object()


def nothing(emulator: Emulator) -> None:
    """The service as it is."""


@dataclass(frozen=True)
class Case:
    """One way to meet a row: the good body with changes, sent to a service that was arranged for it.

    ``refusal`` is what our own model says before anything is sent; ``None`` where only the service can know.
    """

    row: str
    key: str
    changes: dict[str, Any] = field(default_factory=dict)
    refusal: str | None = None
    arrange: Callable[[Emulator], Any] = nothing

    @property
    def body(self) -> dict[str, Any]:
        body = {**BODIES[self.key], **self.changes}
        return {name: value for name, value in body.items() if value is not ABSENT}


def to_be_refused(row: str, key: str, refusal: str, *changes: dict[str, Any]) -> list[Case]:
    return [Case(row, key, change, refusal) for change in changes]


def version(**changes: Any) -> dict[str, Any]:
    return {"messageVersions": [{**VERSION, **changes}]}


def fault(kind: str, path: str, **parameters: Any) -> Callable[[Emulator], Any]:
    return lambda emulator: emulator.faults.add(kind, path, **parameters)


def no_credits(emulator: Emulator) -> None:
    emulator.settings.email_credits = 0


SENDS = "campaign/mail/sends"
BAD_DATES = ("2026-01-31", "2026-01-31 09:00", "31.01.2026 09:00:00", "tomorrow", "")
MISSING = {"templateName": "missing"}

CASES = [
    *(
        case
        for name, refusal in (("mailName", "mail_name"), ("senderMail", "sender_mail"))
        for case in to_be_refused("errors.campaign.1", "campaigns.sends", refusal, {name: ABSENT}, {name: ""})
    ),
    *to_be_refused(
        "errors.campaign.2", "campaigns.sends", "mail_name", {"mailName": "x" * 201}, {"mailName": "é" * 101}
    ),
    *to_be_refused(
        "errors.campaign.3", "campaigns.sends", "send_date", *({"sendDate": date} for date in BAD_DATES[:4])
    ),
    *to_be_refused(
        "errors.campaign.4",
        "campaigns.sends",
        "attachment",
        {"attachment": {"fileName": "a.txt"}},
        {"attachment": {"fileData": "eA=="}},
        {"attachment": {"fileName": "", "fileData": "eA=="}},
    ),
    *to_be_refused(
        "errors.campaign.5",
        "campaigns.sends",
        "send_list_names",
        {"sendListNames": []},
        {"sendListNames": ABSENT},
        {"sendListNames": [], "onlySave": False},
    ),
    Case("errors.campaign.6", "campaigns.sends", {"sendListNames": ["customers", "nobody"]}),
    Case("errors.campaign.7", "campaigns.sends", {"repelListNames": ["nobody"]}),
    Case("errors.campaign.8", "campaigns.sends", arrange=fault("code_before", SENDS, code=500)),
    Case("errors.campaign.9", "campaigns.sends", arrange=fault("attachment_failed", SENDS)),
    Case("errors.campaign.10", "campaigns.sends", arrange=fault("task_check_failed", SENDS)),
    *(
        Case("errors.transactional.1", SINGLE_KEY, {name: ABSENT}, refusal)
        for name, refusal in (("subject", "subject"), ("content", "content"), ("senderMail", "sender_mail"))
    ),
    Case("errors.transactional.1", BATCH_KEY, {"senderMail": ABSENT}, "sender_mail"),
    *(
        Case("errors.transactional.2", key, {"sendDate": date}, "send_date")
        for key in (SINGLE_KEY, BATCH_KEY)
        for date in BAD_DATES[:4]
    ),
    *(
        Case("errors.transactional.3", key, {name: "é" * (limit // 2) + "a" * (1 + limit % 2)}, refusal)
        for key in (SINGLE_KEY, BATCH_KEY)
        for name, limit, refusal in (
            ("category", 100, "category"),
            ("campaign", 100, "campaign"),
            ("uniqueMsgID", 50, "unique_msg_id"),
        )
    ),
    # Without "to" and "messageVersions" a body is of neither form; the model of the one that was meant decides.
    Case("errors.transactional.4", SINGLE_KEY, {"to": ABSENT}, "to: "),
    Case("errors.transactional.4", SINGLE_KEY, {"to": {}}, "to.email"),
    Case("errors.transactional.4", BATCH_KEY, {"messageVersions": []}, "message_versions"),
    Case("errors.transactional.4", BATCH_KEY, version(to=[]), "message_versions[0].to"),
    Case("errors.transactional.5", SINGLE_KEY, {"to": {"email": ""}}, "to.email"),
    *(
        Case("errors.transactional.5", BATCH_KEY, version(**{kind: [{"email": ""}]}), f"message_versions[0].{kind}[0]")
        for kind in ("to", "cc", "bcc")
    ),
    *(
        Case("errors.transactional.6", SINGLE_KEY, {"to": {"email": address}}, "to.email")
        for address in ("ada", "ada@", "@example.com", "ada@example", "ada @example.com", "a@b@example.com")
    ),
    Case("errors.transactional.7", BATCH_KEY, version(**MISSING)),
    Case("errors.transactional.8", BATCH_KEY, {"senderName": "é" * 100 + "a"}, "sender_name"),
    Case("errors.transactional.9", SINGLE_KEY, {"senderMail": "somebody@else.example"}),
    Case("errors.transactional.9", BATCH_KEY, {"senderMail": "somebody@else.example"}),
    Case("errors.transactional.10", SINGLE_KEY, {"replyTo": "nobody"}, "reply_to"),
    Case("errors.transactional.10", BATCH_KEY, {"replyTo": "nobody"}, "reply_to"),
    Case("errors.transactional.11", BATCH_KEY, {"content": ABSENT}, "content or template_name"),
    Case("errors.transactional.11", SINGLE_KEY, {"content": ""}, "content"),
    Case("errors.transactional.12", BATCH_KEY, {"content": ABSENT, **MISSING}),
    Case("errors.transactional.13", SINGLE_KEY, arrange=no_credits),
    Case("errors.transactional.13", BATCH_KEY, arrange=no_credits),
]


def numbered(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=f"{case.row}-{case.key.rpartition('.')[2]}-{n}") for n, case in enumerate(cases)]


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("customers", ["ada@example.com", "bob@example.com"])
    return emulator


def test_every_row_has_a_case():
    assert {case.row for case in CASES} | {"errors.authentication.1"} == set(ROWS)


@pytest.mark.parametrize("case", numbered([case for case in CASES if case.refusal]))
def test_what_can_be_known_before_is_never_sent(case: Case):
    with pytest.raises(MailValidationError) as refused:
        model_of(operation(case.key)).model_validate(case.body)
    assert case.refusal
    assert case.refusal in str(refused.value)


@pytest.mark.parametrize("http_status_too", [False, True], ids=["in_the_body", "as_http_status"])
@pytest.mark.parametrize("case", numbered(CASES))
def test_the_service_refuses_and_the_client_says_so(
    case: Case, http_status_too: bool, service: Emulator, client: MailClient
):
    row = ROWS[case.row]
    assert case.key.startswith(row.operation)
    assert case.key.endswith(row.form)
    service.settings.errors_as_http_status = http_status_too
    case.arrange(service)
    request = (
        unchecked(case.key, case.body) if case.refusal else model_of(operation(case.key)).model_validate(case.body)
    )

    with pytest.raises(MailServerError if row.code == 500 else MailRejectedError) as refused:
        client.send(request)

    assert refused.value.code == row.code
    assert refused.value.operation == request.path
    assert refused.value.service_message
    assert refused.value.service_message in str(refused.value)
    # After a refusal nothing has happened; after code 500 the client cannot know.
    assert refused.value.may_have_taken_effect is (row.code == 500)
    assert service.journal.count(request.path) == 1  # no repetition may create or send a second time
    assert service.messages() == []
    kept = [campaign["mailName"] for campaign in service.campaigns()]
    assert kept == (["spring"] if "is kept" in row.condition else [])


@pytest.mark.parametrize("case", numbered([Case("", key) for key in BODIES]))
def test_without_the_change_the_same_request_is_carried_out(case: Case, service: Emulator, client: MailClient):
    assert client.send(unchecked(case.key, case.body)).code == 200
    assert len(service.campaigns()) + len(service.messages()) == 1


@pytest.mark.parametrize("key", [request.key for request in REQUESTS if request.effect != UNLISTED])
def test_a_refused_token_is_an_authentication_error_of_every_operation(
    key: str, config: ClientConfig, emulator: Emulator
):
    row = ROWS["errors.authentication.1"]
    values = {"auth_type": "oauth", "access_token": SecretStr("not-a-token"), "api_key": None}
    request = model_of(operation(key)).model_validate(operation(key).minimal)
    with (
        MailClient(config.model_copy(update=values)) as client,
        pytest.raises(MailAuthError) as refused,
    ):
        client.send(request)
    assert refused.value.status == row.code
    (entry,) = emulator.journal.entries()
    assert (entry["auth"], entry["processed"]) == ("invalid", False)
    assert "not-a-token" not in repr(refused.value)


@pytest.mark.parametrize("status", [401, 403, 400])
def test_a_refused_api_key_whose_answer_is_not_shown_is_not_repeated(
    status: int, config: ClientConfig, emulator: Emulator
):
    emulator.settings.bad_api_key_http_status = emulator.settings.bad_api_key_code = status
    request = model_of(operation("lists.get")).model_validate({})
    with (
        MailClient(config.model_copy(update={"api_key": SecretStr("wrong-key")})) as client,
        pytest.raises(MailAuthError if status == 401 else MailRejectedError),
    ):
        client.send(request)
    assert emulator.journal.count() == 1
