"""Statistics: whole, or an error with both numbers; short answers are asked for again by halves of the window."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import GetCampaignStats
from airflow_provider_mail.api.errors import MailIncompleteError, MailServerError
from airflow_provider_mail.api.stats import campaign_stats
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver, Rehearsal

FIRST = date(2026, 1, 1)


def window(days: int, **fields: Any) -> GetCampaignStats:
    return GetCampaignStats(start_date=FIRST, end_date=FIRST + timedelta(days=days - 1), **fields)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=40),
    st.integers(1, 20),
    st.sampled_from(["honest", "absent", "low"]),
)
def test_a_service_that_gives_so_many_records_and_no_more(sent: list[int], most: int, total: str) -> None:
    """Whole if every day fits into an answer; an error with both numbers as soon as one does not."""
    asked: list[int] = []

    def play(request: GetCampaignStats) -> Any:
        first, last = (request.start_date - FIRST).days, (request.end_date - FIRST).days
        asked.append(last - first + 1)
        records = [
            {"mailName": f"{day}-{number}", "sentCount": 1, "openCount": 0, "clickCount": 0, "hardBounce": 0,
             "softBounce": 0, "unsentCount": 0, "unsubscribeCount": 0}
            for day in range(first, last + 1) for number in range(sent[day])
        ]  # fmt: skip
        said = {"honest": len(records), "absent": None, "low": len(records[:most])}[total]
        return request.response.model_validate({"mailStatsList": records[:most], "totalRecords": said})

    rehearsal = Rehearsal(play)
    everything = [f"{day}-{number}" for day, count in enumerate(sent) for number in range(count)]
    if total != "honest":
        # A service that hides records and says so nowhere cannot be seen through; no more is asked for.
        assert [record.mail_name for record in rehearsal.run(campaign_stats(window(len(sent))))] == everything[:most]
        assert len(asked) == 1
    elif max(sent) <= most:
        assert [record.mail_name for record in rehearsal.run(campaign_stats(window(len(sent))))] == everything
        assert len(asked) <= 2 * len(sent) - 1
    else:
        with pytest.raises(MailIncompleteError) as raised:
            rehearsal.run(campaign_stats(window(len(sent))))
        assert raised.value.got == most
        assert raised.value.expected in sent
        assert raised.value.temporary


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
