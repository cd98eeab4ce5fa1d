"""Every operation of the document goes through the hook, with both clients, and arrives as it was meant."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from airflow_provider_mail import api
from airflow_provider_mail.api._core.requests import MailRequest, MailResponse
from airflow_provider_mail.api.campaigns import (
    CancelCampaign,
    CreateCampaign,
    DeleteCampaign,
    GetCampaigns,
    GetCampaignStats,
    MailStatus,
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
from airflow_provider_mail.api.lists import AddList, DeleteList, GetLists
from airflow_provider_mail.api.oauth import GetToken, authorize_url
from airflow_provider_mail.api.senders import AddSender, DeleteSender, GetSenders, VerifySender
from airflow_provider_mail.api.templates import AddTemplate, DeleteTemplate, GetTemplates
from airflow_provider_mail.api.transactional import (
    Delivery,
    GetTransactionalStats,
    MessageVersion,
    Recipient,
    SendBatch,
    SendMail,
)
from airflow_provider_mail.api.webhooks import EventToggles, GetWebhook, SaveWebhook
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.mail import MailHook
from tests.document.facts import OPERATIONS

ANNA = "anna@example.com"
NEWS = "news@example.com"
DAY = "2026-03-01"


def no_preparation(emulator: Emulator) -> None:
    pass


@dataclass(frozen=True)
class Case:
    """A request, what it needs to find, the body that the service is to receive, and what its answer is to hold."""

    request: MailRequest[Any]
    received: dict[str, Any]
    answer: Callable[[Any], object] = field(default=lambda response: (response.code, response.message or ""))
    answered: object = (200, "")
    prepare: Callable[[Emulator], object] = no_preparation


def scheduled_campaign(emulator: Emulator) -> None:
    emulator.add_list("newsletter", [ANNA])
    emulator.add_campaign("spring", state="scheduled", send_date="2099-01-01T00:00:00+00:00")


CASES = [
    Case(
        UpsertContact(email=ANNA, name="Anna", phone_number="+49 30 1", list_name="newsletter"),
        {"email": ANNA, "name": "Anna", "phoneNumber": "+49 30 1", "listName": "newsletter"},
        prepare=lambda emulator: emulator.add_list("newsletter"),
    ),
    Case(
        ImportContacts(
            contact_data=[[ANNA, "Anna"], ["bo@example.com", None]],
            contact_data_mapping=[
                ColumnMapping(column_num=0, property_name="email"),
                ColumnMapping(column_num=1, property_name="name"),
            ],
            update_mode=UpdateMode.CREATE_AND_UPDATE,
            list_name="newsletter",
            list_description="everybody",
        ),
        {
            "contactData": [[ANNA, "Anna"], ["bo@example.com", None]],
            "contactDataMapping": [
                {"columnNum": 0, "propertyName": "email"},
                {"columnNum": 1, "propertyName": "name"},
            ],
            "updateMode": 1,
            "listName": "newsletter",
            "listDescription": "everybody",
        },
    ),
    Case(
        GetContact(email=ANNA),
        {"email": ANNA},
        lambda response: response.contact.name,
        "Anna",
        lambda emulator: emulator.add_contact(ANNA, name="Anna"),
    ),
    Case(
        GetListContacts(list_name="newsletter", page_size=1000, page_index=1),
        {"listName": "newsletter", "pageSize": 1000, "pageIndex": 1},
        lambda response: ([contact.email for contact in response.records], response.total_records),
        ([ANNA], 1),
        lambda emulator: emulator.add_list("newsletter", [ANNA]),
    ),
    Case(DeleteContact(email=ANNA), {"email": ANNA}, prepare=lambda emulator: emulator.add_contact(ANNA)),
    Case(AddList(list_name="newsletter"), {"listName": "newsletter"}),
    Case(
        GetLists(search="news", list_type=1, sort="CreateDate"),
        {"search": "news", "listType": 1, "sort": "CreateDate"},
        lambda response: [contacts.list_name for contacts in response.records],
        ["newsletter"],
        lambda emulator: emulator.add_list("newsletter"),
    ),
    Case(
        DeleteList(list_name="newsletter"),
        {"listName": "newsletter"},
        prepare=lambda emulator: emulator.add_list("newsletter"),
    ),
    Case(
        AddTemplate(template_name="hello", template_content="<p>{{name}}</p>", template_subject="Hello"),
        {"templateName": "hello", "templateContent": "<p>{{name}}</p>", "templateSubject": "Hello"},
    ),
    Case(
        GetTemplates(template_name="ell"),
        {"templateName": "ell"},
        lambda response: [(template.template_name, template.template_subject) for template in response.records],
        [("hello", "Hello")],
        lambda emulator: emulator.add_template("hello", subject="Hello", content="<p>Hello</p>"),
    ),
    Case(
        DeleteTemplate(template_name="hello"),
        {"templateName": "hello"},
        prepare=lambda emulator: emulator.add_template("hello", subject="Hello", content="<p>Hello</p>"),
    ),
    Case(
        CreateCampaign(
            mail_name="spring",
            sender_mail=NEWS,
            subject="Spring",
            content="<p>Spring</p>",
            send_date=datetime(2099, 1, 1, 9, 30, tzinfo=UTC),
            send_list_names=["newsletter"],
            language_code="de",
        ),
        {
            "mailName": "spring",
            "senderMail": NEWS,
            "subject": "Spring",
            "content": "<p>Spring</p>",
            "sendDate": "2099-01-01T09:30:00Z",
            "sendListNames": ["newsletter"],
            "languageCode": "de",
        },
        lambda response: (isinstance(response.id, int), bool(response.guid)),
        (True, True),
        lambda emulator: emulator.add_list("newsletter", [ANNA]),
    ),
    Case(CancelCampaign(mail_name="spring"), {"mailName": "spring"}, prepare=scheduled_campaign),
    Case(
        GetCampaigns(mail_name="spring", mail_status=[MailStatus.COMPLETE], page_size=5),
        {"mailName": "spring", "mailStatus": [2], "pageSize": 5},
        lambda response: [(campaign.mail_name, campaign.mail_status) for campaign in response.records],
        [("spring", MailStatus.COMPLETE)],
        lambda emulator: emulator.add_campaign("spring"),
    ),
    Case(
        DeleteCampaign(mail_name="spring"),
        {"mailName": "spring"},
        prepare=lambda emulator: emulator.add_campaign("spring"),
    ),
    Case(
        GetCampaignStats(start_date=DAY, end_date=DAY, type="MailList"),
        {"startDate": DAY, "endDate": DAY, "type": "MailList"},
        lambda response: ([stats.mail_name for stats in response.mail_stats_list], response.total_records),
        (["spring"], 1),
        lambda emulator: emulator.add_campaign("spring", send_date=f"{DAY}T09:00:00+00:00"),
    ),
    Case(
        SendMail(sender_mail=NEWS, subject="Hello", content="<p>Hello</p>", to=Recipient(email=ANNA), track_open=1),
        {"senderMail": NEWS, "subject": "Hello", "content": "<p>Hello</p>", "to": {"email": ANNA}, "trackOpen": 1},
    ),
    Case(
        SendBatch(
            sender_mail=NEWS,
            template_name="hello",
            unique_msg_id="order-1",
            message_versions=[MessageVersion(to=[Recipient(email=ANNA, name="Anna")], params={"name": "Anna"})],
        ),
        {
            "senderMail": NEWS,
            "templateName": "hello",
            "uniqueMsgID": "order-1",
            "messageVersions": [
                {"to": [{"email": ANNA, "name": "Anna"}], "cc": [], "bcc": [], "params": {"name": "Anna"}}
            ],
        },
        prepare=lambda emulator: emulator.add_template("hello", subject="Hello", content="<p>{{name}}</p>"),
    ),
    Case(
        GetTransactionalStats(start_date=DAY, end_date=DAY),
        {"startDate": DAY, "endDate": DAY},
        lambda response: [(stats.stats_date, stats.sent_count) for stats in response.mail_stats_list],
        [(date(2026, 3, 1), 7)],
        lambda emulator: emulator.set_transactional_day(DAY, sentCount=7),
    ),
    Case(
        GetSenders(sender_email=NEWS),
        {"senderEmail": NEWS},
        lambda response: {sender.from_domain for sender in response.mail_from_domains},
        {NEWS},
    ),
    Case(AddSender(sender_email="shop.example.com", sender_type="2"),
         {"senderEmail": "shop.example.com", "senderType": "2"}),
    Case(
        VerifySender(from_domain=NEWS, selector="main"),
        {"fromDomain": NEWS, "selector": "main"},
        lambda response: (response.valid, response.good_mx, response.good_spf, response.good_dkim, response.good_dmarc),
        (True, True, True, True, True),
    ),
    Case(DeleteSender(sender_email=NEWS), {"senderEmail": NEWS}),
    Case(GetWebhook(), {}, lambda response: (response.trans_event, response.trans_enable), (None, None)),
    Case(
        SaveWebhook(
            trans_event=EventToggles(opened=True), trans_callback_url="https://example.com/hook", trans_enable=False
        ),
        {"transEvent": {"opened": True}, "transCallbackUrl": "https://example.com/hook", "transEnable": False},
    ),
]  # fmt: skip


def send(hook: MailHook, request: MailRequest[Any]) -> MailResponse:
    response: MailResponse = hook.send(request)
    return response


def send_async(hook: MailHook, request: MailRequest[Any]) -> MailResponse:
    async def carry_out() -> MailResponse:
        async with await hook.get_async_conn() as client:
            response: MailResponse = await client.send(request)
            return response

    return asyncio.run(carry_out())


both_clients = pytest.mark.parametrize("way", [send, send_async])


@both_clients
@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case.request).__name__)
def test_operation(
    hook: MailHook, emulator: Emulator, case: Case, way: Callable[[MailHook, MailRequest[Any]], MailResponse]
) -> None:
    case.prepare(emulator)

    response = way(hook, case.request)

    assert case.answer(response) == case.answered
    (entry,) = emulator.journal.entries()
    assert (entry["operation"], entry["method"], entry["code"]) == (case.request.path, "POST", 200)
    assert entry["auth"] == "api_key"
    assert entry["body"] == case.received


@both_clients
def test_oauth(hook: MailHook, emulator: Emulator, way: Callable[[MailHook, MailRequest[Any]], MailResponse]) -> None:
    """The other two operations: the page that a person approves on, and the exchange of the code for a token."""
    application = {
        "client_id": emulator.settings.oauth_client_id,
        "redirect_uri": emulator.settings.oauth_redirect_uri,
    }
    page = authorize_url(hook.config.base_url, **application)
    assert httpx.get(page, trust_env=False).status_code == 200
    form = {**application, "response_type": "code", "scope": "All", "decision": "approve"}
    approved = httpx.post(page.partition("?")[0], data=form, trust_env=False)
    (code,) = parse_qs(urlsplit(approved.headers["location"]).query)["code"]

    secret = emulator.settings.oauth_client_secret
    token = way(hook, GetToken(client_id=application["client_id"], client_secret=secret, code=code))

    assert token.expires_in == -1
    (entry,) = emulator.journal.entries("/v5/auth/oauth/token")
    assert (entry["method"], entry["auth"]) == ("GET", "none")
    headers = {"OAuth": token.access_token.get_secret_value()}
    answer = httpx.post(f"{emulator.base_url}/v5/lists/get", json={}, headers=headers, trust_env=False)
    assert answer.json()["code"] == 200


def test_no_operation_is_left_out() -> None:
    modules = [importlib.import_module(f"{api.__name__}.{info.name}") for info in pkgutil.iter_modules(api.__path__)]
    declared = {
        kind
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, MailRequest) and hasattr(kind, "path") and not name.startswith("_") and kind is not Delivery
    }
    assert declared == {type(case.request) for case in CASES} | {GetToken}
    assert {kind.path for kind in declared} | {"/v5/auth/oauth/authorize"} == {each.path for each in OPERATIONS}
