"""The receiver as a process of its own, as users run it."""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import Tokens, new_token
from tests.support import env
from tests.support.processes import Component, free_port, wait_until

COMMAND = [sys.executable, "-m", "airflow_provider_mail"]
HEADERS = {"User-Agent": "ServiceWebhooks", "Content-Type": "application/json;charset=UTF-8"}


def event(number: int = 1, code: str = "Delivered", **fields: str) -> dict[str, str]:
    """An event as the service pushes it."""
    return {
        "EventCode": code,
        "Email": f"reader{number}@planted.example",
        "TriggeredDateTimeV2": "2026-11-22T10:00:00Z",
        "UniqueMsgID": f"message-{number}",
        **fields,
    }


def push(*events: Mapping[str, Any]) -> bytes:
    """The body of a push."""
    return json.dumps(events).encode()


class RunningReceiver:
    """``airflow mail receive`` with a token, from `with` to the end of it.

    :param folder: for its log and Airflow's files.
    :param connection: the database of the inbox, in the spelling of ``AIRFLOW_CONN_...``.
    :param workers: number of processes.
    :param settings: further settings of the section, by name.
    """

    def __init__(
        self, folder: Path, connection: str, *, workers: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = new_token()
        self.conn_id = f"inbox_{self.port}"
        self.connection = {f"AIRFLOW_CONN_{self.conn_id.upper()}": connection}
        os.environ.update(self.connection)  # for the hook of this process
        hook = PostgresHook if '"postgres"' in connection else SqliteHook
        self.inbox = Inbox(hook(self.conn_id))
        self.tokens = Tokens(self.inbox)
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        self.environment = (
            env.clean_environment()
            | env.settings(home, f"sqlite:///{home}/airflow.db", folder)
            | {"AIRFLOW__MAIL__INBOX_CONN_ID": self.conn_id, **self.connection}
            | {f"AIRFLOW__MAIL__{name.upper()}": value for name, value in (settings or {}).items()}
        )
        self.log = folder / "receiver.log"
        command = [*COMMAND, "receive", "--port", str(self.port), "--workers", str(workers)]
        self.process = Component("receiver", command, env=self.environment, log=self.log)

    def __enter__(self) -> Self:
        try:
            self.inbox.create()
            self.tokens.create()
            self.tokens.add(self.token, "mail_default")
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop(timeout=30)
        for name in self.connection:
            del os.environ[name]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process.start()

        def answers() -> bool:
            if (code := self.process.exit_code()) is not None:
                raise RuntimeError(f"the receiver ended with {code}: {self.process.tail()}")
            try:
                return httpx.get(f"{self.url}/").status_code == 404
            except httpx.TransportError:
                return False

        wait_until(answers, what="the receiver answers", interval=0.05)

    def post(self, body: bytes, *, token: str | None = None, **headers: str) -> httpx.Response:
        """Push a body."""
        with httpx.Client() as client:
            url = f"{self.url}/{self.token if token is None else token}"
            return client.post(url, content=body, headers={**HEADERS, **headers}, timeout=60)

    def rows(self) -> list[tuple[Any, ...]]:
        """What is in the inbox, in the order of arrival."""
        rows = self.query("SELECT body, mail_conn_id, task_status FROM mail_inbox ORDER BY id")
        return [(zlib.decompress(body), conn_id, status) for body, conn_id, status in rows]

    def bodies(self) -> list[bytes]:
        """The bodies in the inbox, in the order of arrival."""
        return [body for body, _, _ in self.rows()]

    def query(self, sql: str) -> list[Any]:
        """Run a statement in the database of the inbox."""
        connection = self.inbox.open()
        try:
            cursor = connection.cursor()
            cursor.execute(sql)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return rows
        finally:
            connection.close()
