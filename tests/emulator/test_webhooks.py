"""Webhook configuration, and events pushed to a real listener."""

from __future__ import annotations

import socket
from collections import Counter

import pytest

from mail_emulator.webhooks import DueEvents
from tests.emulator.conftest import EVENTS, SEND, SINGLE, Api, Listener, batch, version

SHOP = {"senderMail": "shop@other.example"}


@pytest.fixture(autouse=True)
def _frozen(api: Api) -> None:
    api.emulator.clock.freeze()


class TestConfiguration:
    def test_only_supplied_fields_change(self, api: Api) -> None:
        """All are null when nothing was saved."""
        names = ("transEvent", "transCallbackUrl", "transCallbackUrlExtra", "transEnable")
        assert api.ok("webhook/get") == {"code": 200, "message": "", **dict.fromkeys(names)}
        api.ok("webhook/save", transCallbackUrl="http://127.0.0.1:1/a", transEvent={"opened": True})
        api.ok("webhook/save", transEnable=True, transEvent={"clicked": True})
        api.ok("webhook/save")
        assert api.ok("webhook/get") == {
            "code": 200, "message": "", "transCallbackUrl": "http://127.0.0.1:1/a", "transEnable": True,
            "transEvent": dict.fromkeys(EVENTS, False) | {"opened": True, "clicked": True},
            "transCallbackUrlExtra": None,
        }  # fmt: skip

    def test_urls_of_senders_are_added_or_replaced(self, api: Api) -> None:
        for mode, extra, expected in (
            (None, {"a": "http://x/a", "b": "http://x/b"}, {"a": "http://x/a", "b": "http://x/b"}),
            ("save", {"b": "http://x/2"}, {"a": "http://x/a", "b": "http://x/2"}),
            (None, {"a": ""}, {"b": "http://x/2"}),
            ("replace", {"d": "http://x/d"}, {"d": "http://x/d"}),
        ):
            pairs = [{"sender": f"{name}@x.de", "url": url} for name, url in extra.items()]
            api.ok("webhook/save", transCallbackUrlExtra=pairs, transCallbackUrlExtraUpdateMode=mode)
            saved = api.ok("webhook/get")["transCallbackUrlExtra"]
            assert {each["sender"][0]: each["url"] for each in saved} == expected

    def test_wrong_values(self, api: Api) -> None:
        for name, value in (
            ("transCallbackUrl", "ftp://example.com"), ("transCallbackUrl", "example.com"),
            ("transCallbackUrlExtra", [{"url": "http://x"}]), ("transCallbackUrlExtraUpdateMode", "merge"),
            ("transCallbackUrlExtra", [{"sender": "a@x.de", "url": "x"}]),
            ("transEvent", {"opened": 1}), ("transEvent", {"bounce": True}), ("transEnable", "true"),
        ):  # fmt: skip
            api.rejected(400, "webhook/save", name, **{name: value})
        assert api.emulator.webhook()["transCallbackUrl"] is None


class TestPush:
    def test_method_headers_and_shape(self, api: Api, listener: Listener) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.ok(SEND, **SINGLE | {"uniqueMsgID": "order-1", "to": {"email": "änn@example.com"}})
        assert listener.pushed.wait(600)  # nobody asks for it
        ((path, headers, events),) = listener.pushes
        assert (path, headers["user-agent"]) == ("/all", "ServiceWebhooks")
        assert headers["content-type"] == "application/json;charset=UTF-8"
        assert events == [
            {
                "EventCode": "Delivered", "Email": "änn@example.com", "EventType": "Transactional",
                "TriggeredDateTimeV2": "2026-03-01T12:00:00Z", "UniqueMsgID": "order-1",
                "SenderEmail": "news@example.com", "SubmitDateTimeV2": "2026-03-01T12:00:00Z",
                "ReceiveServer": "mx.example.com",
            }
        ]  # fmt: skip

    def test_holds_at_most_a_thousand_events_of_any_type(self, api: Api, listener: Listener) -> None:
        people = [version(to=[{"email": f"{a}-{b}@example.com"} for b in range(12)]) for a in range(100)]
        # Nothing is due before the clock is moved, and then all is.
        api.ok(SEND, **batch(*people, trackOpen=1, sendDate=f"{api.emulator.clock.now():%Y-%m-%d}T23:59:59Z"))
        api.emulator.clock.advance(days=9)
        api.flush()
        assert max(len(events) for _, _, events in listener.pushes) == 1000
        assert len({event["EventCode"] for event in listener.pushes[0][2]}) > 1
        api.emulator.change_settings(webhook_max_events=3)
        before = len(listener.pushes)
        api.send(10, trackOpen=0)
        api.flush()
        assert [len(events) for _, _, events in listener.pushes[before:]] == [3, 3, 3, 1]

    def test_is_repeated_until_2xx(self, api: Api, listener: Listener, pauses: list[float]) -> None:
        api.emulator.change_settings(webhook_retry_seconds=60)
        listener.statuses = [500, 302]
        api.send()
        api.flush()
        first, _, third = listener.pushes
        assert first[2] == third[2]
        assert [(push["status"], push["attempt"]) for push in api.emulator.pushes()] == [(500, 1), (302, 2), (200, 3)]
        assert pauses == [60, 60]
        api.emulator.change_settings(webhook_duplicate_every=1)  # also after success
        api.send()
        api.flush()
        *_, fourth, fifth = listener.pushes
        assert fourth[2] == fifth[2] != third[2]

    def test_is_given_up_after_its_retries(self, api: Api, listener: Listener, pauses: list[float]) -> None:
        """Then the next one goes out, also after an address that is impossible."""
        api.emulator.change_settings(webhook_retries=1)
        listener.statuses = [500, 500]
        good = f"{listener.base_url}/all"
        wrong = [f"http://{rest}" for rest in ("127.0.0.1:9/x", "", "127.0.0.1:99999/", "127.0.0.1:9/a b", "ü..ü/")]
        for url in (good, *wrong, good):
            api.ok("webhook/save", transCallbackUrl=url)
            api.send()
            api.flush()
        assert [push["status"] for push in api.emulator.pushes()] == [500, 500, *[None] * 10, 200]
        assert "Connect" in api.emulator.pushes()[2]["error"]
        assert pauses == [0.2] * 6

    def test_a_url_that_does_not_respond_blocks_no_other(self, api: Api, listener: Listener) -> None:
        api.emulator.add_sender("shop@other.example")
        api.emulator.change_settings(webhook_timeout_seconds=3600)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            api.ok("webhook/save", transCallbackUrlExtra=[{"sender": "shop@other.example", "url": url}])
            for _ in range(10):
                api.send(**SHOP)
            api.send()
            assert listener.pushed.wait(600)
            assert len(listener.events("/all")) == 1


class TestTransactionalEvents:
    def test_every_kind_comes_in_its_time(self, api: Api, listener: Listener) -> None:
        rates = ("unsubscribe_rate", "spam_rate", "hard_bounce_rate", "soft_bounce_rate")
        api.emulator.change_settings(open_rate=0.9, click_rate=0.6, **dict.fromkeys(rates, 0.2))
        api.emulator.suppress("0@example.com")
        api.send(100)
        api.flush()
        assert set(listener.codes()) == {"Dropped", "Bounced", "Delivered"}
        assert len(listener.events()) == 100
        for _ in range(9):
            api.emulator.clock.advance(days=1)
            api.flush()
        counts = Counter(listener.codes())
        assert set(counts) == {"Dropped", "Bounced", "Delivered", "Opened", "Clicked", "Unsubscribed", "SpamReport"}
        opened = [event for event in listener.events() if event["EventCode"] == "Opened"]
        assert counts["Opened"] > len({event["Email"] for event in opened})  # some open again
        assert {"IP", "Platform", "BrowserType"} <= opened[0].keys()
        assert all(isinstance(value, str) for event in listener.events() for value in event.values())

    def test_only_enabled_types_are_pushed(self, api: Api, listener: Listener) -> None:
        api.emulator.change_settings(open_rate=1.0, sparse_events=True)
        api.ok("webhook/save", transEvent={"bounced": False, "clicked": False})
        api.send(100)
        api.emulator.clock.advance(days=9)
        api.flush()
        assert {(event["EventCode"], "SenderEmail" in event) for event in listener.events()} == {
            ("Delivered", True), ("Opened", False),
        }  # fmt: skip

    def test_what_happens_while_paused_is_never_pushed(self, api: Api, listener: Listener) -> None:
        api.ok("webhook/save", transEnable=False)
        api.send(5)
        api.flush()
        api.emulator.clock.advance(1)
        api.ok("webhook/save", transEnable=True)
        api.send(1)
        api.flush()
        assert len(listener.events()) == 1

    def test_a_message_id_belongs_to_one_recipient(self, api: Api, listener: Listener) -> None:
        api.send(3, uniqueMsgID="chunk", trackOpen=0)
        api.flush()
        assert {event["UniqueMsgID"] for event in listener.events()} == {f"chunk-000{number}" for number in (1, 2, 3)}
        api.emulator.change_settings(event_msg_id="given")
        api.send(3, uniqueMsgID="same", trackOpen=0)
        api.flush()
        assert {event["UniqueMsgID"] for event in listener.events()[3:]} == {"same"}


class TestCampaignEvents:
    def test_agree_with_the_statistics(self, api: Api, listener: Listener) -> None:
        api.emulator.change_settings(unsubscribe_rate=0.02, spam_rate=0.01)
        api.emulator.add_list("Many", count=2500)
        for number in range(7):
            api.emulator.suppress(f"many-{number}@example.com")
        api.campaign("m", sendListNames=["Many"])
        api.flush()
        assert [event["TaskStatus"] for event in listener.events()] == ["Created"]
        for step in (5, 3600, 86_400, 86_400 * 3, 86_400 * 7):
            api.emulator.clock.advance(step)
            api.flush()
            stats = api.ok("campaign/mail/get")["mailList"][0]["mailStats"]
            counts = Counter(
                code for code, _ in {(each["EventCode"], each["UniqueMsgID"]) for each in listener.events()}
            )
            expected = {
                "Dropped": stats["unsentCount"], "Delivered": stats["deliveredCount"], "TaskStatus": 2,
                "Bounced": stats["hardBounce"] + stats["softBounce"], "Opened": stats["openCount"],
                "Clicked": stats["clickCount"], "Unsubscribed": stats["unsubscribeCount"],
            }  # fmt: skip
            assert {code: counts[code] for code in expected} == expected
            assert stats["unsentCount"] == 7
        assert counts["SpamReport"] > 0
        repeated = Counter(listener.codes()) - counts  # every fifth opener opens again
        assert repeated.keys() == {"Opened"}
        assert abs(5 * repeated["Opened"] - counts["Opened"]) <= 5

    def test_fields(self, api: Api, listener: Listener) -> None:
        api.emulator.change_settings(hard_bounce_rate=0.0, soft_bounce_rate=0.0)
        api.emulator.add_list("One", ["ann@example.com"])
        guid = api.campaign("m", sendListNames=["One"])["guid"]
        api.emulator.clock.advance(10)
        api.flush()
        completed, created, delivered = sorted(listener.events(), key=lambda event: event.get("TaskStatus", "None"))
        assert (created["TaskStatus"], completed["TaskStatus"]) == ("Created", "Completed")
        names = ("MailName", "SentMailListName", "Guid", "EventType", "Email", "UniqueMsgID", "EventCode")
        assert [delivered[name] for name in names] == [
            "m", "One", guid, "Campaign", "ann@example.com", f"{guid}-0", "Delivered",
        ]  # fmt: skip

    def test_a_campaign_that_ends_between_two_checks_is_pushed_once(self, api: Api) -> None:
        service = api.emulator.service
        api.ok("webhook/save", transCallbackUrl="http://127.0.0.1:9/", transEnable=False, transEvent=EVENTS)
        api.campaign("m")
        with service.lock, service.store.transaction():
            service.store.set_meta("webhook", service.store.get_meta("webhook").replace("false", "true"))
            early = DueEvents(service.context()).chunks()
            api.emulator.clock.advance(5)
            late = DueEvents(service.context()).chunks()
            events = [event["EventCode"] for check in (early, late) for chunk in check for _, event in chunk]
            service.store.set_meta("webhook", "{}")
        assert events.count("Delivered") + events.count("Bounced") == 10

    def test_failed_and_arranged_campaigns_have_no_recipients(self, api: Api, listener: Listener) -> None:
        api.emulator.change_settings(campaign_outcome="failed")
        api.campaign("m")
        api.emulator.add_campaign("past")
        api.emulator.clock.advance(days=9)
        api.flush()
        api.emulator.change_settings(task_status_events=False)
        api.campaign("draft", onlySave=True)
        api.flush()
        assert listener.codes() == ["TaskStatus"]
