"""A report in the emulator's inbox, as a person sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from example_dags.demo.data import make_orders
from mail_emulator import Emulator
from tests.support.browser import browser, chromium, visits  # noqa: F401 - fixtures
from tests.tasks.loading import executed
from tests.tasks.test_example_dags import example

pytestmark = pytest.mark.browser


def test_a_report_can_be_read(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """With ``MAIL_SCREENSHOTS`` it writes the picture of docs/how-to/report.md."""
    make_orders(tmp_path / "shop.db")
    shop = json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "shop.db")})
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", shop)
    with Emulator() as emulator:
        mail = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(mail))
        emulator.add_sender("shop@example.com")
        task = example("mail_report").get_task("open_orders")
        task.subject = "Open orders on 2026-02-02"
        executed(task)
        with visits(browser, emulator.base_url, ours=lambda url: True, viewport={"width": 900, "height": 560}) as visit:
            page = visit()
            page.get_by_role("link", name="manager0@example.com").click()
            frame = page.frame_locator("iframe")
            amounts = frame.locator("tbody tr td:nth-child(3)")
            assert amounts.first.inner_text() == "12.5"
            assert set(amounts.evaluate_all("cells => cells.map(cell => getComputedStyle(cell).textAlign)")) == {
                "right"
            }
            assert frame.locator("tbody tr").last.inner_text() == "and 1,204 more, in the attached file"
            if folder := os.environ.get("MAIL_SCREENSHOTS"):
                page.screenshot(path=Path(folder) / "report.png")
