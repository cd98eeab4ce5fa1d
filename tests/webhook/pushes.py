"""Events and pushes as the service sends them, and an inbox that has received some."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow.models import Connection
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.webhook.inbox import Inbox, Push

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
EARLIER = NOON - datetime.timedelta(hours=1)


def event(number: int = 1, code: str = "Delivered", **fields: Any) -> dict[str, Any]:
    """An event with fields of the document; those given as ``None`` are missing."""
    made = {
        "EventCode": code,
        "Email": f"user{number}@example.com",
        "EventType": "Transactional",
        "SenderEmail": "news@example.com",
        "SubmitDateTimeV2": "2026-03-01T11:00:00Z",
        "TriggeredDateTimeV2": "2026-03-01T12:00:00Z",
        "UniqueMsgID": f"m{number}",
        **fields,
    }
    return {name: value for name, value in made.items() if value is not None}


def body(*events: Any) -> bytes:
    return json.dumps(events).encode()


def push(*events: Any, conn_id: str = "mail_default", at: datetime.datetime = NOON) -> Push:
    return Push(body(*events), at, conn_id, any("TaskStatus" in json.dumps(each) for each in events))


def receive(inbox: Inbox, pushes: Iterable[Push]) -> None:
    """Store pushes as the receiver does."""
    with inbox.connection() as connection:
        inbox.insert(connection, list(pushes))


def sqlite_inbox(path: Path) -> Inbox:
    """An empty inbox in a file of its own, which needs no connection."""

    class Hook(SqliteHook):
        @classmethod
        def get_connection(cls, conn_id: str) -> Any:
            return Connection(conn_id=conn_id, conn_type="sqlite", host=str(path))

    inbox = Inbox(Hook("inbox"))
    inbox.create()
    return inbox
