"""Compact contacts are those that the model reads, or end in the same error."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api.contacts import Contact, ContactsPage, GetListContacts
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.compact_contacts import CompactContact, GetCompactContacts
from tests.document.fact_resources import RESOURCES
from tests.support.sampling import examples
from tests.support.task_parts import HttpResponse, parse_response

NAMES = tuple(fact.wire for fact in RESOURCES["Contact"])
TIMES = ("createDate", "modifyTime")

TEXTS = st.text(st.sampled_from('{}[],:"\\ \n}{]né春\U0001f4e7ab\x00') | st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TIME = st.sampled_from(
    [
        *("2026-01-02T03:04:05Z", "2026-01-02 03:04:05.123", "2026-01-02T03:04:05.1234567Z", "2026-01-02"),
        *("2026-01-02T03:04:05+02:00", "2026-W01-1", "", "0", "never", 0, None, 20260102, 1.5, True, [], {}),
    ]
)
ODD = st.sampled_from(
    [None, "", 0, 12, "12", 12.0, 1.5, True, 2**53 + 1, 10**30, [], {}, ["x"], "\ud800", float("nan")]
)
DOCUMENTED: dict[str, st.SearchStrategy[Any]] = {
    "id": TEXTS,
    "name": TEXTS,
    "email": TEXTS,
    "phoneNumber": TEXTS,
    "properties": st.dictionaries(TEXTS, TEXTS | st.none(), max_size=3),
    "createDate": st.just("2026-01-02T03:04:05Z"),
    "modifyTime": st.just("2026-01-02T03:04:05.678Z"),
    "createUserId": st.integers(-(2**53), 2**53),
}


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@st.composite
def contacts(draw: Any) -> Any:
    made = {name: draw(DOCUMENTED[name]) for name in NAMES}
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True)):  # what is not as it should be
        change = draw(st.integers(0, 3))
        value = made.pop(name)
        if change == 1:
            made[snake(name)] = value
        elif change > 1:
            made[name] = draw(TIME if name in TIMES else ODD | st.dictionaries(TEXTS, VALUES, max_size=2))
    return made | draw(st.dictionaries(TEXTS, VALUES, max_size=1))


def answer(records: Any, **fields: Any) -> bytes:
    return json.dumps({"code": 200, "message": "", "requestId": "1", "contactList": records, **fields}).encode()


def outcome(request: GetListContacts, body: bytes) -> Any:
    """The contacts with all their values, or the error."""
    try:
        page = parse_response(request, HttpResponse(200, {}, body))
    except MailError as error:
        return type(error), str(error)
    assert isinstance(page, ContactsPage)
    names = (*Contact.model_fields, "other_fields")
    values = [[repr(getattr(record, name)) for name in names] for record in page.records]  # NaN equals itself there
    return page.total_records, values, [page.identity(record) for record in page.records]


def assert_the_same(body: bytes) -> None:
    model, compact = (outcome(kind(list_name="all"), body) for kind in (GetListContacts, GetCompactContacts))
    assert compact == model


@given(
    st.lists(contacts(), max_size=5),
    st.dictionaries(
        st.sampled_from(["totalRecords", "total_records", "contact_list", "code", "requestId", "message"]) | TEXTS,
        VALUES | st.just("200") | st.just([]),
        max_size=2,
    ),
    st.none() | st.integers(0, 500),
)
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example([{"id": 7}], {}, None)
@example([{"id": "7", "createUserId": "12"}], {}, None)
@example([{"id": "7", "properties": {"a": 1, "b": None, "c": [1.0]}}], {}, None)
@example([{"id": "7", "phone_number": "+49 1"}], {}, None)
@example([{"id": "7", "properties": None}], {"totalRecords": "1"}, None)
@example([None], {}, None)
def test_any_response_gives_what_the_model_gives(records: Any, fields: dict[str, Any], cut: int | None) -> None:
    assert_the_same(answer(records, **fields)[:cut])


@pytest.mark.parametrize("value", ["\\ud800", "\\ud83d\\udce7", "\xff"], ids=["half", "pair", "utf-8"])
def test_odd_characters_give_what_the_model_gives(value: str) -> None:
    assert_the_same(b'{"code":200,"contactList":[{"id":"1","name":"%b"}]}' % value.encode("latin-1"))


def test_contacts_of_the_documented_form_are_compact() -> None:
    record = {"id": "1", "email": "a@example.com", "properties": {"b": "2", "a": None}, "more": {"new": [1]}}
    page = answer([record | {"createDate": "2026-01-02T03:04:05Z", "modifyTime": ""}], totalRecords=1)
    decoded = GetCompactContacts(list_name="all").decode(page)
    assert decoded is not None
    (record,) = decoded.records
    assert isinstance(record, CompactContact)
    assert (record.create_date, record.modify_time) == (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None)
    assert decoded.total_records == 1
    assert_the_same(page)


def test_a_long_page_is_left_to_the_model() -> None:
    """The model limits the memory that the values of a response may take."""
    record = {"id": "1", "name": "x" * 100_000}
    for count, compact in ((40, True), (45, False)):
        page = answer([record] * count)
        assert (len(page) <= 4 * 2**20) == compact
        assert (GetCompactContacts(list_name="all").decode(page) is not None) == compact
