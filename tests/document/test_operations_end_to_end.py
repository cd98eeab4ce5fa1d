"""Every operation sent by our client: what the service received, what it then holds, what it holds after a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailSandboxError, MailValidationError
from airflow_provider_mail.emulator import Emulator
from tests.document.fact_types import READ, UNLISTED, Operation
from tests.document.models import REQUESTS, model_of
from tests.document.unchecked import operation

SENDABLE = [operation for operation in REQUESTS if operation.effect != UNLISTED]
WRITES = [operation for operation in SENDABLE if operation.effect != READ]

by_key = pytest.mark.parametrize("operation", SENDABLE, ids=lambda operation: operation.key)


def in_place(*things: str) -> Callable[[Emulator], None]:
    """Put what an operation's minimal request names into the service."""

    def arrange(emulator: Emulator) -> None:
        if "contact" in things:
            emulator.add_contact("ada@example.com", name="Ada")
        if "list" in things:
            emulator.add_list("customers", ["ada@example.com"])
        if "template" in things:
            emulator.add_template("welcome", subject="Hello", content="<p>Hello {{name}}</p>")
        if "senders" in things:
            emulator.add_sender("news@shop.example")
            emulator.add_sender("shop@shop.example")
        if "sender" in things:
            emulator.add_sender("shop.example", types=(1,))
        if "done" in things:
            emulator.add_campaign("spring", send_date="2026-01-15T09:00:00+00:00", sent=10)
        if "scheduled" in things:
            emulator.add_campaign("spring", send_date="2999-01-01T09:00:00+00:00", state="scheduled")

    return arrange


ARRANGE: dict[str, Callable[[Emulator], None]] = {
    "contacts.get": in_place("contact"),
    "contacts.list.get": in_place("list"),
    "contacts.delete": in_place("contact"),
    "lists.get": in_place("list"),
    "lists.delete": in_place("list"),
    "templates.get": in_place("template"),
    "templates.delete": in_place("template"),
    "campaigns.sends": in_place("list", "senders"),
    "campaigns.cancel": in_place("scheduled"),
    "campaigns.get": in_place("done"),
    "campaigns.delete": in_place("done"),
    "campaigns.stats.get": in_place("done"),
    "transactional.sends_customised.single": in_place("senders"),
    "transactional.sends_customised.batch": in_place("senders"),
    "senders.verify": in_place("sender"),
    "senders.delete": in_place("sender"),
}

ANSWERED: dict[str, Callable[[Any], bool]] = {
    "contacts.get": lambda answer: answer.contact.email == "ada@example.com" and answer.contact.name == "Ada",
    "contacts.list.get": lambda answer: (
        [contact.email for contact in answer.contact_list] == ["ada@example.com"]
        and answer.total_records == 1
        and bool(answer.request_id)
    ),
    "lists.get": lambda answer: (
        [found.list_name for found in answer.lists] == ["customers"] and answer.total_records == 1
    ),
    "templates.get": lambda answer: (
        [found.template_name for found in answer.template_list] == ["welcome"]
        and answer.template_list[0].create_date is not None
    ),
    "campaigns.sends": lambda answer: isinstance(answer.id, int) and bool(answer.guid),
    "campaigns.get": lambda answer: (
        [(found.mail_name, found.mail_status) for found in answer.mail_list] == [("spring", 2)]
        and answer.mail_list[0].mail_stats.sent_count == 10
    ),
    "campaigns.stats.get": lambda answer: (
        [(found.mail_name, found.sent_count) for found in answer.mail_stats_list] == [("spring", 10)]
        and answer.total_records == 1
    ),
    "transactional.stats.get": lambda answer: (
        len(answer.mail_stats_list) == 31 and answer.mail_stats_list[0].stats_date.isoformat() == "2026-01-01"
    ),
    "senders.get": lambda answer: {found.from_domain for found in answer.mail_from_domains} == {"news@example.com"},
    "senders.verify": lambda answer: (
        answer.valid and answer.good_mx and answer.good_spf and answer.good_dkim and answer.good_dmarc
    ),
    "webhook.get": lambda answer: answer.trans_event is None and answer.trans_enable is None,
}
"""What must be in the answer beside ``code``; operations without a row answer nothing more."""

HELD: dict[str, Callable[[Emulator], bool]] = {
    "contacts.upsert": lambda service: service.contact("ada@example.com") is not None,
    "contacts.imports": lambda service: service.contact("ada@example.com") is not None,
    "contacts.delete": lambda service: service.contact("ada@example.com") is None,
    "lists.add": lambda service: [found["name"] for found in service.lists()] == ["customers"],
    "lists.delete": lambda service: service.lists() == [],
    "templates.add": lambda service: [found["name"] for found in service.templates()] == ["welcome"],
    "templates.delete": lambda service: service.templates() == [],
    "campaigns.sends": lambda service: [found["state"] for found in service.campaigns("spring")] == ["sending"],
    "campaigns.cancel": lambda service: [found["cancelled"] for found in service.campaigns("spring")] == [True],
    "campaigns.delete": lambda service: [found["removed"] for found in service.campaigns("spring")] == [True],
    "transactional.sends_customised.single": lambda service: [m["form"] for m in service.messages()] == ["single"],
    "transactional.sends_customised.batch": lambda service: [m["form"] for m in service.messages()] == ["batch"],
    "senders.add": lambda service: {"entry": "shop.example", "type": 1} in service.senders(),
    "senders.delete": lambda service: "shop.example" not in {found["entry"] for found in service.senders()},
    "webhook.save": lambda service: service.webhook()["transCallbackUrl"] == "https://hooks.example/in",
}
"""What the service holds afterwards."""


def body_of(operation: Operation) -> dict[str, Any]:
    return operation.minimal or (
        {"transCallbackUrl": "https://hooks.example/in"} if operation.key == "webhook.save" else {}
    )


def held(service: Emulator) -> dict[str, Any]:
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


def arranged(service: Emulator, operation: Operation) -> Emulator:
    service.clock.freeze()  # so that nothing changes by itself between two looks
    ARRANGE.get(operation.key, lambda _: None)(service)
    return service


def test_every_operation_is_looked_at():
    assert {operation.key for operation in SENDABLE} == ANSWERED.keys() | HELD.keys()
    assert {operation.key for operation in WRITES} == HELD.keys()
    assert {operation.key for operation in SENDABLE if operation.response} == ANSWERED.keys()


@by_key
def test_an_operation_reaches_the_service_as_documented(operation: Operation, emulator: Emulator, client: MailClient):
    arranged(emulator, operation)
    answer = client.send(model_of(operation).model_validate(body_of(operation)))
    (entry,) = emulator.journal.entries()
    assert (entry["method"], entry["operation"]) == (operation.method, operation.path)
    assert entry["body"] == body_of(operation)
    assert entry["headers"]["content-type"] == "application/json"
    assert (entry["auth"], entry["processed"], entry["code"]) == ("api_key", True, 200)
    assert answer.code == 200
    assert ANSWERED.get(operation.key, lambda _: True)(answer)
    assert HELD.get(operation.key, lambda _: True)(emulator)


@by_key
def test_an_access_token_opens_every_operation(operation: Operation, emulator: Emulator, config: ClientConfig):
    arranged(emulator, operation)
    token = SecretStr(emulator.issue_token())
    with MailClient(config.model_copy(update={"auth_type": "oauth", "access_token": token, "api_key": None})) as client:
        client.send(model_of(operation).model_validate(body_of(operation)))
    (entry,) = emulator.journal.entries()
    assert (entry["auth"], entry["code"]) == ("oauth", 200)


@pytest.mark.parametrize(
    "operation",
    [operation for operation in SENDABLE if operation.takes_sandbox_mode],
    ids=lambda operation: operation.key,
)
def test_in_sandbox_mode_nothing_changes(operation: Operation, emulator: Emulator, client: MailClient):
    before = held(arranged(emulator, operation))
    answer = client.send(model_of(operation).model_validate(body_of(operation) | {"sandboxMode": True}))
    (entry,) = emulator.journal.entries()
    assert entry["body"] == body_of(operation) | {"sandboxMode": True}
    assert (answer.code, answer.message or "") == (200, "")
    assert held(emulator) == before


@pytest.mark.parametrize(
    "operation",
    [operation for operation in SENDABLE if not operation.takes_sandbox_mode],
    ids=lambda operation: operation.key,
)
def test_operations_without_sandbox_mode_do_not_know_it(operation: Operation, emulator: Emulator, config: ClientConfig):
    with pytest.raises(MailValidationError, match="sandboxMode"):
        model_of(operation).model_validate(body_of(operation) | {"sandboxMode": True})
    arranged(emulator, operation)
    request = model_of(operation).model_validate(body_of(operation))
    with MailClient(config.model_copy(update={"sandbox": True})) as client:
        if operation.effect == READ:
            client.send(request)
            assert emulator.journal.count() == 1
        else:
            with pytest.raises(MailSandboxError, match=operation.path):
                client.send(request)
            assert emulator.journal.count() == 0


def test_a_minimal_body_names_things_that_are_in_place():
    assert ARRANGE.keys() <= {operation.key for operation in SENDABLE}
    assert operation("campaigns.get").minimal == {}
