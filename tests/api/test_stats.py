"""Statistics: whole, or an error with both numbers; short answers are asked for again by halves, then by names."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import GetCampaigns, GetCampaignStats
from airflow_provider_mail.api.errors import MailIncompleteError, MailRejectedError, MailServerError
from airflow_provider_mail.api.flows.statistics import campaign_stats, missing_days, transactional_stats
from airflow_provider_mail.api.transactional import GetTransactionalStats
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver, Rehearsal

FIRST = date(2026, 1, 1)


def window(days: int, **fields: Any) -> GetCampaignStats:
    return GetCampaignStats(start_date=FIRST, end_date=FIRST + timedelta(days=days - 1), **fields)


@dataclass
class Service:
    """A service that gives so many statistics records in an answer and no more.

    :param sent: how many campaigns on each day; odd ones are called like the beginning of the even ones before them.
    :param most: records in an answer.
    :param names: how it compares ``mailName``.
    :param total: what it says of ``totalRecords``: the truth, nothing, -1, or how many it gives.
    :param knows: whether ``campaign/mail/get`` tells of all campaigns, or of none.
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
        if self.names == "refuses" and request.mail_name and not found:
            return MailRejectedError("no such campaign", operation=request.path, code=404)
        given = found[: self.most]
        records = [{**COUNTS, "mailName": name, "mailSendDate": millis(day)} for name, day in given]
        said = {"honest": len(found), "absent": None, "negative": -1, "low": len(given)}[self.total]
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
    st.sampled_from(["exact", "contains", "refuses"]),
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


@pytest.mark.parametrize("total", ["absent", "negative"])
def test_without_a_total_it_is_not_known_what_is_missing(total: str) -> None:
    with pytest.raises(MailIncompleteError, match="2 records came, and the response has no valid totalRecords"):
        Rehearsal(Service([2], 5, total=total)).run(campaign_stats(window(1)))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20), st.integers(1, 20))
def test_a_service_that_hides_records_and_says_so_nowhere(sent: list[int], most: int) -> None:
    """It cannot be seen through; no more is asked for."""
    service = Service(sent, most, total="low")
    records = Rehearsal(service).run(campaign_stats(window(len(sent))))
    assert [record.mail_name for record in records] == [name for name, _ in service.everything()][:most]
    assert len(service.asked) == 1


def test_a_filter_by_name_brings_no_other_campaign_when_names_are_asked_for() -> None:
    """The service compares exactly, has lost the one, and there is another one whose name contains it."""
    service = Service([2], most=0, names="exact")
    with pytest.raises(MailIncompleteError, match="0 records came for 2026-01-01, the service says there are 1"):
        Rehearsal(service).run(campaign_stats(window(1, mail_name="0-0")))
    assert {request.mail_name for request in service.asked} == {"0-0"}


def test_what_the_halves_have_less_than_the_whole_is_missing(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaigns(4, prefix="news", first_day=FIRST)
    emulator.faults.add("wrong_total", "campaign/mail/stats/get", by=1)
    with pytest.raises(
        MailIncompleteError, match="4 records came for 2026-01-01 to 2026-01-04, the service says there are 5"
    ):
        client.run(campaign_stats(window(4)))


@pytest.mark.parametrize("offset", [-12.0, 0.0, 5.5, 14.0])
def test_a_day_of_any_zone_is_asked_for_by_name(offset: float, emulator: Emulator, client: Driver) -> None:
    emulator.settings.stats_utc_offset_hours = offset
    for hour in range(-14, 38):
        emulator.add_campaign(f"at {hour}", send_date=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour))
    emulator.faults.add("short_stats", "campaign/mail/stats/get", count=None, missing=7, where={"mailName": None})
    assert len(client.run(campaign_stats(window(1)))) == 24


@given(
    st.sets(st.integers(0, 30)),
    st.integers(0, 31),
    st.booleans(),
)
def test_days_that_are_left_out_are_missing_only_when_they_are_not_told(told: set[int], most: int, whole: bool) -> None:
    asked = []

    def play(request: GetTransactionalStats) -> Any:
        asked.append(request)
        first, last = (request.start_date - FIRST).days, (request.end_date - FIRST).days
        days = [day for day in range(first, last + 1) if whole or day in told][:most]
        records = [{**DAY_COUNTS, "statsDate": FIRST + timedelta(days=day), "sentCount": day} for day in days]
        return request.response.model_validate({"mailStatsList": records})

    request = GetTransactionalStats(start_date=FIRST, end_date=FIRST + timedelta(days=30))
    records = Rehearsal(play).run(transactional_stats(request))
    there = set(range(31)) if whole else told
    assert [record.sent_count for record in records] == (sorted(there) if most else [])
    missing = missing_days(request, records, today=date(2026, 1, 31))
    assert {(day - FIRST).days for day in missing} == set(range(30)) - (there if most else set())
    assert len(asked) <= 2 * 31


@pytest.mark.parametrize("empty", [1, 2])
def test_a_response_without_any_day_is_asked_for_a_second_time(empty: int) -> None:
    asked = []

    def play(request: GetTransactionalStats) -> Any:
        asked.append((request.start_date, request.end_date))
        records = [] if len(asked) <= empty else [{**DAY_COUNTS, "statsDate": FIRST, "sentCount": 1}]
        return request.response.model_validate({"mailStatsList": records})

    records = Rehearsal(play).run(transactional_stats(GetTransactionalStats(start_date=FIRST, end_date=FIRST)))
    assert len(records) == 2 - empty
    assert asked == [(FIRST, FIRST)] * 2


DAY_COUNTS = {"openCount": 0, "clickCount": 0, "bounceCount": 0, "unsentCount": 0, "unsubscribeCount": 0}


def test_today_may_not_be_listed_yet() -> None:
    request = GetTransactionalStats(start_date=FIRST, end_date=FIRST + timedelta(days=3))
    assert missing_days(request, [], today=FIRST + timedelta(days=1)) == [FIRST]
    assert missing_days(request, [], today=FIRST) == []


@pytest.mark.both_clients
def test_a_short_answer_is_made_whole_by_days(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaigns(20, prefix="news", first_day=FIRST, per_day=2)
    emulator.faults.add("short_stats", "campaign/mail/stats/get", count=2, missing=3)
    records = client.run(campaign_stats(window(10)))
    assert sorted(record.mail_name for record in records) == [f"news-{number:06d}" for number in range(20)]
    spans = [(entry["body"]["startDate"], entry["body"]["endDate"]) for entry in emulator.journal.entries()]
    assert spans == [
        ("2026-01-01", "2026-01-10"), ("2026-01-01", "2026-01-05"), ("2026-01-01", "2026-01-03"),
        ("2026-01-04", "2026-01-05"), ("2026-01-06", "2026-01-10"),
    ]  # fmt: skip


def test_the_filters_stay_while_the_window_is_halved(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaigns(6, prefix="news", first_day=FIRST)
    emulator.add_campaigns(6, prefix="other", first_day=FIRST)
    emulator.faults.add("short_stats", "campaign/mail/stats/get", missing=1)
    records = client.run(campaign_stats(window(6, mail_name="news", type="MailList")))
    assert len(records) == 6
    for entry in emulator.journal.entries():
        assert (entry["body"]["mailName"], entry["body"]["type"]) == ("news", "MailList")


def test_a_day_that_stays_short_is_an_error_with_both_numbers(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaigns(6, prefix="news", first_day=FIRST, per_day=3)
    emulator.faults.add("short_stats", "campaign/mail/stats/get", count=None, missing=2)
    with pytest.raises(
        MailIncompleteError, match="1 records came for 2026-01-01, the service says there are 3"
    ) as raised:
        client.run(campaign_stats(window(2)))
    assert (raised.value.got, raised.value.expected) == (1, 3)


def test_a_total_that_is_too_high_is_never_loaded_silently(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaigns(4, prefix="news", first_day=FIRST)
    emulator.faults.add("wrong_total", "campaign/mail/stats/get", count=None, by=1)
    with pytest.raises(MailIncompleteError):
        client.run(campaign_stats(window(4)))


def test_a_total_that_is_too_low_hides_nothing(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaigns(4, prefix="news", first_day=FIRST)
    emulator.faults.add("wrong_total", "campaign/mail/stats/get", count=None, by=-1)
    assert len(client.run(campaign_stats(window(4)))) == 4


def test_no_campaigns(emulator: Emulator, client: Driver) -> None:
    assert client.run(campaign_stats(window(30))) == []
    assert emulator.journal.count() == 1


def test_an_error_between_halves_is_an_error_and_no_short_result(emulator: Emulator, client: Driver) -> None:
    emulator.add_campaigns(4, prefix="news", first_day=FIRST)
    emulator.faults.add("short_stats", "campaign/mail/stats/get")
    emulator.faults.add("http_error_before", "campaign/mail/stats/get", skip=1, count=None)
    with pytest.raises(MailServerError):
        client.run(campaign_stats(window(4)))
