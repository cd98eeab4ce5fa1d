"""What drain_events.py measures, each in a new process: ``python -m benchmarks.webhook_drain.variants NAME``.

``fill`` prepares the inbox. The others print one line of JSON: seconds, CPU seconds, peak memory over what the imports
alone take (MiB), and pushes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from benchmarks.support import Run, imported, measure

EVENTS_PER_PUSH = 1000
REPEAT_EVERY = 10
"""Every tenth push is sent twice."""

CODES = ("Delivered", "Delivered", "Opened", "Opened", "Clicked", "Bounced")

LAZILY_IMPORTED = (
    "airflow_provider_mail._task.progress",
    "airflow_provider_mail.transfers.events_to_sql",
    "airflow_provider_mail.warehouse.database",
    "airflow_provider_mail.webhook.drain",
    "airflow_provider_mail._config",
)


def bodies(pushes: int) -> Iterator[bytes]:
    """Yield the bodies of pushes as the service sends them.

    :param pushes: how many different ones.
    """
    for push in range(pushes):
        body = json.dumps([_event(push * EVENTS_PER_PUSH + number) for number in range(EVENTS_PER_PUSH)]).encode()
        yield body
        if push % REPEAT_EVERY == 0:
            yield body


def _event(number: int) -> dict[str, str]:
    seconds = number % 86400
    return {
        "EventCode": CODES[number % len(CODES)],
        "Email": f"customer{number}@mail{number % 97}.example.com",
        "EventType": "Campaign",
        "SenderEmail": "news@example.com",
        "SentMailListName": "newsletter",
        "SubmitDateTimeV2": "2026-03-01T08:00:00Z",
        "TriggeredDateTimeV2": f"2026-03-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z",
        "UniqueMsgID": f"6f1c2a4e8b9d4c33a5a0-{number}",
        "ReceiveServer": f"mx{number % 5}.example.com",
        "Guid": "6f1c2a4e-8b9d-4c33-a5a0-0d6b7f0c1e2d",
        "MailName": "spring sale 2026",
        "IP": f"192.0.2.{number % 255}",
        "Platform": "iOS",
        "BrowserType": "Mobile Safari",
    }


def _pushes() -> int:
    return int(os.environ["BENCHMARK_PUSHES"])


def fill() -> None:
    """Put all pushes into the inbox."""
    from airflow_provider_mail.webhook.inbox import Inbox, Push

    inbox = Inbox(imported("events_db"))
    inbox.create()
    with closing(inbox.open()) as connection:
        for body in bodies(_pushes()):
            inbox.insert(connection, [Push(body, datetime.now(UTC), "mail_default", False)])


def ours() -> Run:
    """Run the operator as a task does."""
    from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator

    imported("events_db", *LAZILY_IMPORTED)

    def run() -> int:
        operator = MailEventsToSqlOperator(task_id="drain", sql_conn_id="events_db", inbox_conn_id="events_db")
        context: Any = {"ti": type("TaskInstance", (), {"try_number": 1})}
        return int(operator.execute(context)["pushes"])

    return run


def row_wise() -> Run:
    """The usual handler of a webhook, without HTTP: a statement for each event, a transaction for each push."""
    hook, table, columns = _table()
    marks = ", ".join(["%s"] * len(columns))
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"

    def run() -> int:
        count = 0
        with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
            for body in _received(hook):
                for row in _rows(body):
                    cursor.execute(insert, row)
                connection.commit()
                count += 1
        return count

    return run


def copy() -> Run:
    """The limit: parse with msgspec, COPY all pushes into a temporary table, insert what is new; nothing is checked."""
    import msgspec

    hook, table, _ = _table()
    decode = msgspec.json.Decoder(list[dict[str, str]]).decode

    def run() -> int:
        count = 0
        with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(f"CREATE TEMP TABLE stage (LIKE {table})")
            for body in _received(hook):
                lines = ["\t".join(map(str, row)) for row in _rows(body, decode)]
                _copy(cursor, "COPY stage FROM STDIN", "\n".join(lines) + "\n")
                count += 1
            cursor.execute(f"INSERT INTO {table} SELECT * FROM stage ORDER BY event_id ON CONFLICT DO NOTHING")
            connection.commit()
        return count

    return run


def _table() -> tuple[Any, str, tuple[str, ...]]:
    """Create the table of events as the operator does."""
    from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, load
    from airflow_provider_mail.warehouse.tables.events import EVENTS

    hook = imported("events_db", *LAZILY_IMPORTED)
    load(hook, LoadRequest(EVENTS, TableName.parse("mail_events"), Source(())))
    return hook, "mail_events", EVENTS.stored_names


def _rows(body: bytes, decode: Callable[[bytes], list[dict[str, str]]] = json.loads) -> Iterator[tuple[Any, ...]]:
    for index, event in enumerate(decode(body)):
        yield (
            "mail_default", f"{event['UniqueMsgID']}{event['EventCode']}"[-32:], event["EventCode"],
            event["TriggeredDateTimeV2"], event["SubmitDateTimeV2"], event["Email"], event["EventType"],
            event["SenderEmail"], event["SentMailListName"], event["UniqueMsgID"], event["Guid"], event["MailName"],
            event["ReceiveServer"], event["IP"], event["Platform"], event["BrowserType"], json.dumps(event),
            "2026-03-01T12:00:00Z", 1, index, "2026-03-01T13:00:00Z", "manual",
        )  # fmt: skip


def _received(hook: Any) -> Iterator[bytes]:
    """The bodies, some at a time, from the inbox that was filled for the operator."""
    from airflow_provider_mail.webhook.inbox import Inbox

    inbox, last = Inbox(hook), 0
    with closing(inbox.open()) as connection:
        while pushes := inbox.scan(connection, after=last, max_pushes=20):
            yield from (push.body for push in pushes)
            last = pushes[-1].id


def _copy(cursor: Any, statement: str, text: str) -> None:
    from io import StringIO

    if hasattr(cursor, "copy_expert"):
        cursor.copy_expert(statement, StringIO(text))
        return
    with cursor.copy(statement) as target:
        target.write(text)


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill()
        print(json.dumps({"seconds": 0, "cpu": 0, "memory": 0, "records": 0}))
    else:
        measure({"ours": ours, "row_wise": row_wise, "copy": copy}[sys.argv[1]]())
