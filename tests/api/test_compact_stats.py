"""Compact campaigns, contacts and statistics are those that the model reads, or end in the same error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api._core.compact import compact_records
from airflow_provider_mail.api.campaigns import Campaign, CampaignStats, GetCampaigns, GetCampaignStats, MailStatus
from airflow_provider_mail.api.contacts import Contact, GetListContacts
from airflow_provider_mail.api.errors import MailAnswerError, MailAuthError, MailError, MailIncompleteError
from airflow_provider_mail.api.flows.statistics import campaign_stats
from airflow_provider_mail.api.flows.waits import CampaignState, get_campaign_states
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS as CONTACTS_TABLE
from tests.api.driving import Rehearsal
from tests.document.fact_resources import RESOURCES
from tests.support.sampling import examples
from tests.support.task_parts import HttpResponse, parse_response

NOON = int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()) * 1000
STATES = get_campaign_states([MailStatus.SENDING])
STATE_FIELDS = ("mail_name", "mail_status", "send_by_date_time", "guid", "team_name", "mail_stats")
CONTACTS = GetListContacts(list_name="all")
CONTACT_FIELDS = (*Contact.model_fields, "other_fields")
STATS_FIELDS = (*CampaignStats.model_fields, "other_fields")
STATS = GetCampaignStats(start_date=date(2026, 1, 2), end_date=date(2026, 1, 2))


def answer(name: str, records: Any, **fields: Any) -> bytes:
    return json.dumps({"code": 200, "message": "", name: records, **fields}).encode()


def values_of(records: Any, fields: tuple[str, ...]) -> list[Any]:
    return [[repr(getattr(record, name)) for name in fields] for record in records]  # NaN equals itself there


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except MailError as error:
        return type(error), str(error)


def page(request: Any, body: bytes, fields: tuple[str, ...]) -> Any:
    """What is read of a page: its records with these fields, or the error."""

    def read() -> Any:
        result = parse_response(request, HttpResponse(200, {}, body))
        identities = [result.identity(record) for record in result.records]
        return result.code, result.total_records, values_of(result.records, fields), identities

    return outcome(read)


def stats(body: bytes, *, compact: bool, max_memory: float = math.inf) -> list[CampaignStats]:
    """The statistics, from a service that gives this response to everything."""

    def respond(request: Any) -> Any:
        try:
            return parse_response(request, HttpResponse(200, {}, body), max_memory=max_memory)
        except MailError as error:
            return error

    records: list[CampaignStats] = Rehearsal(respond).run(campaign_stats(STATS, compact=compact))
    return records


def stats_outcomes(body: bytes) -> list[Any]:
    return [outcome(lambda way=way: values_of(stats(body, compact=way), STATS_FIELDS)) for way in (False, True)]


# What looks like the end of something, in texts and in names of fields.
TEXTS = st.text(st.sampled_from('{}[],:"\\ \n}{]né春\U0001f4e7ab\x00') | st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("mailStatsList"), inner, max_size=3),
    max_leaves=6,
)
ODD = st.sampled_from(
    [None, "", 0, -1, 12, "12", " 7 ", 12.0, 1e3, 1.5, True, 2**53 + 1, 2**63, 10**30, [], {}, ["x"], float("nan")]
)
ODD_TIME = st.sampled_from(
    ["2026-01-02T03:04:05Z", "2026-01-02 03:04:05.123", "2026-01-02T03:04:05.1234567Z", "2026-01-02", "2026-W01-1",
     "2026-01-02T03:04:05+02:00", "never", "0", str(NOON), float(NOON), NOON + 0.5, NOON // 1000, 20260102, -5, 2**60]
)  # fmt: skip
CONTACT: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys([fact.wire for fact in RESOURCES["Contact"]], TEXTS),
    "properties": st.dictionaries(TEXTS, TEXTS | st.none(), max_size=3),
    "createDate": st.just("2026-01-02T03:04:05Z"),
    "modifyTime": st.just("2026-01-02T03:04:05.678Z"),
    "createUserId": st.integers(-(2**53), 2**53),
}


@st.composite
def contact_records(draw: Any) -> Any:
    made = {name: draw(values) for name, values in CONTACT.items()}
    for name in draw(st.lists(st.sampled_from(sorted(CONTACT)), max_size=2, unique=True)):  # not as it should be
        change, value = draw(st.integers(0, 3)), made.pop(name)
        if change == 1:
            made["".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)] = value
        elif change > 1:
            is_time = "Date" in name or "Time" in name
            made[name] = draw(ODD_TIME | ODD if is_time else ODD | st.dictionaries(TEXTS, VALUES, max_size=2))
    return dict(draw(st.permutations(list((made | draw(st.dictionaries(TEXTS, VALUES, max_size=1))).items()))))


# Campaigns.

CAMPAIGN = {
    "mailName": "spring", "mailContent": '<p>{"mailName": "not me"}</p>', "mailStatus": 2, "guid": "g1",
    "sendByDateTime": 1767225600000, "teamName": "sales", "rcptListNames": ["all"],
    "mailStats": {"sentCount": 5, "openCount": "3", "hardBounce": None, "unknown": {}},
}  # fmt: skip


# Forms that the whole record reads as well; and, from None on, what neither does.
CHANGES: list[dict[str, Any]] = [
    {}, {"mailStats": None}, {"sendByDateTime": 0}, {"sendByDateTime": None, "guid": None, "teamName": None},
    {"sendByDateTime": "1767225600000"}, {"sendByDateTime": ""}, {"mailStatus": "-1"},
    {"mailStats": {"sentCount": "5"}}, {"mailName": None}, {"mailStatus": True}, {"mailStats": {"sentCount": "many"}},
    {"sendByDateTime": []},
]  # fmt: skip


def test_a_poll_sees_the_same_campaign() -> None:
    for change in CHANGES:
        body = answer("mailList", [CAMPAIGN | change], totalRecords=7)
        assert page(STATES, body, STATE_FIELDS) == page(GetCampaigns(), body, STATE_FIELDS), change
    for status, form in ((2, CampaignState), ("2", Campaign)):  # of the documented form they are compact
        body = answer("mailList", [CAMPAIGN | {"mailStatus": status}])
        assert isinstance(parse_response(STATES, HttpResponse(200, {}, body)).records[0], form)
    assert page(STATES, b'{"code": 200, "message": "", "totalRecords": 0}', ()) == (200, 0, [], [])
    for http_status in (199, 300, 400):
        with pytest.raises(MailError, match=f"HTTP {http_status}"):
            parse_response(STATES, HttpResponse(http_status, {}, body))


# Contacts.


@given(
    st.lists(contact_records(), max_size=5),
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
@example([{"id": "7", "phone_number": None, "phoneNumber": "+49 1", "more": 1}], {}, None)
@example([{"id": "7", "properties": None}], {"totalRecords": "1"}, None)
@example([{"id": "7", "name": "\ud800"}, None], {}, None)
def test_any_contacts_are_those_of_the_model(records: Any, fields: dict[str, Any], cut: int | None) -> None:
    body = answer("contactList", records, **fields)[:cut]
    assert page(compact_records(CONTACTS), body, CONTACT_FIELDS) == page(CONTACTS, body, CONTACT_FIELDS)


@pytest.mark.parametrize("more", [{}, {"more": {"new": [1]}}])
def test_contacts_of_the_documented_form_are_compact(more: dict[str, Any]) -> None:
    record = {"id": "1", "email": "a@example.com", "properties": {"b": "2", "a": None}, **more}
    times = {"createDate": "2026-01-02T03:04:05Z", "modifyTime": ""}
    response = compact_records(CONTACTS).decode(answer("contactList", [record | times], totalRecords=1, traceId="x"))
    assert response is not None
    (contact,) = response.records
    assert not isinstance(contact, Contact)
    assert "a@example.com" not in repr(contact)
    assert (contact.create_date, contact.modify_time) == (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None)
    assert set(Contact.model_fields) <= {*CONTACTS_TABLE.names}  # no other field of a compact contact is stored


def test_the_limit_of_memory_holds_for_compact_records() -> None:
    for request, name in ((compact_records(CONTACTS), "contactList"), (STATES, "mailList")):
        response = HttpResponse(200, {}, answer(name, [{"mailName": "a", "mailStatus": 1}] * 100))
        with pytest.raises(MailAnswerError, match="would take more than 50000 bytes"):
            parse_response(request, response, max_memory=50_000)
    body = answer("mailStatsList", [record(f"mail {number}") for number in range(100)])
    with pytest.raises(MailAnswerError, match="would take more than 50000 bytes"):
        stats(body, compact=True, max_memory=50_000)


# Statistics.


COUNTS = {fact.wire: 3 for fact in RESOURCES["Campaign statistics record"]}


def record(name: str, **values: Any) -> dict[str, Any]:
    return {**COUNTS, "mailName": name, "mailSendDate": NOON, **values}


FIFTY = answer("mailStatsList", [record(str(number)) for number in range(50)], totalRecords=50)


# Values that only the model reads, records that are wrong together, and bodies that are no JSON.
WRONG: list[tuple[bytes, type[MailError] | None]] = [
    (answer("mailStatsList", [record("a", sentCount="12", openCount=3.0, mailSendDate="")], totalRecords=1), None),
    (answer("mailStatsList", [record("a", mailSendDate=None), record("b", mailSendDate=0)], totalRecords=2), None),
    (answer("mailStatsList", [record(str(number)) for number in range(20)], totalRecords=21), MailIncompleteError),
    (answer("mailStatsList", [record(str(n // 2)) for n in range(20)], totalRecords=20), MailIncompleteError),
    (answer("mailStatsList", [record("a", mailSendDate=NOON + 3 * 86_400_000)], totalRecords=1), MailAnswerError),
    (FIFTY[:-30], MailAnswerError),
    (FIFTY.replace(b'"code": 200', b'"code": 401'), MailAuthError),
    *((FIFTY.replace(b'"12"', name), MailAnswerError) for name in (b'"12', b"12", b'"\xff"')),
]


def test_what_is_wrong_with_statistics_is_named() -> None:
    for body, error in WRONG:
        model, compact = stats_outcomes(body)
        assert compact == model
        assert error is None or model[0] is error, body


def test_statistics_of_the_documented_form_are_compact() -> None:
    names = ["},{", '"}],"totalRecords":0}', "Frühling 春", *map(str, range(50))]
    records = stats(answer("mailStatsList", [record(name) for name in names], totalRecords=len(names)), compact=True)
    assert [record.mail_name for record in records] == names
    assert {record.mail_send_date for record in records} == {datetime(2026, 1, 2, 12, tzinfo=UTC)}
    assert not any(isinstance(record, CampaignStats) for record in records)
