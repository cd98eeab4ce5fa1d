"""What is measured, each in a new process: ``python -m benchmarks.webhook_drain.variants NAME``.

``fill`` prepares the inbox. The others print one line of JSON: seconds, CPU seconds, peak memory over what the imports
alone take (MiB), and pushes.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
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
    """Put all pushes into the inbox, and create the table of events as the operator does."""
    from airflow_provider_mail.webhook.inbox import Inbox, Push

    inbox = Inbox(_table())
    inbox.create()
    with inbox.connection() as connection:
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


def copy() -> Run:
    """The limit: 40 pushes a commit, parsed by msgspec, COPY, insert of what is new; nothing is checked.

    It shares no code with the provider.
    """
    import msgspec
    import psycopg

    database = json.loads(os.environ["AIRFLOW_CONN_EVENTS_DB"])
    decode = msgspec.json.Decoder(list[dict[str, str]]).decode

    def run() -> int:
        count = 0
        with (
            psycopg.connect(host=database["host"], user=database["login"], dbname=database["schema"]) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE TEMP TABLE stage (LIKE mail_events) ON COMMIT DELETE ROWS")
            while pushes := cursor.execute(
                "SELECT id, body FROM mail_inbox WHERE drained_at IS NULL ORDER BY id LIMIT 40 FOR UPDATE SKIP LOCKED"
            ).fetchall():
                with cursor.copy("COPY stage FROM STDIN") as target:
                    for _, body in pushes:
                        lines = ["\t".join(map(str, row)) for row in _rows(zlib.decompress(body), decode)]
                        target.write("\n".join(lines) + "\n")
                cursor.execute("INSERT INTO mail_events SELECT * FROM stage ORDER BY event_id ON CONFLICT DO NOTHING")
                numbers = [number for number, _ in pushes]
                cursor.execute("UPDATE mail_inbox SET drained_at = now() WHERE id = ANY(%s)", [numbers])
                connection.commit()
                count += len(pushes)
        return count

    return run


def _table() -> Any:
    """Create the table of events as the operator does; return the hook."""
    from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, load
    from airflow_provider_mail.warehouse.tables.events import EVENTS

    hook = imported("events_db", *LAZILY_IMPORTED)
    load(hook, LoadRequest(EVENTS, TableName.parse("mail_events"), Source(())))
    return hook


def _rows(body: bytes, decode: Callable[[bytes], list[dict[str, str]]]) -> Iterator[tuple[Any, ...]]:
    for index, event in enumerate(decode(body)):
        yield (
            "mail_default", f"{event['UniqueMsgID']}{event['EventCode']}"[-32:], event["EventCode"],
            event["TriggeredDateTimeV2"], event["SubmitDateTimeV2"], event["Email"], event["EventType"],
            event["SenderEmail"], event["SentMailListName"], event["UniqueMsgID"], event["Guid"], event["MailName"],
            event["ReceiveServer"], event["IP"], event["Platform"], event["BrowserType"], json.dumps(event),
            "2026-03-01T12:00:00Z", 1, index, "2026-03-01T13:00:00Z", "manual",
        )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill()
        print(json.dumps({"seconds": 0, "cpu": 0, "memory": 0, "records": 0}))
    else:
        measure({"ours": ours, "copy": copy}[sys.argv[1]]())
