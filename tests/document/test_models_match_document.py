"""Each model against the facts: nothing missing, nothing extra, the same names, types and rules."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from airflow_provider_mail.api import EventCode, EventToggles, MailStatus, authorize_url
from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api.errors import MailValidationError
from tests.document import fact_types, models
from tests.document.asserting import FIELDS, fields, for_each_operation
from tests.document.fact_rows import EVENTS, MAIL_STATUS
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
    url = authorize_url("https://api.example", client_id=operation.minimal["client_id"], redirect_uri=back)
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


@for_each_operation
def test_no_field_is_missing_and_none_is_extra(operation: Operation):
    def compare(model: type, facts: tuple[Fact, ...], where: str) -> None:
        assert set(wire_names(model)) == {fact.wire for fact in facts}, where
        for fact in (fact for fact in facts if fact.fields):
            inner = models.nested_model(models.field_of(model, fact).annotation)
            compare(inner, fact.fields, f"{where}.{fact.wire}")

    compare(model_of(operation), operation.request, operation.key)
    assert sent(operation, operation.minimal) == operation.minimal, "nothing is added"
    with pytest.raises(MailValidationError, match="sendDat: "):
        model_of(operation).model_validate({**operation.minimal, "sendDat": "x"})


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
    assert [code.value for code in EventCode] == [row.event_code for row in EVENTS]
    assert set(wire_names(EventToggles)) == {row.toggle for row in EVENTS if row.toggle}
    assert {status.name: status.value for status in MailStatus} == MAIL_STATUS
