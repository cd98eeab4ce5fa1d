"""The receiver does not start where it could not receive, and says what to do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_mail.__main__ import main
from airflow_provider_mail.webhook.app import ReceiverApp
from airflow_provider_mail.webhook.inbox import Inbox, Push
from airflow_provider_mail.webhook.settings import OPTIONS, ReceiverSettings
from airflow_provider_mail.webhook.tokens import Tokens, new_token
from tests.support.env import ROOT
from tests.warehouse.conftest import Warehouse

Environment = dict[str, str]

NO_TOKEN = "the inbox has no valid token: make one with `airflow mail receive rotate`"

pytestmark = pytest.mark.not_unit


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch, airflow_home: object) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")
    for name in OPTIONS:
        monkeypatch.delenv(f"AIRFLOW__MAIL__{name.upper()}", raising=False)


def lifespan(app: ReceiverApp) -> list[dict[str, Any]]:
    """Start and end as an ASGI server does."""
    sent: list[dict[str, Any]] = []
    received = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, Any]:
        return next(received)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app({"type": "lifespan"}, receive, send))
    return sent


def request(app: ReceiverApp, path: str = "/x") -> list[dict[str, Any]]:
    """Answer a request without having been started, as inside the API server."""
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "path": path, "raw_path": b"", "query_string": b"", "headers": [], "method": "GET"}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


def started(capfd: pytest.CaptureFixture[str]) -> str:
    """Why the command and the application do not start."""
    with pytest.raises(SystemExit) as end:
        main(["receive"])
    assert end.value.code == 1
    said = capfd.readouterr().err.strip()
    assert lifespan(ReceiverApp()) == [{"type": "lifespan.startup.failed", "message": said}]
    return said


def test_without_an_inbox(capfd: pytest.CaptureFixture[str]) -> None:
    said = started(capfd)
    assert said.startswith("[mail] inbox_conn_id: there is no inbox; set it to the connection of a Postgres or SQLite")


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("inbox_conn_id", "nowhere", "nowhere"),
        ("inbox_conn_id", "other_mail", "the inbox needs a Postgres or SQLite database"),
        ("inbox_table", "a b", "`table` must be a name"),
        ("inbox_table", "x" * 60, "longer than 63 bytes"),
        ("receive_url", "airflow.example.com", "[mail] receive_url: must begin with https://"),
        ("receive_max_body_bytes", "0", "[mail] receive_max_body_bytes: must be from 1"),
        ("receive_max_body_bytes", "many", "[mail] receive_max_body_bytes: must be a whole number, not 'many'"),
        ("receive_max_inbox_bytes", "1", "[mail] receive_max_inbox_bytes: must be at least receive_max_body_bytes"),
        ("receive_max_pending_bytes", "1", "[mail] receive_max_pending_bytes: must be at least"),
    ],
)
def test_with_an_impossible_setting(
    make_warehouse: Callable[..., Warehouse],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    option: str,
    value: str,
    problem: str,
) -> None:
    make_warehouse("sqlite")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER_MAIL", "mail://x")
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    monkeypatch.setenv(f"AIRFLOW__MAIL__{option.upper()}", value)
    assert problem in started(capfd)


def test_without_a_token(inbox: Inbox, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    assert started(capfd) == NO_TOKEN
    Tokens(inbox).create()
    assert started(capfd) == NO_TOKEN
    Tokens(inbox).add(new_token(), "mail_default")
    assert [message["type"] for message in lifespan(ReceiverApp())] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


def test_inside_a_server_that_runs_on(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = ReceiverApp()
    assert [request(app)[0]["status"] for _ in range(3)] == [503, 503, 503]
    assert caplog.text.count("there is no inbox") == 1
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    assert request(app)[0]["status"] == 503, "who has a token is not known"
    Tokens(inbox).create()
    assert request(ReceiverApp())[0]["status"] == 404, "nobody has a token"


def test_by_default_nothing_is_received() -> None:
    settings = ReceiverSettings.from_airflow()
    assert (settings.inbox_conn_id, settings.receive_in_api_server) == ("", False)


def test_the_page_has_every_option() -> None:
    page = (ROOT / "docs" / "events.md").read_text()
    for name, option in OPTIONS.items():
        default = f"`{option['default']}`" if option["default"] else "empty"
        assert f"| `{name}` | {option['description'].replace('``', '`')} | {default} |\n" in page


def test_the_rights_that_the_receiver_needs(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    if inbox.is_sqlite:
        pytest.skip("SQLite has no rights")
    tokens, token, role = Tokens(inbox), new_token(), f"receiver_{os.getpid()}"
    tokens.create()
    tokens.add(token, "mail_default")
    columns = "received_at, body_bytes, drained_at"
    grants = f"GRANT INSERT, SELECT ({columns}) ON mail_inbox TO {role}; GRANT SELECT ON mail_inbox_tokens TO {role}"
    with inbox.connected() as owner:
        owner.execute(f"CREATE ROLE {role}; {grants}")
        owner.connection.commit()
        try:
            with monkeypatch.context() as patch:
                patch.setattr(inbox.hook, "get_conn", as_role(inbox.hook.get_conn, role))
                assert list(tokens.valid().values()) == ["mail_default"]
                with closing(inbox.open()) as connection:
                    inbox.insert(connection, [Push(b"[]", datetime.now(UTC), "mail_default", False)])
                inbox.probe()
                assert inbox.state().waiting_bytes == 2
        finally:
            owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
            owner.connection.commit()
    assert list(inbox.newest()) == ["mail_default"]


def as_role(connect: Callable[[], Any], role: str) -> Callable[[], Any]:
    """A function that connects with the rights of a role."""

    def connected() -> Any:
        connection = connect()
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"SET SESSION AUTHORIZATION {role}")
        connection.commit()
        return connection

    return connected
