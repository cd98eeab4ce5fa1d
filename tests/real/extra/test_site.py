"""The documentation site in a browser: readable on a phone, searchable, and without a request to anywhere else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import TIMEOUT_MS, browser, chromium
from tests.support.env import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser", "chromium"]

pytestmark = pytest.mark.timeout(600)  # the first test builds the site, and may install what that needs

OLD = "0.0"


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest version of a site that has an older one too, as `make site` builds it, strictly."""
    folder = tmp_path_factory.mktemp("site")
    (folder / OLD).mkdir()
    (folder / OLD / "index.html").write_text('<link rel="icon" href="data:,"><h1>Old</h1>')
    done = subprocess.run(["make", "site", f"SITE={folder}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (newest,) = (each for each in folder.iterdir() if each.is_dir() and each.name != OLD)
    return newest


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{site.name}"
    server.shutdown()
    server.server_close()


@contextmanager
def watched(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A page; it must not have requests to other places and errors in the console."""
    complaints: list[str] = []
    own = (address.rpartition("/")[0], "data:")
    with browser.new_context(**options) as context:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(request.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    assert complaints == []


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page of a large screen."""
    with watched(browser, address, viewport={"width": 1280, "height": 900}, color_scheme="light") as page:
        yield page


def test_no_page_scrolls_sideways_on_a_phone(site: Path, browser: Browser, address: str) -> None:
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts)
    assert len(pages) > 80
    wide, size = [], {"width": 390, "height": 844}
    with watched(browser, address, viewport=size, is_mobile=True, has_touch=True, color_scheme="dark") as phone:
        for each in pages:
            phone.goto(f"{address}/{each}", wait_until="domcontentloaded")
            if phone.evaluate("document.documentElement.scrollWidth") > 390:
                wide.append(each)
    assert wide == []


FIRST = "query => Search.ranked(query).slice(0, 3).map(({ name }) => name)"


@pytest.fixture
def search(page: Page, address: str) -> Page:
    page.goto(f"{address}/search.html")
    page.wait_for_function("Search.messages")
    return page


def test_search_answers_questions(search: Page) -> None:
    """Questions of users of mail services, Airflow and reverse ETL, in their own words, and pages that answer them."""
    questions = json.loads((Path(__file__).parent / "questions.json").read_text())
    assert len(questions) >= 100
    missed = [question for question, pages in questions if not {*pages} & {*search.evaluate(FIRST, question)}]
    assert len(missed) <= len(questions) // 10, missed


def test_search_finds_what_people_type(search: Page) -> None:
    words = {
        "how-to/two-campaigns": ("two lists", "frequency cap"),
        "how-to/backfill": ("backfill", "missing days"),
        "how-to/test-a-dag": ("pytest", "github actions"),
        "how-to/permissions": ("grant", "least privilege"),
        "how-to/executors": ("kubernetes", "celery", "helm"),
        "how-to/find-a-failed-row": ("csv semicolon", "failed row"),
        "how-to/personal-data": ("GDPR", "erase a person", "retention"),
        "how-to/only-changed": ("new customers since yesterday",),
        "stop": ("stop a campaign", "emergency"),
        "stages": ("test send",),
        "rate": ("rate limit", "many workers"),
    }
    found = {(page, query): search.evaluate(FIRST, query) for page, queries in words.items() for query in queries}
    assert {query: first for (page, query), first in found.items() if page not in first} == {}


def test_a_pasted_message_finds_itself(search: Page) -> None:
    messages = search.evaluate("Search.messages.all.map(({ text }) => text)")
    known = [text for text in messages if len(re.findall(r"\w+", text)) > 7]
    assert len(known) > 250
    pasted = [text.replace("...", " newsletter 2026-03 ") for text in known]
    assert [text for text in pasted if "messages" not in search.evaluate(FIRST, text)] == []


def test_search_shows_what_it_found(page: Page, address: str) -> None:
    page.goto(f"{address}/index.html")
    page.locator("button.search-button-field").first.click()
    page.locator("dialog input[name=q]").fill("How do I stop a campaign?")
    page.keyboard.press("Enter")
    page.locator("#search-results .search-summary", has_text="found").wait_for()
    page.locator("#search-results li a").first.click()
    page.wait_for_url(f"{address}/stop.html#*")


def test_search_needs_no_server(site: Path, browser: Browser) -> None:
    with browser.new_page() as page:
        page.goto(f"{(site / 'search.html').as_uri()}?q=MailCampaignSensor")
        page.locator("#search-results li a", has_text="sensors.campaigns: MailCampaignSensor").wait_for()


def test_the_start_and_the_menu_lead_to_versions(site: Path, page: Page, address: str) -> None:
    page.goto(f"{address.rpartition('/')[0]}/index.html")
    page.wait_for_url(f"{address}/index.html")
    page.goto(f"{address}/campaigns.html")
    menu = page.locator("select.versions").first
    assert menu.locator("option").all_inner_texts() == [site.name, OLD]
    menu.select_option(OLD)
    page.wait_for_url(f"**/{OLD}/index.html")


def test_the_check_finds_what_is_wrong(site: Path, tmp_path: Path) -> None:
    """The build runs this check, so that it fails where one of these is wrong."""
    copy = tmp_path / "versions" / site.name
    shutil.copytree(site, copy)
    campaigns, index = copy / "campaigns.html", copy / "reference" / "index.html"
    wrong = (
        '<a href="gone.html">1</a><a href="contacts.html#gone">2</a><script src="https://example.com/3.js"></script>'
    )
    campaigns.write_text(campaigns.read_text().replace("</article>", f"{wrong}</article>"))
    index.write_text(index.read_text().replace("operators.campaigns.html#airflow_provider_mail", "index.html#gone"))
    command = [ROOT / ".venv-docs" / "bin" / "python", ROOT / "docs" / "site" / "check.py", copy]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for fault in (
        "campaigns.html: gone.html leads nowhere",
        "campaigns.html: contacts.html#gone: no such anchor",
        "campaigns.html: loads https://example.com/3.js",
        "two clicks from the start: airflow_provider_mail.operators.campaigns.MailCreateCampaignOperator",
    ):
        assert fault in done.stderr
