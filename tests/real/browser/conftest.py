"""A real browser on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.airflow import RunningAirflow
from tests.support.browser import TIMEOUT_MS, visits

expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture
def page(browser: Browser, airflow: RunningAirflow) -> Iterator[Page]:
    """A page that is logged in; the test fails when a script on it did."""
    with visits(browser, airflow.base_url, ours=lambda url: False, locale="en-US") as visit:
        page = visit(viewport={"width": 1100, "height": 1250})
        page.get_by_role("link", name="Home").first.wait_for()
        yield page
