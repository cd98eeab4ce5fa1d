"""Statistics: whole, or an error with both numbers; short responses are read again in halves, then by names."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail._polling.pollers import campaign_states
from airflow_provider_mail.api._core.responses import compact_records
from airflow_provider_mail.api.campaigns import Campaign, CampaignStats, GetCampaigns, GetCampaignStats, MailStatus
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contacts import Contact, GetListContacts
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConfigError,
    MailError,
    MailIncompleteError,
    MailRejectedError,
    MailResponseError,
)
from airflow_provider_mail.api.flows.second_source import check_campaigns, check_contacts, existing_of
from airflow_provider_mail.api.flows.statistics import campaign_stats, missing_days, transactional_stats
from airflow_provider_mail.api.transactional import GetTransactionalStats
from airflow_provider_mail.warehouse.tables.resources import CONTACTS as CONTACTS_TABLE
from mail_emulator import Emulator
from tests.api.driving import Rehearsal
from tests.document.fact_resources import RESOURCES
from tests.support.task_parts import HttpResponse, parse_response

FIRST = date(2026, 1, 1)
PATH = "campaign/mail/stats/get"


def window(days: int, **fields: Any) -> GetCampaignStats:
    return GetCampaignStats(start_date=FIRST, end_date=FIRST + timedelta(days=days - 1), **fields)


@dataclass
class Service:
    """A service that gives so many statistics records in a response and no more.

    :param sent: how many campaigns on each day; odd ones are called like the beginning of the even ones before them.
    :param most: records in a response.
    :param names: how it compares ``mailName``.
    :param total: what it says of ``totalRecords``: the truth, nothing, -1, or one less or more than it gives.
    :param knows: whether ``campaign/mail/get`` lists all campaigns, or none.
    """

    sent: list[int]
    most: int
    names: str = "exact"
    total: str = "honest"
    knows: bool = True
    asked: list[Any] = field(default_factory=list)

    def everything(self) -> list[tuple[str, date]]:
        return [
            (f"{day}-{number // 2}{'' if number % 2 else '-b'}", FIRST + timedelta(days=day))
            for day, count in enumerate(self.sent) for number in range(count)
        ]  # fmt: skip

    def __call__(self, request: Any) -> Any:
        self.asked.append(request)
        if isinstance(request, GetCampaigns):
            return self._campaigns(request)
        found = [
            (name, day) for name, day in self.everything()
            if request.start_date <= day <= request.end_date and self._matches(name, request.mail_name)
        ]  # fmt: skip
        if self.names == "rejects" and request.mail_name and not found:
            return MailRejectedError("no such campaign", operation=request.path, code=404)
        given = found[: self.most]
        records = [{**COUNTS, "mailName": name, "mailSendDate": millis(day)} for name, day in given]
        said = {"honest": len(found), "absent": None, "negative": -1, "low": len(given) - 1, "high": len(given) + 1}[
            self.total
        ]
        return request.response.model_validate({"mailStatsList": records, "totalRecords": said})

    def _matches(self, name: str, wanted: str | None) -> bool:
        return wanted is None or (wanted in name if self.names == "contains" else wanted == name)

    def _campaigns(self, request: GetCampaigns) -> Any:
        known = [item for item in self.everything() if self.knows and (request.mail_name or "") in item[0]]
        first = ((request.page_index or 1) - 1) * 10
        page = [
            {"mailName": name, "mailStatus": 2, "sendByDateTime": millis(day)}
            for name, day in known[first : first + 10]
        ]
        return request.response.model_validate({"mailList": page, "totalRecords": len(known)})


COUNTS = {"sentCount": 1, "openCount": 0, "clickCount": 0, "hardBounce": 0, "softBounce": 0, "unsentCount": 0,
          "unsubscribeCount": 0}  # fmt: skip


def millis(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, 9, tzinfo=UTC).timestamp() * 1000)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=20),
    st.integers(0, 12),
    st.sampled_from(["exact", "contains", "rejects"]),
    st.booleans(),
)
def test_a_service_that_gives_so_many_records_and_no_more(sent: list[int], most: int, names: str, knows: bool) -> None:
    """Whole, or an error with both numbers; whole for certain if a day fits in, or if names single a campaign out."""
    service = Service(sent, most, names=names, knows=knows)
    try:
        records = campaign_stats(Rehearsal(service), window(len(sent)))
    except MailIncompleteError as error:
        assert most < max(sent)
        assert not (knows and most >= 2)
        assert error.got < error.expected  # noqa: PT017
        assert error.temporary  # noqa: PT017
    else:
        assert sorted(record.mail_name for record in records) == sorted(name for name, _ in service.everything())
        assert max(sent) <= most or (knows and most)
    assert len(service.asked) <= 2 * len(sent) + sum(sent) + sum(sent) // 10 + 2


def test_the_total_decides_whether_a_response_is_complete() -> None:
    """One that is too low hides no record; without one nothing is complete."""
    for total in ("absent", "negative"):
        with pytest.raises(MailIncompleteError, match="2 records came, and no response has a valid totalRecords"):
            campaign_stats(Rehearsal(Service([2], 5, total=total)), window(1))
    assert len(campaign_stats(Rehearsal(Service([2], 5, total="low")), window(1))) == 2
    with pytest.raises(MailIncompleteError, match=r"2 records came for 2026-01-01, the service reports 3"):
        campaign_stats(Rehearsal(Service([2], 5, total="high")), window(1))


def test_two_records_of_a_campaign_and_one_of_another_day() -> None:
    def read(*records: dict[str, Any]) -> Any:
        page = {"mailStatsList": [{**COUNTS, "mailName": "a", **record} for record in records], "totalRecords": 1}
        return campaign_stats(Rehearsal(lambda request: request.response.model_validate(page)), window(2))

    sent, day = {"mailSendDate": millis(FIRST)}, timedelta(days=1)
    (record,) = read(sent, {**sent, "openCount": 3})
    assert record.open_count == 3, "counts grow"
    for others, says in [
        ([sent, {"mailSendDate": millis(FIRST + day)}], "two records of one mailName have different mailSendDates"),
        ([{"mailSendDate": millis(FIRST + 3 * day)}], "to 2026-01-02 was requested, and a record has the mailSendDate"),
        ([{"mailSendDate": millis(FIRST - 2 * day)}], "to 2026-01-02 was requested, and a record has the mailSendDate"),
    ]:
        with pytest.raises(MailResponseError, match=says) as raised:
            read(*others)
        assert raised.value.operation == GetCampaignStats.path
    for number in (-1, 2):  # the days of other zones
        assert read({"mailSendDate": millis(FIRST + number * day)})


def test_a_filter_by_name_brings_no_other_campaign() -> None:
    """The service compares exactly, has lost the one, and there is another one whose name contains it.

    If it compares by "contains", two match, and a response has room for one.
    """
    service = Service([2], most=0, names="exact")
    with pytest.raises(MailIncompleteError, match=r"0 records came for 2026-01-01, the service reports 1"):
        campaign_stats(Rehearsal(service), window(1, mail_name="0-0", type="MailList"))
    assert {(request.mail_name, request.type) for request in service.asked} == {("0-0", "MailList")}
    records = campaign_stats(Rehearsal(Service([4], most=1, names="contains")), window(1, mail_name="-b"))
    assert sorted(record.mail_name for record in records) == ["0-0-b", "0-1-b"]


@pytest.mark.parametrize("offset", [-12.0, 0.0, 5.5, 14.0])
def test_a_day_of_any_zone_is_read_by_names(offset: float, emulator: Emulator, client: MailClient) -> None:
    emulator.settings.stats_utc_offset_hours = offset
    for hour in range(-14, 38):
        emulator.add_campaign(f"at {hour}", send_date=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour))
    emulator.faults.add("short_stats", PATH, count=None, missing=20, where={"mailName": None})
    assert len(campaign_stats(client, window(1))) == 24


DAY_COUNTS = {"openCount": 0, "clickCount": 0, "bounceCount": 0, "unsentCount": 0, "unsubscribeCount": 0}


@given(st.sets(st.integers(0, 30)), st.integers(0, 31), st.booleans(), st.integers(0, 2))
def test_missing_days_are_those_without_a_record(listed: set[int], most: int, whole: bool, empty: int) -> None:
    """Of a service that lists some days, or all, so many in a response; the first responses may be empty."""
    asked = []

    def play(request: GetTransactionalStats) -> Any:
        asked.append(request)
        first, last = (request.start_date - FIRST).days, (request.end_date - FIRST).days
        days = [day for day in range(first, last + 1) if whole or day in listed][:most]
        days = days if len(asked) > empty else []
        records = [{**DAY_COUNTS, "statsDate": FIRST + timedelta(days=day), "sentCount": day} for day in days]
        return request.response.model_validate({"mailStatsList": records})

    request = GetTransactionalStats(start_date=FIRST, end_date=FIRST + timedelta(days=30))
    records = transactional_stats(Rehearsal(play), request)
    known = (set(range(31)) if whole else listed) if most and empty < 2 else set()
    assert [record.sent_count for record in records] == sorted(known)
    missing = missing_days(request, records, today=date(2026, 1, 31))
    assert {(day - FIRST).days for day in missing} == set(range(30)) - known
    assert (2 if not known else 1 + empty) <= len(asked) <= 1 + 2 * 31
    assert missing_days(request, [], today=FIRST) == []  # it may be listed when it is over


# Compact campaigns, contacts and statistics are those that the model reads, or end in the same error.

NOON = int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()) * 1000
STATES = campaign_states([MailStatus.SENDING])
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

    records: list[CampaignStats] = campaign_stats(Rehearsal(respond), STATS, compact=compact)
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
    for status, is_compact in ((2, True), ("2", False)):  # of the documented form they are compact
        body = answer("mailList", [CAMPAIGN | {"mailStatus": status}])
        (record,) = parse_response(STATES, HttpResponse(200, {}, body)).records
        assert isinstance(record, Campaign) is not is_compact
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
    pages += [
        {"contactList": [CONTACT, None]},
        {"contactList": {}},
        {"contactList": [{"id": "7", "phone_number": "1"}]},
    ]
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


def test_a_redirect_with_a_page_is_a_redirect() -> None:
    body = answer("contactList", [], totalRecords=0)
    for status in (300, 307):
        with pytest.raises(MailConfigError, match=rf"redirect \(HTTP {status}\)"):
            parse_response(compact_records(CONTACTS), HttpResponse(status, {}, body))


def test_the_limit_of_memory_holds_for_compact_records() -> None:
    for request, name in ((compact_records(CONTACTS), "contactList"), (STATES, "mailList")):
        response = HttpResponse(200, {}, answer(name, [{"mailName": "a", "mailStatus": 1}] * 100))
        with pytest.raises(MailResponseError, match="would take more than 50000 bytes"):
            parse_response(request, response, max_memory=50_000)
    body = answer("mailStatsList", [record(f"mail {number}") for number in range(100)])
    with pytest.raises(MailResponseError, match="would take more than 50000 bytes"):
        stats(body, compact=True, max_memory=50_000)


# Statistics.


ALL_COUNTS = {fact.wire: 3 for fact in RESOURCES["Campaign statistics record"]}


def record(name: str, **values: Any) -> dict[str, Any]:
    return {**ALL_COUNTS, "mailName": name, "mailSendDate": NOON, **values}


FIFTY = answer("mailStatsList", [record(str(number)) for number in range(50)], totalRecords=50)


# Values that only the model reads, records that are wrong together, and bodies that are no JSON.
WRONG: list[tuple[bytes, type[MailError] | None]] = [
    (answer("mailStatsList", [record("a", sentCount="12", openCount=3.0, mailSendDate="")], totalRecords=1), None),
    (answer("mailStatsList", [record("a", mailSendDate=None), record("b", mailSendDate=0)], totalRecords=2), None),
    (answer("mailStatsList", [record(str(number)) for number in range(20)], totalRecords=21), MailIncompleteError),
    (answer("mailStatsList", [record(str(n // 2)) for n in range(20)], totalRecords=20), MailIncompleteError),
    (answer("mailStatsList", [record("a", mailSendDate=NOON + 3 * 86_400_000)], totalRecords=1), MailResponseError),
    (FIFTY[:-30], MailResponseError),
    (FIFTY.replace(b'"code": 200', b'"code": 401'), MailAuthError),
    *((FIFTY.replace(b'"12"', name), MailResponseError) for name in (b'"12', b"12", b'"\xff"')),
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


# What two readings lack, and another operation returns.


def test_a_record_that_the_service_returns_elsewhere_is_missing(emulator: Emulator, client: MailClient) -> None:
    emulator.clock.set("2026-01-05T00:00:00Z")
    emulator.add_campaigns(2, first_day=FIRST)
    emulator.add_list("news", ["ada@example.com"])
    (campaign, _), (ada,) = client.send(GetCampaigns()).records, client.send(GetListContacts(list_name="news")).records
    name = campaign.mail_name
    first = campaign.send_by_date_time.date()
    other = first + timedelta(days=1)
    missing = "and at least 1 are missing that the service returns elsewhere"
    with pytest.raises(MailIncompleteError, match=f"7 records came in two readings .*, {missing}") as raised:
        existing_of(client, window(1), 7, [name, "gone"], first, first)
    assert (raised.value.got, raised.value.expected) == (7, 8)
    # One that was sent on another day is not missing, but exists.
    assert [*existing_of(client, window(1), 7, [name, "gone"], other, other)] == [name]
    with pytest.raises(MailIncompleteError, match=f"0 of 2 campaigns .*, {missing}"):
        check_campaigns(client, [(campaign.guid, name), ("gone", "gone")])
    # Another campaign has the name now.
    check_campaigns(client, [("gone", name)])
    with pytest.raises(MailIncompleteError, match=f"1 of 2 contacts .*, {missing}") as raised:
        check_contacts(client, "news", [(ada.id, ada.email), ("0", "gone@example.com")])
    assert raised.value.expected == 2
