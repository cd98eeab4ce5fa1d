"""The inbox's pages: whatever was sent is shown as text, and no other site can use them."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from mail_emulator import Emulator
from mail_emulator.faults import FAULT_KINDS
from tests.emulator.conftest import LETTER, SEND, Api

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
    assert (api.emulator.faults.list(), api.emulator.clock.read()["rate"]) == ([], 1)
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
            assert httpx.get(url, headers={"Host": name}, trust_env=False, timeout=600).status_code == status


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
