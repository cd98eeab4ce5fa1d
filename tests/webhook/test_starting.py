"""The receiver does not start where it could not receive, and says what to do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest

from airflow_provider_mail.__main__ import main
from airflow_provider_mail._config import OPTIONS
from airflow_provider_mail.webhook.app import ReceiverApp
from airflow_provider_mail.webhook.inbox import Inbox, Push
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens
from tests.warehouse.conftest import Warehouse
from tests.webhook.receiving import TOKEN, Sender, execute

pytestmark = pytest.mark.not_unit

NO_TOKEN = "the inbox has no valid token: make one with `airflow mail receive rotate`"
CONN_ID = "AIRFLOW__MAIL__INBOX_CONN_ID"


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch, airflow_home: object, still_clock: object) -> None:
    for name in OPTIONS:
        monkeypatch.delenv(f"AIRFLOW__MAIL__{name.upper()}", raising=False)


def lifespan(app: ReceiverApp) -> list[dict[str, Any]]:
    """Start and end as an ASGI server does."""
    sent: list[dict[str, Any]] = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    receive, send = AsyncMock(side_effect=messages), AsyncMock(side_effect=sent.append)
    asyncio.run(app({"type": "lifespan"}, receive, send))
    return sent


def statuses(app: ReceiverApp, *paths: str) -> list[int]:
    """Request something without a start, as inside the API server."""
    with asyncio.Runner() as runner:
        return Sender(app, runner).get(*paths)


def error(capfd: pytest.CaptureFixture[str]) -> str:
    """Why the command and the application do not start."""
    with pytest.raises(SystemExit) as end:
        main(["receive"])
    assert end.value.code == 1
    message = capfd.readouterr().err.strip()
    assert lifespan(ReceiverApp()) == [{"type": "lifespan.startup.failed", "message": message}]
    return message


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("inbox_conn_id", "", "[mail] inbox_conn_id: there is no inbox; set it to the connection of a Postgres or"),
        ("inbox_conn_id", "nowhere", "nowhere"),
        ("inbox_conn_id", "other_mail", "is not a database with a DbApiHook"),
        ("inbox_table", "a b", "`table` must be a name"),
        ("inbox_table", "x" * 60, "longer than 63 bytes"),
        ("receive_url", "airflow.example.com", "[mail] receive_url: must begin with https://"),
        ("receive_max_body_bytes", "0", "[mail] receive_max_body_bytes: must be from 1"),
        ("receive_max_body_bytes", "many", "[mail] receive_max_body_bytes: must be a whole number, not 'many'"),
        ("receive_max_inbox_bytes", "1", "[mail] receive_max_inbox_bytes: must be at least receive_max_body_bytes"),
        ("receive_max_pending_bytes", "1", "[mail] receive_max_pending_bytes: must be at least"),
    ],
)
def test_an_impossible_setting_is_named(
    make_warehouse: Callable[..., Warehouse],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    option: str,
    value: str,
    problem: str,
) -> None:
    make_warehouse("sqlite")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER_MAIL", "mail://x")
    monkeypatch.setenv(CONN_ID, "warehouse")
    monkeypatch.setenv(f"AIRFLOW__MAIL__{option.upper()}", value)
    assert problem in error(capfd)


@pytest.mark.parametrize("inbox", ["sqlite", "psycopg3"], indirect=True)
def test_it_starts_with_a_token(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    app = ReceiverApp()
    assert statuses(app, "/x", "/x", "/alive") == [503, 503, 200]
    assert caplog.text.count("there is no inbox") == 1
    monkeypatch.setenv(CONN_ID, "warehouse")
    execute(inbox, "DROP TABLE mail_inbox_tokens")
    assert error(capfd) == NO_TOKEN
    assert statuses(app, "/x") == [503], "which tokens are valid is not known"
    inbox.create()
    assert error(capfd) == NO_TOKEN
    assert statuses(ReceiverApp(), "/x") == [404]
    Tokens(inbox, TokenOwner("mail_default", "", "")).add(TOKEN)
    app = ReceiverApp()
    messages = [message["type"] for message in lifespan(app)]
    assert messages == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with asyncio.Runner() as runner:
        assert Sender(app, runner).push() == 503, "it has ended"


RIGHTS = {
    "receiver": "INSERT, SELECT (id, received_at, drained_at) ON mail_inbox TO {0}; "
    "GRANT SELECT, UPDATE ON mail_inbox_counts TO {0}; GRANT SELECT ON mail_inbox_tokens",
    "drain": "SELECT, INSERT, UPDATE ON mail_inbox TO {0}; GRANT SELECT, UPDATE ON mail_inbox_counts",
}


@pytest.mark.parametrize("inbox", ["psycopg3"], indirect=True)
@pytest.mark.parametrize("who", RIGHTS)
def test_few_rights_in_the_database_are_enough(ready: Inbox, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    role, connect = f"role_{os.getpid()}", ready.hook.get_conn

    def connect_as_role() -> Any:
        connection = connect()
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"SET SESSION AUTHORIZATION {role}")
        connection.commit()
        return connection

    execute(ready, f"CREATE ROLE {role}; GRANT {RIGHTS[who].format(role)} TO {role}")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(ready.hook, "get_conn", connect_as_role)
            if who == "receiver":
                assert list(Tokens(ready).valid().values()) == ["mail_default"]
                ready.probe()
            ready.create()
            with ready.connection() as connection:
                ready.insert(connection, [Push(b"[]", datetime.now(UTC), "mail_default", False)])
                assert ready.state().waiting_bytes == 2
                if who == "drain":
                    (taken,) = ready.take(connection, max_pushes=9, max_bytes=9)
                    ready.finish(connection, [taken.id], datetime.now(UTC))
                    ready.check_counter(connection)
    finally:
        execute(ready, f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert ready.task_status_pushes() == {}
