"""The service of the benchmark: one answer with the statistics of many campaigns, prepared before the request.

    python -m benchmarks.stats_load.service RECORDS [DAYS]

Prints its port and serves on loopback until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from benchmarks.support import content_length

FIRST_DAY, LAST_DAY = date(2026, 1, 1), date(2026, 3, 31)


def month_end() -> date:
    """Return the last day of a service of 31 days."""
    return FIRST_DAY + timedelta(days=30)


def records(count: int, days: int) -> Iterator[dict[str, object]]:
    """Yield records as the service writes them, sent from the first day on, in no order of their names."""
    first = datetime.combine(FIRST_DAY, datetime.min.time(), UTC)
    span = timedelta(days=days) / count
    for number in range(count):
        sent = 1000 + number % 9000
        yield {
            "mailName": f"Newsletter {number * 7919 % count:07d} für Kunden",
            "mailSendDate": int((first + number * span).timestamp()) * 1000,
            "sentCount": sent,
            "openCount": sent * (number % 50) // 100,
            "clickCount": sent * (number % 20) // 100,
            "hardBounce": number % 7,
            "softBounce": number % 11,
            "unsentCount": number % 13,
            "unsubscribeCount": number % 5,
        }


class _Connection(asyncio.Protocol):
    """Answers every request in the same way; bodies of requests are short and come with their heads."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if end and len(body) >= content_length(head):
            self._got = b""
            self._transport.write(self._answer)


async def _serve(count: int, days: int = (LAST_DAY - FIRST_DAY).days + 1) -> None:
    answer = {"code": 200, "message": "", "mailStatsList": list(records(count, days)), "totalRecords": count}
    body = json.dumps(answer, ensure_ascii=False).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(head + body), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(*map(int, sys.argv[1:])))
