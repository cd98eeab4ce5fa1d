"""What is usually written: a FastAPI handler that inserts each event of a push."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
from fastapi import FastAPI
from psycopg.types.json import Jsonb

COLUMNS = {
    "event_code": "EventCode",
    "email": "Email",
    "event_type": "EventType",
    "sender_email": "SenderEmail",
    "sent_mail_list_name": "SentMailListName",
    "submit_time": "SubmitDateTimeV2",
    "triggered_time": "TriggeredDateTimeV2",
    "unique_msg_id": "UniqueMsgID",
    "receive_server": "ReceiveServer",
    "guid": "Guid",
    "mail_name": "MailName",
    "ip": "IP",
    "platform": "Platform",
    "browser_type": "BrowserType",
}
TIMES = ("submit_time", "triggered_time")
CREATE = "CREATE TABLE {table} ({columns}, raw jsonb, received_at timestamptz, PRIMARY KEY (unique_msg_id, event_code))"
INSERT = "INSERT INTO {table} ({names}, raw, received_at) VALUES ({marks}) ON CONFLICT DO NOTHING"


def create(connection: psycopg.Connection[Any], table: str) -> None:
    """Create a table of events."""
    columns = ", ".join(f"{name} {'timestamptz' if name in TIMES else 'text'}" for name in COLUMNS)
    connection.execute(CREATE.format(table=table, columns=columns).encode())


def values(event: dict[str, str], received_at: datetime) -> list[Any]:
    """Return a row."""
    return [*(event.get(key) for key in COLUMNS.values()), Jsonb(event), received_at]


def make_app() -> FastAPI:
    """Return the application; ``BENCHMARK_DSN`` is the database, which has the table ``row_wise``."""
    app, local = FastAPI(), threading.local()
    marks = ", ".join(["%s"] * (len(COLUMNS) + 2))
    insert = INSERT.format(table="row_wise", names=", ".join(COLUMNS), marks=marks).encode()

    def insert_all(events: list[dict[str, str]], *, commit_each: bool) -> None:
        # FastAPI runs this in threads, each of which keeps its connection, as with a pool.
        if not hasattr(local, "connection"):
            local.connection = psycopg.connect(os.environ["BENCHMARK_DSN"])
        with local.connection.cursor() as cursor:
            for event in events:
                cursor.execute(insert, values(event, datetime.now(UTC)))
                if commit_each:
                    local.connection.commit()
        local.connection.commit()

    @app.post("/each")
    def each(events: list[dict[str, str]]) -> dict[str, int]:
        insert_all(events, commit_each=True)
        return {"events": len(events)}

    @app.post("/push")
    def push(events: list[dict[str, str]]) -> dict[str, int]:
        insert_all(events, commit_each=False)
        return {"events": len(events)}

    return app
