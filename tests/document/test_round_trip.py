"""What our client accepts reaches the service and reads back unchanged, whatever it is made of."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from airflow_provider_mail import api
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.flows.campaign_checks import differences
from mail_emulator import Emulator
from tests.document.asserting import IN_A_LINE, anything, at_most_bytes, lines
from tests.document.facts import LANGUAGES
from tests.support.sampling import examples

bounded = settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow])

addresses = st.emails()
SUBSCRIPTION = "Weekly"
TEAM_LISTS = ("customers", "Kunden & Käufer", "список", "  ")


@pytest.fixture(scope="module")
def service() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.clock.freeze("2026-01-31T09:00:00Z")
        emulator.add_sender("news@example.com")
        emulator.add_subscription(SUBSCRIPTION)
        for name in TEAM_LISTS:
            emulator.add_list(name)
        yield emulator
        assert emulator.crashes() == []


@pytest.fixture(scope="module")
def mail(service: Emulator) -> Iterator[api.MailClient]:
    with api.MailClient(ClientConfig(base_url=service.base_url, api_key=SecretStr(service.api_key))) as client:
        yield client


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str | None]]]:
    """Properties in some order, one of them the address, and rows of them with different addresses."""
    known = ("email", "name", "phoneNumber")
    others = draw(st.lists(anything.filter(lambda name: name not in known), unique=True, max_size=3))
    properties = draw(st.permutations(["email", *draw(st.sets(st.sampled_from(["name", "phoneNumber"]))), *others]))
    emails = draw(st.lists(addresses, min_size=1, max_size=5, unique_by=str.lower))
    rows = [[email if name == "email" else draw(st.none() | anything) for name in properties] for email in emails]
    return list(properties), rows


@bounded
@given(table=tables())
def test_an_import(table: tuple[list[str], list[list[str | None]]], mail: api.MailClient):
    properties, rows = table
    mapping = [{"columnNum": n, "propertyName": name} for n, name in enumerate(properties)]
    body = {"contactData": rows, "contactDataMapping": mapping, "updateMode": 1, "listName": "imported"}
    mail.send(api.ImportContacts.model_validate(body))
    found = [contact for page in mail.pages(api.GetListContacts(list_name="imported", page_size=3)) for contact in page]
    by_email = {contact.email: contact for contact in found}
    assert len(found) == len(rows)
    for row in rows:
        given_values = dict(zip(properties, row, strict=True))
        contact = by_email[given_values.pop("email")]
        assert contact.name == (given_values.pop("name", None) or contact.email)
        assert contact.phone_number == given_values.pop("phoneNumber", None)
        assert contact.properties == {name: value for name, value in given_values.items() if value is not None}
        mail.send(api.DeleteContact(email=str(contact.email)))
    mail.send(api.DeleteList(list_name="imported"))


letters = anything.map("<p>{}".format)
"""Neither blank nor the name of a file, which is not sent."""
titles = lines.map("News {}".format)


# Campaigns.

SENDER = st.just("news@example.com")
list_names = st.lists(st.sampled_from(TEAM_LISTS), unique=True)
later = st.datetimes(datetime(2100, 1, 1), datetime(9999, 12, 30), timezones=st.just(UTC))
contents = st.binary(min_size=1, max_size=50).map(lambda content: base64.b64encode(content).decode())
files = st.fixed_dictionaries({"fileName": lines, "fileData": contents})
campaigns = st.fixed_dictionaries(
    {"mailName": at_most_bytes(200, IN_A_LINE), "senderMail": SENDER},
    optional={
        "senderName": lines, "subject": titles, "content": letters, "repelListNames": list_names,
        "replyTo": addresses, "attachment": files, "languageCode": st.sampled_from(LANGUAGES), "marketName": anything,
        "subscriptName": st.just(SUBSCRIPTION), "projectCode": anything,
        "editorType": st.sampled_from(["DRAG", "CLASSIC"]),
    },
)  # fmt: skip
saved = st.fixed_dictionaries({"onlySave": st.just(True)}, optional={"sendListNames": list_names, "sendDate": later})
scheduled = st.fixed_dictionaries(
    {"sendListNames": list_names.filter(bool), "sendDate": later}, optional={"onlySave": st.just(False)}
)


@bounded
@given(fields=campaigns, sending=saved | scheduled)
def test_a_campaign(fields: dict[str, Any], sending: dict[str, Any], service: Emulator, mail: api.MailClient):
    body = {**fields, **sending}
    request = api.CreateCampaign.model_validate(body)
    response = mail.send(request)
    found = mail.run(api.find_campaign(request.mail_name))
    shown = found.model_dump(by_alias=True)
    sender = dict.fromkeys(("senderName", "replyTo"), "news@example.com")
    for wire in ("senderMail", "subject", "languageCode", "marketName", "projectCode", "subscriptName", *sender):
        assert shown[wire] == body.get(wire, sender.get(wire)), wire
    assert (found.guid, found.mail_name, found.mail_content) == (response.guid, body["mailName"], body.get("content"))
    assert found.rcpt_list_names == body.get("sendListNames", [])
    assert found.repel_list_names == body.get("repelListNames", [])
    assert (found.task_type, found.mail_stats) == ("MailList", None)
    if "sendDate" in body:
        assert found.send_by_date_time == body["sendDate"].replace(microsecond=0)
    assert differences(request, found) == []
    (held,) = [task for task in service.campaigns(body["mailName"]) if not task["removed"]]
    content = base64.b64decode(body["attachment"]["fileData"]) if "attachment" in body else b""
    assert held["attachmentBytes"] == len(content)
    mail.send(api.DeleteCampaign(mail_name=request.mail_name))
    assert mail.run(api.find_campaign(request.mail_name)) is None


# Transactional mail.

untagged, untagged_lines = (texts.filter(lambda text: "{{" not in text) for texts in (letters, titles))
person = st.fixed_dictionaries({"email": addresses}, optional={"name": at_most_bytes(100, IN_A_LINE)})
people = st.lists(person, max_size=3)
params = st.dictionaries(anything, anything, max_size=3)
common = {"senderMail": SENDER, "subject": untagged_lines, "content": untagged}
versions = st.fixed_dictionaries(
    {"to": people.filter(bool), "cc": people, "bcc": people},
    optional={"subject": untagged_lines, "content": untagged, "params": params},
)
batches = st.fixed_dictionaries(
    {**common, "messageVersions": st.lists(versions, min_size=1, max_size=4)},
    optional={"senderName": at_most_bytes(200, IN_A_LINE), "params": params},
)


@bounded
@given(body=batches)
def test_a_batch(body: dict[str, Any], service: Emulator, mail: api.MailClient):
    before = len(service.messages())
    mail.send(api.SendBatch.model_validate(body))
    for message, version in zip(service.messages()[before:], body["messageVersions"], strict=True):
        assert message["subject"] == version.get("subject", body["subject"])
        assert message["content"] == version.get("content", body["content"])
        assert message["sender_name"] == body.get("senderName")
        assert [(person["role"], person["email"], person["name"]) for person in message["recipients"]] == [
            (role, person["email"], person.get("name")) for role in ("to", "cc", "bcc") for person in version[role]
        ]
