"""An inbox, and pushes in it."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

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
    with closing(inbox.open()) as connection:
        inbox.insert(connection, [Push(body, datetime.now(UTC), mail_conn_id, b"TaskStatus" in body)])


def drained(inbox: Inbox) -> None:
    """All that waits is drained."""
    with closing(inbox.open()) as connection:
        ids = [push.id for push in inbox.take(connection, max_pushes=1000, max_bytes=10**6)]
        inbox.finish(connection, ids, datetime.now(UTC))
