"""The inbox's pages: whatever was sent is shown as text, and no other site can use them."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.emulator.conftest import Api

HOSTILE = """</title></pre></iframe><script>alert(1)</script>"><img src=x onerror=alert(1)>'{{7*7}}{% x %}"""


@pytest.fixture
def hostile(api: Api) -> Api:
    """The service with hostile text wherever a client can put it."""
    api.ok("lists/add", listName=HOSTILE, listDescription=HOSTILE)
    api.emulator.add_contact("eve@example.com", name=HOSTILE, properties={HOSTILE: HOSTILE}, lists=[HOSTILE])
    api.campaign(HOSTILE, sendListNames=[HOSTILE], subject=HOSTILE, content=HOSTILE)
    api.ok(
        "transactional/mail/sends_customised", to={"email": "eve@example.com", "name": HOSTILE[:90]}, subject=HOSTILE,
        content=HOSTILE, senderMail="news@example.com", senderName=HOSTILE, uniqueMsgID=HOSTILE[:40],
    )  # fmt: skip
    api.post(f"contacts/{HOSTILE}", **{HOSTILE: HOSTILE})
    api.emulator.clock.advance(minutes=1)
    return api


def get(api: Api, path: str) -> httpx.Response:
    return api.stranger.get(path)


def do(api: Api, action: str, **form: Any) -> httpx.Response:
    return api.stranger.post(f"/inbox/do/{action}", data=form)


def every_page(api: Api) -> dict[str, httpx.Response]:
    """All pages that links lead to, from the first one on."""
    pages: dict[str, httpx.Response] = {}
    waiting = ["/", "/?q=%3Cscript%3E&status=Opened&kind=campaign", "/inbox/nothing/<script>", "/?status=<script>"]
    while waiting:
        path = waiting.pop()
        pages[path] = response = get(api, path)
        if response.headers["content-type"].startswith("text/html") and not path.startswith("/inbox/content/"):
            found = re.findall(r'(?:href|src)="(/[^"]*|\?[^"]*)"', response.text)
            links = [str(httpx.URL(path).join(link.replace("&amp;", "&"))) for link in found]
            waiting += [link for link in dict.fromkeys(links) if link not in pages and link not in waiting]
    return pages


def test_campaigns_in_every_state(api: Api) -> None:
    """Without counts while they are not sent, without a request if a test arranged them."""
    api.campaign("scheduled", sendDate="2030-01-01T00:00:00+00:00")
    for state in ("draft", "sending", "done", "failed"):
        api.emulator.add_campaign(f"arranged {state}", state=state)
    pages = {path: page for path, page in every_page(api).items() if path.startswith("/campaigns")}
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert len(pages) >= 6
    assert "arranged draft" in pages["/campaigns"].text


def test_every_link_leads_to_a_page_where_hostile_text_is_text(hostile: Api) -> None:
    pages = every_page(hostile)
    assert len(pages) > 25
    for path, response in pages.items():
        missing = "nothing" in path or "status=<script>" in path
        assert response.status_code in ((404, 400) if missing else (200,)), path
        assert response.headers["x-content-type-options"] == "nosniff"
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        if path.startswith("/inbox/content/"):
            assert policy.startswith("sandbox")
            assert "allow-scripts" not in policy
            assert "allow-same-origin" not in policy
        elif response.headers["content-type"].startswith("text/html"):
            assert "'unsafe" not in policy
            assert "<script>" not in response.text, path
            assert "<img" not in response.text, path
    assert hostile.emulator.crashes() == []


def test_the_preview_is_in_a_sandbox(hostile: Api) -> None:
    page = get(hostile, "/inbox/mail/t1").text
    assert '<iframe title="HTML of the mail" sandbox="" src="/inbox/content/t1"></iframe>' in page
    closed, open_ = get(hostile, "/inbox/content/t1"), get(hostile, "/inbox/content/t1?remote=1")
    assert "img-src data:;" in closed.headers["content-security-policy"]
    assert "img-src data: *;" in open_.headers["content-security-policy"]


def test_the_buttons(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00Z")
    assert do(api, "advance", seconds="3600", back="/campaigns?q=a").headers["location"] == "/campaigns?q=a"
    assert f"{api.emulator.clock.now():%d %H}" == "01 13"
    do(api, "run", rate="60")
    assert api.emulator.clock.read()["rate"] == 60
    do(api, "real-time")
    assert api.emulator.clock.read()["rate"] == 1
    api.emulator.change_settings(hard_bounce_rate=0.0, soft_bounce_rate=0.0, open_rate=0.0)
    api.campaign("m")
    api.emulator.clock.advance(minutes=1)
    do(api, "react-to-campaign", mail_name="m", code="Opened", people="4")
    assert api.emulator.campaigns("m")[0]["mailStats"]["openCount"] == 4
    do(api, "react", mail=api.emulator.inbox.search()["mails"][9]["id"], code="Clicked")
    assert api.emulator.campaigns("m")[0]["mailStats"]["clickCount"] == 1
    do(api, "clear-requests")
    assert api.emulator.journal.entries() == []


@pytest.mark.parametrize("kind", FAULT_KINDS.values(), ids=FAULT_KINDS)
def test_each_fault_can_be_injected_as_its_form_shows_it(api: Api, kind: Any) -> None:
    """With the values that the page proposes."""
    page = get(api, "/inbox/faults").text
    form = page.partition(f'name="kind" value="{kind.name}"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'<input (?:type="number" )?name="(\w+)" value="(.*?)"', form))
    operation = re.findall(r"<option(?: value=\"(.)\")?>(.*?)<", form)[0]
    do(api, "add-fault", kind=kind.name, operation=operation[0] or operation[1], **fields)
    (fault,) = api.emulator.faults.list()
    assert (fault["kind"], fault["count"], fault["skip"]) == (kind.name, 1, 0)
    assert fault["params"] == kind.parameters
    assert kind.name in get(api, "/inbox/faults").text.partition("<h2>")[0]
    do(api, "remove-fault", fault=fault["id"])
    assert api.emulator.faults.list() == []


@pytest.mark.parametrize(
    ("action", "form", "status"),
    [
        ("advance", {"seconds": "soon"}, 400),
        ("advance", {}, 400),
        ("add-fault", {"kind": "none", "operation": "*"}, 400),
        ("react", {"mail": "t9", "code": "Opened"}, 404),
        ("explode", {}, 404),
    ],
)
def test_a_wrong_form_changes_nothing(api: Api, action: str, form: dict[str, str], status: int) -> None:
    assert do(api, action, **form).status_code == status
    assert api.stranger.get(f"/inbox/do/{action}").status_code == 404


@pytest.mark.parametrize(
    "back", ["https://evil.example/x", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nX: y"]
)
def test_a_button_leads_back_to_this_server_alone(api: Api, back: str) -> None:
    location = do(api, "clear-faults", back=back).headers["location"]
    assert re.fullmatch(r"/(?![/\\])[ -~]*", location)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_site_cannot_press_a_button(api: Api, origin: str) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00Z")
    for path in ("/inbox/do/advance", "/_emulator/clock/advance", "/_emulator/reset"):
        refused = api.stranger.post(path, content=b"seconds=60", headers={"Origin": origin})
        assert refused.status_code == 403
    assert f"{api.emulator.clock.now():%H:%M}" == "12:00"
    own = {"Origin": api.emulator.base_url}
    assert api.stranger.post("/inbox/do/advance", data={"seconds": "60"}, headers=own).status_code == 303


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "rebound"])
def test_a_name_that_leads_here_reaches_neither_pages_nor_controls(api: Api, name: str) -> None:
    api.ok("lists/add", listName="kept")
    headers = {"Host": (host := f"{name}:{httpx.URL(api.emulator.base_url).port}"), "Origin": f"http://{host}"}
    for path in ("/", "/inbox", "/campaigns/x", "/_emulator"):
        refused = api.stranger.get(path, headers={"Host": host})
        assert (refused.status_code, "localhost" in refused.text) == (403, True)
    for path in ("/_emulator/reset", "/inbox/do/clear-requests"):
        assert api.stranger.post(path, headers=headers).status_code == 403
    assert api.ok("lists/get")["totalRecords"] == 1


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST.", "mail.localhost", "127.0.0.1", "127.1.2.3", "[::1]", "10.0.0.1"]
)
def test_names_of_this_machine_reach_the_pages(api: Api, name: str) -> None:
    host = f"{name}:{httpx.URL(api.emulator.base_url).port}"
    assert api.stranger.get("/inbox", headers={"Host": host}).status_code == 200
    own = {"Host": host, "Origin": f"http://{host}"}
    assert api.stranger.post("/inbox/do/clear-requests", headers=own).status_code == 303


def test_in_a_network_a_plain_name_reaches_the_pages() -> None:
    with Emulator(host="0.0.0.0") as emulator:
        url = f"http://127.0.0.1:{httpx.URL(emulator.base_url).port}/inbox"
        for name, status in (("mail-emulator", 200), ("evil.example", 403)):
            assert httpx.get(url, headers={"Host": name}, trust_env=False, timeout=60).status_code == status


@pytest.mark.parametrize(
    ("action", "form"),
    [
        *(
            ("add-fault", {"kind": "delay", "operation": "*", "param_seconds": text})
            for text in ("inf", "nan", "-1", '"1"')
        ),
        ("add-fault", {"kind": "cut_json", "operation": "*", "param_share": "-0.5"}),
        ("add-fault", {"kind": "capped_pages", "operation": "*", "param_size": "2.5"}),
        *(("advance", {"seconds": text}) for text in ("inf", "-inf", "nan", "1e300", "1e12", "-1e11")),
        *(("run", {"rate": text}) for text in ("inf", "nan", "-1")),
    ],
)
def test_a_number_that_would_stop_the_emulator_changes_nothing(api: Api, action: str, form: dict[str, str]) -> None:
    assert do(api, action, **form).status_code == 400
    assert api.emulator.faults.list() == []
    api.ok("lists/get")
    assert api.emulator.crashes() == []


def test_the_control_interface_answers_impossible_numbers_with_400(api: Api) -> None:
    for path, body in (
        ("faults/add", {"kind": "delay", "seconds": "inf"}),
        ("faults/add", {"kind": "delay_answer", "seconds": -1}),
        ("clock/advance", {"days": 1e300}),
        ("pause_listening", {"seconds": -1}),
        ("change_settings", {"latency_seconds": "inf"}),
    ):
        assert api.stranger.post(f"/_emulator/{path}", json=body).status_code == 400, path
    with pytest.raises(ValueError, match="latency_seconds"):
        api.emulator.change_settings(latency_seconds=float("nan"))
    api.emulator.clock.run(1e300)
    api.ok("lists/get")
    assert api.emulator.clock.now().year == 9999
    assert api.emulator.crashes() == []


def test_a_request_is_shown_with_its_response(api: Api) -> None:
    api.emulator.faults.add("html_after")
    api.post("lists/add", listName="L")
    api.emulator.faults.add("cut_body")
    with pytest.raises(httpx.RemoteProtocolError):
        api.post("lists/get")
    first = get(api, "/inbox/requests/1").text
    assert "&#34;listName&#34;: &#34;L&#34;" in first
    assert "The service is being maintained" in first
    assert "html_after" in first
    assert "***" in first
    assert api.emulator.api_key not in first
    assert "Not kept" in get(api, "/inbox/requests/2").text
    assert get(api, "/inbox/requests/3").status_code == 404


def test_only_the_newest_responses_are_kept(api: Api) -> None:
    journal = api.emulator.service.journal
    for _ in range(1005):
        entry = journal.open("/v5/x", "POST", {}, 0, 1)
        journal.note_response(entry, b"x" * 20_000)
    assert api.emulator.journal.response(5) is None
    assert len(api.emulator.journal.response(6) or "") == 16_384


def test_looking_leaves_no_trace_in_the_journal(api: Api) -> None:
    every_page(api)
    assert api.emulator.journal.entries() == []


def test_the_version_tells_a_change(api: Api) -> None:
    api.emulator.clock.freeze()

    def version() -> str:
        return get(api, "/inbox/version").text

    before = version()
    assert version() == before
    for change in (
        lambda: api.post("webhook/get"),
        lambda: api.emulator.clock.advance(1),
        lambda: api.emulator.faults.add("delay"),
        lambda: api.emulator.suppress("a@example.com"),
    ):
        change()
        assert version() != before
        before = version()
