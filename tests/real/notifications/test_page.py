"""The default mail on a phone, in a real browser: everything fits, everything can be read and tapped."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from airflow_provider_mail.notifications._context import Kind, NotificationContext
from airflow_provider_mail.notifications._html import render_html, render_subject
from tests.support import env
from tests.support.browser import browser, chromium  # noqa: F401 - fixtures

PHONE = {"width": 390, "height": 844}
RUNS = "https://airflow.example.com/dags/shop_orders_to_warehouse/runs"
RUN = "scheduled__2026-01-31T06:00:00+00:00"


def about(kind: Kind, **arguments: Any) -> NotificationContext:
    """One about which everything is known."""
    known = {
        "dag_id": "shop_orders_to_warehouse",
        "task_id": "load.orders_of_the_day",
        "run_id": RUN,
        "try_number": 3,
        "max_tries": 3,
        "run_date": datetime(2026, 1, 31, 6, tzinfo=UTC),
        "seconds": 754.2,
        "error": 'UndefinedTable: relation "orders_2026" does not exist\nLINE 1: INSERT INTO orders_2026 (id, total)',
        "log_url": f"{RUNS}/{RUN}/tasks/load.orders_of_the_day?try_number=3",
        "run_url": f"{RUNS}/{RUN}",
    }
    return NotificationContext(kind=kind, **known | arguments)


EVERY_KIND = [
    *(about(kind) for kind in Kind if kind not in (Kind.DECISION, Kind.DEADLINE)),
    about(Kind.DEADLINE, error="", deadline=datetime(2026, 1, 31, 8, tzinfo=UTC)),
    about(
        Kind.DECISION,
        error="",
        question=("Send to 10,000 people?", "Preflight: 12 checks, no finding.\nLast week: 9,870 people."),
        decision_url=f"{RUNS}/{RUN}/tasks/approve/required_actions?map_index=-1",
    ),
    about(Kind.FAILED, dag_id="d" * 250, task_id="t" * 250, map_index=12, error="x" * 600),
]


@pytest.fixture
def phone(browser: Browser) -> Page:  # noqa: F811
    context = browser.new_context(viewport=PHONE, device_scale_factor=2, is_mobile=True, has_touch=True)  # type: ignore[arg-type]
    return context.new_page()


@pytest.mark.parametrize("reported", EVERY_KIND, ids=lambda reported: reported.kind.name)
def test_it_fits_a_phone(phone: Page, reported: NotificationContext) -> None:
    phone.set_content(render_html(reported, instance="Production"))

    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert phone.title() == render_subject(reported)
    shown = phone.inner_text("body")
    for part in (
        reported.error,
        reported.dag_id,
        reported.run_id,
        "Sent by Airflow (Production)",
        *(reported.question or ()),
    ):
        assert (part or "") in shown
    links = phone.locator("a")
    assert links.count() == 2
    for number in range(links.count()):
        box = links.nth(number).bounding_box()
        assert box is not None
        assert box["height"] >= 44  # what a thumb needs


def test_the_picture_of_the_documentation(phone: Page, tmp_path: Path) -> None:
    phone.set_content(render_html(about(Kind.FAILED), instance="Production"))
    folder = env.ROOT / "docs" / "images" if os.environ.get("SCREENSHOTS") else tmp_path
    phone.locator("body").screenshot(path=folder / "notification.png")
    assert (folder / "notification.png").stat().st_size > 10_000
