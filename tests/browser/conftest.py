"""A real browser on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.api_server import ApiServer
from tests.support import dags


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
