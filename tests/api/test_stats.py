"""Statistics: whole, or an error with both numbers; short responses are read again in halves, then by names."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import GetCampaigns, GetCampaignStats
from airflow_provider_mail.api.errors import MailAnswerError, MailIncompleteError, MailRejectedError
from airflow_provider_mail.api.flows.statistics import campaign_stats, missing_days, transactional_stats
from airflow_provider_mail.api.transactional import GetTransactionalStats
from mail_emulator import Emulator
from tests.api.driving import Driver, Rehearsal

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
        records = Rehearsal(service).run(campaign_stats(window(len(sent))))
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
        with pytest.raises(MailIncompleteError, match="2 records came, and the response has no valid totalRecords"):
            Rehearsal(Service([2], 5, total=total)).run(campaign_stats(window(1)))
    assert len(Rehearsal(Service([2], 5, total="low")).run(campaign_stats(window(1)))) == 2
    with pytest.raises(MailIncompleteError, match=r"2 records came for 2026-01-01, .* there are 3"):
        Rehearsal(Service([2], 5, total="high")).run(campaign_stats(window(1)))


def test_two_records_of_a_campaign_and_one_of_another_day() -> None:
    def read(*records: dict[str, Any]) -> Any:
        page = {"mailStatsList": [{**COUNTS, "mailName": "a", **record} for record in records], "totalRecords": 1}
        return Rehearsal(lambda request: request.response.model_validate(page)).run(campaign_stats(window(2)))

    sent, day = {"mailSendDate": millis(FIRST)}, timedelta(days=1)
    (record,) = read(sent, {**sent, "openCount": 3})
    assert record.open_count == 3, "counts grow"
    for others, says in [
        ([sent, {"mailSendDate": millis(FIRST + day)}], "two records of one mailName have different mailSendDates"),
        ([{"mailSendDate": millis(FIRST + 3 * day)}], "to 2026-01-02 was requested, and a record has the mailSendDate"),
        ([{"mailSendDate": millis(FIRST - 2 * day)}], "to 2026-01-02 was requested, and a record has the mailSendDate"),
    ]:
        with pytest.raises(MailAnswerError, match=says) as raised:
            read(*others)
        assert raised.value.operation == GetCampaignStats.path
    for number in (-1, 2):  # the days of other zones
        assert read({"mailSendDate": millis(FIRST + number * day)})


def test_a_filter_by_name_brings_no_other_campaign() -> None:
    """The service compares exactly, has lost the one, and there is another one whose name contains it.

    If it compares by "contains", two match, and a response has room for one.
    """
    service = Service([2], most=0, names="exact")
    with pytest.raises(MailIncompleteError, match=r"0 records came for 2026-01-01, .* there are 1"):
        Rehearsal(service).run(campaign_stats(window(1, mail_name="0-0", type="MailList")))
    assert {(request.mail_name, request.type) for request in service.asked} == {("0-0", "MailList")}
    records = Rehearsal(Service([4], most=1, names="contains")).run(campaign_stats(window(1, mail_name="-b")))
    assert sorted(record.mail_name for record in records) == ["0-0-b", "0-1-b"]


@pytest.mark.parametrize("offset", [-12.0, 0.0, 5.5, 14.0])
def test_a_day_of_any_zone_is_read_by_names(offset: float, emulator: Emulator, client: Driver) -> None:
    emulator.settings.stats_utc_offset_hours = offset
    for hour in range(-14, 38):
        emulator.add_campaign(f"at {hour}", send_date=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour))
    emulator.faults.add("short_stats", PATH, count=None, missing=20, where={"mailName": None})
    assert len(client.run(campaign_stats(window(1)))) == 24


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
    records = Rehearsal(play).run(transactional_stats(request))
    known = (set(range(31)) if whole else listed) if most and empty < 2 else set()
    assert [record.sent_count for record in records] == sorted(known)
    missing = missing_days(request, records, today=date(2026, 1, 31))
    assert {(day - FIRST).days for day in missing} == set(range(30)) - known
    assert (2 if not known else 1 + empty) <= len(asked) <= 1 + 2 * 31
    assert missing_days(request, [], today=FIRST) == []  # it may be listed when it is over
