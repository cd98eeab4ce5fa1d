"""Compact campaigns, contacts and statistics are those that the model reads, or end in the same error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest

from airflow_provider_mail.api._core.compact import compact_records
from airflow_provider_mail.api.campaigns import Campaign, CampaignStats, GetCampaigns, GetCampaignStats, MailStatus
from airflow_provider_mail.api.contacts import Contact, GetListContacts
from airflow_provider_mail.api.errors import MailAnswerError, MailAuthError, MailError, MailIncompleteError
from airflow_provider_mail.api.flows.statistics import campaign_stats
from airflow_provider_mail.api.flows.waits import CampaignState, get_campaign_states
from airflow_provider_mail.warehouse.tables.contacts import CONTACTS as CONTACTS_TABLE
from tests.api.driving import Rehearsal
from tests.document.fact_resources import RESOURCES
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


CONTACT = {
    "id": "7", "email": "ada@example.com", "name": '},{"]é春\U0001f4e7\x00', "phoneNumber": "+49 1", "createUserId": 12,
    "properties": {"a": "1", "b": None}, "createDate": "2026-01-02T03:04:05Z", "modifyTime": "2026-01-02T03:04:05.678Z",
}  # fmt: skip
# Changes of a contact, some of which only the model reads, or nobody.
CONTACT_CHANGES: list[dict[str, Any]] = [
    {}, {"id": 7}, {"id": None}, {"id": 7.5}, {"createUserId": "12"}, {"createUserId": True}, {"createUserId": 2**70},
    {"createUserId": 12.0}, {"name": "\ud800"}, {"name": ["x"]}, {"properties": {"a": 1, "c": [1.0]}},
    {"properties": None}, {"properties": []}, {"phone_number": "+49 1"}, {"phone_number": None, "more": 1},
    {"contactList": [{"id": 8}], "": {}, "totalRecords": 3}, {"modifyTime": float("nan")},
    *({"createDate": time} for time in (
        "", 0, None, "2026-01-02 03:04:05.123", "2026-01-02T03:04:05.1234567Z", "2026-01-02",
        "2026-01-02T03:04:05+02:00", "never", "0", str(NOON), float(NOON), NOON // 1000, -5, 2**60, True, {},
    )),
]  # fmt: skip


def test_contacts_are_those_of_the_model() -> None:
    pages: list[dict[str, Any]] = [{"contactList": [CONTACT, CONTACT | change]} for change in CONTACT_CHANGES]
    fields = {"totalRecords": "1"}, {"total_records": 1}, {"code": "200"}, {"contact_list": []}, {"requestId": 1}
    pages += [{"contactList": [CONTACT], **more} for more in fields]
    pages += [{"contactList": [CONTACT, None]}, {"contactList": {}}]
    bodies = [json.dumps({"code": 200, **fields}).encode() for fields in pages]
    bodies += [bodies[0][:-20], bodies[0][:40], bodies[0].replace(b"ada@", b"\xff")]
    for body in bodies:
        assert page(compact_records(CONTACTS), body, CONTACT_FIELDS) == page(CONTACTS, body, CONTACT_FIELDS), body


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
