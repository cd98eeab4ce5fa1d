"""Who sees the page under Airflow's FAB auth manager: real users of its roles, who log in with its form.

Needs `apache-airflow-providers-fab`, which is not part of the test environment: its exact pins contradict the
constraints of other providers. Without it the module is skipped.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.plugin.conftest import filled_file  # noqa: F401 - a fixture
from tests.support import env
from tests.support.processes import Component, free_port, wait_until

pytest.importorskip("airflow.providers.fab", reason="needs apache-airflow-providers-fab")
pytestmark = pytest.mark.timeout(600)

ROLES = {"Admin": 200, "Op": 200, "User": 403, "Viewer": 403, "Public": 403}
"""The roles that FAB comes with, and the status of the page for them."""

PASSWORD = "a-planted-password"


def run(environment: dict[str, str], *arguments: str) -> None:
    """Run a command of Airflow."""
    command = [sys.executable, "-m", "airflow", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(params=["", "Op"], ids=["no public role", "public role Op"])
def server(
    request: pytest.FixtureRequest,
    filled_file: Path,  # noqa: F811
    tmp_path: Path,
) -> Iterator[tuple[str, str]]:
    """An API server with the FAB auth manager, with a user of each role, and the role of those who do not log in."""
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    environment = (
        env.clean_environment()
        | env.settings(tmp_path, f"sqlite:///{tmp_path / 'airflow.db'}", tmp_path / "dags")
        | {
            "AIRFLOW__CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
            "AIRFLOW__FAB__AUTH_ROLE_PUBLIC": request.param,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__BASE_URL": f"{base_url}/",
            "AIRFLOW__API__SECRET_KEY": "0123456789abcdef" * 4,
            "AIRFLOW__MAIL__PAGE_CONN_ID": "warehouse",
            "AIRFLOW_CONN_WAREHOUSE": json.dumps({"conn_type": "sqlite", "host": str(filled_file)}),
        }
    )
    run(environment, "db", "migrate")
    for role in ROLES:
        names = ["--username", role.lower(), "--firstname", "A", "--lastname", role, "--email", f"{role}@example.com"]
        run(environment, "users", "create", *names, "--role", role, "--password", PASSWORD)
    process = Component(
        "api-server", [sys.executable, "-m", "airflow", "api-server"], env=environment, log=tmp_path / "out"
    )
    process.start()
    try:
        wait_until(lambda: process.exit_code() is not None or is_up(base_url), what="the API server")
        assert process.exit_code() is None, process.tail()
        yield base_url, request.param
    finally:
        process.stop()


def is_up(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/api/v2/version", trust_env=False, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def log_in(client: httpx.Client, role: str) -> None:
    """Send the form as a browser does."""
    form = client.get("/auth/login/")
    token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', form.text)
    assert token, form.text
    fields = {"username": role.lower(), "password": PASSWORD, "csrf_token": token[1]}
    assert client.post("/auth/login/", data=fields).status_code == 200
    assert "_token" in client.cookies, f"{role} could not log in"


def page_status(client: httpx.Client) -> int:
    """The status of the page, which has campaigns only when it is 200; the menu comes with the list of plugins."""
    page = client.get("/mail/")
    assert ("week-" in page.text) == (page.status_code == 200)
    assert client.get("/api/v2/plugins").status_code == page.status_code
    return page.status_code


def test_who_sees_the_page(server: tuple[str, str]) -> None:
    address, public_role = server
    found = {}
    for role in ("", *ROLES):
        with httpx.Client(base_url=address, follow_redirects=True, trust_env=False, timeout=60) as client:
            if role:
                log_in(client, role)
            found[role] = page_status(client)
    assert found == {"": 200 if public_role else 401, **ROLES}
