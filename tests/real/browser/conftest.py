"""A real browser on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.airflow import RunningAirflow
from tests.support.browser import TIMEOUT_MS

expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture
def page(browser: Browser, airflow: RunningAirflow) -> Iterator[Page]:
    """A page that is logged in; the test fails when a script on it did."""
    crashes: list[str] = []
    context = browser.new_context(
        base_url=airflow.base_url, viewport={"width": 1100, "height": 1250}, locale="en-US", color_scheme="light"
    )
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.on("pageerror", lambda error: crashes.append(str(error)))
    page.goto("/")
    page.get_by_role("link", name="Home").first.wait_for()
    yield page
    context.close()
    assert not crashes, "\n".join(crashes)
