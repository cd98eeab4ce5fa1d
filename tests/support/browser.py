"""The system's Chromium, driven by Playwright: fixtures, and what opens pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

Open = Callable[..., "Page"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_MS = 120_000
"""Of everything that a page is waited for; long, since a machine may be busy with other tests."""

# No sandbox, since tests may run as root; and nothing that a browser does on the network by itself.
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the system's Chromium is; without one these tests are skipped, but not where CI runs."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    missing = f"no browser: none of {', '.join(NAMES)} is installed"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A browser; a page of it is logged in to nothing."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@contextmanager
def visits(
    browser: Browser,
    base_url: str,
    *,
    home: str = "/",
    ours: Callable[[str], bool],
    before: Callable[[Page], object] = lambda page: None,
    **defaults: Any,
) -> Iterator[Open]:
    """Open pages, each in a context of its own; fail if a script on one did, or if a page's policy stopped something.

    :param base_url: where the pages are.
    :param home: the page that is opened when none is named.
    :param ours: whether an error counts that the browser reports of an address; none does of a hostile page.
    :param before: called with a page before it is opened.
    :param defaults: options of the contexts.
    """
    contexts = []
    complaints: list[str] = []

    def complain(message: ConsoleMessage) -> None:
        if message.type == "error" and ours(message.location["url"]):
            complaints.append(message.text)

    def visit(path: str = home, *, hostile: bool = False, **options: Any) -> Page:
        options = {"viewport": {"width": 1100, "height": 760}, "color_scheme": "light", **defaults, **options}
        context = browser.new_context(base_url=base_url, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if not hostile:
            page.on("console", complain)
        before(page)
        page.goto(path)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


def violations(page: Page, folded: Locator, *, exclude: tuple[str, ...] = ()) -> list[str]:
    """What axe finds wrong for people who cannot see or use a mouse, with all details unfolded."""
    from axe_playwright_python.sync_playwright import Axe

    for details in folded.all():
        details.evaluate("each => { each.open = true }")
    context = {"exclude": [[selector] for selector in exclude]} if exclude else None
    results = Axe().run(page, context=context).response["violations"]
    return [f"{page.url}: {each['id']}: {each['nodes'][0]['html']}" for each in results]
