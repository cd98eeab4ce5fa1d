"""The receiver and the page inside Airflow's API server."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.parse_time import measure
from tests.support.processes import Component
from tests.support.receiver import HEADERS, RunningReceiver, sqlite_connection
from tests.webhook.pushes import body, event

pytestmark = [pytest.mark.ci, pytest.mark.timeout(900)]

BASE_PATH = "/team/airflow"
PASSWORD = "password-of-ann"


class ApiServer(RunningReceiver):
    """Airflow's API server below a base path, with the plugin switched on, and with a user who logs in."""

    def __init__(self, folder: Path, connection: str, airflow_home: Path) -> None:
        super().__init__(folder, connection, settings={"receive_in_api_server": "True", "page_conn_id": "page_tables"})
        home = Path(self.environment["AIRFLOW_HOME"])
        passwords = home / "passwords.json"
        passwords.write_text(json.dumps({"ann": PASSWORD}))
        users = {"ALL_ADMINS": "False", "USERS": "ann:viewer", "PASSWORDS_FILE": str(passwords)}
        self.environment |= {f"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_{name}": value for name, value in users.items()}
        self.environment["AIRFLOW_CONN_PAGE_TABLES"] = sqlite_connection(folder / "tables.db")
        shutil.copy(airflow_home / "airflow.db", home)
        self.base = f"{self.url}{BASE_PATH}"
        api = {"HOST": "127.0.0.1", "PORT": str(self.port), "WORKERS": "1", "BASE_URL": f"{self.base}/"}
        self.environment |= {f"AIRFLOW__API__{name}": value for name, value in api.items()}
        self.url = f"{self.base}/mail-events"
        command = [sys.executable, "-m", "airflow", "api-server"]
        self.process = Component("api-server", command, env=self.environment, log=self.log)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, airflow_home: Path) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("api-server")
    with ApiServer(folder, sqlite_connection(folder / "inbox.db"), airflow_home) as running:
        yield running


def test_it_receives_below_the_base_path(server: ApiServer) -> None:
    assert server.post(body(event(1))).status_code == 200
    # A proxy may take the base path away.
    stripped = f"http://127.0.0.1:{server.port}/mail-events/{server.token}"
    assert httpx.post(stripped, content=body(event(2)), headers=HEADERS, timeout=60).status_code == 200
    assert server.events() == [event(1), event(2)]
    assert [httpx.get(f"{server.url}/{path}", timeout=60).status_code for path in ("health", "alive")] == [200, 200]
    wrong = ("", "x", "x/y", "docs", "openapi.json")
    responses = [httpx.post(f"{server.url}/{path}", headers=HEADERS, timeout=60) for path in wrong]
    assert {(response.status_code, response.content) for response in responses} == {(404, b"Not Found")}
    assert httpx.get(f"{server.base}/api/v2/version", timeout=60).status_code == 200

    log = server.log.read_text()
    assert f"{BASE_PATH}/mail-events/..." in log
    assert server.token not in log
    assert "@example.com" not in log


def test_the_page_asks_for_a_login_below_the_base_path(server: ApiServer) -> None:
    for page in (f"{server.base}/mail/", f"http://127.0.0.1:{server.port}/mail/"):
        stranger = httpx.get(page, timeout=60)
        assert stranger.status_code == 401
        assert f'href="{BASE_PATH}/api/v2/auth/login?next=%2Fteam%2Fairflow%2Fmail%2F"' in stranger.text
        login = httpx.post(f"{server.base}/auth/token", json={"username": "ann", "password": PASSWORD}, timeout=60)
        with httpx.Client(cookies={"_token": login.json()["access_token"]}, timeout=60) as ann:
            assert "Needs attention" in ann.get(page).text
            assert "Loads" in ann.get(f"{page}loads").text
            assert ann.get(f"{page}static/page.css").headers["content-type"].startswith("text/css")
        assert httpx.get(page, cookies={"_token": "x"}, timeout=60).status_code == 403


@pytest.mark.parametrize("page_conn_id", ["", "warehouse"])
def test_what_every_part_of_airflow_imports_is_cheap(page_conn_id: str) -> None:
    environment = {**os.environ, "AIRFLOW__MAIL__PAGE_CONN_ID": page_conn_id}
    loaded = measure(["airflow_provider_mail.plugin"], after="airflow.plugins_manager", env=environment)
    ours = {name for name in loaded.modules if name.startswith("airflow_provider_mail")}
    assert {name for name in ours if ".api." in name} <= {"airflow_provider_mail.api.errors"}
    pages = {f"airflow_provider_mail.plugin{name}" for name in ("", ".settings")}
    assert {name for name in ours if name.startswith("airflow_provider_mail.plugin")} <= pages
    heavy = ("fastapi", "starlette", "uvicorn", "msgspec", "pydantic", "sqlalchemy", "jinja2", "airflow.providers",
             "airflow.api_fastapi")  # fmt: skip
    assert [name for name in loaded.modules if name.startswith(heavy)] == []
