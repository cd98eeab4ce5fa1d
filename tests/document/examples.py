"""One example of each operation: the body that the service is to receive, from which a request is made.

The tests of every operation take their requests from here: `test_end_to_end`, beside the smallest body of
the facts, and in the sandbox `tests/api`. The page "Conformance" names the tests that are named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.api import MailRequest
from mail_emulator import Emulator
from tests.document.models import model_of, operation_of

ADA = "ada@example.com"
NEWS, SHOP = "news@shop.example", "shop@shop.example"
DAYS = {"startDate": "2026-01-01", "endDate": "2026-01-31"}
HOOK = "https://hooks.example/in"

BODIES: dict[str, dict[str, Any]] = {
    "contacts.upsert": {"email": ADA, "name": "Ada", "phoneNumber": "+49 30 1", "listName": "customers"},
    "contacts.imports": {
        "contactData": [[ADA, "Ada"], ["bo@example.com", None]],
        "contactDataMapping": [{"columnNum": 0, "propertyName": "email"}, {"columnNum": 1, "propertyName": "name"}],
        "updateMode": 1, "listName": "customers", "listDescription": "everybody",
    },
    "contacts.get": {"email": ADA},
    "contacts.list.get": {"listName": "customers", "pageSize": 1000, "pageIndex": 1},
    "contacts.delete": {"email": ADA},
    "lists.add": {"listName": "customers", "listDescription": "everybody"},
    "lists.get": {"search": "custom", "listType": 1, "sort": "CreateDate"},
    "lists.delete": {"listName": "customers"},
    "templates.add": {
        "templateName": "welcome", "templateContent": "<p>{{name}}</p>", "templateSubject": "Hello",
    },
    "templates.get": {"templateName": "elcom"},
    "templates.delete": {"templateName": "welcome"},
    "campaigns.sends": {
        "mailName": "spring", "senderMail": NEWS, "subject": "Spring", "content": "<p>Spring</p>",
        "sendDate": "2026-01-01T09:30:00Z", "sendListNames": ["customers"], "languageCode": "de",
    },
    "campaigns.cancel": {"mailName": "spring"},
    "campaigns.get": {"mailName": "spring", "mailStatus": [2], "pageSize": 5},
    "campaigns.delete": {"mailName": "spring"},
    "campaigns.stats.get": {**DAYS, "type": "MailList"},
    "transactional.sends_customised.single": {
        "senderMail": SHOP, "subject": "Hello", "content": "<p>Hello</p>", "to": {"email": ADA}, "trackOpen": 1,
    },
    "transactional.sends_customised.batch": {
        "senderMail": SHOP, "templateName": "welcome", "uniqueMsgID": "order-1",
        "messageVersions": [{"to": [{"email": ADA, "name": "Ada"}], "cc": [], "bcc": [], "params": {"name": "Ada"}}],
    },
    "transactional.stats.get": DAYS,
    "senders.get": {"senderEmail": "news@example.com"},
    "senders.add": {"senderEmail": "shop.example", "senderType": "1"},
    "senders.verify": {"fromDomain": "shop.example", "selector": "main"},
    "senders.delete": {"senderEmail": "shop.example"},
    "webhook.get": {},
    "webhook.save": {"transEvent": {"opened": True}, "transCallbackUrl": HOOK, "transEnable": False},
}  # fmt: skip
"""Bodies that need not have every field, but have more than the smallest one."""

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
    test_end_to_end.py::test_an_import test_forms.py::test_an_import_that_does_not_add_up
contacts.get test_contacts.py::test_a_contact_has_the_fields_of_the_specification
contacts.list.get test_contacts.py::test_pages_hold_every_contact_of_a_list_once
    test_end_to_end.py::test_an_import
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

    key: str
    emulator: str
    client: tuple[str, ...]

    @property
    def received(self) -> dict[str, Any]:
        return BODIES[self.key]

    @property
    def request(self) -> MailRequest[Any]:
        return model_of(operation_of(self.key)).model_validate(self.received)

    @property
    def without_operator(self) -> str:
        return WITHOUT_OPERATOR.get(self.key, "")

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
        for thing in filter(None, IN_PLACE.get(self.key, "").split(", ")):
            add[thing]()


EXAMPLES = {
    key: Example(key, emulator, tuple(client))
    for key, emulator, *client in (line.split() for line in TESTS.strip().replace("\n    ", " ").split("\n"))
}
"""The example of each operation, by its key; the consent page and the exchange of its code have tests of their own."""


def snapshot(service: Emulator) -> dict[str, Any]:
    """Everything that an operation could change."""
    things = ("contacts", "lists", "templates", "senders", "campaigns", "messages", "webhook")
    return {name: getattr(service, name)() for name in things}
