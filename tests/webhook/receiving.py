"""The receiver in this process, as a server calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from airflow_provider_mail.webhook.app import Receiver, ReceiverApp
from airflow_provider_mail.webhook.inbox import Inbox, Push
from airflow_provider_mail.webhook.tokens import new_token
from tests.support.receiver import HEADERS

TOKEN = new_token()

PATIENCE = 20.0
"""Seconds until a thread that does not move fails its test."""


class Sender:
    """Pushes to a receiver.

    :param app: the receiver.
    """

    def __init__(self, app: Any, runner: asyncio.Runner) -> None:
        self.app = app
        self.runner = runner
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://receiver")

    def request(self, method: str, path: str, body: Any = b"", **headers: str) -> httpx.Response:
        return self.runner.run(self.http.request(method, path, content=body, headers={**HEADERS, **headers}))

    def push(self, body: Any = b"[{}]") -> int:
        return self.request("POST", f"/{TOKEN}", body).status_code

    def get(self, *paths: str) -> list[int]:
        return [self.runner.run(self.http.get(path)).status_code for path in paths]


@contextmanager
def receiver(
    inbox: Inbox,
    *,
    max_inbox: int = 10**9,
    max_body: int = 8 * 2**20,
    max_pending: int = 2**26,
    user_agent: str = HEADERS["User-Agent"],
) -> Iterator[Sender]:
    """Receive with Airflow's default settings; the inbox has to be there, and its table of tokens."""
    with asyncio.Runner() as runner:
        made = Receiver(inbox, max_pending=max_pending, max_inbox=max_inbox, max_body=max_body, user_agent=user_agent)
        yield Sender(ReceiverApp(lambda: made), runner)
        runner.run(made.commits.close())


def stored(inbox: Inbox) -> list[Push]:
    """What is in the inbox, drained or not, in the order of arrival."""
    with inbox.connection() as connection:
        return list(inbox.scan(connection, after=0, max_pushes=10**6))


def drain_all(inbox: Inbox) -> None:
    """Mark all pushes as drained."""
    with inbox.connection() as connection:
        ids = [push.id for push in inbox.take(connection, max_pushes=10**6, max_bytes=10**9)]
        inbox.finish(connection, ids, datetime.now(UTC))


def execute(inbox: Inbox, *statements: str) -> None:
    """Run statements in the database of the inbox."""
    with inbox.connection() as connection, closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
