"""Each response and resource against the facts: every field is read, under its name and from its type."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

from pydantic import BaseModel, SecretStr

from airflow_provider_mail import api
from airflow_provider_mail.api import ContactList, MailEvent, parse_push
from airflow_provider_mail.api.events import MAX_EVENTS_PER_PUSH, USER_AGENT
from tests.document.asserting import for_each_operation
from tests.document.fact_resources import RESOURCES
from tests.document.fact_rows import EVENT_CARRIES, EVENTS, LIMITS
from tests.document.fact_types import Fact, Operation
from tests.document.models import field_of, model_of, nested_model, operation_of, wire_names

SUCCESS = {"code": 200, "message": ""}
SAMPLES: dict[str, tuple[Any, Any]] = {
    "epoch_ms": (1_767_258_000_123, datetime(2026, 1, 1, 9, 0, 0, 123_000, UTC)),
    "iso8601": ("2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
    "date": ("2026-01-31", date(2026, 1, 31)),
    "milliseconds": ("2026-01-31 09:00:00.250", datetime(2026, 1, 31, 9, 0, 0, 250_000, UTC)),
    "string": ("text", "text"),
    "integer": (7, 7),
    "boolean": (True, True),
    "array of string": (["a", "b"], ["a", "b"]),
    "object": ({"key": "value"}, {"key": "value"}),
}
"""A value on the wire and what is read from it, by format or else by type."""


def inner(fact: Fact) -> tuple[Fact, ...]:
    return RESOURCES[fact.resource] if fact.resource else fact.fields


def sample(fact: Fact) -> tuple[Any, Any]:
    return (fact.enum[-1],) * 2 if fact.enum else SAMPLES[fact.format or fact.type]


def on_the_wire(fact: Fact) -> Any:
    if not inner(fact):
        return sample(fact)[0]
    record = {part.wire: on_the_wire(part) for part in inner(fact)}
    return [record] if fact.type.startswith("array") else record


def check(read: BaseModel, facts: tuple[Fact, ...], where: str) -> None:
    for fact in facts:
        value = getattr(read, wire_names(type(read))[fact.wire])
        if inner(fact):
            check(value[0] if fact.type.startswith("array") else value, inner(fact), f"{where}.{fact.wire}")
        else:
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            assert plain == sample(fact)[1], f"{where}.{fact.wire}"


def response_to(operation: Operation) -> dict[str, Any]:
    return SUCCESS | {fact.wire: on_the_wire(fact) for fact in operation.response}


@for_each_operation
def test_no_field_of_a_response_is_missing_and_none_is_extra(operation: Operation):
    def compare(model: type[BaseModel], facts: tuple[Fact, ...], where: str) -> None:
        assert set(wire_names(model)) == {fact.wire for fact in facts}, where
        for fact in facts:
            if inner(fact):
                compare(nested_model(field_of(model, fact).annotation), inner(fact), f"{where}.{fact.wire}")

    common = (Fact("code", "integer"), Fact("message", "string"))
    compare(model_of(operation).response, common + operation.response, operation.key)


@for_each_operation
def test_every_field_of_a_response_is_read(operation: Operation):
    """Whether the message is empty or null; unknown fields are ignored."""
    request = model_of(operation).model_validate(operation.minimal)
    for message in ("", None):
        response = request.read(response_to(operation) | {"message": message, "somethingNew": {"a": [1]}})
        check(response, operation.response, operation.key)
        assert (response.code, response.message or "") == (200, "")


def test_the_name_of_a_list_is_read_in_both_spellings():
    for name in ("ListName", "listName"):
        assert ContactList.model_validate({"Id": 1, name: "customers"}).list_name == "customers"


def test_what_may_be_null_or_absent():
    """A webhook configuration that was never saved, and the statistics of a campaign."""
    facts = RESOURCES["Webhook configuration"]
    assert all(fact.nullable for fact in facts)
    response = api.GetWebhook().read(SUCCESS | dict.fromkeys((fact.wire for fact in facts), None))
    assert {value for name, value in response if name not in SUCCESS} == {None}
    campaigns = response_to(operation_of("campaigns.get"))
    del campaigns["mailList"][0]["mailStats"]
    assert api.GetCampaigns().read(campaigns).mail_list[0].mail_stats is None


def test_an_event_has_the_documented_fields():
    assert set(wire_names(MailEvent)) == {fact.wire for fact in RESOURCES["Event"]}
    event = MailEvent.model_validate({fact.wire: on_the_wire(fact) for fact in RESOURCES["Event"]})
    check(event, RESOURCES["Event"], "Event")
    (most,) = (row.value for row in LIMITS if row.item == "Webhook events per push")
    assert (most, USER_AGENT) == ((MAX_EVENTS_PER_PUSH,), "ServiceWebhooks")


def test_a_push_of_every_event_type_is_read():
    pushed = []
    for row in EVENTS:
        carried = EVENT_CARRIES.get(row.event_code, ())
        texts = {fact.wire: on_the_wire(fact) for fact in RESOURCES["Event"] if fact.wire in carried}
        pushed.append({"EventCode": row.event_code, **texts})
    for row, event in zip(EVENTS, parse_push(json.dumps(pushed).encode()), strict=True):
        assert event.event_code == row.event_code
        for wire in EVENT_CARRIES.get(row.event_code, ()):
            assert getattr(event, wire_names(MailEvent)[wire]) is not None
