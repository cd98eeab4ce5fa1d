"""Each model against the document's facts: nothing missing, nothing extra, the same names, types and rules."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api.campaigns import MailStatus
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.events import EventCode
from airflow_provider_mail.api.oauth import authorize_url
from airflow_provider_mail.api.webhooks import EventToggles
from tests.document.fact_rows import EVENTS, MAIL_STATUS
from tests.document.fact_types import (
    CONDITIONAL,
    CREATE,
    DELETE_OR_CANCEL,
    READ,
    REPEATABLE,
    SEND,
    UNLISTED,
    YES,
    Fact,
    Operation,
)
from tests.document.facts import OPERATIONS
from tests.document.models import (
    AUTHORIZE,
    REQUESTS,
    Steps,
    body_with,
    body_without,
    documented_value,
    field_of,
    form,
    json_type,
    model_of,
    nested_model,
    private_models,
    request_models,
    sent,
    spelled,
    walk,
    wire_names,
)

EFFECTS = {
    READ: Effect.READ,
    REPEATABLE: Effect.REPEATABLE,
    CREATE: Effect.CREATE,
    DELETE_OR_CANCEL: Effect.DELETE,
    SEND: Effect.SEND,
    # The design does not place the token exchange; a code works once, so repeating a lost exchange cannot help.
    UNLISTED: Effect.SEND,
}

ALWAYS_SENT = {
    # "Listed as required": whoever leaves them out sends an empty list, which says the same.
    ("transactional.sends_customised.batch", ("messageVersions", 0, "cc")): [],
    ("transactional.sends_customised.batch", ("messageVersions", 0, "bcc")): [],
    # The only value there is.
    ("oauth.token", ("grant_type",)): "authorization_code",
}
"""Required fields that a caller may leave out, with what is sent then."""

NEEDED_BESIDE = {
    # "Used only when listName is given": alone it would be ignored without a word, so it is refused.
    ("contacts.imports", ("listDescription",)): {"listName": "customers"},
}
"""Where a model is stricter than the document: an optional field that it takes only beside another."""

by_key = pytest.mark.parametrize("operation", REQUESTS, ids=lambda operation: operation.key)


def each_field(facts: list[tuple[Operation, Steps, Fact]]) -> pytest.MarkDecorator:
    ids = [f"{operation.key}:{'.'.join(map(str, steps))}" for operation, steps, _ in facts]
    return pytest.mark.parametrize(("operation", "steps", "fact"), facts, ids=ids)


FIELDS = [(operation, steps, fact) for operation in REQUESTS for steps, fact in walk(operation.request)]


# Operations ----------------------------------------------------------------------------------------------------------


def test_every_operation_has_one_model_and_every_model_an_operation():
    documented = sorted((o.method, o.path, form({fact.wire for fact in o.request})) for o in REQUESTS)
    modelled = sorted((model.method, model.path, form(set(wire_names(model)))) for model in request_models())
    assert modelled == documented


def test_what_the_package_sends_by_itself_is_an_operation_too():
    by_path = {model.path: model for model in request_models()}
    for model in private_models():
        public = by_path[model.path]
        assert (model.method, model.effect, model.response) == (public.method, public.effect, public.response)
        assert model.authenticated is public.authenticated


def test_the_consent_page_is_addressed_as_documented():
    operation = next(operation for operation in OPERATIONS if operation.key == AUTHORIZE)
    minimal = operation.minimal
    url = authorize_url(
        "https://api.example", client_id=minimal["client_id"], redirect_uri="https://client.example/back?a=b&c=ü"
    )
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "api.example", operation.path)
    assert parse_qsl(parts.query, strict_parsing=True) == [
        *((name, minimal[name]) for name in ("client_id", "response_type")),
        ("redirect_uri", "https://client.example/back?a=b&c=ü"),
        ("scope", "All"),
    ]


@by_key
def test_the_effect_is_the_one_of_the_design(operation: Operation):
    assert model_of(operation).effect is EFFECTS[operation.effect]


@by_key
def test_sandbox_mode_is_taken_where_it_is_listed(operation: Operation):
    request = model_of(operation).model_validate(operation.minimal)
    assert request.takes_sandbox is operation.takes_sandbox_mode


@by_key
def test_every_operation_but_the_token_exchange_is_authenticated(operation: Operation):
    assert model_of(operation).authenticated is (operation.key != "oauth.token")


# Requests ------------------------------------------------------------------------------------------------------------


@by_key
def test_the_minimal_request_is_accepted_and_nothing_is_added(operation: Operation):
    assert sent(operation, operation.minimal) == operation.minimal


@by_key
def test_no_field_is_missing_and_none_is_extra(operation: Operation):
    def compare(model: type, facts: tuple[Fact, ...], where: str) -> None:
        assert set(wire_names(model)) == {fact.wire for fact in facts}, where
        for fact in facts:
            if fact.fields:
                compare(nested_model(field_of(model, fact).annotation), fact.fields, f"{where}.{fact.wire}")

    compare(model_of(operation), operation.request, operation.key)


@each_field(FIELDS)
def test_the_type_on_the_wire_is_the_documented_one(operation: Operation, steps: Steps, fact: Fact):
    model: Any = model_of(operation)
    for step in steps[:-1]:
        if isinstance(step, str):
            model = nested_model(model.model_fields[wire_names(model)[step]].annotation)
    schema = model.model_json_schema(by_alias=True, mode="serialization")
    assert json_type(schema["properties"][fact.wire], schema.get("$defs", {})) == fact.type


@each_field(FIELDS)
def test_a_documented_value_is_sent_as_it_was_given(operation: Operation, steps: Steps, fact: Fact):
    body = body_with(operation, steps, documented_value(operation, steps, fact))
    body |= NEEDED_BESIDE.get((operation.key, steps), {})
    assert sent(operation, body) == with_what_is_always_sent(operation, body)


def with_what_is_always_sent(operation: Operation, body: dict[str, Any]) -> dict[str, Any]:
    for version in body.get("messageVersions", ()):
        version.setdefault("cc", [])
        version.setdefault("bcc", [])
    return body


@each_field([(o, steps, fact) for o, steps, fact in FIELDS if fact.required == YES])
def test_a_required_field_cannot_be_left_out(operation: Operation, steps: Steps, fact: Fact):
    body = body_without(operation, steps)
    if (operation.key, steps) in ALWAYS_SENT:
        expected = body_with(operation, steps, ALWAYS_SENT[operation.key, steps])
        assert sent(operation, body) == expected
        return
    with pytest.raises(MailValidationError) as refused:
        model_of(operation).model_validate(body)
    assert f"{spelled(operation, steps)}: " in str(refused.value)


@each_field([(o, steps, fact) for o, steps, fact in FIELDS if fact.required == YES and fact.type == "string"])
def test_a_required_text_cannot_be_empty(operation: Operation, steps: Steps, fact: Fact):
    with pytest.raises(MailValidationError) as refused:
        model_of(operation).model_validate(body_with(operation, steps, ""))
    assert f"{spelled(operation, steps)}: " in str(refused.value)


@each_field([(o, steps, fact) for o, steps, fact in FIELDS if fact.required not in (YES, CONDITIONAL)])
def test_an_optional_field_can_be_left_out_and_is_not_sent(operation: Operation, steps: Steps, fact: Fact):
    body = body_without(operation, steps)
    assert sent(operation, body) == with_what_is_always_sent(operation, body)


@by_key
def test_a_mistyped_field_is_refused_by_name(operation: Operation):
    with pytest.raises(MailValidationError, match="sendDat: "):
        model_of(operation).model_validate({**operation.minimal, "sendDat": "x"})


# Required on a condition ---------------------------------------------------------------------------------------------

VERSION = {"to": [{"email": "ada@example.com"}], "cc": [], "bcc": []}

BATCH = {"senderMail": "shop@shop.example"}
CAMPAIGN = {"mailName": "spring", "senderMail": "news@shop.example"}

CONDITIONS: list[tuple[str, dict[str, Any], str]] = [
    ("contacts.upsert", {}, "email or phone_number"),
    ("contacts.upsert", {"name": "Ada", "listName": "customers"}, "email or phone_number"),
    ("contacts.upsert", {"email": "ada@example.com"}, ""),
    ("contacts.upsert", {"phoneNumber": "+441234"}, ""),
    ("contacts.upsert", {"email": "ada@example.com", "phoneNumber": "+441234"}, ""),
    ("campaigns.sends", CAMPAIGN, "send_list_names: "),
    ("campaigns.sends", {**CAMPAIGN, "sendListNames": []}, "send_list_names: "),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": False}, "send_list_names: "),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": True}, ""),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": True, "sendListNames": []}, ""),
    ("campaigns.sends", {**CAMPAIGN, "onlySave": False, "sendListNames": ["customers"]}, ""),
    *(
        ("transactional.sends_customised.batch", {**BATCH, **given, "messageVersions": [{**VERSION, **own}]}, refusal)
        for given, own, refusal in [
            ({}, {}, "content or template_name: "),
            ({"subject": "Hi"}, {}, "content or template_name: "),
            ({"content": "<p>Hi</p>"}, {}, "subject: "),
            ({"subject": "Hi", "content": "<p>Hi</p>"}, {}, ""),
            ({"templateName": "welcome"}, {}, ""),
            ({"subject": "Hi", "templateName": "welcome"}, {}, ""),
            ({"subject": "Hi", "content": "<p>Hi</p>", "templateName": "welcome"}, {}, ""),
            ({}, {"subject": "Hi", "content": "<p>Hi</p>"}, ""),
            ({}, {"templateName": "welcome"}, ""),
            ({"content": "<p>Hi</p>"}, {"subject": "Hi"}, ""),
        ]
    ),
    (
        "transactional.sends_customised.batch",
        {**BATCH, "subject": "Hi", "messageVersions": [{**VERSION, "content": "<p>Hi</p>"}, VERSION]},
        "content or template_name: ",
    ),
    *(
        (
            "contacts.imports",
            {
                "contactData": [["x"]],
                "contactDataMapping": [{"columnNum": 0, "propertyName": name}],
                "updateMode": 1,
            },
            refusal,
        )
        for name, refusal in [
            ("email", ""),
            ("phoneNumber", ""),
            ("name", "contact_data_mapping: "),
            ("custom", "contact_data_mapping: "),
        ]
    ),
]


@pytest.mark.parametrize(("key", "body", "refusal"), CONDITIONS)
def test_what_is_required_on_a_condition(key: str, body: dict[str, Any], refusal: str):
    operation = next(operation for operation in OPERATIONS if operation.key == key)
    if not refusal:
        assert sent(operation, body) == body
        return
    with pytest.raises(MailValidationError) as refused:
        model_of(operation).model_validate(body)
    assert refusal in str(refused.value)


def test_every_conditional_field_has_a_condition_tried():
    tried = {key for key, _, _ in CONDITIONS}
    assert {operation.key for operation, _, fact in FIELDS if fact.required == CONDITIONAL} <= tried


# Vocabulary ----------------------------------------------------------------------------------------------------------


def test_the_event_codes_are_the_documented_ones():
    assert [code.value for code in EventCode] == [row.event_code for row in EVENTS]


def test_every_event_with_a_toggle_can_be_switched():
    assert set(wire_names(EventToggles)) == {row.toggle for row in EVENTS if row.toggle}


def test_the_states_of_a_campaign_are_the_documented_ones():
    assert {status.value for status in MailStatus} == set(MAIL_STATUS)
    assert MailStatus(-1) is MailStatus.DRAFT
    assert MailStatus(1) is MailStatus.SENDING
    assert MailStatus(2) is MailStatus.COMPLETE
    assert MailStatus(4) is MailStatus.FAILED
