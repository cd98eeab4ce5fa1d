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

PHONE = {"width": 390, "height": 844}
RUNS = "https://airflow.example.com/dags/shop_orders_to_warehouse/runs"
RUN = "scheduled__2026-01-31T06:00:00+00:00"


def occasion(kind: Kind, **arguments: Any) -> NotificationContext:
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
    *(occasion(kind) for kind in Kind if kind not in (Kind.DECISION, Kind.DEADLINE)),
    occasion(Kind.DEADLINE, error="", deadline=datetime(2026, 1, 31, 8, tzinfo=UTC)),
    occasion(
        Kind.DECISION,
        error="",
        question=("Send to 10,000 people?", "Preflight: 12 checks, no finding.\nLast week: 9,870 people."),
        decision_url=f"{RUNS}/{RUN}/tasks/approve/required_actions?map_index=-1",
    ),
    occasion(Kind.FAILED, dag_id="d" * 250, task_id="t" * 250, map_index=12, error="x" * 600),
]


@pytest.fixture
def phone(browser: Browser) -> Page:
    context = browser.new_context(viewport=PHONE, device_scale_factor=2, is_mobile=True, has_touch=True)  # type: ignore[arg-type]
    return context.new_page()


@pytest.mark.browser
@pytest.mark.parametrize("told", EVERY_KIND, ids=lambda told: told.kind.name)
def test_it_fits_a_phone(phone: Page, told: NotificationContext) -> None:
    phone.set_content(render_html(told, instance="Production"))

    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert phone.title() == render_subject(told)
    shown = phone.inner_text("body")
    for part in (told.error, told.dag_id, told.run_id, "Sent by Airflow (Production)", *(told.question or ())):
        assert (part or "") in shown
    links = phone.locator("a")
    assert links.count() == 2
    for number in range(links.count()):
        box = links.nth(number).bounding_box()
        assert box is not None
        assert box["height"] >= 44  # what a thumb needs


@pytest.mark.browser
def test_the_picture_of_the_documentation(phone: Page, tmp_path: Path) -> None:
    phone.set_content(render_html(occasion(Kind.FAILED), instance="Production"))
    folder = env.ROOT / "docs" / "images" if os.environ.get("SCREENSHOTS") else tmp_path
    phone.locator("body").screenshot(path=folder / "notification.png")
    assert (folder / "notification.png").stat().st_size > 10_000


def test_hostile_text_stays_text() -> None:
    page = render_html(
        occasion(Kind.FAILED, dag_id='<script>"', error="</div><img src=x onerror=alert(1)>"), instance="<b>"
    )
    assert "<script>" not in page
    assert "<img" not in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (61, "1 min 1 s"), (3720, "1 h 2 min"), (90000, "25 h 0 min")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert f">{shown}<" in render_html(occasion(Kind.SUCCEEDED, seconds=seconds))
