"""Fixtures: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")

# No sandbox, since tests may run as root; and nothing that a browser does on the network by itself.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
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
