"""A real browser on a real API server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.api_server import ApiServer
from tests.support import dags

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
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server(
    chromium: str, airflow_home: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """An API server with an empty database and the test button switched on."""
    home = tmp_path_factory.mktemp("api-server")
    (home / "dags").mkdir()
    # A migrated database lies there, since `airflow_home` is.
    cache = getattr(request.config, "cache", None)
    dags.migrate(home / "airflow.db", cache.mkdir("airflow-db") if cache else airflow_home)
    with ApiServer(home, {"AIRFLOW__CORE__TEST_CONNECTION": "Enabled"}) as running:
        yield running


@pytest.fixture
def page(browser: Browser, server: ApiServer) -> Iterator[Page]:
    """A page that is logged in; the test fails when a script on it did."""
    crashes: list[str] = []
    context = browser.new_context(
        base_url=server.base_url, viewport={"width": 1100, "height": 1250}, locale="en-US", color_scheme="light"
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: crashes.append(str(error)))
    page.goto("/")
    page.get_by_role("link", name="Home").first.wait_for()
    yield page
    context.close()
    assert not crashes, "\n".join(crashes)
