"""Webhook configuration, and events pushed to a real listener."""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_mail.emulator.events import DueEvents
from tests.emulator.conftest import Api
from tests.emulator.listener import Listener
from tests.emulator.test_transactional import BATCH, SEND, SINGLE, version
from tests.support.processes import wait_until

EVERYTHING = dict.fromkeys(("dropped", "bounced", "delivered", "spamReport", "opened", "clicked", "unsubscribed"), True)


class TestConfiguration:
    def test_reads_back_null_when_nothing_was_saved(self, api: Api) -> None:
        assert api.ok("webhook/get") == {
            "code": 200, "message": "", "transEvent": None, "transCallbackUrl": None, "transCallbackUrlExtra": None,
            "transEnable": None,
        }  # fmt: skip

    def test_only_supplied_fields_change(self, api: Api) -> None:
        api.ok("webhook/save", transCallbackUrl="http://127.0.0.1:1/a", transEvent={"opened": True})
        api.ok("webhook/save", transEnable=True, transEvent={"clicked": True})
        api.ok("webhook/save")
        found = api.ok("webhook/get")
        assert (found["transCallbackUrl"], found["transEnable"]) == ("http://127.0.0.1:1/a", True)
        assert {name for name, on in found["transEvent"].items() if on} == {"opened", "clicked"}
        assert found["transEvent"].keys() == EVERYTHING.keys()
        assert found["transCallbackUrlExtra"] is None

    def test_overrides_by_sender(self, api: Api) -> None:
        def overrides(*pairs: tuple[str, str], mode: str | None = None) -> dict[str, str]:
            extra = [{"sender": sender, "url": url} for sender, url in pairs]
            body = {"transCallbackUrlExtraUpdateMode": mode} if mode else {}
            api.ok("webhook/save", transCallbackUrlExtra=extra, **body)
            return {one["sender"]: one["url"] for one in api.ok("webhook/get")["transCallbackUrlExtra"]}

        assert overrides(("a@x.de", "http://x/a"), ("b@x.de", "http://x/b")) == {
            "a@x.de": "http://x/a", "b@x.de": "http://x/b",
        }  # fmt: skip
        assert overrides(("b@x.de", "http://x/2"), ("c@x.de", "https://x/c"), mode="save") == {
            "a@x.de": "http://x/a", "b@x.de": "http://x/2", "c@x.de": "https://x/c",
        }  # fmt: skip
        assert overrides(("a@x.de", "")) == {"b@x.de": "http://x/2", "c@x.de": "https://x/c"}
        assert overrides(("d@x.de", "http://x/d"), mode="replace") == {"d@x.de": "http://x/d"}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"transCallbackUrl": "ftp://example.com"},
            {"transCallbackUrl": "example.com"},
            {"transCallbackUrlExtra": [{"url": "http://x"}]},
            {"transCallbackUrlExtra": [{"sender": "a@x.de", "url": "x"}]},
            {"transCallbackUrlExtraUpdateMode": "merge"},
            {"transEvent": {"opened": 1}},
            {"transEvent": {"bounce": True}},
            {"transEnable": "true"},
        ],
    )
    def test_wrong_values(self, api: Api, wrong: dict[str, Any]) -> None:
        assert next(iter(wrong)) in api.refused(400, "webhook/save", **wrong)
        assert api.emulator.webhook()["transCallbackUrl"] is None


@pytest.fixture
def listener(api: Api) -> Iterator[Listener]:
    """Receives every event; rates are such that everything happens."""
    with Listener() as running:
        api.emulator.settings.webhook_interval_seconds = 0.005
        api.emulator.settings.webhook_retry_seconds = 0.01
        api.ok("webhook/save", transCallbackUrl=f"{running.url}/all", transEnable=True, transEvent=EVERYTHING)
        yield running


def send(api: Api, count: int = 1, **body: Any) -> None:
    people = [version(to=[{"email": f"{number}@example.com"}]) for number in range(count)]
    api.ok(SEND, **{**BATCH, "messageVersions": people, "trackOpen": 1, "trackClick": 1, **body})


class TestPush:
    def test_method_headers_and_shape(self, api: Api, listener: Listener) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.ok(SEND, **{**SINGLE, "uniqueMsgID": "order-1", "to": {"email": "änn@example.com"}})
        api.emulator.flush_events()
        ((path, headers, events),) = listener.pushes
        assert path == "/all"
        assert headers["user-agent"] == "ServiceWebhooks"
        assert headers["content-type"] == "application/json;charset=UTF-8"
        assert events == [
            {
                "EventCode": "Delivered", "Email": "änn@example.com", "EventType": "Transactional",
                "TriggeredDateTimeV2": "2026-03-01T12:00:00Z", "UniqueMsgID": "order-1",
                "SenderEmail": "news@example.com", "SubmitDateTimeV2": "2026-03-01T12:00:00Z",
                "ReceiveServer": "mx.example.com",
            }
        ]  # fmt: skip

    def test_happens_soon_by_itself(self, api: Api, listener: Listener) -> None:
        send(api)
        wait_until(lambda: listener.pushes, what="a push", interval=0.005)
        assert listener.codes() == ["Delivered"]

    def test_a_push_holds_at_most_a_thousand_and_mixes_types(self, api: Api, listener: Listener) -> None:
        api.emulator.clock.freeze()
        people = [version(to=[{"email": f"{a}-{b}@example.com"} for b in range(12)]) for a in range(100)]
        api.ok(SEND, **{**BATCH, "messageVersions": people, "trackOpen": 1})
        api.emulator.clock.advance(days=9)
        api.emulator.flush_events()
        sizes = [len(events) for _, _, events in listener.pushes]
        assert max(sizes) == 1000
        assert len({event["EventCode"] for event in listener.pushes[0][2]}) > 1

    def test_of_smaller_size_when_set(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.webhook_max_events = 3
        send(api, 10, trackOpen=0)
        api.emulator.flush_events()
        assert max(len(events) for _, _, events in listener.pushes) == 3
        assert len(listener.events()) >= 10

    def test_can_be_listed_while_others_are_made(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.webhook_max_events = 1
        for _ in range(3):
            send(api, 100, trackOpen=0, trackClick=0)
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # threads take turns inside a function that is otherwise too short for it
        try:
            wait_until(lambda: len(api.emulator.pushes()) == 300, what="a push for each mail", interval=0)
        finally:
            sys.setswitchinterval(usual)

    def test_goes_to_the_override_of_its_sender(self, api: Api, listener: Listener) -> None:
        api.emulator.add_sender("shop@other.example")
        api.ok(
            "webhook/save", transCallbackUrlExtra=[{"sender": "shop@other.example", "url": f"{listener.url}/shop?a=1"}]
        )
        send(api)
        send(api, senderMail="shop@other.example")
        api.emulator.flush_events()
        assert {event["SenderEmail"] for event in listener.events("/shop?a=1")} == {"shop@other.example"}
        assert {event["SenderEmail"] for event in listener.events("/all")} == {"news@example.com"}

    def test_is_tried_again_until_2xx(self, api: Api, listener: Listener) -> None:
        listener.statuses = [500, 302]
        send(api)
        api.emulator.flush_events()
        assert len(listener.pushes) == 3
        assert listener.pushes[0][2] == listener.pushes[2][2]
        assert [push["status"] for push in api.emulator.pushes()] == [500, 302, 200]
        assert [push["attempt"] for push in api.emulator.pushes()] == [1, 2, 3]

    def test_is_given_up_in_the_end(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.webhook_retries = 1
        listener.statuses = [500, 500]
        send(api)
        api.emulator.flush_events()
        assert len(listener.pushes) == 2
        api.ok("webhook/save", transCallbackUrl="http://127.0.0.1:9/nobody")
        send(api)
        api.emulator.flush_events()
        assert [push["status"] for push in api.emulator.pushes()][2:] == [None, None]
        assert "Connect" in api.emulator.pushes()[-1]["error"]

    @pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:99999/", "http://127.0.0.1:9/a b", "http://ü..ü/"])
    def test_an_impossible_address_does_no_harm(self, api: Api, listener: Listener, url: str) -> None:
        api.emulator.settings.webhook_retries = 0
        api.ok("webhook/save", transCallbackUrl=url)
        send(api)
        api.emulator.flush_events()
        assert api.emulator.pushes()[-1]["status"] is None
        api.ok("webhook/save", transCallbackUrl=f"{listener.url}/all")
        send(api)
        api.emulator.flush_events()
        assert len(listener.events()) == 1

    def test_one_that_does_not_answer_does_not_hold_up_the_others(self, api: Api, listener: Listener) -> None:
        api.emulator.add_sender("shop@other.example")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            api.ok("webhook/save", transCallbackUrlExtra=[{"sender": "shop@other.example", "url": url}])
            for _ in range(10):
                send(api, senderMail="shop@other.example", trackOpen=0)
            send(api, trackOpen=0)
            wait_until(lambda: listener.events("/all"), what="the push to the other", interval=0.005)
            assert len(listener.events("/all")) == 1

    def test_may_come_twice(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.webhook_duplicate_every = 1
        send(api)
        api.emulator.flush_events()
        assert len(listener.pushes) == 2
        assert listener.pushes[0][2] == listener.pushes[1][2]


class TestToggles:
    def test_only_enabled_types_are_pushed(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.open_rate = 1.0
        api.ok("webhook/save", transEvent={"delivered": False})
        api.emulator.clock.freeze()
        send(api, 20)
        api.emulator.clock.advance(days=9)
        api.emulator.flush_events()
        assert "Delivered" not in listener.codes()
        assert "Opened" in listener.codes()

    def test_what_happens_while_paused_is_never_pushed(self, api: Api, listener: Listener) -> None:
        api.emulator.clock.freeze()
        api.ok("webhook/save", transEnable=False)
        send(api, 5)
        api.emulator.flush_events()
        api.emulator.clock.advance(1)
        api.ok("webhook/save", transEnable=True)
        send(api, 1)
        api.emulator.flush_events()
        assert len(listener.events()) == 1


class TestTransactionalEvents:
    def test_every_kind_and_in_its_time(self, api: Api, listener: Listener) -> None:
        settings = api.emulator.settings
        settings.open_rate, settings.click_rate, settings.unsubscribe_rate, settings.spam_rate = 0.9, 0.6, 0.2, 0.1
        settings.hard_bounce_rate = settings.soft_bounce_rate = 0.1
        api.emulator.clock.freeze()
        api.emulator.suppress("0@example.com")
        send(api, 100)
        api.emulator.flush_events()
        assert set(listener.codes()) == {"Dropped", "Bounced", "Delivered"}
        assert len(listener.events()) == 100
        seen = len(listener.events())
        for _ in range(9):
            api.emulator.clock.advance(days=1)
            api.emulator.flush_events()
            seen, before = len(listener.events()), seen
            assert seen >= before
        counts = Counter(listener.codes())
        assert set(counts) == {"Dropped", "Bounced", "Delivered", "Opened", "Clicked", "Unsubscribed", "SpamReport"}
        opened = [event for event in listener.events() if event["EventCode"] == "Opened"]
        assert counts["Opened"] > len({event["Email"] for event in opened})  # some open again
        assert {"IP", "Platform", "BrowserType"} <= opened[0].keys()
        assert all(isinstance(value, str) for event in listener.events() for value in event.values())

    def test_a_msg_id_belongs_to_one_recipient(self, api: Api, listener: Listener) -> None:
        send(api, 3, uniqueMsgID="chunk", trackOpen=0)
        api.emulator.flush_events()
        assert len({event["UniqueMsgID"] for event in listener.events()}) == 3
        assert all(event["UniqueMsgID"].startswith("chunk-") for event in listener.events())
        api.emulator.settings.event_msg_id = "given"
        send(api, 3, uniqueMsgID="same", trackOpen=0)
        api.emulator.flush_events()
        assert {event["UniqueMsgID"] for event in listener.events()[3:]} == {"same"}

    def test_sparse_events(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.sparse_events = True
        api.emulator.settings.open_rate = 1.0
        api.emulator.clock.freeze()
        send(api, 5)
        api.emulator.clock.advance(days=9)
        api.emulator.flush_events()
        for event in listener.events():
            assert ("SenderEmail" in event) == (event["EventCode"] == "Delivered")


class TestCampaignEvents:
    def test_agree_with_the_statistics(self, api: Api, listener: Listener) -> None:
        settings = api.emulator.settings
        settings.unsubscribe_rate, settings.spam_rate, settings.repeated_open_every = 0.02, 0.01, 0
        api.emulator.clock.freeze()
        api.emulator.add_list("Many", count=2500)
        for number in range(7):
            api.emulator.suppress(f"many-{number}@example.com")
        api.campaign("m", sendListNames=["Many"])
        api.emulator.flush_events()
        assert [event["TaskStatus"] for event in listener.events()] == ["Created"]
        for step in (5, 3600, 86_400, 86_400 * 3, 86_400 * 7):
            api.emulator.clock.advance(step)
            api.emulator.flush_events()
            stats = api.ok("campaign/mail/get")["mailList"][0]["mailStats"]
            counts = Counter(listener.codes())
            assert counts["Dropped"] == stats["unsentCount"] == 7
            assert counts["Delivered"] == stats["deliveredCount"]
            assert counts["Bounced"] == stats["hardBounce"] + stats["softBounce"]
            assert counts["Opened"] == stats["openCount"]
            assert counts["Clicked"] == stats["clickCount"]
            assert counts["Unsubscribed"] == stats["unsubscribeCount"]
            assert counts["TaskStatus"] == 2
        assert counts["SpamReport"] > 0
        keys = Counter((event["UniqueMsgID"], event["EventCode"]) for event in listener.events())
        assert set(keys.values()) == {1}

    def test_fields(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.hard_bounce_rate = api.emulator.settings.soft_bounce_rate = 0.0
        api.emulator.add_list("One", ["ann@example.com"])
        guid = api.campaign("m", sendListNames=["One"])["guid"]
        api.emulator.clock.advance(10)
        api.emulator.flush_events()
        (delivered,) = [event for event in listener.events() if event["EventCode"] == "Delivered"]
        assert delivered["Guid"] == guid
        assert (delivered["MailName"], delivered["SentMailListName"]) == ("m", "One")
        assert (delivered["EventType"], delivered["Email"]) == ("Campaign", "ann@example.com")
        assert delivered["UniqueMsgID"] == f"{guid}-0"
        task = [event for event in listener.events() if event["EventCode"] == "TaskStatus"]
        assert [event["TaskStatus"] for event in task] == ["Created", "Completed"]

    def test_one_that_ends_while_events_are_looked_for_is_announced_once(self, api: Api) -> None:
        emulator = api.emulator
        emulator.clock.freeze()
        api.ok("webhook/save", transCallbackUrl="http://127.0.0.1:9/", transEnable=False, transEvent=EVERYTHING)
        api.campaign("m")
        service = emulator.service
        with service.lock, service.store.transaction():
            service.store.set_meta("webhook", service.store.get_meta("webhook").replace("false", "true"))
            early = DueEvents(service.context()).chunks()
            emulator.clock.advance(5)
            late = DueEvents(service.context()).chunks()
            events = [event["EventCode"] for look in (early, late) for chunk in look for _, event in chunk]
            service.store.set_meta("webhook", "{}")
        assert events.count("Delivered") + events.count("Bounced") == 10

    def test_repeated_opens_come_an_hour_later(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.repeated_open_every = 1
        api.emulator.settings.open_rate = 0.5
        api.emulator.clock.freeze()
        api.emulator.add_list("Many", count=100)
        api.campaign("m", sendListNames=["Many"])
        api.emulator.clock.advance(days=9)
        api.emulator.flush_events()
        opens = Counter(event["Email"] for event in listener.events() if event["EventCode"] == "Opened")
        assert set(opens.values()) == {2}

    def test_failed_and_arranged_campaigns_push_nothing_about_recipients(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.campaign_outcome = "failed"
        api.campaign("m")
        api.emulator.add_campaign("past")
        api.emulator.clock.advance(days=9)
        api.emulator.flush_events()
        assert listener.codes() == ["TaskStatus"]

    def test_task_status_may_be_silent(self, api: Api, listener: Listener) -> None:
        api.emulator.settings.task_status_events = False
        api.campaign("m", onlySave=True)
        api.emulator.flush_events()
        assert listener.codes() == []
