"""The page of mail inside Airflow, as a person sees and uses it."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from tests.plugin.data import ACCOUNT, fill, load_stats, load_tasks, stats, task
from tests.support.airflow import RunningAirflow
from tests.support.browser import Open, violations, visits
from tests.support.dags import AIRFLOW_VERSION
from tests.warehouse.conftest import Warehouse

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


PAGES = (
    *("", "campaigns", "compare?c=mail_default//week-6&c=mail_default//week-5&c=mail_default//week-4"),
    *("campaign?account=mail_default&name=week-6", "lists", "transactional", "loads", "imports"),
    *("audiences", "events", "waits"),
)


@pytest.fixture(scope="module")
def warehouse(airflow: RunningAirflow, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The tables of the page, where Airflow finds them."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path_factory.mktemp("page") / "warehouse.db")}
    airflow.set_connection("page_warehouse", connection)
    extra = {"campaign_url": f"{airflow.base_url}/docs?of={{mail_name}}"}
    airflow.set_connection("mail_default", {"conn_type": "mail", "host": "http://127.0.0.1:1", "extra": extra})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_PAGE_WAREHOUSE", json.dumps(connection))
        filled = Warehouse("sqlite", SqliteHook("page_warehouse"))
        fill(filled)
        if "MAIL_SCREENSHOTS" in os.environ:
            fill_year(filled)
    return filled


@pytest.fixture
def visit(browser: Browser, airflow: RunningAirflow, warehouse: Warehouse) -> Iterator[Open]:
    """Opens an address as a user who is logged in; the test fails when a page's own policy stopped something of it."""

    def log_in(page: Page) -> None:
        # Everybody is an administrator here, but Airflow 3.1 wants to be asked.
        page.context.request.get("/auth/token/login", max_redirects=0)

    shown = {"home": "/mail/", "ours": lambda url: "/mail/" in url, "locale": "en-US"}
    with visits(browser, airflow.base_url, before=log_in, **shown) as visit:
        yield visit


@pytest.mark.ci
def test_a_campaign_is_found(visit: Open) -> None:
    page = visit()
    page.get_by_role("heading", name="Overview").wait_for()
    page.get_by_label("Pages").get_by_role("link", name="Campaigns").click()
    page.get_by_label("Name or subject").fill("week")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("7 campaigns").wait_for()
    assert page.url.endswith("/mail/campaigns?q=week"), "what is empty is not in the address"
    page.get_by_role("link", name="Opened").click()
    page.get_by_role("link", name="week-6").click()
    page.get_by_role("heading", name="week-6").wait_for()
    page.get_by_role("img", name="Opens in percent").wait_for()
    page.get_by_text("The chart as a table").click()
    page.get_by_role("row", name="5 36.0 % 32.5 %").wait_for()
    for name in ("Overview", "Lists", "Transactional mail", "Data age", "Imports", "Audiences", "Activity", "Waiting"):
        page.get_by_label("Pages").get_by_role("link", name=name).click()
        page.locator("h1").wait_for()
        assert page.locator("header a[aria-current]").inner_text() == name


def test_campaigns_are_compared_and_downloaded(visit: Open) -> None:
    page = visit("/mail/campaigns?q=week")
    for name in ("week-6", "week-2"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Campaigns side by side").wait_for()
    assert page.locator(".chart polyline").count() == 2
    with page.expect_download() as download:
        page.get_by_role("link", name="Campaigns side by side").click()
    assert download.value.suggested_filename == "mail-comparison.csv"
    assert len(download.value.path().read_text().splitlines()) == 3


def test_times_are_in_the_zone_that_is_chosen_in_airflow(visit: Open) -> None:
    page = visit("/mail/campaigns?q=week-6", timezone_id="Asia/Tokyo")
    page.get_by_text("2026-03-07 17:00").wait_for()
    page.evaluate("localStorage.setItem('timezone', JSON.stringify('America/New_York'))")
    page.reload()
    page.get_by_text("2026-03-07 03:00").wait_for()
    page.get_by_text("Times are in America/New_York").wait_for()


@pytest.mark.skipif(AIRFLOW_VERSION < (3, 1), reason="Airflow 3.0 shows no external views")
def test_it_is_in_the_menu_of_airflow(visit: Open) -> None:
    """In Airflow's frame, it has Airflow's theme, and its links to elsewhere open in a new window."""
    page = visit("/plugin/mail")
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="Overview").wait_for()
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    frame.get_by_role("heading", name="Overview").wait_for()
    assert frame.locator(":root").get_attribute("data-theme") == "dark"
    page.evaluate("document.documentElement.classList.replace('dark', 'light')")
    frame.locator(":root[data-theme=light]").wait_for()
    page.evaluate("localStorage.setItem('timezone', JSON.stringify('Asia/Kolkata'))")
    frame.get_by_text("Times are in Asia/Kolkata").wait_for()
    frame.get_by_role("link", name="Campaigns", exact=True).click()
    frame.get_by_role("link", name="week-6").click()
    for link, address in (
        ("open it in the email service", "/docs?of=week-6"),
        ("This view", "account=mail_default&name=week-6"),
    ):
        with page.context.expect_page() as opened:
            frame.get_by_role("link", name=link).click()
        assert opened.value.url.endswith(address)
    frame.get_by_role("link", name="Imports").click()
    frame.get_by_role("heading", name="Imports of contacts").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit: Open, scheme: str) -> None:
    page = visit(color_scheme=scheme)
    for path in PAGES if scheme == "light" else PAGES[:4]:  # there, the colors are what differs
        page.goto(f"/mail/{path}")
        assert violations(page, page.locator("details")) == []


def test_nothing_is_wider_than_a_phone(visit: Open) -> None:
    page = visit(viewport={"width": 360, "height": 740})
    for path in PAGES:
        page.goto(f"/mail/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_everything_can_be_done_with_keys(visit: Open) -> None:
    page = visit("/mail/campaigns")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to content"
    page.get_by_label("Name or subject").focus()
    page.keyboard.type("week-0")
    page.keyboard.press("Enter")
    page.get_by_text("1 campaign", exact=True).wait_for()
    page.get_by_role("link", name="week-0").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="week-0").wait_for()


@pytest.mark.skipif("MAIL_SCREENSHOTS" not in os.environ, reason="writes the pictures of docs/page.md")
def test_pictures(visit: Open) -> None:
    folder = Path(os.environ["MAIL_SCREENSHOTS"])
    page = visit("/plugin/mail", viewport={"width": 1200, "height": 900})
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="Overview").wait_for()
    frame.get_by_role("link", name="Campaigns", exact=True).click()
    frame.get_by_role("heading", name="Campaigns").wait_for()
    page.screenshot(path=folder / "page-campaigns.png")


def fill_year(warehouse: Warehouse) -> None:
    """A weekly newsletter of more than a year, whose opens come within days, as they do, and one that is scheduled."""
    chance = random.Random(1)
    now = datetime.datetime.now(datetime.UTC).replace(hour=9, minute=0, second=0, microsecond=0)
    monday = now - datetime.timedelta(days=now.weekday())
    subjects = ("What is new in spring", "Three ideas for the weekend", "From our workshop", "A gift for readers")
    observed: dict[datetime.date, list[Any]] = {}
    tasks = [
        task(
            "newsletter of next week",
            1,
            monday + datetime.timedelta(weeks=1),
            subject=subjects[0],
            rcptListNames=["Newsletter"],
        )
    ]
    for week in range(60):
        sent_at = monday - datetime.timedelta(weeks=59 - week)
        name, sent, final = f"newsletter {sent_at:%G-w%V}", 48_000 + 300 * week, chance.uniform(0.19, 0.27)
        tasks.append(task(name, 2, sent_at, subject=subjects[week % 4], rcptListNames=["Newsletter"]))
        for age in range(15):
            opens = int(sent * final * (1 - math.exp(-(age + 0.5) / 1.8)))
            at = (sent_at + datetime.timedelta(days=age)).date()
            if at <= now.date():
                observed.setdefault(at, []).append(stats(name, sent_at, opens, sent))
    for day, records in sorted(observed.items()):
        asked_at = datetime.datetime.combine(day, datetime.time(20), datetime.UTC)
        load_stats(warehouse, records, asked_at, ACCOUNT)
    load_tasks(warehouse, tasks, now)
