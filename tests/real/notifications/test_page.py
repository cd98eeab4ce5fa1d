"""The default mail on a phone, in a real browser: everything fits, everything can be read and tapped."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from airflow_provider_mail.notifications._context import NotificationContext, Reason, render_html, render_subject
from tests.support import env
from tests.support.browser import TIMEOUT_MS, browser, chromium  # noqa: F401 - fixtures

PHONE = {"width": 390, "height": 844}
RUNS = "https://airflow.example.com/dags/shop_orders_to_warehouse/runs"
RUN = "scheduled__2026-01-31T06:00:00+00:00"


def about(reason: Reason, **arguments: Any) -> NotificationContext:
    """One about which everything is known."""
    known = {
        "dag_id": "shop_orders_to_warehouse", "task_id": "load.orders_of_the_day", "run_id": RUN, "try_number": 3,
        "max_tries": 3, "run_date": datetime(2026, 1, 31, 6, tzinfo=UTC), "seconds": 754.2,
        "error": 'UndefinedTable: relation "orders_2026" does not exist\nLINE 1: INSERT INTO orders_2026 (id, total)',
        "log_url": f"{RUNS}/{RUN}/tasks/load.orders_of_the_day?try_number=3", "run_url": f"{RUNS}/{RUN}",
    }  # fmt: skip
    return NotificationContext(reason=reason, **known | arguments)


EVERY_REASON = [
    *(about(reason) for reason in Reason if reason not in (Reason.DECISION, Reason.DEADLINE)),
    about(Reason.DEADLINE, error="", deadline=datetime(2026, 1, 31, 8, tzinfo=UTC)),
    about(
        Reason.DECISION,
        error="",
        decision_url=f"{RUNS}/{RUN}/tasks/approve/required_actions?map_index=-1",
        question=("Send to 10,000 people?", "Preflight: 12 checks, no finding.\nLast week: 9,870 people."),
    ),
    about(Reason.FAILED, dag_id="d" * 250, task_id="t" * 250, map_index=12, error="x" * 600),
]


@pytest.fixture
def phone(browser: Browser) -> Page:  # noqa: F811
    context = browser.new_context(viewport=PHONE, device_scale_factor=2, is_mobile=True, has_touch=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    return page


def test_it_fits_a_phone(phone: Page) -> None:
    for reported in EVERY_REASON:
        phone.set_content(render_html(reported, instance="Production"))
        assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert phone.title() == render_subject(reported)
        shown = phone.inner_text("body")
        parts = (reported.error, reported.dag_id, reported.run_id, *(reported.question or ()))
        assert [part for part in (*parts, "Sent by Airflow (Production)") if (part or "") not in shown] == []
        heights = phone.eval_on_selector_all("a", "links => links.map(link => link.getBoundingClientRect().height)")
        assert len(heights) == 2
        assert min(heights) >= 44  # what a thumb needs


@pytest.mark.skipif("SCREENSHOTS" not in os.environ, reason="writes the picture of the documentation")
def test_picture(phone: Page) -> None:
    phone.set_content(render_html(about(Reason.FAILED), instance="Production"))
    phone.locator("body").screenshot(path=env.ROOT / "docs" / "images" / "notification.png")
