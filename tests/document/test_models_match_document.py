"""Each model of a request, a response and a resource against the facts: the same names, types and rules, none extra."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from pydantic import BaseModel, SecretStr

from airflow_provider_mail import api
from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.events import MAX_EVENTS_PER_PUSH, USER_AGENT
from tests.document import fact_types, models
from tests.document.asserting import FIELDS, fields, for_each_operation
from tests.document.fact_resources import RESOURCES
from tests.document.fact_rows import EVENT_CARRIES, EVENTS, LIMITS, MAIL_STATUS
from tests.document.fact_types import CONDITIONAL, YES, Fact, Operation
from tests.document.models import REQUESTS, Steps, model_of, sent, wire_names

# The design does not place the token exchange; a code works once, so repeating a lost exchange cannot help.
EFFECTS = {fact_types.DELETE_OR_CANCEL: Effect.DELETE, fact_types.UNLISTED: Effect.SEND}
BATCH_KEY, IMPORTS = "transactional.sends_customised.batch", "contacts.imports"
ALWAYS_SENT = {
    # "Listed as required": a request without them sends an empty list, which says the same.
    (BATCH_KEY, ("messageVersions", 0, "cc")): [],
    (BATCH_KEY, ("messageVersions", 0, "bcc")): [],
    # The only value there is.
    ("oauth.token", ("grant_type",)): "authorization_code",
}
"""Required fields that a caller may leave out, with what is sent then."""
NEEDED_BESIDE = {
    # "Used only when listName is given": alone it would be ignored silently, so it is rejected.
    (IMPORTS, ("listDescription",)): {"listName": "customers"}
}
"""Where a model is stricter than the specification: an optional field that it takes only beside another."""


def test_every_operation_has_one_model_and_every_model_an_operation():
    documented = sorted((o.method, o.path, models.form({fact.wire for fact in o.request})) for o in REQUESTS)
    modelled = sorted(
        (model.method, model.path, models.form(set(wire_names(model)))) for model in models.request_models()
    )
    assert modelled == documented
    by_path = {model.path: model for model in models.request_models()}
    for model in models.private_models():  # what the package sends by itself
        same = by_path[model.path]
        assert (model.method, model.effect, model.response) == (same.method, same.effect, same.response)
        assert model.authenticated is same.authenticated


def test_the_consent_page_is_addressed_as_documented():
    operation = models.operation_of(models.AUTHORIZE)
    back = "https://client.example/back?a=b&c=ü"
    url = api.authorize_url("https://api.example", client_id=operation.minimal["client_id"], redirect_uri=back)
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "api.example", operation.path)
    expected = {**operation.minimal, "redirect_uri": back, "scope": "All"}
    assert dict(parse_qsl(parts.query, strict_parsing=True)) == expected


@for_each_operation
def test_what_the_design_says_of_an_operation(operation: Operation):
    """Its effect; whether it takes sandbox mode; and all but the token exchange are authenticated."""
    model = model_of(operation)
    assert model.effect is (EFFECTS.get(operation.effect) or Effect[operation.effect])
    assert model.model_validate(operation.minimal).takes_sandbox is operation.takes_sandbox_mode
    assert model.authenticated is (operation.key != "oauth.token")


def inner(fact: Fact) -> tuple[Fact, ...]:
    return RESOURCES[fact.resource] if fact.resource else fact.fields


def compare(model: type[BaseModel], facts: tuple[Fact, ...], where: str) -> None:
    assert set(wire_names(model)) == {fact.wire for fact in facts}, where
    for fact in filter(inner, facts):
        nested = models.nested_model(models.field_of(model, fact).annotation)
        compare(nested, inner(fact), f"{where}.{fact.wire}")


@for_each_operation
def test_no_field_is_missing_and_none_is_extra(operation: Operation):
    """Neither of the request nor of the response."""
    model = model_of(operation)
    compare(model, operation.request, operation.key)
    compare(model.response, (Fact("code", "integer"), Fact("message", "string"), *operation.response), operation.key)
    assert sent(operation, operation.minimal) == operation.minimal, "nothing is added"
    with pytest.raises(MailValidationError, match="sendDat: "):
        model.model_validate({**operation.minimal, "sendDat": "x"})


def completed(body: dict[str, Any]) -> dict[str, Any]:
    """A body with what is always sent."""
    for version in body.get("messageVersions", ()):
        version.setdefault("cc", [])
        version.setdefault("bcc", [])
    return body


@fields(lambda fact: True)
def test_a_field_has_its_type_and_is_sent_as_given(operation: Operation, steps: Steps, fact: Fact):
    model: Any = model_of(operation)
    for step in steps[:-1]:
        if isinstance(step, str):
            model = models.nested_model(model.model_fields[wire_names(model)[step]].annotation)
    schema = model.model_json_schema(by_alias=True, mode="serialization")
    assert models.json_type(schema["properties"][fact.wire], schema.get("$defs", {})) == fact.type
    body = models.body_with(operation, steps, models.documented_value(operation, steps, fact))
    body |= NEEDED_BESIDE.get((operation.key, steps), {})
    assert sent(operation, body) == completed(body)


@fields(lambda fact: fact.required == YES)
def test_a_required_field_cannot_be_left_out(operation: Operation, steps: Steps, fact: Fact):
    """And a required text cannot be empty."""
    wrong = [models.body_with(operation, steps, "")] if fact.type == "string" else []
    if (operation.key, steps) in ALWAYS_SENT:
        expected = models.body_with(operation, steps, ALWAYS_SENT[operation.key, steps])
        assert sent(operation, models.body_without(operation, steps)) == expected
    else:
        wrong.append(models.body_without(operation, steps))
    for body in wrong:
        with pytest.raises(MailValidationError) as raised:
            model_of(operation).model_validate(body)
        assert f"{models.spelled(operation, steps)}: " in str(raised.value)


@fields(lambda fact: fact.required not in (YES, CONDITIONAL))
def test_an_optional_field_can_be_left_out_and_is_not_sent(operation: Operation, steps: Steps, fact: Fact):
    body = models.body_without(operation, steps)
    assert sent(operation, body) == completed(body)


VERSION = {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": []}
CAMPAIGN = {"mailName": "spring", "senderMail": "news@shop.example"}
HI, TEXT, WELCOME = {"subject": "Hi"}, {"content": "<p>Hi</p>"}, {"templateName": "welcome"}
CONTENT, LISTS, ADDRESS = "content or template_name: ", "send_list_names: ", "email or phone_number"


def batch(shared: dict[str, Any], *own: dict[str, Any]) -> dict[str, Any]:
    return {"senderMail": "shop@shop.example", **shared, "messageVersions": [{**VERSION, **one} for one in own]}


def imported(name: str) -> dict[str, Any]:
    mapping = [{"columnNum": 0, "propertyName": name}]
    return {"contactData": [["x"]], "contactDataMapping": mapping, "updateMode": 1}


CONDITIONS: list[tuple[str, dict[str, Any], str]] = [
    ("contacts.upsert", {}, ADDRESS),
    ("contacts.upsert", {"name": "Ada", "listName": "customers"}, ADDRESS),
    ("contacts.upsert", {"email": "ada@example.com"}, ""),
    ("contacts.upsert", {"phoneNumber": "+441234"}, ""),
    ("contacts.upsert", {"email": "ada@example.com", "phoneNumber": "+441234"}, ""),
    ("campaigns.sends", CAMPAIGN, LISTS),
    ("campaigns.sends", {**CAMPAIGN, "sendListNames": []}, LISTS),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": False}, LISTS),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": True}, ""),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": True, "sendListNames": []}, ""),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": False, "sendListNames": ["customers"]}, ""),
    (BATCH_KEY, batch({}, {}), CONTENT),
    (BATCH_KEY, batch(HI, {}), CONTENT),
    (BATCH_KEY, batch(TEXT, {}), "subject: "),
    (BATCH_KEY, batch({**HI, **TEXT}, {}), ""),
    (BATCH_KEY, batch(WELCOME, {}), ""),
    (BATCH_KEY, batch({**HI, **WELCOME}, {}), ""),
    (BATCH_KEY, batch({**HI, **TEXT, **WELCOME}, {}), ""),
    (BATCH_KEY, batch({}, {**HI, **TEXT}), ""),
    (BATCH_KEY, batch({}, WELCOME), ""),
    (BATCH_KEY, batch(TEXT, HI), ""),
    (BATCH_KEY, batch(HI, TEXT, {}), CONTENT),
    (IMPORTS, imported("email"), ""),
    (IMPORTS, imported("phoneNumber"), ""),
    (IMPORTS, imported("name"), "contact_data_mapping: "),
    (IMPORTS, imported("custom"), "contact_data_mapping: "),
]


def test_what_is_required_on_a_condition():
    for key, body, message in CONDITIONS:
        operation = models.operation_of(key)
        if not message:
            assert sent(operation, body) == body
            continue
        with pytest.raises(MailValidationError) as raised:
            model_of(operation).model_validate(body)
        assert message in str(raised.value), body
    tried = {key for key, _, _ in CONDITIONS}
    assert {operation.key for operation, _, fact in FIELDS if fact.required == CONDITIONAL} <= tried


def test_the_vocabulary_is_the_documented_one():
    """The codes of events, their toggles, and the states of a campaign."""
    assert [code.value for code in api.EventCode] == [row.event_code for row in EVENTS]
    assert set(wire_names(api.EventToggles)) == {row.toggle for row in EVENTS if row.toggle}
    assert {status.name: status.value for status in api.MailStatus} == MAIL_STATUS


# Responses and resources.

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
def test_every_field_of_a_response_is_read(operation: Operation):
    """Whether the message is empty or null; unknown fields are ignored."""
    request = model_of(operation).model_validate(operation.minimal)
    for message in ("", None):
        response = request.read(response_to(operation) | {"message": message, "somethingNew": {"a": [1]}})
        check(response, operation.response, operation.key)
        assert (response.code, response.message or "") == (200, "")


def test_the_name_of_a_list_is_read_in_both_spellings():
    for name in ("ListName", "listName"):
        assert api.ContactList.model_validate({"Id": 1, name: "customers"}).list_name == "customers"


def test_what_may_be_null_or_absent():
    """A webhook configuration that was never saved, and the statistics of a campaign."""
    facts = RESOURCES["Webhook configuration"]
    assert all(fact.nullable for fact in facts)
    response = api.GetWebhook().read(SUCCESS | dict.fromkeys((fact.wire for fact in facts), None))
    assert {value for name, value in response if name not in SUCCESS} == {None}
    campaigns = response_to(models.operation_of("campaigns.get"))
    del campaigns["mailList"][0]["mailStats"]
    assert api.GetCampaigns().read(campaigns).mail_list[0].mail_stats is None


def test_an_event_has_the_documented_fields():
    assert set(wire_names(api.MailEvent)) == {fact.wire for fact in RESOURCES["Event"]}
    event = api.MailEvent.model_validate({fact.wire: on_the_wire(fact) for fact in RESOURCES["Event"]})
    check(event, RESOURCES["Event"], "Event")
    (most,) = (row.value for row in LIMITS if row.item == "Webhook events per push")
    assert (most, USER_AGENT) == ((MAX_EVENTS_PER_PUSH,), "ServiceWebhooks")


def test_a_push_of_every_event_type_is_read():
    pushed = []
    for row in EVENTS:
        carried = EVENT_CARRIES.get(row.event_code, ())
        texts = {fact.wire: on_the_wire(fact) for fact in RESOURCES["Event"] if fact.wire in carried}
        pushed.append({"EventCode": row.event_code, **texts})
    for row, event in zip(EVENTS, api.parse_push(json.dumps(pushed).encode()), strict=True):
        assert event.event_code == row.event_code
        for wire in EVENT_CARRIES.get(row.event_code, ()):
            assert getattr(event, wire_names(api.MailEvent)[wire]) is not None
