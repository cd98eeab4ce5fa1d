"""Each answer and resource against the document's facts: every field is read, under its name and from its type."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from airflow_provider_mail.api.events import MAX_EVENTS_PER_PUSH, USER_AGENT, MailEvent, parse_push
from airflow_provider_mail.api.lists import ContactList
from tests.document.fact_resources import RESOURCES
from tests.document.fact_rows import EVENT_CARRIES, EVENTS, LIMITS
from tests.document.fact_types import Fact, Operation
from tests.document.models import REQUESTS, field_of, model_of, nested_model, wire_names

SUCCESS = {"code": 200, "message": ""}

SAMPLES: dict[str, tuple[Any, Any]] = {
    "epoch_ms": (1_767_258_000_123, datetime(2026, 1, 1, 9, 0, 0, 123_000, UTC)),
    "iso8601": ("2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
    "date": ("2026-01-31", date(2026, 1, 31)),
    "YYYY-MM-DD hh:mm:ss.mmm": ("2026-01-31 09:00:00.250", datetime(2026, 1, 31, 9, 0, 0, 250_000, UTC)),
    "string": ("text", "text"),
    "integer": (7, 7),
    "boolean": (True, True),
    "array of string": (["a", "b"], ["a", "b"]),
    "object": ({"key": "value"}, {"key": "value"}),
}
"""A value on the wire and what is read from it, by format or else by type."""


def inner(fact: Fact) -> tuple[Fact, ...]:
    return RESOURCES[fact.resource] if fact.resource else fact.fields


def on_the_wire(fact: Fact) -> Any:
    if inner(fact):
        record = {part.wire: on_the_wire(part) for part in inner(fact)}
        return [record] if fact.type.startswith("array") else record
    if fact.enum:
        return fact.enum[-1]
    return SAMPLES[fact.format or fact.type][0]


def as_read(fact: Fact) -> Any:
    return fact.enum[-1] if fact.enum else SAMPLES[fact.format or fact.type][1]


def names(model: type[BaseModel]) -> set[str]:
    return set(wire_names(model))


def check(read: BaseModel, facts: tuple[Fact, ...], where: str) -> None:
    for fact in facts:
        value = getattr(read, wire_names(type(read))[fact.wire])
        if inner(fact):
            record = value[0] if fact.type.startswith("array") else value
            check(record, inner(fact), f"{where}.{fact.wire}")
        elif isinstance(value, SecretStr):
            assert value.get_secret_value() == as_read(fact), f"{where}.{fact.wire}"
        else:
            assert value == as_read(fact), f"{where}.{fact.wire}"


by_key = pytest.mark.parametrize("operation", REQUESTS, ids=lambda operation: operation.key)


def answer_to(operation: Operation) -> dict[str, Any]:
    return SUCCESS | {fact.wire: on_the_wire(fact) for fact in operation.response}


@by_key
def test_no_field_of_an_answer_is_missing_and_none_is_extra(operation: Operation):
    def compare(model: type[BaseModel], facts: tuple[Fact, ...], where: str) -> None:
        assert names(model) == {fact.wire for fact in facts}, where
        for fact in facts:
            if inner(fact):
                compare(nested_model(field_of(model, fact).annotation), inner(fact), f"{where}.{fact.wire}")

    common = (Fact("code", "integer"), Fact("message", "string"))
    compare(model_of(operation).response, common + operation.response, operation.key)


@by_key
def test_every_field_of_an_answer_is_read(operation: Operation):
    request = model_of(operation).model_validate(operation.minimal)
    check(request.read(answer_to(operation)), operation.response, operation.key)


@by_key
@pytest.mark.parametrize("message", ["", None])
def test_message_is_empty_or_null_on_success_and_unknown_fields_are_ignored(operation: Operation, message: str | None):
    request = model_of(operation).model_validate(operation.minimal)
    answer = request.read(answer_to(operation) | {"message": message, "somethingNew": {"a": [1]}})
    assert answer.code == 200
    assert not answer.message


@pytest.mark.parametrize("name", ["ListName", "listName"])
def test_the_name_of_a_list_is_read_in_both_spellings(name: str):
    assert ContactList.model_validate({"Id": 1, name: "customers"}).list_name == "customers"


def test_a_webhook_of_which_nothing_was_saved_reads_back_as_null():
    operation = next(operation for operation in REQUESTS if operation.key == "webhook.get")
    facts = RESOURCES["Webhook configuration"]
    assert all(fact.nullable for fact in facts)
    answer = model_of(operation)().read(SUCCESS | dict.fromkeys((fact.wire for fact in facts), None))
    assert {getattr(answer, name) for wire, name in wire_names(type(answer)).items() if wire not in SUCCESS} == {None}


def test_stats_of_a_campaign_may_be_absent():
    operation = next(operation for operation in REQUESTS if operation.key == "campaigns.get")
    answer = answer_to(operation)
    del answer["mailList"][0]["mailStats"]
    read: Any = model_of(operation)().read(answer)
    assert read.mail_list[0].mail_stats is None


# Events --------------------------------------------------------------------------------------------------------------


def test_an_event_has_the_documented_fields():
    assert names(MailEvent) == {fact.wire for fact in RESOURCES["Event"]}
    check(
        MailEvent.model_validate({fact.wire: on_the_wire(fact) for fact in RESOURCES["Event"]}),
        RESOURCES["Event"],
        "Event",
    )


@pytest.mark.parametrize("row", EVENTS, ids=lambda row: row.id)
def test_a_push_of_every_event_type_is_read(row: Any):
    carried = EVENT_CARRIES.get(row.event_code, ())
    texts = {fact.wire: on_the_wire(fact) for fact in RESOURCES["Event"] if fact.wire in carried}
    (event,) = parse_push(json.dumps([{"EventCode": row.event_code, **texts}]).encode())
    assert event.event_code == row.event_code
    for wire in carried:
        assert getattr(event, wire_names(MailEvent)[wire]) is not None


def test_the_receiver_knows_the_documented_header_and_size():
    (row,) = (row for row in LIMITS if row.item == "Webhook events per push")
    assert row.value == (MAX_EVENTS_PER_PUSH,)
    assert USER_AGENT == "ServiceWebhooks"
