"""Sandbox on the client makes every write harmless: checked and not carried out, or not sent at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.api._core.requests import Effect, MailRequest
from airflow_provider_mail.api.campaigns import (
    CancelCampaign,
    CreateCampaign,
    DeleteCampaign,
    GetCampaigns,
    GetCampaignStats,
)
from airflow_provider_mail.api.contacts import (
    ColumnMapping,
    DeleteContact,
    GetContact,
    GetListContacts,
    ImportContacts,
    UpdateMode,
    UpsertContact,
)
from airflow_provider_mail.api.errors import MailRejectedError, MailSandboxError
from airflow_provider_mail.api.lists import AddList, DeleteList, GetLists
from airflow_provider_mail.api.senders import AddSender, DeleteSender, GetSenders, VerifySender
from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate, GetTemplates
from airflow_provider_mail.api.transactional import (
    GetTransactionalStats,
    MessageVersion,
    Recipient,
    SendBatch,
    SendMail,
)
from airflow_provider_mail.api.webhooks import GetWebhook, SaveWebhook
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver

ADA = "ada@example.com"
TO = Recipient(email=ADA)

# "Operations that list a sandboxMode parameter", copied from the document.
CHECKED: list[MailRequest[Any]] = [
    UpsertContact(email=ADA),
    ImportContacts(
        contact_data=[[ADA]], contact_data_mapping=[ColumnMapping(column_num=0, property_name="email")],
        update_mode=UpdateMode.CREATE_AND_UPDATE, list_name="new list",
    ),
    DeleteContact(email="kept@example.com"),
    AddList(list_name="another list"),
    DeleteList(list_name="kept list"),
    CreateCampaign(mail_name="n", sender_mail="news@example.com", send_list_names=["kept list"]),
    CancelCampaign(mail_name="kept campaign"),
    DeleteCampaign(mail_name="kept campaign"),
    SendMail(subject="s", content="c", sender_mail="news@example.com", to=TO),
    SendBatch(subject="s", content="c", sender_mail="news@example.com", message_versions=[MessageVersion(to=[TO])]),
    AddSender(sender_email="new.example.com", sender_type="1"),
    DeleteSender(sender_email="news@example.com"),
]  # fmt: skip
REFUSED: list[MailRequest[Any]] = [
    AddTemplate(template_name="t", template_content="c", template_subject="s"),
    DeleteTemplate(template_name="kept template"),
    SaveWebhook(trans_enable=True),
]
READS: list[MailRequest[Any]] = [
    GetContact(email="kept@example.com"),
    GetListContacts(list_name="kept list"),
    GetLists(),
    GetTemplates(),
    GetCampaigns(),
    GetCampaignStats(start_date="2026-01-01", end_date="2026-01-01"),
    GetTransactionalStats(start_date="2026-01-01", end_date="2026-01-01"),
    GetSenders(),
    VerifySender(from_domain="example.com", selector="s"),
    GetWebhook(),
]


def name(request: MailRequest[Any]) -> str:
    return type(request).__name__


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("kept list", ["kept@example.com"])
    emulator.add_template("kept template", subject="s", content="c")
    emulator.add_campaign("kept campaign", state="scheduled", send_date="2999-01-01T00:00:00Z")
    return emulator


def held(service: Emulator) -> Any:
    return (
        service.contacts(), service.lists(), service.templates(), service.campaigns(), service.messages(),
        service.senders(), service.webhook(),
    )  # fmt: skip


@pytest.fixture
def client(connect: Callable[..., Driver], service: Emulator) -> Driver:
    return connect(service.base_url, sandbox=True)


@pytest.mark.parametrize("request_", CHECKED, ids=name)
def test_what_takes_sandbox_mode_is_checked_and_changes_nothing(
    request_: MailRequest[Any], service: Emulator, client: Driver
) -> None:
    before = held(service)
    client.send(request_)
    assert held(service) == before
    (entry,) = service.journal.entries()
    assert entry["body"]["sandboxMode"] is True
    assert not entry["processed"]


@pytest.mark.parametrize("request_", REFUSED, ids=name)
def test_a_write_without_sandbox_mode_is_not_sent(
    request_: MailRequest[Any], service: Emulator, client: Driver
) -> None:
    with pytest.raises(MailSandboxError, match=r"has no sandboxMode .* nothing was sent") as raised:
        client.send(request_)
    assert request_.path in str(raised.value)
    assert not raised.value.temporary
    assert service.journal.count() == 0


@pytest.mark.parametrize("request_", READS, ids=name)
def test_reads_go_through_as_ever(request_: MailRequest[Any], service: Emulator, client: Driver) -> None:
    client.send(request_)
    (entry,) = service.journal.entries()
    assert "sandboxMode" not in entry["body"]


@pytest.mark.parametrize(
    "body", [b"{}", b'{"sandboxMode": false}', b'{"email": {"sandboxMode": true}}', b"[true]", b"no JSON"]
)
def test_what_cannot_be_marked_is_not_sent(body: bytes, service: Emulator, client: Driver) -> None:
    """A request that says that it takes the sandbox, and whose body is made in its own way."""

    class Encoded(UpsertContact):
        def payload(self) -> bytes:
            return body

    with pytest.raises(MailSandboxError, match="nothing was sent"):
        client.send(Encoded(email=ADA))
    assert service.journal.count() == 0


def test_every_request_is_in_one_of_the_three() -> None:
    covered = {*map(type, CHECKED), *map(type, REFUSED), *map(type, READS)}
    assert len(covered) == 25
    for request in CHECKED:
        assert request.takes_sandbox
    for request in (*REFUSED, *READS):
        assert not request.takes_sandbox
    assert {request.effect for request in READS} == {Effect.READ}
    assert Effect.READ not in {request.effect for request in (*CHECKED, *REFUSED)}


def test_what_is_wrong_is_reported(service: Emulator, client: Driver) -> None:
    with pytest.raises(MailRejectedError, match="nobody"):
        client.send(CreateCampaign(mail_name="n", sender_mail="news@example.com", send_list_names=["nobody"]))


@pytest.mark.parametrize("request_", CHECKED, ids=name)
def test_one_request_alone_may_be_in_the_sandbox(
    request_: MailRequest[Any], service: Emulator, connect: Callable[..., Driver]
) -> None:
    before = held(service)
    connect(service.base_url).send(request_.model_copy(update={"sandbox_mode": True}))
    assert held(service) == before


@pytest.mark.parametrize("fault", ["close_after", "http_error_before", "too_many_requests"])
@pytest.mark.parametrize("request_", CHECKED, ids=name)
def test_repetitions_stay_in_the_sandbox(
    request_: MailRequest[Any], fault: str, service: Emulator, client: Driver
) -> None:
    before = held(service)
    service.faults.add(fault, request_.path, **({"retry_after": 0} if fault == "too_many_requests" else {}))
    try:
        client.send(request_)
    except Exception as error:
        assert request_.effect in (Effect.CREATE, Effect.SEND), error  # noqa: PT017
    assert held(service) == before
    assert all(entry["body"].get("sandboxMode") for entry in service.journal.entries(request_.path))
