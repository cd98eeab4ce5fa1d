"""The emulator's inbox, as a person sees and uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mail_emulator import Emulator
from mail_emulator.__main__ import add_demo_data
from tests.emulator.conftest import LETTER, SEND, Api
from tests.support.browser import Open, violations, visits
from tests.support.processes import wait_until
from tests.support.serving import Handler, Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

PAGES = (
    *("/", "/inbox/mail/t1", "/campaigns/spring%20sale", "/inbox/requests", "/inbox/mail/t1?view=source", "/campaigns"),
    *("/inbox/lists", "/inbox/lists/Newsletter", "/inbox/requests/1", "/inbox/faults", "/inbox/nothing"),
)
ORDER = """<style>body { font-family: sans-serif; padding: 1rem }</style><h1>Thank you, {{name}}</h1>
<p>Your order <b>{{order}}</b> is on its way. <a href="https://shop.example.com/track">Track it</a></p>"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """The email service with the data of the demo, a campaign that was sent, and orders."""
    with Emulator() as emulator:
        add_demo_data(emulator)
        api = Api(emulator)
        api.campaign(
            "spring sale", sendListNames=["Newsletter"], repelListNames=["Employees"], subject="Spring is here",
            content="<p>For {{email}}</p>",
        )  # fmt: skip
        versions = [
            {"to": [{"email": f"{name.lower()}@example.com", "name": name}], "cc": [], "bcc": [],
             "params": {"name": name, "order": number}}
            for number, name in enumerate(("Ada", "Grace", "Edsger", "Barbara", "Alan", "Radia", "Donald"), start=4711)
        ]  # fmt: skip
        emulator.clock.advance(minutes=2)
        order: dict[str, Any] = {"category": "orders", "trackOpen": 1, "trackClick": 1, "messageVersions": versions}
        api.ok(SEND, **LETTER | {"senderName": "Shop", "subject": "Your order {{order}}", "content": ORDER} | order)
        emulator.clock.advance(hours=9)
        yield emulator
        api.close()
        assert emulator.crashes() == []


@pytest.fixture
def visit(browser: Browser, emulator: Emulator) -> Iterator[Open]:
    """Opens a page; the test fails when a script on one did, or when a page's own policy stopped something of it."""
    with visits(browser, emulator.base_url, ours=lambda url: not url.endswith("/inbox/nothing")) as visit:
        yield visit


def send(emulator: Emulator, to: str, **body: str) -> None:
    api = Api(emulator)
    api.ok(SEND, **LETTER | {"to": {"email": to}} | body)
    api.close()


def test_a_mail_is_found_and_its_recipient_opens_it(visit: Open, emulator: Emulator) -> None:
    page = visit()
    page.get_by_label("Words, or part of an address").fill("order 4712")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Grace grace@example.com").click()
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="Thank you, Grace").wait_for()
    emulator.inbox.react("t2", "Opened")
    page.locator("#happened").get_by_text("Opened").first.wait_for()
    page.get_by_role("button", name="Click").click()
    page.locator("#happened").get_by_text("Clicked").wait_for()
    assert page.locator("#happened .status").all_inner_texts()[0] == "Delivered"
    page.get_by_role("link", name="Text", exact=True).click()
    assert "Your order 4712 is on its way. Track it" in page.locator("pre").inner_text()
    page.get_by_role("link", name="Headers").click()
    assert "Grace <grace@example.com>" in page.locator("dl").last.inner_text()


def test_new_mail_appears_while_a_search_is_typed(visit: Open, emulator: Emulator) -> None:
    page = visit("/?kind=transactional")
    page.get_by_text("7 mails", exact=True).wait_for()
    words = page.get_by_label("Words, or part of an address")
    words.fill("typed, not sent")
    send(emulator, "late@example.com")
    page.get_by_role("link", name="late@example.com").wait_for()
    assert words.input_value() == "typed, not sent"


def test_everything_can_be_done_with_keys(visit: Open) -> None:
    page = visit()
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to content"
    page.keyboard.press("/")
    page.keyboard.type("jk order")
    assert page.locator(":focus").input_value() == "jk order"
    page.keyboard.press("Control+a")
    page.keyboard.type("order")
    page.keyboard.press("Enter")
    page.get_by_text("7 mails", exact=True).wait_for()
    page.wait_for_load_state()  # the script listens
    for key in "jjjk":
        page.keyboard.press(key)
    second = page.locator(".rows a").nth(1)
    assert page.locator(":focus").get_attribute("href") == second.get_attribute("href")
    page.keyboard.press("Enter")
    page.locator("#happened").wait_for()
    page.wait_for_load_state()
    page.keyboard.press("u")
    page.get_by_text("7 mails", exact=True).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit: Open, scheme: str) -> None:
    page = visit("/", color_scheme=scheme)
    for path in PAGES if scheme == "light" else PAGES[:4]:  # there, the colors are what differs
        page.goto(path)
        assert violations(page, page.locator("details"), exclude=("iframe",)) == []  # the content of a mail is not ours


def test_nothing_is_wider_than_a_phone(visit: Open) -> None:
    page = visit(viewport={"width": 360, "height": 740})
    for path in PAGES:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


class Outside(Server):
    """Another host: keeps the paths that are requested."""

    def __init__(self) -> None:
        super().__init__(Requested)
        self.connections = 0
        self.paths: set[str] = set()

    def verify_request(self, *_: object) -> bool:
        self.connections += 1
        return True


class Requested(Handler):
    server: Outside

    def do_GET(self) -> None:
        self.server.paths.add(self.path)
        self.send_error(404)

    do_POST = do_HEAD = do_GET


@pytest.fixture
def outside() -> Iterator[Outside]:
    with Outside() as outside:
        yield outside


def hostile(host: str) -> str:
    """Every way to reach a host that a mail could try."""
    return f"""
    <link rel="preconnect" href="{host}"><LINK rel="stylesheet" href="{host}/l"><link rel="prefetch" href="{host}/p">
    <link rel="icon" href="{host}/i"><meta http-equiv="refresh" content="0; url={host}/refresh">
    <base href="{host}/"><style>@import "{host}/c"; body {{ background: url({host}/b) }}
    @font-face {{ font-family: f; src: url({host}/f) }} p {{ font-family: f }}</style>
    <script>fetch("{host}/s"); top.location = "{host}/t"; parent.document.title = "taken"; alert(1)</script>
    <script src="{host}/js"></script><img src="{host}/img" srcset="{host}/set 2x" onerror="alert(2)">
    <img src="x"><picture><source srcset="{host}/src"><img></picture>
    <video src="{host}/v" autoplay poster="{host}/po"></video>
    <audio src="{host}/a" autoplay></audio><iframe src="{host}/if"></iframe>
    <iframe srcdoc="<img src={host}/sd>"></iframe>
    <object data="{host}/o"></object><embed src="{host}/e">
    <svg><image href="{host}/svg"/><use href="{host}/u#a"/></svg>
    <form action="{host}/form" method="post" id="f"><input name="a"><button id="go">Go</button></form>
    <input type="image" src="{host}/in"><table background="{host}/tb"><tr><td>x</td></tr></table>
    <a id="link" href="{host}/link" ping="{host}/ping" target="_top">link</a><p>The end</p>"""


def test_the_preview_reaches_nothing_outside(visit: Open, emulator: Emulator, outside: Outside) -> None:
    """Neither by itself nor when its link and its button are used; unless remote images are allowed."""
    send(emulator, "eve@example.com", subject="Hostile", content=hostile(f"http://127.0.0.1:{outside.server_port}"))
    mail = emulator.inbox.search("hostile")["mails"][0]["id"]
    page = visit(f"/inbox/mail/{mail}", hostile=True)
    frame = page.frame_locator("iframe[title]")
    frame.get_by_text("The end").wait_for()
    page.wait_for_load_state("networkidle")
    # The frame by itself, as a page, is in the sandbox too.
    content = visit(f"/inbox/content/{mail}", hostile=True)
    content.get_by_text("The end").wait_for()
    content.wait_for_load_state("networkidle")
    assert outside.connections == 0
    frame.locator("#link").click()
    if frame.locator("#go").count():
        frame.locator("#go").click()
    page.reload()
    page.wait_for_load_state("networkidle")
    assert page.title() == "Hostile · Emulator"
    assert outside.paths == set()  # a browser may connect when a link is pressed, but it requests nothing
    page.get_by_role("link", name="Load remote images").click()
    wait_until(lambda: outside.paths & {"/img", "/set"}, what="an image")
    page.wait_for_load_state("networkidle")
    assert (
        outside.paths & {f"/{name}" for name in ("s", "js", "form", "if", "refresh", "t", "o", "e", "v", "a")} == set()
    )


@pytest.mark.skipif("MAIL_SCREENSHOTS" not in os.environ, reason="writes the pictures of docs/emulator.md")
def test_pictures(visit: Open) -> None:
    folder = Path(os.environ["MAIL_SCREENSHOTS"])
    size = {"width": 1000, "height": 540}
    page = visit("/", viewport=size)
    page.screenshot(path=folder / "emulator-inbox.png")
    page = visit("/inbox/mail/t2", viewport=size, color_scheme="dark")
    page.get_by_role("button", name="Click").click()
    page.locator("#happened").get_by_text("Clicked").wait_for()
    page.frame_locator("iframe").get_by_role("heading").wait_for()
    page.screenshot(path=folder / "emulator-mail.png")
