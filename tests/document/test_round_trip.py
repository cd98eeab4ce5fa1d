"""What our client accepts reaches the service and reads back unchanged, whatever it is made of."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.provisional import domains
from pydantic import SecretStr

from airflow_provider_mail import api
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.flows.adopt_campaign import differences
from mail_emulator import Emulator
from tests.document.facts import LANGUAGES
from tests.document.strategies import IN_A_LINE, anything, at_most_bytes, lines, phone_numbers
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


# Contacts.


@bounded
@given(email=addresses, name=st.none() | anything, phone=st.none() | phone_numbers)
@example(email="Ada.Lovelace@Example.COM", name="\x00'\";--", phone="+44 20 7946 0000")
def test_a_contact(email: str, name: str | None, phone: str | None, mail: api.MailClient):
    mail.send(api.UpsertContact(email=email, name=name, phone_number=phone))
    contact = mail.send(api.GetContact(email=email)).contact
    assert contact is not None
    assert (contact.email, contact.name, contact.phone_number) == (email, name or email, phone)
    mail.send(api.DeleteContact(email=email))
    assert not mail.run(api.DeleteContact(email=email).exists())


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


# Lists, templates, senders.


@bounded
@given(name=anything.filter(lambda name: name not in TEAM_LISTS), description=st.none() | anything)
def test_a_list(name: str, description: str | None, service: Emulator, mail: api.MailClient):
    mail.send(api.AddList(list_name=name, list_description=description))
    found = mail.run(api.find_list(name))
    assert (found.list_name, found.list_type) == (name, 1)
    assert [held["description"] for held in service.lists() if held["name"] == name] == [description]
    mail.send(api.DeleteList(list_name=name))
    assert mail.run(api.find_list(name)) is None


letters = anything.map("<p>{}".format)
"""Neither blank nor the name of a file, which is not sent."""
titles = lines.map("News {}".format)


@bounded
@given(name=at_most_bytes(250), subject=titles, content=letters, editor=st.sampled_from([None, "DRAG", "CLASSIC"]))
def test_a_template(name: str, subject: str, content: str, editor: Any, service: Emulator, mail: api.MailClient):
    fields = {"template_name": name, "template_subject": subject, "template_content": content}
    mail.send(api.AddTemplate(**fields, editor_type=editor))
    found = mail.run(api.find_template(name))
    assert {field: getattr(found, field) for field in fields} == fields
    assert found.create_date == service.clock.now()
    assert [held["editor"] for held in service.templates()] == [editor or "DRAG"]
    mail.send(api.DeleteTemplate(template_name=name))
    assert mail.run(api.find_template(name)) is None


@bounded
@given(entry=addresses | domains().filter(lambda name: "." in name), kind=st.sampled_from(["1", "2"]))
def test_a_sender(entry: str, kind: Any, mail: api.MailClient):
    mail.send(api.AddSender(sender_email=entry, sender_type=kind))
    (found,) = mail.send(api.GetSenders(sender_email=entry)).mail_from_domains or []
    assert (found.from_domain, found.sender_type) == (entry, int(kind))
    mail.send(api.DeleteSender(sender_email=entry))
    assert not mail.run(api.DeleteSender(sender_email=entry).exists())


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

# The specification says "letters and digits" and not of which scripts; every reading of it knows these.
plain_labels = st.text("ABCxyz019", min_size=1, max_size=100)
untagged, untagged_lines = (texts.filter(lambda text: "{{" not in text) for texts in (letters, titles))
person = st.fixed_dictionaries({"email": addresses}, optional={"name": at_most_bytes(100, IN_A_LINE)})
people = st.lists(person, max_size=3)
params = st.dictionaries(anything, anything, max_size=3)
common = {"senderMail": SENDER, "subject": untagged_lines, "content": untagged}
messages = st.fixed_dictionaries(
    {**common, "to": person},
    optional={
        "senderName": lines, "replyTo": addresses, "sendDate": later, "category": plain_labels,
        "campaign": plain_labels, "trackOpen": st.integers(0, 2), "trackClick": st.integers(0, 2),
        "uniqueMsgID": at_most_bytes(50), "attachment": files,
    },
)  # fmt: skip
versions = st.fixed_dictionaries(
    {"to": people.filter(bool), "cc": people, "bcc": people},
    optional={"subject": untagged_lines, "content": untagged, "params": params},
)
batches = st.fixed_dictionaries(
    {**common, "messageVersions": st.lists(versions, min_size=1, max_size=4)},
    optional={"senderName": at_most_bytes(200, IN_A_LINE), "params": params},
)


def sent(request: Any, service: Emulator, mail: api.MailClient) -> list[dict[str, Any]]:
    """The messages that the service has of a request."""
    before = len(service.messages())
    mail.send(request)
    return service.messages()[before:]


@bounded
@given(body=messages)
def test_a_transactional_message(body: dict[str, Any], service: Emulator, mail: api.MailClient):
    (held,) = sent(api.SendMail.model_validate(body), service, mail)
    kept = {
        "subject": "subject", "content": "content", "sender": "senderMail", "sender_name": "senderName",
        "reply_to": "replyTo", "unique_msg_id": "uniqueMsgID", "category": "category", "campaign": "campaign",
    }  # fmt: skip
    assert {name: held[name] for name in kept} == {name: body.get(wire) for name, wire in kept.items()}
    assert held["attachment_name"] == body.get("attachment", {}).get("fileName")
    assert "sendDate" not in body or held["send_date"] == f"{body['sendDate']:%Y-%m-%dT%H:%M:%SZ}"
    (recipient,) = held["recipients"]
    expected = ("to", body["to"]["email"], body["to"].get("name"))
    assert (recipient["role"], recipient["email"], recipient["name"]) == expected


@bounded
@given(body=batches)
def test_a_batch(body: dict[str, Any], service: Emulator, mail: api.MailClient):
    held = sent(api.SendBatch.model_validate(body), service, mail)
    for message, version in zip(held, body["messageVersions"], strict=True):
        assert message["subject"] == version.get("subject", body["subject"])
        assert message["content"] == version.get("content", body["content"])
        assert message["sender_name"] == body.get("senderName")
        assert [(person["role"], person["email"], person["name"]) for person in message["recipients"]] == [
            (role, person["email"], person.get("name")) for role in ("to", "cc", "bcc") for person in version[role]
        ]
