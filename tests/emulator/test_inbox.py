"""The inbox and its pages: what was sent is found, shown as text, and reacted to; no other site can use them."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import httpx
import pytest

from mail_emulator import Emulator, EmulatorSettings
from mail_emulator.faults import FAULT_KINDS
from tests.emulator.conftest import LETTER, SEND, Api, Listener, batch

NO_REACTIONS = EmulatorSettings(hard_bounce_rate=0.0, soft_bounce_rate=0.0, open_rate=0.0)


@pytest.fixture
def emulator(emulator: Emulator) -> Emulator:
    emulator.change_settings(**NO_REACTIONS.changed())
    emulator.clock.freeze()
    return emulator


def send(api: Api, to: str = "ada@example.com", **body: Any) -> None:
    api.ok(SEND, **LETTER | {"subject": "Hello", "to": {"email": to}} | body)


def ids(api: Api, text: str = "", **filters: Any) -> list[str]:
    result = api.emulator.inbox.search(text, **filters)
    assert (result["total"], result["unindexed"]) == (len(result["mails"]), 0)
    return [mail["id"] for mail in result["mails"]]


def spring(api: Api, count: int = 3, **body: Any) -> None:
    """A campaign to reader-0@example.com and so on, sent."""
    api.emulator.add_list("Reader", count=count)
    api.campaign("spring", sendListNames=["Reader"], **body)
    api.emulator.clock.advance(minutes=1)


def test_mail_is_listed_newest_first_page_by_page(api: Api) -> None:
    for _ in range(4):
        send(api)
    spring(api, 5)
    for _ in range(4):
        send(api, "bob@example.com")
    mails: list[dict[str, Any]] = []
    while page := api.emulator.inbox.search(limit=3, after=mails[-1]["id"] if mails else None)["mails"]:
        mails += page
    assert [mail["id"] for mail in mails] == ids(api)
    shown = [(mail["kind"], mail["mail_name"], mail["email"]) for mail in mails]
    assert shown[:4] + shown[9:] == [
        ("transactional", None, f"{name}@example.com") for name in ("bob", "ada") for _ in range(4)
    ]
    assert set(shown[4:9]) == {("campaign", "spring", f"reader-{number}@example.com") for number in range(5)}


def test_words_are_searched_in_text_and_address(api: Api) -> None:
    send(api, subject="Your order", content="<p>A <strong>key</strong></p>")
    content = "a &amp; b: the Difference Engine"
    send(api, "bob@example.com", content=content, uniqueMsgID="order-17", category="invoices")
    for text, expected in {
        "": "t2 t1", "ada": "t1", "ADA@EXAMPLE": "t1", "order-17": "t2", "order": "t2 t1", "rder": "",
        "difference engine": "t2", "engine ada": "", "kéy": "t1", "strong": "", "invoices": "t2", "a & b": "t2",
        '"x OR *': "", "bo%ample": "", "bo_@example": "", "bo\\b": "", "@": "t2 t1", "\x00": "t2 t1",
        "order " * 2_000: "t2 t1", "order-" * 2_000: "t2 t1",
    }.items():  # fmt: skip
        assert ids(api, text) == expected.split(), text
    spring(api, subject="Great sale", content="<p>Umbrellas</p>")
    assert [len(ids(api, text)) for text in ("umbrella", "spring sale", "sale reader-1@", "winter")] == [3, 3, 1, 0]


def test_mail_after_the_last_search_is_found(api: Api) -> None:
    for subject, found in (("First", "t1"), ("Second", "t2")):
        send(api, subject=subject)
        assert ids(api, subject) == [found]
    api.emulator.reset()
    api.emulator.add_sender("news@example.com")
    assert ids(api, "first") == []
    send(api, subject="Third")
    assert ids(api, "first") == []
    assert ids(api, "third") == ["t1"]
    api.emulator.service.store.run_many("INSERT INTO messages (subject) VALUES (?)", [("more",)] * 500)
    assert api.emulator.inbox.search("hello", index_seconds=0)["unindexed"] == 300
    assert api.emulator.inbox.search("hello")["unindexed"] == 0


def test_filters(api: Api) -> None:
    api.emulator.suppress("gone@example.com")
    send(api)
    send(api, "gone@example.com")
    spring(api, 2)
    tomorrow = api.emulator.clock.now() + timedelta(days=1)
    send(api, "later@example.com", sendDate=f"{tomorrow:%Y-%m-%dT%H:%M:%SZ}")
    assert ids(api, kind="transactional") == ["t3", "t2", "t1"]
    assert len(ids(api, kind="campaign")) == len(ids(api, mail_name="spring")) == 2
    assert ids(api, mail_name="other") == []
    assert (ids(api, status="Dropped"), ids(api, status="Scheduled")) == (["t2"], ["t3"])
    assert len(ids(api, status="Delivered")) == 3
    api.emulator.clock.advance(days=2)
    assert ids(api, status="Scheduled") == []
    for wrong in ({"kind": "letter"}, {"status": "opened"}, {"after": "x"}, {"after": "t99"}):
        with pytest.raises(ValueError, match=r"must be one of|no mail"):
            api.emulator.inbox.search(**wrong)


def test_statistics_and_the_inbox_agree(api: Api) -> None:
    """The inbox shows as many reactions as the counters, at any time."""
    api.emulator.change_settings(
        open_rate=0.6, click_rate=0.4, unsubscribe_rate=0.2, spam_rate=0.1, hard_bounce_rate=0.1, soft_bounce_rate=0.1
    )
    spring(api, 60, content="<a href='https://example.com'>x</a>")
    for hours in (0, 5, 50, 500):
        api.emulator.clock.advance(hours=hours)
        mails = [api.emulator.inbox.mail(mail_id) for mail_id in ids(api, limit=100)]
        happened = Counter(event["code"] for mail in mails for event in mail["events"])
        stats = api.emulator.campaigns("spring")[0]["mailStats"]
        for status, count in {
            "Opened": stats["openCount"], "Clicked": stats["clickCount"], "SpamReport": happened["SpamReport"],
            "Unsubscribed": stats["unsubscribeCount"], "Bounced": stats["hardBounce"] + stats["softBounce"],
            "Delivered": stats["deliveredCount"],
        }.items():  # fmt: skip
            assert happened[status] == len(ids(api, status=status, limit=100)) == count, status
    assert len(happened) == 6


def test_tags_of_a_campaign_are_filled_from_the_contact(api: Api) -> None:
    api.emulator.add_list("L")
    api.emulator.add_contact("ada@example.com", name="Ada", properties={"city": "London"}, lists=["L"])
    api.campaign("c", sendListNames=["L"], subject="Hi {{name}}", content="<p>{{city}}, {{email}}, {{unknown}}</p>")
    api.emulator.clock.advance(minutes=1)
    mail = api.emulator.inbox.mail(ids(api)[0])
    assert (mail["subject"], mail["text"]) == ("Hi Ada", "London, ada@example.com, {{unknown}}")
    assert (mail["email"], mail["name"], mail["list_name"], mail["mail_name"]) == ("ada@example.com", "Ada", "L", "c")


def test_each_copy_of_a_message_is_a_mail(api: Api) -> None:
    people = {"to": {"email": "to@example.com", "name": "To"}, "cc": {"email": "cc@example.com"},
              "bcc": {"email": "bcc@example.com"}}  # fmt: skip
    letter = {role: [person] for role, person in people.items()} | {"params": {"name": "Ada"}}
    api.ok(SEND, **batch(letter, senderName="News", subject="{{name}}"))
    assert ids(api) == ["t3", "t2", "t1"]
    headers = dict(api.emulator.inbox.mail("t1")["headers"])
    assert [headers[name] for name in ("From", "To", "Cc", "Subject")] == [
        "News <news@example.com>", "To <to@example.com>", "cc@example.com", "Ada",
    ]  # fmt: skip
    assert "bcc@example.com" not in str(api.emulator.inbox.mail("t1"))
    assert {"role": "bcc", "email": "bcc@example.com", "name": None} in api.emulator.inbox.mail("t3")["recipients"]


@pytest.mark.parametrize(
    "value", ["a\r\nBcc: eve@example.com", "a\nb", "é\x00\x1b[2J", "Ada <x@y.example>, b", '"', "a" * 3000]
)
def test_no_content_adds_a_header(api: Api, value: str) -> None:
    send(api, subject=value, senderName=value[:200])
    mail = api.emulator.inbox.mail("t1")
    names = [name for name, _ in mail["headers"]]
    assert names == ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"]
    assert "\nBcc:" not in mail["source"]


def test_the_text_of_html(api: Api) -> None:
    send(api, content="<html><head><title>t</title><style>p{}</style></head><p>One <b>two</b>&nbsp;&lt;3&gt;<br>three"
                      "<script>evil()</script><ul><li>four</li><!-- no -->\n  <li>five</ul> < six")  # fmt: skip
    assert api.emulator.inbox.mail("t1")["text"] == "One two\xa0<3>\nthree\nfour\nfive\n< six"


def test_a_recipient_reacts(api: Api) -> None:
    send(api)
    inbox = api.emulator.inbox
    inbox.react("t1", "Clicked")
    assert [event["code"] for event in inbox.mail("t1")["events"]] == ["Delivered", "Opened", "Clicked"]
    assert (inbox.mail("t1")["status"], ids(api, status="Opened")) == ("Clicked", ["t1"])
    inbox.react("t1", "Unsubscribed")
    assert api.emulator.suppressions() == {"ada@example.com": "Unsubscribed"}
    today = f"{api.emulator.clock.now():%Y-%m-%d}"
    (day,) = api.ok("transactional/mail/stats/get", startDate=today, endDate=today)["mailStatsList"]
    assert (day["openCount"], day["clickCount"], day["unsubscribeCount"]) == (1, 1, 1)


def test_recipients_of_a_campaign_react(api: Api) -> None:
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
    assert [each["properties"]["email_open_count"] for each in api.emulator.contacts("Reader")] == ["1"] * 10


def test_reactions_are_pushed(api: Api, listener: Listener) -> None:
    send(api, uniqueMsgID="order-1")
    spring(api, 2)
    api.emulator.inbox.react("t1", "Opened")
    api.emulator.inbox.react(ids(api, kind="campaign")[0], "Clicked")
    api.flush()
    guid = api.emulator.campaigns("spring")[0]["guid"]
    pushed = [event for event in listener.events() if event["EventCode"] in ("Opened", "Clicked")]
    assert sorted((event["EventCode"], event.get("MailName", ""), event["UniqueMsgID"][:5]) for event in pushed) == [
        ("Clicked", "spring", guid[:5]), ("Opened", "", "order"), ("Opened", "spring", guid[:5]),
    ]  # fmt: skip


def test_impossible_reactions(api: Api) -> None:
    api.emulator.suppress("gone@example.com")
    send(api, "gone@example.com")
    for mail_id, code, words in (
        ("t1", "Opened", "not delivered: Dropped"), ("t9", "Opened", "no mail"), ("t1", "Delivered", "reactions are"),
        ("x", "Opened", "no mail"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            api.emulator.inbox.react(mail_id, code)
    with pytest.raises(ValueError, match="no sent campaign"):
        api.emulator.inbox.react_to_campaign("nothing")


HOSTILE = """</title></pre></iframe><script>alert(1)</script>"><img src=x onerror=alert(1)>'{{7*7}}{% x %}"""
NOON = "2026-03-01T12:00:00Z"


def do(api: Api, action: str, **form: Any) -> httpx.Response:
    return api.stranger.post(f"/inbox/do/{action}", data=form)


def every_page(api: Api) -> dict[str, httpx.Response]:
    """All pages that links lead to, from the first one on."""
    pages: dict[str, httpx.Response] = {}
    waiting = ["/", "/?q=%3Cscript%3E&status=Opened&kind=campaign", "/inbox/nothing/<script>", "/?status=<script>"]
    while waiting:
        path = waiting.pop()
        pages[path] = response = api.stranger.get(path)
        if response.headers["content-type"].startswith("text/html") and not path.startswith("/inbox/content/"):
            found = re.findall(r'(?:href|src)="(/[^"]*|\?[^"]*)"', response.text)
            links = [str(httpx.URL(path).join(link.replace("&amp;", "&"))) for link in found]
            waiting += [link for link in dict.fromkeys(links) if link not in pages and link not in waiting]
    assert api.emulator.crashes() == []
    return pages


def test_campaigns_in_every_state_have_a_page(api: Api) -> None:
    """Without counts while they are not sent; and reading pages leaves no trace."""
    api.campaign("scheduled", sendDate="2999-01-01T00:00:00Z")
    for state in ("draft", "sending", "done", "failed"):
        api.emulator.add_campaign(f"arranged {state}", state=state)
    pages = {path: page for path, page in every_page(api).items() if path.startswith("/campaigns")}
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert len(pages) >= 6
    assert "arranged draft" in pages["/campaigns"].text
    assert api.emulator.journal.count() == 1
    (campaign,) = api.emulator.campaigns("arranged done")
    for name in ("mailName", "guid", "id"):
        page = api.stranger.get(f"/campaigns/{campaign[name]}").text
        assert all(text in page for text in ("done (mailStatus 2)", "sentCount", campaign["guid"]))
    assert api.stranger.get("/campaigns/other").status_code == 404


def test_hostile_text_is_text_on_every_page(api: Api) -> None:
    """Wherever a client can put it."""
    api.ok("lists/add", listName=HOSTILE, listDescription=HOSTILE)
    api.emulator.add_contact("eve@example.com", name=HOSTILE, properties={HOSTILE: HOSTILE}, lists=[HOSTILE])
    api.campaign(HOSTILE, sendListNames=[HOSTILE], subject=HOSTILE, content=HOSTILE)
    letter = {"subject": HOSTILE, "content": HOSTILE, "senderName": HOSTILE, "uniqueMsgID": HOSTILE[:40]}
    api.ok(SEND, **LETTER | letter, to={"email": "eve@example.com", "name": HOSTILE[:90]})
    api.post(f"contacts/{HOSTILE}", **{HOSTILE: HOSTILE})
    api.emulator.clock.advance(minutes=1)
    pages = every_page(api)
    assert len(pages) > 25
    for path, response in pages.items():
        missing = "nothing" in path or "status=<script>" in path
        assert response.status_code in ((404, 400) if missing else (200,)), path
        assert response.headers["x-content-type-options"] == "nosniff"
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        if path.startswith("/inbox/content/"):
            assert policy.startswith("sandbox")
            assert not re.search("allow-scripts|allow-same-origin", policy)
        elif response.headers["content-type"].startswith("text/html"):
            assert "'unsafe" not in policy
            assert not re.search("<script>|<img", response.text), path
    frame = '<iframe title="HTML of the mail" sandbox="" src="/inbox/content/t1"></iframe>'
    assert frame in pages["/inbox/mail/t1"].text
    for query, images in (("", "img-src data:;"), ("?remote=1", "img-src data: *;")):
        assert images in api.stranger.get(f"/inbox/content/t1{query}").headers["content-security-policy"]


def test_the_buttons(api: Api) -> None:
    api.emulator.clock.freeze(NOON)
    assert do(api, "advance", seconds="3600", back="/campaigns?q=a").headers["location"] == "/campaigns?q=a"
    assert f"{api.emulator.clock.now():%d %H}" == "01 13"
    for action, form, rate in (("run", {"rate": "60"}, 60), ("real-time", {}, 1)):
        do(api, action, **form)
        assert api.emulator.clock.read()["rate"] == rate
    api.emulator.change_settings(hard_bounce_rate=0.0, soft_bounce_rate=0.0, open_rate=0.0)
    api.campaign("m")
    api.emulator.clock.advance(minutes=1)
    do(api, "react-to-campaign", mail_name="m", code="Opened", people="4")
    do(api, "react", mail=api.emulator.inbox.search()["mails"][9]["id"], code="Clicked")
    stats = api.emulator.campaigns("m")[0]["mailStats"]
    assert (stats["openCount"], stats["clickCount"]) == (5, 1)
    do(api, "clear-requests")
    assert api.emulator.journal.entries() == []


def test_each_fault_can_be_injected_as_its_form_shows_it(api: Api) -> None:
    """With the values that the page proposes."""
    page = api.stranger.get("/inbox/faults").text
    for kind in FAULT_KINDS.values():
        form = page.partition(f'name="kind" value="{kind.name}"')[2].partition("</form>")[0]
        fields = dict(re.findall(r'<input (?:type="number" )?name="(\w+)" value="(.*?)"', form))
        value, text = re.findall(r"<option(?: value=\"(.)\")?>(.*?)<", form)[0]
        do(api, "add-fault", kind=kind.name, operation=value or text, **fields)
        (fault,) = api.emulator.faults.list()
        assert (fault["kind"], fault["count"], fault["skip"]) == (kind.name, 1, 0)
        assert fault["params"] == kind.parameters
        assert kind.name in api.stranger.get("/inbox/faults").text.partition("<h2>")[0]
        do(api, "remove-fault", fault=fault["id"])
        assert api.emulator.faults.list() == []


DELAY = {"kind": "delay", "operation": "*"}


def test_a_wrong_form_changes_nothing(api: Api) -> None:
    for action, form in (
        ("advance", {}),
        ("add-fault", {"kind": "none", "operation": "*"}),
        *(("add-fault", DELAY | {"param_seconds": text}) for text in ("inf", "nan", "-1", '"1"')),
        ("add-fault", {"kind": "cut_json", "operation": "*", "param_share": "-0.5"}),
        ("add-fault", {"kind": "capped_pages", "operation": "*", "param_size": "2.5"}),
        *(("advance", {"seconds": text}) for text in ("soon", "inf", "-inf", "nan", "1e300", "1e12", "-1e11")),
        *(("run", {"rate": text}) for text in ("inf", "nan", "-1")),
    ):
        assert do(api, action, **form).status_code == 400, form
    assert do(api, "react", mail="t9", code="Opened").status_code == 404
    assert do(api, "explode").status_code == api.stranger.get("/inbox/do/advance").status_code == 404
    assert (api.emulator.faults.list(), api.emulator.clock.read()["rate"]) == ([], 0)
    api.ok("lists/get")


def test_a_button_leads_back_to_this_server_alone(api: Api) -> None:
    for back in ("https://evil.example/x", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nX: y"):
        assert re.fullmatch(r"/(?![/\\])[ -~]*", do(api, "clear-faults", back=back).headers["location"])


def host(api: Api, name: str) -> dict[str, str]:
    """The headers of a browser that was led here by this name."""
    address = f"{name}:{httpx.URL(api.emulator.base_url).port}"
    return {"Host": address, "Origin": f"http://{address}"}


def test_other_sites_and_names_reach_neither_pages_nor_controls(api: Api) -> None:
    api.emulator.clock.freeze(NOON)
    api.ok("lists/add", listName="kept")
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        for path in ("/inbox/do/advance", "/_emulator/clock/advance", "/_emulator/reset"):
            response = api.stranger.post(path, content=b"seconds=60", headers={"Origin": origin})
            assert response.status_code == 403
    assert f"{api.emulator.clock.now():%H:%M}" == "12:00"
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "rebound"):
        for path in ("/", "/inbox", "/campaigns/x", "/_emulator"):
            response = api.stranger.get(path, headers={"Host": host(api, name)["Host"]})
            assert (response.status_code, "localhost" in response.text) == (403, True)
        for path in ("/_emulator/reset", "/inbox/do/clear-requests"):
            assert api.stranger.post(path, headers=host(api, name)).status_code == 403
    assert api.ok("lists/get")["totalRecords"] == 1


def test_names_of_this_host_reach_the_pages(api: Api) -> None:
    """In a network a plain name does."""
    for name in ("localhost", "LOCALHOST.", "mail.localhost", "127.0.0.1", "127.1.2.3", "[::1]", "10.0.0.1"):
        headers = host(api, name)
        assert api.stranger.get("/inbox", headers={"Host": headers["Host"]}).status_code == 200
        assert api.stranger.post("/inbox/do/clear-requests", headers=headers).status_code == 303
    with Emulator(host="0.0.0.0") as emulator:
        url = f"http://127.0.0.1:{httpx.URL(emulator.base_url).port}/inbox"
        for name, status in (("mail-emulator", 200), ("evil.example", 403)):
            assert (
                httpx.get(url, headers={"Host": name}, trust_env=False, verify=False, timeout=600).status_code == status
            )


def test_a_request_is_shown_with_its_response(api: Api) -> None:
    api.emulator.faults.add("html_after")
    api.post("lists/add", listName="L")
    api.emulator.faults.add("cut_body")
    with pytest.raises(httpx.RemoteProtocolError):
        api.post("lists/get")
    page = api.stranger.get("/inbox/requests/1").text
    for text in ("&#34;listName&#34;: &#34;L&#34;", "The service is being maintained", "html_after", "***"):
        assert text in page
    assert api.emulator.api_key not in page
    assert "Not kept" in api.stranger.get("/inbox/requests/2").text
    assert api.stranger.get("/inbox/requests/3").status_code == 404


def test_the_version_shows_a_change(api: Api) -> None:
    api.emulator.clock.freeze()
    versions = [api.stranger.get("/inbox/version").text for _ in range(2)]
    assert versions[0] == versions[1]
    for change in (
        lambda: api.post("webhook/get"),
        lambda: api.emulator.clock.advance(1),
        lambda: api.emulator.faults.add("delay"),
        lambda: api.emulator.suppress("a@example.com"),
    ):
        change()
        versions.append(api.stranger.get("/inbox/version").text)
    assert len(set(versions)) == 5
