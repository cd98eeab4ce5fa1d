"""Writes the pictures of docs/page.md: four views on a desktop and a phone, light and dark."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from fastapi import FastAPI
from starlette.testclient import TestClient

from airflow_provider_mail.hold import release_hold, set_hold
from airflow_provider_mail.plugin import PAGE_PREFIX
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger
from tests.plugin.conftest import Visitor, forget
from tests.plugin.data import fill
from tests.real.browser.test_page import fill_year
from tests.support.browser import visits
from tests.support.dags import RunResult
from tests.warehouse.conftest import HOOKS, Warehouse

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

SIZES = {"desktop": (1000, 760), "phone": (390, 760)}


@pytest.mark.skipif("MAIL_SCREENSHOTS" not in os.environ, reason="writes pictures")
def test_pictures(
    browser: Browser,
    airflow_home: object,
    tmp_path: Path,
    run_dag: Callable[..., RunResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.api_fastapi.app import init_auth_manager

    from airflow_provider_mail.plugin.app import app

    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "w.db")}))
    monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CONN_ID", "warehouse")
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    warehouse = Warehouse("sqlite", HOOKS["sqlite"]("warehouse"))
    fill(warehouse)
    fill_year(warehouse)
    _wait(run_dag)
    init_auth_manager()
    forget()
    outer = FastAPI(root_path="/team/airflow")
    outer.mount(PAGE_PREFIX, app)
    visitor = Visitor(TestClient(outer, root_path=""))

    def respond(route: Route) -> None:
        address = urlsplit(route.request.url)
        response = visitor.response(f"{address.path.removeprefix('/mail/')}?{address.query}")
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        route.fulfill(status=response.status_code, headers=headers, body=response.content)

    folder = Path(os.environ["MAIL_SCREENSHOTS"])
    shown = {
        "home": "/mail/",
        "ours": lambda url: False,
        "locale": "en-US",
        "before": lambda page: page.route("**/*", respond),
    }
    with visits(browser, "http://airflow.example", **shown) as visit:
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                page = visit("/mail/", color_scheme=scheme, viewport={"width": width, "height": height})
                page.screenshot(path=folder / f"page-overview-{size}-{scheme}.png")
                page.goto("/mail/waits")
                page.screenshot(path=folder / f"page-waits-{size}-{scheme}.png")
                page.goto("/mail/campaigns?q=newsletter")
                page.get_by_role("link", name="Three ideas").first.click()
                page.get_by_role("img", name="Opens in percent").wait_for()
                page.screenshot(path=folder / f"page-campaign-{size}-{scheme}.png", full_page=True)
        set_hold(set_by="ada", reason="wrong price in the newsletter")
        try:
            for size, (width, height) in SIZES.items():
                for scheme in ("light", "dark"):
                    page = visit("/mail/", color_scheme=scheme, viewport={"width": width, "height": height})
                    page.get_by_role("alert").wait_for()
                    page.screenshot(path=folder / f"page-hold-{size}-{scheme}.png")
        finally:
            release_hold()


def _wait(run_dag: Callable[..., RunResult]) -> None:
    """A task that waits for a person, and two that wait for campaigns."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    now = datetime.datetime.now(datetime.UTC)
    for dag_id, mail_name in (("welcome", "welcome"), ("newsletter", "newsletter of next week")):
        with DAG(dag_id, schedule=None) as dag:
            EmptyOperator(task_id="wait"), EmptyOperator(task_id="approve")
        of_run = (TaskInstance.dag_id == dag_id) & (TaskInstance.run_id == run_dag(dag).run_id)
        arguments = {"mail_conn_id": "mail_default", "mail_name": mail_name, "end_time": now.timestamp() + 86_400}
        with create_session() as session:
            trigger = Trigger(f"{MailCampaignTrigger.__module__}.{MailCampaignTrigger.__qualname__}", arguments)
            session.add(trigger)
            session.flush()
            waits = of_run & (TaskInstance.task_id == "wait")
            values = {"state": "deferred", "trigger_id": trigger.id, "operator": "MailCampaignSensor"}
            session.execute(update(TaskInstance).where(waits).values(**values))
            if dag_id == "newsletter":
                asks = of_run & (TaskInstance.task_id == "approve")
                session.execute(update(TaskInstance).where(asks).values(state="awaiting_input"))
                asked = session.scalars(select(TaskInstance.id).where(asks)).one()
                session.add(
                    HITLDetail(
                        ti_id=asked, options=["Approve", "Reject"], subject="Send the next newsletter?", params={}
                    )
                )
