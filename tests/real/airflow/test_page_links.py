"""The page's links to tasks in Airflow: while components are away, after they are back, and when a run is deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from mail_emulator import Emulator
from tests.support.airflow import COMPONENTS, RunningAirflow
from tests.support.browser import Open, visits
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TASKS = ("deferred", "running", "failed")
LINKS = [*((f"/mail/campaigns?q=linked/{each}/{{run_id}}", each) for each in TASKS), ("/mail/waits", "deferred")]
"""Each page that links to a task of the run, and the task."""


@pytest.fixture
def visit(browser: Browser, airflow: RunningAirflow) -> Iterator[Open]:
    """Opens an address as a user who is logged in."""

    def log_in(page: Page) -> None:
        request = page.context.request
        request.get("/auth/token/login", max_redirects=0)
        # The first read of a server that has just started, beside three others that do, may be too slow: load it again.
        wait_until(lambda: request.get("/mail/campaigns").status == 200, what="the page")

    with visits(browser, airflow.base_url, home="/mail/", ours=lambda url: "/mail/" in url, before=log_in) as visit:
        yield visit


@pytest.fixture
def run_id(airflow: RunningAirflow, emulator: Emulator, postgres_server: PostgresServer) -> Iterator[str]:
    """A run whose tasks are in the states that they are named after, and whose campaigns are on the page."""
    emulator.add_list("everybody", ["ada@example.com"])
    emulator.change_settings(sending_seconds=1e6)
    with postgres_server.database() as database:
        airflow.set_connection("page_warehouse", database.airflow_connection)
        run_id = airflow.start_run("linked")
        wait_until(lambda: len(emulator.campaigns()) == len(TASKS), what="the campaigns")
        emulator.set_campaign_state(f"linked/failed/{run_id}", "failed")
        for state in TASKS:
            airflow.wait_for_task("linked", run_id, state, state)
        assert airflow.wait_for_run("linked_load", airflow.start_run("linked_load")) == "success"
        yield run_id


def look(visit: Open, path: str, run_id: str) -> Page:
    """The page of that path, or of the one campaign that the page lists."""
    page = visit(path.format(run_id=quote(run_id)))
    if "/campaigns?" in path:
        page.locator("main a[href*='campaign?']").click()
        page.locator("dl.facts").wait_for()
    return page


def assert_links_resolve(visit: Open, run_id: str) -> None:
    """From each campaign to the task that made it, and from the waits to the one that waits."""
    for path, task_id in LINKS:
        page = look(visit, path, run_id)
        # What Airflow's own page asks for the task instance that its address names.
        with page.expect_response(re.compile(rf"/taskInstances/{task_id}(/-1)?$")) as answered:
            page.locator("main a[href*='/dags/']").click()
        page.wait_for_url(f"**/dags/linked/runs/**/tasks/{task_id}**")
        assert answered.value.status == 200, (path, answered.value.text())
        assert [answered.value.json()[key] for key in ("dag_id", "task_id")] == ["linked", task_id]
        page.context.close()


def test_links_resolve_while_components_are_away_and_after(visit: Open, airflow: RunningAirflow, run_id: str) -> None:
    assert_links_resolve(visit, run_id)
    away = [name for name in COMPONENTS if name != "api-server"]
    for name in away:
        airflow.kill(name)
    assert_links_resolve(visit, run_id)
    airflow.kill("api-server")
    for name in ("api-server", *away):
        airflow.restart(name)
    airflow.wait_until_healthy()
    assert_links_resolve(visit, run_id)

    # Without the run, what was loaded of it is still shown, and nothing links to a task that Airflow does not have.
    run = f"/dags/linked/dagRuns/{quote(run_id)}"
    airflow.api.request("PATCH", run, json={"state": "failed"})  # a run that goes on cannot be deleted
    airflow.api.request("DELETE", run)
    for path, _ in LINKS:
        page = look(visit, path, run_id)
        assert page.locator("main a[href*='/dags/']").count() == 0, path
