"""An inbox, and pushes in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

from airflow_provider_mail._polling import inbox as inbox_polling
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.tasks.conftest import SqlDatabase


def new_inbox(database: SqlDatabase, table: str = "mail_inbox") -> Inbox:
    """An empty one."""
    inbox = Inbox(database.hook, table)
    inbox.create()
    return inbox


def push(inbox: Inbox, *events: dict[str, Any], mail_conn_id: str = "mail_default") -> None:
    """What the receiver stores of one push."""
    body = json.dumps(events).encode()
    with inbox.connection() as connection:
        inbox.insert(connection, [Push(body, datetime.now(UTC), mail_conn_id, b"TaskStatus" in body)])


def drained(inbox: Inbox) -> None:
    """All that waits is drained."""
    with inbox.connection() as connection:
        ids = [push.id for push in inbox.take(connection, max_pushes=1000, max_bytes=10**6)]
        inbox.finish(connection, ids, datetime.now(UTC))


def at_query(
    monkeypatch: pytest.MonkeyPatch, query: str = "waiting", changes: dict[int, Callable[[], object]] | None = None
) -> list[int]:
    """Do something at a query of any inbox, by its number; return the list of the numbers so far."""
    numbers: list[int] = []
    original = getattr(Inbox, query)

    def noted(inbox: Inbox, *arguments: Any, **options: Any) -> Any:
        numbers.append(len(numbers) + 1)
        (changes or {}).get(numbers[-1], lambda: None)()
        return original(inbox, *arguments, **options)

    monkeypatch.setattr(Inbox, query, noted)
    return numbers


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, query: str = "waiting") -> Iterator[None]:
    """Let every query hang until the end of the body; each is given up at once, whatever the machine does."""
    over = Event()
    with monkeypatch.context() as patch:
        patch.setattr(Inbox, query, lambda *_, **__: over.wait())
        patch.setattr(inbox_polling, "QUERY_SECONDS", 0.0)
        try:
            yield
        finally:
            over.set()
