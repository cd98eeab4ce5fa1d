"""The inbox: what was sent is found, read with its tags filled in, and reacted to."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from tests.emulator.conftest import Api
from tests.emulator.listener import Listener

NOBODY = EmulatorSettings(hard_bounce_rate=0.0, soft_bounce_rate=0.0, open_rate=0.0)
"""Nobody reacts by chance."""


@pytest.fixture
def emulator(emulator: Emulator) -> Emulator:
    emulator.change_settings(**NOBODY.changed())
    return emulator


def send(api: Api, to: str = "ada@example.com", **body: Any) -> None:
    body = {"subject": "Hello", "content": "<p>Hello</p>", "senderMail": "news@example.com", **body}
    api.ok("transactional/mail/sends_customised", to={"email": to}, **body)


def ids(api: Api, text: str = "", **wanted: Any) -> list[str]:
    found = api.emulator.inbox.search(text, **wanted)
    assert found["total"] == len(found["mails"])
    assert found["unindexed"] == 0
    return [mail["id"] for mail in found["mails"]]


def spring(api: Api, count: int = 3, **body: Any) -> None:
    """A campaign to reader-0@example.com and so on, sent."""
    api.emulator.add_list("Reader", count=count)
    api.campaign("spring", sendListNames=["Reader"], **body)
    api.emulator.clock.advance(minutes=1)


def test_mail_is_listed_from_the_newest_on(api: Api) -> None:
    send(api)
    api.emulator.clock.advance(minutes=1)
    spring(api, 2)
    send(api, "bob@example.com")
    mails = api.emulator.inbox.search()["mails"]
    assert [(mail["kind"], mail["mail_name"]) for mail in mails] == [
        ("transactional", None), ("campaign", "spring"), ("campaign", "spring"), ("transactional", None),
    ]  # fmt: skip
    assert {mail["email"] for mail in mails[1:3]} == {"reader-0@example.com", "reader-1@example.com"}
    assert [mail["email"] for mail in (mails[0], mails[3])] == ["bob@example.com", "ada@example.com"]


def test_pages_continue_where_the_last_one_ended(api: Api) -> None:
    for number in range(4):
        send(api, f"{number}@example.com")
    spring(api, 5)
    for number in range(4):
        send(api, f"{number}@example.com")
    everything = ids(api)
    seen: list[str] = []
    while page := api.emulator.inbox.search(limit=3, after=seen[-1] if seen else None)["mails"]:
        seen += [mail["id"] for mail in page]
    assert seen == everything
    assert len(set(seen)) == 13


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {"t1", "t2"}),
        ("ada", {"t1"}),
        ("ADA@EXAMPLE", {"t1"}),
        ("order-17", {"t2"}),
        ("order", {"t1", "t2"}),
        ("rder", set()),
        ("difference engine", {"t2"}),
        ("engine ada", set()),
        ("kéy", {"t1"}),
        ("strong", set()),
        ("invoices", {"t2"}),
        ("a & b", {"t2"}),
        ('"x OR *', set()),
        ("bo%ample", set()),
        ("order " * 2_000, {"t1", "t2"}),
        ("order-" * 2_000, {"t1", "t2"}),
        ("bo_@example", set()),
        ("bo\\b", set()),
        ("@", {"t1", "t2"}),
        ("\x00", {"t1", "t2"}),
    ],
)
def test_words_are_searched_in_text_and_address(api: Api, text: str, found: set[str]) -> None:
    send(api, subject="Your order", content="<p>A <strong>key</strong></p>")
    send(
        api, "bob@example.com", content="a &amp; b: the Difference Engine", uniqueMsgID="order-17", category="invoices"
    )
    assert set(ids(api, text)) == found


def test_the_text_of_a_campaign_is_searched_too(api: Api) -> None:
    spring(api, subject="Great sale", content="<p>Umbrellas</p>")
    assert len(ids(api, "umbrella")) == len(ids(api, "spring sale")) == 3
    assert len(ids(api, "sale reader-1@")) == 1
    assert ids(api, "winter") == []


def test_what_came_after_the_last_search_is_found(api: Api) -> None:
    send(api, subject="First")
    assert ids(api, "first") == ["t1"]
    send(api, subject="Second")
    assert ids(api, "second") == ["t2"]
    api.emulator.reset()
    api.emulator.add_sender("news@example.com")
    assert ids(api, "first") == []
    send(api, subject="Third")
    assert (ids(api, "first"), ids(api, "third")) == ([], ["t1"])


def test_a_limit_on_indexing_says_what_is_missing(api: Api) -> None:
    send(api)
    api.emulator.service.store.run_many("INSERT INTO messages (subject) VALUES (?)", [("more",)] * 500)
    assert api.emulator.inbox.search("hello", index_seconds=0)["unindexed"] == 301
    assert api.emulator.inbox.search("hello")["unindexed"] == 0


def test_kind_status_and_campaign_choose(api: Api) -> None:
    api.emulator.suppress("gone@example.com")
    send(api)
    send(api, "gone@example.com")
    spring(api, 2)
    tomorrow = api.emulator.clock.now() + timedelta(days=1)
    send(api, "later@example.com", sendDate=f"{tomorrow:%Y-%m-%dT%H:%M:%SZ}")
    assert ids(api, kind="transactional") == ["t3", "t2", "t1"]
    assert len(ids(api, kind="campaign")) == len(ids(api, mail_name="spring")) == 2
    assert ids(api, mail_name="other") == []
    assert ids(api, status="Dropped") == ["t2"]
    assert ids(api, status="Scheduled") == ["t3"]
    assert len(ids(api, status="Delivered")) == 3
    api.emulator.clock.advance(days=2)
    assert ids(api, status="Scheduled") == []
    for wrong in ({"kind": "letter"}, {"status": "opened"}, {"after": "x"}, {"after": "t99"}):
        with pytest.raises(ValueError, match=r"must be one of|no mail"):
            api.emulator.inbox.search(**wrong)


@pytest.mark.not_unit
def test_statistics_and_the_inbox_agree(api: Api) -> None:
    """Of whom the counters say that they reacted, the inbox shows, at any time."""
    api.emulator.change_settings(
        open_rate=0.6, click_rate=0.4, unsubscribe_rate=0.2, spam_rate=0.1, hard_bounce_rate=0.1, soft_bounce_rate=0.1
    )
    spring(api, 60, content="<a href='https://example.com'>x</a>")
    for hours in (0, 5, 50, 500):
        api.emulator.clock.advance(hours=hours)
        mails = [api.emulator.inbox.mail(mail_id) for mail_id in ids(api, limit=100)]
        happened = Counter(event["code"] for mail in mails for event in mail["events"])
        stats = api.emulator.campaigns("spring")[0]["mailStats"]
        for status, count in (
            ("Opened", stats["openCount"]), ("Clicked", stats["clickCount"]), ("SpamReport", happened["SpamReport"]),
            ("Unsubscribed", stats["unsubscribeCount"]), ("Bounced", stats["hardBounce"] + stats["softBounce"]),
            ("Delivered", stats["deliveredCount"]),
        ):  # fmt: skip
            assert happened[status] == len(ids(api, status=status, limit=100)) == count, status
    assert len(happened) == 6


def test_tags_of_a_campaign_are_filled_from_the_contact(api: Api) -> None:
    api.emulator.add_list("L")
    api.emulator.add_contact("ada@example.com", name="Ada", properties={"city": "London"}, lists=["L"])
    api.campaign("c", sendListNames=["L"], subject="Hi {{name}}", content="<p>{{city}}, {{email}}, {{unknown}}</p>")
    api.emulator.clock.advance(minutes=1)
    (mail_id,) = ids(api)
    mail = api.emulator.inbox.mail(mail_id)
    assert (mail["subject"], mail["text"]) == ("Hi Ada", "London, ada@example.com, {{unknown}}")
    assert (mail["email"], mail["name"], mail["list_name"], mail["mail_name"]) == ("ada@example.com", "Ada", "L", "c")


def test_copies_of_a_message(api: Api) -> None:
    version = {
        "to": [{"email": "to@example.com", "name": "To"}], "cc": [{"email": "cc@example.com"}],
        "bcc": [{"email": "bcc@example.com"}], "params": {"name": "Ada"},
    }  # fmt: skip
    api.ok(
        "transactional/mail/sends_customised", senderMail="news@example.com", senderName="News", subject="{{name}}",
        content="x", messageVersions=[version],
    )  # fmt: skip
    assert ids(api) == ["t3", "t2", "t1"]
    headers = dict(api.emulator.inbox.mail("t1")["headers"])
    assert (headers["From"], headers["To"], headers["Cc"], headers["Subject"]) == (
        "News <news@example.com>", "To <to@example.com>", "cc@example.com", "Ada"
    )  # fmt: skip
    assert "bcc@example.com" not in api.emulator.inbox.mail("t1")["source"]
    assert {"role": "bcc", "email": "bcc@example.com", "name": None} in api.emulator.inbox.mail("t3")["recipients"]


@pytest.mark.parametrize(
    "value", ["a\r\nBcc: eve@example.com", "a\nb", "é\x00\x1b[2J", "Ada <x@y.example>, b", '"', "a" * 3000]
)
def test_no_content_adds_a_header(api: Api, value: str) -> None:
    send(api, subject=value, senderName=value[:200], category=None)
    mail = api.emulator.inbox.mail("t1")
    names = [name for name, _ in mail["headers"]]
    assert names == ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"]
    assert "\nBcc:" not in mail["source"]


def test_the_text_of_html(api: Api) -> None:
    send(api, content="<html><head><title>t</title><style>p{}</style></head><p>One <b>two</b>&nbsp;&lt;3&gt;<br>three"
                      "<script>evil()</script><ul><li>four</li><!-- no -->\n  <li>five</ul> < six")  # fmt: skip
    assert api.emulator.inbox.mail("t1")["text"] == "One two\xa0<3>\nthree\nfour\nfive\n< six"


def test_a_recipient_can_be_let_to_react(api: Api) -> None:
    api.emulator.clock.freeze()
    send(api)
    inbox = api.emulator.inbox
    inbox.react("t1", "Clicked")
    assert [event["code"] for event in inbox.mail("t1")["events"]] == ["Delivered", "Opened", "Clicked"]
    assert inbox.mail("t1")["status"] == "Clicked"
    assert ids(api, status="Opened") == ["t1"]
    inbox.react("t1", "Unsubscribed")
    assert api.emulator.suppressions() == {"ada@example.com": "Unsubscribed"}
    today = f"{api.emulator.clock.now():%Y-%m-%d}"
    (day,) = api.ok("transactional/mail/stats/get", startDate=today, endDate=today)["mailStatsList"]
    assert (day["openCount"], day["clickCount"], day["unsubscribeCount"]) == (1, 1, 1)


def test_recipients_of_a_campaign_can_be_let_to_react(api: Api) -> None:
    spring(api, 10)
    inbox = api.emulator.inbox
    first = ids(api)[0]
    for _ in range(2):  # the second is a repeated open, which does not count
        inbox.react(first)
    assert inbox.react_to_campaign("spring", "Clicked", 4) == 4
    inbox.react(first, "SpamReport")
    stats = api.emulator.campaigns("spring")[0]["mailStats"]
    assert (stats["openCount"], stats["clickCount"]) == (4, 4)
    assert (len(ids(api, status="Opened")), len(ids(api, status="Clicked"))) == (4, 4)
    assert inbox.react_to_campaign("spring", "Clicked", 100) == 6
    assert list(api.emulator.suppressions().values()) == ["SpamReport"]
    opened = {contact["email"]: contact["properties"] for contact in api.emulator.contacts("Reader")}
    assert all(properties["email_open_count"] == "1" for properties in opened.values())


def test_reactions_are_pushed(api: Api) -> None:
    with Listener() as listener:
        events = {"opened": True, "clicked": True}
        api.ok("webhook/save", transEnable=True, transCallbackUrl=listener.url, transEvent=events)
        send(api, uniqueMsgID="order-1")
        spring(api, 2)
        api.emulator.inbox.react("t1", "Opened")
        api.emulator.inbox.react(ids(api, kind="campaign")[0], "Clicked")
        api.emulator.flush_events()
        guid = api.emulator.campaigns("spring")[0]["guid"]
        pushed = [event for event in listener.events() if event["EventCode"] != "TaskStatus"]
    assert sorted((event["EventCode"], event.get("MailName", ""), event["UniqueMsgID"][:5]) for event in pushed) == [
        ("Clicked", "spring", guid[:5]), ("Opened", "", "order"), ("Opened", "spring", guid[:5]),
    ]  # fmt: skip


def test_a_reaction_that_is_not_possible_is_refused(api: Api) -> None:
    api.emulator.suppress("gone@example.com")
    send(api, "gone@example.com")
    for mail_id, code, says in (("t1", "Opened", "not delivered: Dropped"), ("t9", "Opened", "no mail"),
                                ("t1", "Delivered", "reactions are"), ("x", "Opened", "no mail")):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            api.emulator.inbox.react(mail_id, code)
    with pytest.raises(ValueError, match="no sent campaign"):
        api.emulator.inbox.react_to_campaign("nothing")


def test_reactions_survive_a_restart_and_an_older_file(tmp_path: Any) -> None:
    file = tmp_path / "state.db"
    with Emulator(NOBODY, file=file) as emulator:
        emulator.service.store.connection.execute("ALTER TABLE campaigns DROP COLUMN by_hand")
    with Emulator(NOBODY, file=file) as emulator:
        assert emulator.campaigns() == []
        emulator.add_campaign("old")
        assert emulator.campaigns()[0]["mailStats"]["openCount"] == 0
