"""The receiver as a process of its own, as users run it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens, new_token
from tests.support import env
from tests.support.processes import Component, free_port, wait_until

HEADERS = {"User-Agent": "ServiceWebhooks", "Content-Type": "application/json;charset=UTF-8"}


def sqlite_connection(path: Path) -> str:
    """In the spelling of ``AIRFLOW_CONN_...``."""
    return json.dumps({"conn_type": "sqlite", "host": str(path)})


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
        self.tokens = Tokens(self.inbox, TokenOwner("mail_default", "", ""))
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        self.environment = (
            env.clean_environment()
            | env.settings(home, f"sqlite:///{home}/airflow.db", folder)
            | {"AIRFLOW__MAIL__INBOX_CONN_ID": self.conn_id, **self.connection}
            | {f"AIRFLOW__MAIL__{name.upper()}": value for name, value in (settings or {}).items()}
        )
        self.log = folder / "receiver.log"
        command = [sys.executable, "-m", "airflow_provider_mail", "receive", "--port", str(self.port)]
        command += ["--workers", str(workers)]
        self.process = Component("receiver", command, env=self.environment, log=self.log)

    def __enter__(self) -> Self:
        try:
            self.inbox.create()
            self.tokens.add(self.token)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop(timeout=60)
        for name in self.connection:
            del os.environ[name]

    def start(self) -> None:
        """Start it, and wait until it responds."""
        self.process.start()

        def responds() -> bool:
            if (code := self.process.exit_code()) is not None:
                raise RuntimeError(f"the receiver ended with {code}: {self.process.tail()}")
            try:
                return httpx.get(f"{self.url}/", timeout=60).status_code == 404
            except httpx.TransportError:
                return False

        wait_until(responds, what="the receiver responds", interval=0.05)

    def post(self, body: bytes) -> httpx.Response:
        """Push a body."""
        return httpx.post(f"{self.url}/{self.token}", content=body, headers=HEADERS, timeout=60)

    def events(self) -> list[dict[str, str]]:
        """The events in the inbox, in the order of arrival."""
        from tests.webhook.receiving import stored

        return [event for push in stored(self.inbox) for event in json.loads(push.body)]
