"""One example of each operation: a request, and the body that the service is to receive.

The tests of every operation take their requests from here: `test_operations_end_to_end`, beside the smallest body of
the facts, and in the sandbox `tests/api`. The page "Conformance" names the tests that each example names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from airflow_provider_mail import api
from airflow_provider_mail.emulator import Emulator

ADA = "ada@example.com"
NEWS = "news@shop.example"
SHOP = "shop@shop.example"
DAYS = {"startDate": "2026-01-01", "endDate": "2026-01-31"}
HOOK = "https://hooks.example/in"


def in_place(*things: str) -> Callable[[Emulator], None]:
    """Put what the requests of an operation name into the service; the smallest body names the same things."""

    def arrange(emulator: Emulator) -> None:
        add = {
            "contact": lambda: emulator.add_contact(ADA, name="Ada"),
            "list": lambda: emulator.add_list("customers", [ADA]),
            "template": lambda: emulator.add_template("welcome", subject="Hello", content="<p>Hello {{name}}</p>"),
            "senders": lambda: [emulator.add_sender(address) for address in (NEWS, SHOP)],
            "sender": lambda: emulator.add_sender("shop.example", types=(1,)),
            "done": lambda: emulator.add_campaign("spring", send_date="2026-01-15T09:00:00+00:00", sent=10),
            "scheduled": lambda: emulator.add_campaign(
                "spring", send_date="2999-01-01T09:00:00+00:00", state="scheduled"
            ),
            "mailed": lambda: emulator.set_transactional_day("2026-01-01", sentCount=7),
        }
        for thing in things:
            add[thing]()

    return arrange


@dataclass(frozen=True)
class Example:
    """One operation carried out, and the tests that the page "Conformance" names for it.

    :param request: the request; it need not have every field, but has more than the smallest body.
    :param received: the body that the service receives.
    :param emulator: the test of the emulator by itself, below ``tests/emulator``.
    :param client: tests of our client, below ``tests/document``, beside those that all operations have.
    :param arrange: puts into the service what the request names.
    :param without_operator: why no operator carries it out; empty where one does.
    """

    request: api.MailRequest[Any]
    received: dict[str, Any]
    emulator: str
    client: tuple[str, ...] = ()
    arrange: Callable[[Emulator], object] = field(default=lambda service: None)
    without_operator: str = ""


CONTACTS = {
    "contacts.upsert": Example(
        api.UpsertContact(email=ADA, name="Ada", phone_number="+49 30 1", list_name="customers"),
        {"email": ADA, "name": "Ada", "phoneNumber": "+49 30 1", "listName": "customers"},
        "test_contacts.py::test_an_upsert_creates_and_then_updates_one_contact",
        ("test_round_trip.py::test_a_contact",),
        arrange=lambda service: service.add_list("customers"),
    ),
    "contacts.imports": Example(
        api.ImportContacts(
            contact_data=[[ADA, "Ada"], ["bo@example.com", None]],
            contact_data_mapping=[
                api.ColumnMapping(column_num=0, property_name="email"),
                api.ColumnMapping(column_num=1, property_name="name"),
            ],
            update_mode=api.UpdateMode.CREATE_AND_UPDATE, list_name="customers", list_description="everybody",
        ),
        {
            "contactData": [[ADA, "Ada"], ["bo@example.com", None]],
            "contactDataMapping": [
                {"columnNum": 0, "propertyName": "email"}, {"columnNum": 1, "propertyName": "name"},
            ],
            "updateMode": 1, "listName": "customers", "listDescription": "everybody",
        },
        "test_contacts.py::test_update_modes",
        ("test_round_trip.py::test_an_import", "test_forms.py::test_an_import_that_does_not_add_up"),
    ),
    "contacts.get": Example(
        api.GetContact(email=ADA), {"email": ADA},
        "test_contacts.py::test_a_contact_has_the_fields_of_the_specification", ("test_round_trip.py::test_a_contact",),
        arrange=in_place("contact"),
    ),
    "contacts.list.get": Example(
        api.GetListContacts(list_name="customers", page_size=1000, page_index=1),
        {"listName": "customers", "pageSize": 1000, "pageIndex": 1},
        "test_contacts.py::test_pages_hold_every_contact_of_a_list_once",
        ("test_round_trip.py::test_an_import",
         "test_pages_end_to_end.py::test_contacts_come_200_a_page_and_1000_at_most"),
        arrange=in_place("list"),
    ),
    "contacts.delete": Example(
        api.DeleteContact(email=ADA), {"email": ADA},
        "test_contacts.py::test_a_deleted_contact_leaves_its_lists", ("test_round_trip.py::test_a_contact",),
        arrange=in_place("contact"),
    ),
}  # fmt: skip

LISTS = {
    "lists.add": Example(
        api.AddList(list_name="customers", list_description="everybody"),
        {"listName": "customers", "listDescription": "everybody"},
        "test_lists_and_templates.py::test_names_of_lists_are_unique", ("test_round_trip.py::test_a_list",),
    ),
    "lists.get": Example(
        api.GetLists(search="custom", list_type=1, sort="CreateDate"),
        {"search": "custom", "listType": 1, "sort": "CreateDate"},
        "test_lists_and_templates.py::test_lists_are_searched_and_sorted", ("test_round_trip.py::test_a_list",),
        arrange=in_place("list"),
    ),
    "lists.delete": Example(
        api.DeleteList(list_name="customers"), {"listName": "customers"},
        "test_lists_and_templates.py::test_a_deleted_list_keeps_its_contacts", ("test_round_trip.py::test_a_list",),
        arrange=in_place("list"),
    ),
}  # fmt: skip

TEMPLATES = {
    "templates.add": Example(
        api.AddTemplate(template_name="welcome", template_content="<p>{{name}}</p>", template_subject="Hello"),
        {"templateName": "welcome", "templateContent": "<p>{{name}}</p>", "templateSubject": "Hello"},
        "test_lists_and_templates.py::test_wrong_templates",
        ("test_round_trip.py::test_a_template",),
    ),
    "templates.get": Example(
        api.GetTemplates(template_name="elcom"), {"templateName": "elcom"},
        "test_lists_and_templates.py::test_templates_are_filtered_by_a_part_of_their_name",
        ("test_round_trip.py::test_a_template",),
        arrange=in_place("template"),
    ),
    "templates.delete": Example(
        api.DeleteTemplate(template_name="welcome"), {"templateName": "welcome"},
        "test_lists_and_templates.py::test_a_template_has_the_fields_of_the_specification",
        ("test_round_trip.py::test_a_template",),
        arrange=in_place("template"),
    ),
}  # fmt: skip

CAMPAIGNS = {
    "campaigns.sends": Example(
        api.CreateCampaign(
            mail_name="spring", sender_mail=NEWS, subject="Spring", content="<p>Spring</p>", language_code="de",
            send_date=datetime(2026, 1, 1, 9, 30, tzinfo=UTC), send_list_names=["customers"],
        ),
        {
            "mailName": "spring", "senderMail": NEWS, "subject": "Spring", "content": "<p>Spring</p>",
            "sendDate": "2026-01-01T09:30:00Z", "sendListNames": ["customers"], "languageCode": "de",
        },
        "test_campaigns.py::test_get_shows_every_field_of_the_specification",
        ("test_round_trip.py::test_a_campaign",),
        arrange=in_place("list", "senders"),
    ),
    "campaigns.cancel": Example(
        api.CancelCampaign(mail_name="spring"), {"mailName": "spring"},
        "test_campaigns.py::test_a_scheduled_campaign_can_be_cancelled",
        ("test_states_end_to_end.py::test_a_scheduled_campaign_can_be_cancelled",),
        arrange=in_place("scheduled"),
    ),
    "campaigns.get": Example(
        api.GetCampaigns(mail_name="spring", mail_status=[api.MailStatus.COMPLETE], page_size=5),
        {"mailName": "spring", "mailStatus": [2], "pageSize": 5},
        "test_campaigns.py::test_filters_of_get", ("test_round_trip.py::test_a_campaign",),
        arrange=in_place("done"),
    ),
    "campaigns.delete": Example(
        api.DeleteCampaign(mail_name="spring"), {"mailName": "spring"},
        "test_campaigns.py::test_which_states_can_be_deleted_is_a_setting",
        ("test_states_end_to_end.py::test_a_campaign_of_any_state_can_be_deleted",),
        arrange=in_place("done"),
    ),
    "campaigns.stats.get": Example(
        api.GetCampaignStats(start_date="2026-01-01", end_date=date(2026, 1, 31), type="MailList"),
        {**DAYS, "type": "MailList"},
        "test_statistics.py::test_the_window_includes_both_days",
        ("test_forms.py::test_ranges_of_days[campaigns.stats.get]",),
        arrange=in_place("done"),
    ),
}  # fmt: skip

TRANSACTIONAL = {
    "transactional.sends_customised.single": Example(
        api.SendMail(
            sender_mail=SHOP, subject="Hello", content="<p>Hello</p>", to=api.Recipient(email=ADA), track_open=1
        ),
        {"senderMail": SHOP, "subject": "Hello", "content": "<p>Hello</p>", "to": {"email": ADA}, "trackOpen": 1},
        "test_transactional.py::test_the_single_form_is_sent_as_given",
        ("test_round_trip.py::test_a_transactional_message",),
        arrange=in_place("senders"),
    ),
    "transactional.sends_customised.batch": Example(
        api.SendBatch(
            sender_mail=SHOP, template_name="welcome", unique_msg_id="order-1",
            message_versions=[api.MessageVersion(to=[api.Recipient(email=ADA, name="Ada")], params={"name": "Ada"})],
        ),
        {
            "senderMail": SHOP, "templateName": "welcome", "uniqueMsgID": "order-1",
            "messageVersions": [
                {"to": [{"email": ADA, "name": "Ada"}], "cc": [], "bcc": [], "params": {"name": "Ada"}}
            ],
        },
        "test_transactional.py::test_a_version_overrides_what_all_share",
        ("test_round_trip.py::test_a_batch",),
        arrange=in_place("senders", "template"),
    ),
    "transactional.stats.get": Example(
        api.GetTransactionalStats(start_date="2026-01-01", end_date="2026-01-31"), DAYS,
        "test_transactional.py::TestStatistics::test_one_record_for_each_day_until_today",
        ("test_forms.py::test_ranges_of_days[transactional.stats.get]",),
        arrange=in_place("mailed"),
    ),
}  # fmt: skip

SENDERS = {
    "senders.get": Example(
        api.GetSenders(sender_email="news@example.com"), {"senderEmail": "news@example.com"},
        "test_senders_and_oauth.py::test_a_sender_is_valid_when_all_four_checks_pass",
        ("test_round_trip.py::test_a_sender",),
    ),
    "senders.add": Example(
        api.AddSender(sender_email="shop.example", sender_type="1"),
        {"senderEmail": "shop.example", "senderType": "1"},
        "test_senders_and_oauth.py::test_senders_are_added_and_deleted", ("test_round_trip.py::test_a_sender",),
    ),
    "senders.verify": Example(
        api.VerifySender(from_domain="shop.example", selector="main"),
        {"fromDomain": "shop.example", "selector": "main"},
        "test_senders_and_oauth.py::test_a_sender_is_verified_by_address_or_domain",
        arrange=in_place("sender"),
    ),
    "senders.delete": Example(
        api.DeleteSender(sender_email="shop.example"), {"senderEmail": "shop.example"},
        "test_senders_and_oauth.py::test_senders_are_added_and_deleted", ("test_round_trip.py::test_a_sender",),
        arrange=in_place("sender"),
    ),
}  # fmt: skip

WEBHOOK = {
    "webhook.get": Example(
        api.GetWebhook(), {},
        "test_webhooks.py::TestConfiguration::test_is_null_when_nothing_was_saved",
        ("test_responses_match_document.py::test_what_may_be_null_or_absent",),
    ),
    "webhook.save": Example(
        api.SaveWebhook(trans_event=api.EventToggles(opened=True), trans_callback_url=HOOK, trans_enable=False),
        {"transEvent": {"opened": True}, "transCallbackUrl": HOOK, "transEnable": False},
        "test_webhooks.py::TestConfiguration::test_only_supplied_fields_change",
        ("test_webhook_end_to_end.py::test_a_sender_may_have_its_own_callback_and_a_pause_stops_all",),
    ),
}  # fmt: skip

EXAMPLES: dict[str, Example] = CONTACTS | LISTS | TEMPLATES | CAMPAIGNS | TRANSACTIONAL | SENDERS | WEBHOOK
"""The example of each operation, by its key; the consent page and the exchange of its code have tests of their own."""


def snapshot(service: Emulator) -> dict[str, Any]:
    """Everything that an operation could change."""
    return {
        "contacts": service.contacts(),
        "lists": service.lists(),
        "templates": service.templates(),
        "senders": service.senders(),
        "campaigns": service.campaigns(),
        "messages": service.messages(),
        "webhook": service.webhook(),
    }
