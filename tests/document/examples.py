"""One example of each operation: a request, and the body that the service is to receive.

The tests of every operation take their requests from here: `test_end_to_end`, beside the smallest body of
the facts, and in the sandbox `tests/api`. The page "Conformance" names the tests that are named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from airflow_provider_mail import api
from mail_emulator import Emulator

ADA = "ada@example.com"
NEWS, SHOP = "news@shop.example", "shop@shop.example"
DAYS = {"startDate": "2026-01-01", "endDate": "2026-01-31"}
HOOK = "https://hooks.example/in"

REQUESTS: dict[str, tuple[api.MailRequest[Any], dict[str, Any]]] = {
    "contacts.upsert": (
        api.UpsertContact(email=ADA, name="Ada", phone_number="+49 30 1", list_name="customers"),
        {"email": ADA, "name": "Ada", "phoneNumber": "+49 30 1", "listName": "customers"},
    ),
    "contacts.imports": (
        api.ImportContacts(
            contact_data=[[ADA, "Ada"], ["bo@example.com", None]],
            contact_data_mapping=[
                api.ColumnMapping(column_num=n, property_name=name) for n, name in enumerate(("email", "name"))
            ],
            update_mode=api.UpdateMode.CREATE_AND_UPDATE,
            list_name="customers",
            list_description="everybody",
        ),
        {
            "contactData": [[ADA, "Ada"], ["bo@example.com", None]],
            "contactDataMapping": [
                {"columnNum": 0, "propertyName": "email"}, {"columnNum": 1, "propertyName": "name"},
            ],
            "updateMode": 1, "listName": "customers", "listDescription": "everybody",
        },
    ),
    "contacts.get": (api.GetContact(email=ADA), {"email": ADA}),
    "contacts.list.get": (
        api.GetListContacts(list_name="customers", page_size=1000, page_index=1),
        {"listName": "customers", "pageSize": 1000, "pageIndex": 1},
    ),
    "contacts.delete": (api.DeleteContact(email=ADA), {"email": ADA}),
    "lists.add": (
        api.AddList(list_name="customers", list_description="everybody"),
        {"listName": "customers", "listDescription": "everybody"},
    ),
    "lists.get": (
        api.GetLists(search="custom", list_type=1, sort="CreateDate"),
        {"search": "custom", "listType": 1, "sort": "CreateDate"},
    ),
    "lists.delete": (api.DeleteList(list_name="customers"), {"listName": "customers"}),
    "templates.add": (
        api.AddTemplate(template_name="welcome", template_content="<p>{{name}}</p>", template_subject="Hello"),
        {"templateName": "welcome", "templateContent": "<p>{{name}}</p>", "templateSubject": "Hello"},
    ),
    "templates.get": (api.GetTemplates(template_name="elcom"), {"templateName": "elcom"}),
    "templates.delete": (api.DeleteTemplate(template_name="welcome"), {"templateName": "welcome"}),
    "campaigns.sends": (
        api.CreateCampaign(
            mail_name="spring", sender_mail=NEWS, subject="Spring", content="<p>Spring</p>", language_code="de",
            send_date=datetime(2026, 1, 1, 9, 30, tzinfo=UTC), send_list_names=["customers"],
        ),
        {
            "mailName": "spring", "senderMail": NEWS, "subject": "Spring", "content": "<p>Spring</p>",
            "sendDate": "2026-01-01T09:30:00Z", "sendListNames": ["customers"], "languageCode": "de",
        },
    ),
    "campaigns.cancel": (api.CancelCampaign(mail_name="spring"), {"mailName": "spring"}),
    "campaigns.get": (
        api.GetCampaigns(mail_name="spring", mail_status=[api.MailStatus.COMPLETE], page_size=5),
        {"mailName": "spring", "mailStatus": [2], "pageSize": 5},
    ),
    "campaigns.delete": (api.DeleteCampaign(mail_name="spring"), {"mailName": "spring"}),
    "campaigns.stats.get": (
        api.GetCampaignStats(start_date="2026-01-01", end_date=date(2026, 1, 31), type="MailList"),
        {**DAYS, "type": "MailList"},
    ),
    "transactional.sends_customised.single": (
        api.SendMail(
            sender_mail=SHOP, subject="Hello", content="<p>Hello</p>", to=api.Recipient(email=ADA), track_open=1
        ),
        {"senderMail": SHOP, "subject": "Hello", "content": "<p>Hello</p>", "to": {"email": ADA}, "trackOpen": 1},
    ),
    "transactional.sends_customised.batch": (
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
    ),
    "transactional.stats.get": (api.GetTransactionalStats(start_date="2026-01-01", end_date="2026-01-31"), DAYS),
    "senders.get": (api.GetSenders(sender_email="news@example.com"), {"senderEmail": "news@example.com"}),
    "senders.add": (
        api.AddSender(sender_email="shop.example", sender_type="1"),
        {"senderEmail": "shop.example", "senderType": "1"},
    ),
    "senders.verify": (
        api.VerifySender(from_domain="shop.example", selector="main"),
        {"fromDomain": "shop.example", "selector": "main"},
    ),
    "senders.delete": (api.DeleteSender(sender_email="shop.example"), {"senderEmail": "shop.example"}),
    "webhook.get": (api.GetWebhook(), {}),
    "webhook.save": (
        api.SaveWebhook(trans_event=api.EventToggles(opened=True), trans_callback_url=HOOK, trans_enable=False),
        {"transEvent": {"opened": True}, "transCallbackUrl": HOOK, "transEnable": False},
    ),
}  # fmt: skip
"""Requests that need not have every field, but have more than the smallest body; and their bodies on the wire."""

IN_PLACE = {
    "contacts.upsert": "empty list", "contacts.get": "contact", "contacts.list.get": "list",
    "contacts.delete": "contact", "lists.get": "list", "lists.delete": "list", "templates.get": "template",
    "templates.delete": "template", "campaigns.sends": "list, senders", "campaigns.cancel": "scheduled",
    "campaigns.get": "done", "campaigns.delete": "done", "campaigns.stats.get": "done",
    "transactional.sends_customised.single": "senders", "transactional.sends_customised.batch": "senders, template",
    "transactional.stats.get": "mailed", "senders.verify": "sender", "senders.delete": "sender",
}  # fmt: skip
"""What the requests of an operation name, and is put into the service; the smallest body names the same things."""

TESTS = """
contacts.upsert test_contacts.py::test_an_upsert_creates_and_then_updates_one_contact
contacts.imports test_contacts.py::test_update_modes
    test_round_trip.py::test_an_import test_forms.py::test_an_import_that_does_not_add_up
contacts.get test_contacts.py::test_a_contact_has_the_fields_of_the_specification
contacts.list.get test_contacts.py::test_pages_hold_every_contact_of_a_list_once
    test_round_trip.py::test_an_import
contacts.delete test_contacts.py::test_a_deleted_contact_leaves_its_lists
lists.add test_contacts.py::test_names_of_lists_are_unique
lists.get test_contacts.py::test_lists_are_searched_and_sorted
lists.delete test_contacts.py::test_a_deleted_list_keeps_its_contacts
templates.add test_contacts.py::test_wrong_templates
templates.get test_contacts.py::test_templates_are_filtered_by_a_part_of_their_name
templates.delete test_contacts.py::test_a_template_has_the_fields_of_the_specification
campaigns.sends test_campaigns.py::test_get_shows_every_field_of_the_specification
campaigns.cancel test_campaigns.py::test_a_scheduled_campaign_can_be_cancelled
campaigns.get test_campaigns.py::test_filters_of_get
campaigns.delete test_campaigns.py::test_which_states_can_be_deleted_is_a_setting
campaigns.stats.get test_statistics.py::test_the_window_includes_both_days
    test_forms.py::test_ranges_of_days
transactional.sends_customised.single test_transactional.py::test_the_single_form_is_sent_as_given
transactional.sends_customised.batch test_transactional.py::test_a_version_overrides_what_all_share
transactional.stats.get test_transactional.py::TestStatistics::test_one_record_for_each_day_until_today
    test_forms.py::test_ranges_of_days
senders.get test_senders_and_oauth.py::test_a_sender_is_valid_when_all_four_checks_pass
senders.add test_senders_and_oauth.py::test_senders_are_added_and_deleted
senders.verify test_senders_and_oauth.py::test_a_sender_is_verified_by_address_or_domain
senders.delete test_senders_and_oauth.py::test_senders_are_added_and_deleted
webhook.get test_webhooks.py::TestConfiguration::test_only_supplied_fields_change
    test_models_match_document.py::test_what_may_be_null_or_absent
webhook.save test_webhooks.py::TestConfiguration::test_only_supplied_fields_change
"""
"""The test of the emulator by itself, below ``tests/emulator``, and those of our client, below ``tests/document``,
beside those that all operations have."""


WITHOUT_OPERATOR: dict[str, str] = {}
"""Why no operator carries out an operation."""


@dataclass(frozen=True)
class Example:
    """One operation carried out, and the tests that the page "Conformance" names for it."""

    request: api.MailRequest[Any]
    received: dict[str, Any]
    in_place: str
    emulator: str
    client: tuple[str, ...]
    without_operator: str

    def arrange(self, emulator: Emulator) -> None:
        """Put what the request names into the service."""
        add = {
            "contact": lambda: emulator.add_contact(ADA, name="Ada"),
            "list": lambda: emulator.add_list("customers", [ADA]),
            "empty list": lambda: emulator.add_list("customers"),
            "template": lambda: emulator.add_template("welcome", subject="Hello", content="<p>Hello {{name}}</p>"),
            "senders": lambda: [emulator.add_sender(address) for address in (NEWS, SHOP)],
            "sender": lambda: emulator.add_sender("shop.example", types=(1,)),
            "done": lambda: emulator.add_campaign("spring", send_date="2026-01-15T09:00:00+00:00", sent=10),
            "scheduled": lambda: emulator.add_campaign(
                "spring", send_date="2999-01-01T09:00:00+00:00", state="scheduled"
            ),
            "mailed": lambda: emulator.set_transactional_day("2026-01-01", sentCount=7),
        }
        for thing in filter(None, self.in_place.split(", ")):
            add[thing]()


EXAMPLES = {
    key: Example(*REQUESTS[key], IN_PLACE.get(key, ""), emulator, tuple(client), WITHOUT_OPERATOR.get(key, ""))
    for key, emulator, *client in (line.split() for line in TESTS.strip().replace("\n    ", " ").split("\n"))
}
"""The example of each operation, by its key; the consent page and the exchange of its code have tests of their own."""


def snapshot(service: Emulator) -> dict[str, Any]:
    """Everything that an operation could change."""
    things = ("contacts", "lists", "templates", "senders", "campaigns", "messages", "webhook")
    return {name: getattr(service, name)() for name in things}
