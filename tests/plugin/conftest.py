"""The page as Airflow's API server mounts it, with Airflow's own authentication, over tables in real databases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from airflow_provider_mail._config import OPTIONS
from airflow_provider_mail.plugin import PAGE_PREFIX
from airflow_provider_mail.plugin.reader import forget
from tests.plugin.data import fill
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    HOOKS,
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)

PATIENCE = 20.0
"""Seconds until a thread that does not move fails its test."""

BASE_PATH = "/team/airflow"
DOCUMENTATION = "https://airflow-provider-mail.example.org/"


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.lasttag not in ("style", "script"):
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(filter(None, self.words))

    def links(self) -> list[str]:
        return [str(attributes["href"]) for tag, attributes in self.elements if tag == "a"]


class Visitor:
    """Requests pages with the token of a user.

    :param client: the client of the server.
    :param role: the role of the user; ``None`` for one without permissions, empty for no user.
    """

    def __init__(self, client: TestClient, role: str | None = "viewer") -> None:
        self.client = client
        self.cookies: Mapping[str, str] = {} if role == "" else {"_token": token(role)}

    def response(self, path: str, **query: str) -> Any:
        """The response of a page below the page's own path."""
        headers = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        return self.client.get(f"{BASE_PATH}{PAGE_PREFIX}/{path}", params=query or None, headers=headers)

    def get(self, path: str, status: int = 200, **query: str) -> str:
        """The text of a page below the page's own path."""
        response = self.response(path, **query)
        assert response.status_code == status, response.text
        assert "default-src 'none'" in response.headers["content-security-policy"]
        return response.text


def token(role: str | None) -> str:
    """A token as Airflow gives one to a user who logs in."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return str(get_auth_manager().generate_jwt(user=SimpleAuthManagerUser(username="tester", role=role)))


def may_read_only(monkeypatch: pytest.MonkeyPatch, dag_id: str) -> None:
    """Let Airflow say that a user may read one DAG."""
    from airflow.api_fastapi.app import get_auth_manager

    def is_authorized_dag(*, method: str, details: Any, user: Any, **_: Any) -> bool:
        assert (method, user.username) == ("GET", "tester")
        return bool(details.id == dag_id)

    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", is_authorized_dag)


@pytest.fixture
def server(airflow_home: object, monkeypatch: pytest.MonkeyPatch, still_clock: object) -> TestClient:
    """A server with the page below a base path; without a database yet. No database is too slow for it.

    No task waits, whatever other tests have left in Airflow's database.
    """
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import update

    from airflow_provider_mail.plugin.app import app

    for name in OPTIONS:
        monkeypatch.delenv(f"AIRFLOW__MAIL__{name.upper()}", raising=False)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"http://testserver{BASE_PATH}/")
    monkeypatch.setenv("AIRFLOW__MAIL__PAGE_CONN_ID", "warehouse")
    with create_session() as session:
        session.execute(update(TaskInstance).values(trigger_id=None))
    forget()
    init_auth_manager()
    outer = FastAPI(root_path=BASE_PATH)
    outer.mount(PAGE_PREFIX, app)
    return TestClient(outer, root_path="", raise_server_exceptions=False)


@pytest.fixture
def visitor(server: TestClient) -> Visitor:
    """A user who may look at the page."""
    return Visitor(server)


@pytest.fixture(scope="session")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with all tables."""
    file = tmp_path_factory.mktemp("filled") / "warehouse.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_FILLED", json.dumps({"conn_type": "sqlite", "host": str(file)}))
        fill(Warehouse("sqlite", HOOKS["sqlite"]("filled")))
    return file


@pytest.fixture
def filled(filled_file: Path, tmp_path: Path, make_warehouse: Callable[..., Warehouse]) -> Warehouse:  # noqa: F811
    """A database with all tables."""
    shutil.copy(filled_file, tmp_path / "warehouse.db")
    return make_warehouse("sqlite")


@pytest.fixture
def empty(make_warehouse: Callable[..., Warehouse]) -> Warehouse:  # noqa: F811
    """A database without tables."""
    return make_warehouse("sqlite")
