"""Statistics of campaigns: windows, filters, and how counts grow.

That events agree with them is in `test_inbox` and `test_webhooks`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail_emulator import EmulatorSettings
from mail_emulator.campaign_life import expected_reactions, random_values
from tests.emulator.conftest import Api

WINDOW = {"startDate": "2026-03-01", "endDate": "2026-03-31"}
FIRST = "2026-03-01T08:00:00Z"


def stats(api: Api, **body: Any) -> list[dict[str, Any]]:
    response = api.ok("campaign/mail/stats/get", **WINDOW | body)
    assert response["totalRecords"] == len(response["mailStatsList"])
    return response["mailStatsList"]


def names(api: Api, **body: Any) -> list[str]:
    return [record["mailName"] for record in stats(api, **body)]


@pytest.fixture(autouse=True)
def _frozen(api: Api) -> None:
    api.emulator.clock.freeze(FIRST)


def test_the_window_includes_both_days(api: Api) -> None:
    moments = ["02-28T23:59:59", "03-01T00:00:00", "03-02T23:59:59", "03-03T00:00:00"]
    for name, moment in zip(["before", "first", "last", "after"], moments, strict=True):
        api.emulator.add_campaign(name, send_date=f"2026-{moment}Z")
    assert names(api, endDate="2026-03-02") == ["first", "last"]
    assert names(api, endDate="2026-03-01") == ["first"]
    api.emulator.change_settings(stats_utc_offset_hours=8.0)  # days may be those of another zone
    assert names(api, endDate="2026-03-02") == ["before", "first"]


@pytest.mark.parametrize("operation", ["campaign/mail/stats/get", "transactional/mail/stats/get"])
def test_wrong_windows(api: Api, operation: str) -> None:
    for wrong in (
        {"startDate": None}, {"endDate": ""}, {"startDate": "2026-3-1"}, {"startDate": "2026-03-01T00:00:00Z"},
        {"endDate": "2026-02-30"}, {"startDate": "2026-04-01"}, {"type": "Other"},
    ):  # fmt: skip
        api.rejected(400, operation, next(iter(wrong)), **WINDOW | wrong)


def test_filters(api: Api) -> None:
    for name, kind in (("Spring news", "MailList"), ("news", "ABTest")):
        api.emulator.add_campaign(name, send_date=FIRST, type=kind)
    for state in ("draft", "sending", "failed"):  # which have no statistics
        api.emulator.add_campaign(f"news {state}", send_date=FIRST, state=state)
    assert len(names(api, mailName="news")) == 2
    assert names(api, type="ABTest") == ["news"]
    api.emulator.change_settings(stats_mail_name_match="exact")
    assert names(api, mailName="news") == ["news"]


def test_a_record_has_the_fields_of_the_specification(api: Api) -> None:
    """And its counts are those of the campaign."""
    api.emulator.add_campaign("m", send_date=FIRST)
    api.emulator.set_campaign_stats("m", sentCount=100, openCount=40, clickCount=7, hardBounce=2)
    counts = {
        "sentCount": 100, "openCount": 40, "clickCount": 7, "hardBounce": 2, "softBounce": 0, "unsentCount": 0,
        "unsubscribeCount": 0,
    }  # fmt: skip
    assert stats(api) == [{"mailName": "m", "mailSendDate": 1772352000000, **counts}]
    shown = api.ok("campaign/mail/get")["mailList"][0]["mailStats"]
    assert {name: shown[name] for name in counts} == counts


def test_counts_grow_for_days_and_then_stand_still(api: Api) -> None:
    api.emulator.add_campaign("m", send_date=FIRST, sent=10_000)
    api.emulator.clock.advance(5)
    records = []
    for _ in range(9):
        records += stats(api)
        api.emulator.clock.advance(days=1)
    for counter in ("openCount", "clickCount", "unsubscribeCount"):
        counts = [record[counter] for record in records]
        assert counts == sorted(counts)
        assert counts[0] == 0 < counts[-2] == counts[-1]
        assert counts[1] < counts[2] or counter == "unsubscribeCount"
    for record in records:
        assert (record["sentCount"], record["hardBounce"] > 0) == (10_000, True)
        assert record["openCount"] >= record["clickCount"]


def test_links_with_tracking_disabled_have_no_clicks(api: Api) -> None:
    api.emulator.change_settings(click_rate=0.3, open_rate=0.5)
    untracked = '<a href="https://example.com" ef:disable-tracking>x</a>'
    api.campaign("off", content=untracked)
    api.campaign("on", content=f'{untracked} <a href="/y">y</a>')
    api.emulator.clock.advance(days=8)
    clicks = {record["mailName"]: record["clickCount"] for record in stats(api)}
    assert clicks["off"] == 0 < clicks["on"]


def test_who_bounced_or_unsubscribed_gets_no_other_campaign(api: Api) -> None:
    api.emulator.change_settings(hard_bounce_rate=0.1, unsubscribe_rate=0.1, soft_bounce_rate=0.0, spam_rate=0.0)
    api.emulator.add_list("Many", count=200)
    shown = []
    for name in ("first", "second"):
        api.campaign(name, sendListNames=["Many"])
        api.emulator.clock.advance(days=8)
        shown.append(api.emulator.campaigns(name)[0]["mailStats"])
    first, second = shown
    lost = first["hardBounce"] + first["unsubscribeCount"]
    assert lost > 0
    assert (second["sentCount"], second["unsentCount"]) == (200 - lost, lost)
    bounced = next(email for email, reason in api.emulator.suppressions().items() if reason == "hard bounce")
    assert api.ok("contacts/get", email=bounced)["contact"]["properties"]["email_bounced_flag"] == "1"
    opens = sum(int(each["properties"].get("email_open_count", 0)) for each in api.emulator.contacts("Many"))
    assert opens == first["openCount"] + second["openCount"]


RATES = ("hard_bounce_rate", "soft_bounce_rate", "open_rate", "click_rate", "unsubscribe_rate", "spam_rate")
settings = st.builds(
    EmulatorSettings,
    seed=st.integers(0, 10),
    engagement_days=st.floats(0.01, 60),
    engagement_half_hours=st.floats(0.1, 200),
    **{name: st.floats(0, 1) for name in RATES},
)


@given(settings, st.integers(0, 100_000), st.booleans(), st.text())
def test_expected_reactions_add_up(settings: EmulatorSettings, sent: int, clickable: bool, name: str) -> None:
    expected = expected_reactions(sent, settings, name, clickable=clickable)
    assert expected == expected_reactions(sent, settings, name, clickable=clickable)
    assert 0 <= expected.opens <= sent - expected.hard - expected.soft <= sent
    assert all(0 <= count <= expected.opens for count in (expected.clicks, expected.unsubscribes, expected.spam))
    assert clickable or expected.clicks == 0
    values = [random_values(EmulatorSettings(seed=settings.seed + more), name) for more in (0, 1)]
    assert values[0] == random_values(settings, name) != values[1]
    assert all(0 <= value < 1 for value in values[0])
