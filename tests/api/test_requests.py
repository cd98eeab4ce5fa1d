"""What a request is on the wire. (Every model is compared with the document, field by field, in ``tests/document``.)"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_provider_mail.api._core.requests import Effect, MailRequest
from airflow_provider_mail.api.campaigns import (
    Attachment,
    CancelCampaign,
    CreateCampaign,
    DeleteCampaign,
    GetCampaigns,
    GetCampaignStats,
    MailStatus,
)
from airflow_provider_mail.api.contacts import ColumnMapping, DeleteContact, ImportContacts, UpdateMode, UpsertContact
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.lists import DeleteList, GetLists
from airflow_provider_mail.api.oauth import GetToken
from airflow_provider_mail.api.senders import DeleteSender
from airflow_provider_mail.api.templates import DeleteTemplate
from airflow_provider_mail.api.transactional import MessageVersion, Recipient, SendBatch, SendMail
from airflow_provider_mail.api.webhooks import EventToggles, GetWebhook, SaveWebhook, SenderCallback
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver

ADA = "ada@example.com"

NEWS = "news@example.com"
BLANK = " \u200b\u00a0"

BODIES: list[tuple[MailRequest[Any], dict[str, Any]]] = [
    (GetWebhook(), {}),
    (
        SendMail(sender_mail=NEWS, sender_name=BLANK, to=Recipient(email=ADA, name=BLANK), subject="a", content="b"),
        {"senderMail": NEWS, "to": {"email": ADA}, "subject": "a", "content": "b"},
    ),
    (
        CreateCampaign(mail_name="a", sender_mail=NEWS, sender_name=BLANK, only_save=True),
        {"mailName": "a", "senderMail": NEWS, "onlySave": True},
    ),
    (GetLists(), {}),
    (GetLists(search="x", list_type=0, page_size=50), {"search": "x", "listType": 0, "pageSize": 50}),
    (UpsertContact(phone_number="+49 1", name=None), {"phoneNumber": "+49 1"}),
    (GetCampaigns(mail_status=[MailStatus.DRAFT, 4], all_team=False), {"mailStatus": [-1, 4], "allTeam": False}),
    (
        GetCampaignStats(start_date=date(2026, 1, 31), end_date="2026-02-01"),
        {"startDate": "2026-01-31", "endDate": "2026-02-01"},
    ),
    (
        CreateCampaign(
            mail_name="Grüße 新闻", sender_mail="news@example.com", only_save=True,
            send_date=datetime(2026, 1, 31, 9, 0, 0, 999_999, timezone(timedelta(hours=2))),
            attachment=Attachment(file_name="a.txt", file_data="YQ=="), repel_list_names=[],
        ),
        {
            "mailName": "Grüße 新闻", "senderMail": "news@example.com", "onlySave": True,
            "sendDate": "2026-01-31T07:00:00Z", "attachment": {"fileName": "a.txt", "fileData": "YQ=="},
            "repelListNames": [],
        },
    ),
    (
        ImportContacts(
            contact_data=[[ADA, None], ["bob@example.com", "Bob"]],
            contact_data_mapping=[
                ColumnMapping(column_num=0, property_name="email"), ColumnMapping(column_num=1, property_name="name"),
            ],
            update_mode=UpdateMode.CREATE_ONLY, list_name="customers", sandbox_mode=False,
        ),
        {
            "contactData": [[ADA, None], ["bob@example.com", "Bob"]],
            "contactDataMapping": [
                {"columnNum": 0, "propertyName": "email"}, {"columnNum": 1, "propertyName": "name"},
            ],
            "updateMode": 2, "listName": "customers", "sandboxMode": False,
        },
    ),
    (
        SendBatch(
            sender_mail="news@example.com", template_name="t", params={"a": "1"}, track_open=1, unique_msg_id="m-1",
            message_versions=[MessageVersion(to=[Recipient(email=ADA)])],
        ),
        {
            "senderMail": "news@example.com", "templateName": "t", "params": {"a": "1"}, "trackOpen": 1,
            "uniqueMsgID": "m-1", "messageVersions": [{"to": [{"email": ADA}], "cc": [], "bcc": []}],
        },
    ),
    (
        SaveWebhook(
            trans_event=EventToggles(spam_report=True), trans_enable=False,
            trans_callback_url_extra=[SenderCallback(sender="news@example.com", url="")],
            trans_callback_url_extra_update_mode="replace",
        ),
        {
            "transEvent": {"spamReport": True}, "transEnable": False,
            "transCallbackUrlExtra": [{"sender": "news@example.com", "url": ""}],
            "transCallbackUrlExtraUpdateMode": "replace",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "body"), BODIES, ids=lambda each: type(each).__name__)
def test_the_service_receives_the_documents_names_and_forms(
    request_: MailRequest[Any], body: dict[str, Any], emulator: Emulator, client: Driver
) -> None:
    emulator.add_template("t", subject="s", content="c")
    client.send(request_)
    (entry,) = emulator.journal.entries()
    assert entry["body"] == body
    assert entry["operation"] == request_.path
    assert entry["method"] == "POST"
    assert entry["auth"] == "api_key"
    assert entry["headers"]["content-type"] == "application/json"


def test_an_access_token_instead_of_the_key(emulator: Emulator, connect: Callable[..., Driver]) -> None:
    token = emulator.issue_token()
    connect(emulator.base_url, api_key=None, auth_type="oauth", access_token=token).send(GetLists())
    assert emulator.journal.entries()[0]["auth"] == "oauth"
    assert "apikey" not in emulator.journal.entries()[0]["headers"]


def test_a_base_address_with_a_path_and_with_the_version(emulator: Emulator, connect: Callable[..., Driver]) -> None:
    for ending in ("", "/", "/v5", "/v5/"):
        connect(emulator.base_url + ending).send(GetLists())
    assert emulator.journal.count("lists/get") == 4
    assert emulator.journal.count() == 4


def test_the_token_exchange_travels_in_the_query_alone(emulator: Emulator, client: Driver) -> None:
    with pytest.raises(Exception, match="oauth/token"):
        client.send(GetToken(client_id="emulator-client", client_secret="a&b c+d", code="c%20"))
    (entry,) = emulator.journal.entries()
    assert entry["method"] == "GET"
    assert entry["body"] == {
        "grant_type": "authorization_code", "client_id": "emulator-client", "client_secret": "a&b c+d", "code": "c%20",
    }  # fmt: skip
    assert not {"apikey", "oauth"} & entry["headers"].keys()


def test_a_mistake_names_every_field_and_shows_no_value() -> None:
    with pytest.raises(MailValidationError) as raised:
        CreateCampaign(mail_name="", sender_mail="secret", send_date=datetime(2026, 1, 1), contnet="x")
    text = str(raised.value)
    for field in ("mail_name", "sender_mail", "send_date", "contnet"):
        assert field in text
    assert "secret" not in text
    assert raised.value.operation == "/v5/campaign/mail/sends"


def test_a_request_cannot_be_changed_behind_our_back() -> None:
    request = UpsertContact(email=ADA)
    with pytest.raises(Exception, match="frozen"):
        request.email = "else@example.com"  # type: ignore[misc]


def test_every_deletion_can_ask_whether_the_thing_is_still_there() -> None:
    for request in (DeleteContact, DeleteList, DeleteTemplate, DeleteSender, DeleteCampaign, CancelCampaign):
        assert request.effect is Effect.DELETE
        assert callable(getattr(request, "exists", request.took_effect))
    everything = {sub for base in MailRequest.__subclasses__() for sub in (base, *base.__subclasses__())}
    assert sum(getattr(each, "effect", None) is Effect.DELETE for each in everything) == 6


def test_what_may_be_repeated() -> None:
    assert {effect for effect in Effect if effect.repeatable} == {Effect.READ, Effect.REPEATABLE, Effect.DELETE}


def test_the_instant_is_kept_whatever_the_zone() -> None:
    for text in ("2026-01-31T09:00:00+02:00", "2026-01-31T07:00:00Z", "2026-01-31 02:00:00.7-05:00"):
        request = CreateCampaign(mail_name="n", sender_mail=ADA, only_save=True, send_date=text)
        assert request.send_date == datetime(2026, 1, 31, 7, tzinfo=UTC)
