"""The lower bound: COPY of events that are in memory, without HTTP, one transaction for each push of 1,000."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import psycopg

from benchmarks.webhook_receive.pushes import body
from benchmarks.webhook_receive.row_wise import COLUMNS, values


def copy(connection: psycopg.Connection[Any], table: str, seconds: float) -> tuple[int, float]:
    """Copy pushes for some time; return their number and the seconds."""
    statement = f"COPY {table} ({', '.join(COLUMNS)}, raw, received_at) FROM STDIN".encode()
    start, pushes = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        with connection.cursor() as cursor, cursor.copy(statement) as rows:
            for event in json.loads(body(pushes)):
                rows.write_row(values(event, datetime.now(UTC)))
        connection.commit()
        pushes += 1
    return pushes, elapsed
