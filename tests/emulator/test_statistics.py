"""Statistics of campaigns: windows, filters, and how counts grow."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from tests.emulator.conftest import Api

WINDOW = {"startDate": "2026-03-01", "endDate": "2026-03-31"}


def stats(api: Api, **body: Any) -> list[dict[str, Any]]:
    return api.ok("campaign/mail/stats/get", **{**WINDOW, **body})["mailStatsList"]


class TestWindow:
    def test_both_days_are_included(self, api: Api) -> None:
        for name, moment in (
            ("before", "2026-02-28T23:59:59Z"),
            ("first", "2026-03-01T00:00:00Z"),
            ("last", "2026-03-02T23:59:59Z"),
            ("after", "2026-03-03T00:00:00Z"),
        ):
            api.emulator.add_campaign(name, send_date=moment)
        answer = api.ok("campaign/mail/stats/get", startDate="2026-03-01", endDate="2026-03-02")
        assert [record["mailName"] for record in answer["mailStatsList"]] == ["first", "last"]
        assert answer["totalRecords"] == 2
        one_day = stats(api, startDate="2026-03-01", endDate="2026-03-01")
        assert [record["mailName"] for record in one_day] == ["first"]

    def test_days_may_be_those_of_another_zone(self, api: Api) -> None:
        api.emulator.add_campaign("m", send_date="2026-03-01T23:00:00Z")
        day = {"startDate": "2026-03-02", "endDate": "2026-03-02"}
        assert stats(api, **day) == []
        api.emulator.change_settings(stats_utc_offset_hours=8.0)
        assert len(stats(api, **day)) == 1

    @pytest.mark.parametrize(
        "wrong",
        [
            {"startDate": None},
            {"endDate": ""},
            {"startDate": "2026-3-1"},
            {"startDate": "2026-03-01T00:00:00Z"},
            {"endDate": "2026-02-30"},
            {"startDate": "2026-04-01"},
            {"type": "Other"},
        ],
    )
    @pytest.mark.parametrize("operation", ["campaign/mail/stats/get", "transactional/mail/stats/get"])
    def test_wrong_windows_are_refused(self, api: Api, operation: str, wrong: dict[str, Any]) -> None:
        assert next(iter(wrong)) in api.refused(400, operation, **{**WINDOW, **wrong})

    def test_filters(self, api: Api) -> None:
        for name, kind in (("Spring news", "MailList"), ("news", "ABTest")):
            api.emulator.add_campaign(name, send_date="2026-03-05T08:00:00Z", type=kind)
        assert len(stats(api, mailName="news")) == 2
        assert [record["mailName"] for record in stats(api, type="ABTest")] == ["news"]
        api.emulator.change_settings(stats_mail_name_match="exact")
        assert [record["mailName"] for record in stats(api, mailName="news")] == ["news"]

    def test_only_complete_tasks_have_statistics(self, api: Api) -> None:
        for state in ("draft", "sending", "failed"):
            api.emulator.add_campaign(state, send_date="2026-03-05T08:00:00Z", state=state)
        assert stats(api) == []


class TestRecord:
    def test_shape_and_fixed_numbers(self, api: Api) -> None:
        api.emulator.add_campaign("m", send_date="2026-03-05T08:00:00Z")
        api.emulator.set_campaign_stats("m", sentCount=100, openCount=40, clickCount=7)
        assert stats(api) == [
            {
                "mailName": "m", "mailSendDate": 1772697600000, "sentCount": 100, "openCount": 40, "clickCount": 7,
                "hardBounce": 0, "softBounce": 0, "unsentCount": 0, "unsubscribeCount": 0,
            }
        ]  # fmt: skip

    def test_agrees_with_the_task(self, api: Api) -> None:
        api.emulator.clock.set("2026-03-05T08:00:00Z")
        api.campaign("m")
        api.emulator.clock.advance(days=2)
        task = api.ok("campaign/mail/get")["mailList"][0]
        (record,) = stats(api)
        shared = {name: count for name, count in record.items() if name not in ("mailName", "mailSendDate")}
        delivered = record["sentCount"] - record["hardBounce"] - record["softBounce"]
        assert task["mailStats"] == {**shared, "deliveredCount": delivered}


class TestGrowth:
    def test_opens_and_clicks_grow_for_days_and_then_stand_still(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-01T08:00:00Z")
        api.emulator.add_campaign("m", send_date="2026-03-01T08:00:00Z", sent=10_000)
        api.emulator.clock.advance(5)
        seen = []
        for _ in range(9):
            (record,) = stats(api)
            seen.append(record)
            api.emulator.clock.advance(days=1)
        for counter in ("openCount", "clickCount", "unsubscribeCount"):
            counts = [record[counter] for record in seen]
            assert counts == sorted(counts)
            assert counts[0] == 0
            assert counts[1] < counts[2] or counter == "unsubscribeCount"
            assert counts[-1] == counts[-2] > 0
        for record in seen:
            assert record["sentCount"] == 10_000
            assert record["openCount"] >= record["clickCount"]
            assert record["hardBounce"] > 0

    def test_is_the_same_for_the_same_seed(self) -> None:
        def final(seed: int) -> dict[str, Any]:
            with Emulator(EmulatorSettings(seed=seed)) as emulator:
                emulator.add_campaign("m", send_date="2026-03-01T08:00:00Z", sent=10_000)
                return emulator.campaigns("m")[0]["mailStats"]

        assert final(1) == final(1) != final(2)

    @pytest.mark.parametrize("sent", [0, 1, 2, 3, 10])
    def test_small_audiences_add_up(self, api: Api, sent: int) -> None:
        api.emulator.change_settings(
            hard_bounce_rate=1.0, soft_bounce_rate=1.0, open_rate=1.0, click_rate=1.0, spam_rate=1.0
        )
        api.emulator.add_campaign("m", send_date="2026-03-01T08:00:00Z", sent=sent)
        (record,) = stats(api)
        assert record["sentCount"] == sent
        assert 0 <= record["hardBounce"] + record["softBounce"] <= sent
        assert record["clickCount"] <= record["openCount"] <= sent

    def test_no_clicks_where_the_content_disables_tracking(self, api: Api) -> None:
        api.emulator.clock.set("2026-03-01T08:00:00Z")
        api.emulator.change_settings(click_rate=0.3, open_rate=0.5)
        api.campaign("off", content='<a href="https://example.com" ef:disable-tracking>x</a>')
        api.campaign("on", content='<a href="https://example.com" ef:disable-tracking>x</a> <a href="/y">y</a>')
        api.emulator.clock.advance(days=8)
        clicks = {record["mailName"]: record["clickCount"] for record in stats(api)}
        assert clicks["off"] == 0 < clicks["on"]

    def test_who_bounced_or_left_is_not_written_to_again(self, api: Api) -> None:
        api.emulator.change_settings(hard_bounce_rate=0.1, unsubscribe_rate=0.1, soft_bounce_rate=0.0, spam_rate=0.0)
        api.emulator.add_list("Many", count=200)
        api.campaign("first", sendListNames=["Many"])
        api.emulator.clock.advance(days=8)
        first = api.emulator.campaigns("first")[0]["mailStats"]
        api.campaign("second", sendListNames=["Many"])
        api.emulator.clock.advance(days=8)
        second = api.emulator.campaigns("second")[0]["mailStats"]
        lost = first["hardBounce"] + first["unsubscribeCount"]
        assert lost > 0
        assert (second["sentCount"], second["unsentCount"]) == (200 - lost, lost)
        bounced = [email for email, reason in api.emulator.suppressions().items() if reason == "hard bounce"]
        contact = api.ok("contacts/get", email=bounced[0])["contact"]
        assert contact["properties"]["email_bounced_flag"] == "1"
        opens = sum(int(one["properties"].get("email_open_count", 0)) for one in api.emulator.contacts("Many"))
        assert opens == first["openCount"] + second["openCount"]
