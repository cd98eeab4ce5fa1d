"""Polls decode campaigns without their contents, and see the same as in the whole record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_mail.api._core.responses import HttpResponse, parse_response
from airflow_provider_mail.api.campaigns import Campaign, GetCampaigns, MailStatus
from airflow_provider_mail.api.errors import MailAnswerError
from airflow_provider_mail.api.flows.campaign_states import CampaignState, get_campaign_states

RECORD = {
    "mailName": "spring",
    "mailContent": '<p>{"mailName": "not me"}</p>',
    "mailStatus": 2,
    "sendByDateTime": 1767225600000,
    "guid": "g1",
    "teamName": "sales",
    "mailStats": {"sentCount": 5, "openCount": "3", "hardBounce": None, "unknown": {}},
    "rcptListNames": ["all"],
}
STATES = get_campaign_states([MailStatus.SENDING])
FIELDS = ("mail_name", "mail_status", "send_by_date_time", "guid", "team_name", "mail_stats")


def parse(request: GetCampaigns, record: dict[str, Any], **fields: Any) -> Any:
    body = json.dumps({"code": 200, "totalRecords": 7, "mailList": [record], **fields}).encode()
    return parse_response(request, HttpResponse(200, {}, body))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"mailStats": None},
        {"sendByDateTime": 0},
        {"sendByDateTime": None, "guid": None, "teamName": None},
        # Forms that the whole record reads as well.
        {"sendByDateTime": "1767225600000"},
        {"sendByDateTime": ""},
        {"mailStatus": "-1"},
        {"mailStats": {"sentCount": "5"}},
    ],
)
def test_it_is_the_same_campaign(change: dict[str, Any]) -> None:
    whole, compact = (parse(request, RECORD | change) for request in (GetCampaigns(), STATES))
    assert (compact.total_records, compact.code) == (whole.total_records, whole.code)
    (expected,), (found,) = whole.records, compact.records
    assert [getattr(found, name) for name in FIELDS] == [getattr(expected, name) for name in FIELDS]
    assert compact.identity(found) == whole.identity(expected)


def test_the_documented_form_is_decoded_in_one_step() -> None:
    assert isinstance(parse(STATES, RECORD).records[0], CampaignState)
    assert isinstance(parse(STATES, RECORD | {"mailStatus": "2"}).records[0], Campaign)


@pytest.mark.parametrize(
    "change", [{"mailName": None}, {"mailStatus": True}, {"mailStats": {"sentCount": "many"}}, {"sendByDateTime": []}]
)
def test_what_is_wrong_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(MailAnswerError) as expected:
        parse(GetCampaigns(), RECORD | change)
    with pytest.raises(MailAnswerError) as raised:
        parse(STATES, RECORD | change)
    assert str(raised.value) == str(expected.value)


def test_no_list_is_no_record() -> None:
    body = b'{"code": 200, "message": "", "totalRecords": 0}'
    assert parse_response(STATES, HttpResponse(200, {}, body)).records == []
