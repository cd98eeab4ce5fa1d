"""Every page asks Airflow who looks, and shows nothing to others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from airflow_provider_mail.plugin import MailPlugin
from airflow_provider_mail.plugin.settings import PAGE_OPTIONS
from airflow_provider_mail.version_compat import AIRFLOW_V_3_1_PLUS
from benchmarks.parse_time import measure
from tests.plugin.conftest import BASE_PATH, Visitor
from tests.support.env import ROOT
from tests.warehouse.conftest import Warehouse

pytestmark = pytest.mark.not_unit


def paths() -> list[str]:
    """The path of every route, with something for its parameters."""
    from airflow_provider_mail.plugin.app import app

    assert all(isinstance(route, APIRoute) for route in app.routes), "a mount would have no guard"
    found = [
        route.path.lstrip("/").replace("{name}", "page.css") for route in app.routes if isinstance(route, APIRoute)
    ]
    assert len(found) == len(app.routes)
    return found


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_nobody_gets_in(server: TestClient, filled: Warehouse, method: str) -> None:
    for path in paths():
        response = server.request(method, f"{BASE_PATH}/mail/{path}")
        assert response.status_code == (401 if method == "GET" else 405), path
        assert "week-" not in response.text


def test_who_must_not_look_is_refused(server: TestClient, filled: Warehouse) -> None:
    for path in paths():
        text = Visitor(server, role=None).get(path, status=403)
        assert "week-" not in text
    assert "week-" in Visitor(server, role="viewer").get("")


def test_a_token_that_is_none(server: TestClient, empty: Warehouse) -> None:
    visitor = Visitor(server)
    whole = visitor.cookies["_token"]
    for wrong in ("x", whole[:-4], f"{whole}x", whole.rpartition(".")[0] + "."):
        visitor.cookies = {"_token": wrong}
        visitor.get("", status=403)
    headers = {"authorization": f"Bearer {whole}"}
    assert server.get(f"{BASE_PATH}/mail/", headers=headers).status_code == 200


def test_it_says_where_to_log_in(server: TestClient) -> None:
    text = Visitor(server, role="").get("", status=401)
    assert f'href="{BASE_PATH}/api/v2/auth/login?next=%2Fteam%2Fairflow%2Fmail%2F"' in text


def test_what_is_wrong_with_the_database(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "page_conn_id: connection" in visitor.get("", status=503)
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "mail://:secret-key@x")
    text = visitor.get("", status=503)
    assert "needs a database" in text
    assert "secret-key" not in text
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgres://planted-user:secret-key@127.0.0.1:1/x")
    text = visitor.get("", status=503)
    assert "cannot connect" in text
    assert "(host 127.0.0.1, port 1)" in text
    assert "Check that the database runs" in text
    assert "secret-key" not in text
    monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CAMPAIGN_STATS_TABLE", "a b")
    assert "a b" in visitor.get("", status=503)


@pytest.mark.parametrize("kind", ["psycopg3", "mysql"])
def test_errors_show_where_but_not_as_whom(
    visitor: Visitor, make_warehouse: Callable[..., Warehouse], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The server itself names the user whom it rejects."""
    warehouse = make_warehouse(kind)
    stored = warehouse.hook.get_connection("warehouse")
    wrong = {"conn_type": stored.conn_type, "host": stored.host, "port": stored.port, "schema": stored.schema}
    wrong |= {"login": "planted-user", "password": "planted-key"}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(wrong))
    text = visitor.get("", status=503)
    assert f"host {stored.host}" in text
    assert "***" in text
    assert "planted" not in text


def test_only_airflow_shows_it_in_a_frame(visitor: Visitor, server: TestClient, filled: Warehouse) -> None:
    """Whatever the response is."""
    cookie = {"cookie": f"_token={visitor.cookies['_token']}"}
    for path, status in (("", 200), ("campaign?account=x&name=x", 404), ("?page=0", 400), ("static/page.css", 200)):
        response = server.get(f"{BASE_PATH}/mail/{path}", headers=cookie)
        assert response.status_code == status
        policy = [each.strip() for each in response.headers["content-security-policy"].split(";")]
        assert {"default-src 'none'", "script-src 'self'", "form-action 'self'", "base-uri 'none'"} <= set(policy)
        assert [each for each in policy if each.startswith("frame-ancestors")] == ["frame-ancestors 'self'"]
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["q", "account", "sort"])
def test_a_nul_is_no_text(visitor: Visitor, filled: Warehouse, name: str) -> None:
    text = visitor.get("", status=400, **{name: "week\0"})
    assert f"This value in the address is not possible: {name}." in text
    visitor.get("campaign", status=400, account="\0", name="week-6")
    visitor.get("campaign", status=400, account="mail_default", name="week-6\0")
    visitor.get("transactional", status=400, account="\0")
    visitor.get("static/page.css%00", status=404)


def test_it_is_there_when_it_has_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (MailPlugin().fastapi_apps, MailPlugin().external_views) == ([], [])
    monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CONN_ID", "warehouse")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"http://airflow.example{BASE_PATH}/")
    assert [each["url_prefix"] for each in MailPlugin().fastapi_apps] == ["/mail"]
    (view,) = MailPlugin().external_views
    assert view["href"] == f"{BASE_PATH}/mail/"


def test_the_documentation_has_every_option() -> None:
    page = (ROOT / "docs" / "page.md").read_text()
    for name, option in PAGE_OPTIONS.items():
        default = f"`{option['default']}`" if option["default"] else "empty"
        assert f"| `{name}` | {option['description'].replace('``', '`')} | {default} |\n" in page


def test_what_a_daemon_imports_of_it_is_cheap() -> None:
    environment = {**os.environ, "AIRFLOW__MAIL__PAGE_CONN_ID": "warehouse"}
    loaded = measure(["airflow_provider_mail.plugin.mail_plugin"], after="airflow.plugins_manager", env=environment)
    ours = {name for name in loaded.modules if name.startswith("airflow_provider_mail.plugin")}
    assert ours <= {f"airflow_provider_mail.plugin{name}" for name in ("", ".mail_plugin", ".settings")}
    heavy = ("fastapi", "starlette", "jinja2", "pydantic", "sqlalchemy", "airflow.providers", "airflow.api_fastapi")
    assert [name for name in loaded.modules if name.startswith(heavy)] == []


@pytest.mark.skipif(AIRFLOW_V_3_1_PLUS, reason="Airflow 3.1 reads the cookie")
def test_a_cookie_is_enough_on_airflow_3_0(visitor: Visitor, empty: Warehouse) -> None:
    visitor.get("")
