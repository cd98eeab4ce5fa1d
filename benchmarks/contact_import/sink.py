"""The service of the benchmark: reads and discards contact imports, and accepts them.

    python -m benchmarks.contact_import.sink

Prints its port and serves on loopback until its standard input ends; then it prints what it got, as JSON.
It must never be the bottleneck, so bodies are only counted: every contact of the benchmark has exactly one ``@``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from benchmarks.support import content_length, served

# What the benchmarks ask: writes, and pages of lists, templates and senders.
ANSWER_BODY = (
    b'{"code":200,"message":"","id":"1","guid":"g","totalRecords":0,"lists":[],"templateList":[],"mailFromDomains":[]}'
)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(ANSWER_BODY),
    ANSWER_BODY,
)


@dataclass
class Received:
    """What a sink received: requests, contacts, bytes of bodies, and the maximum number of concurrent requests."""

    requests: int = 0
    contacts: int = 0
    body_bytes: int = 0
    most_in_flight: int = 0


class _Counters:
    def __init__(self) -> None:
        self.received = Received()
        self.in_flight = 0


class _Connection(asyncio.BufferedProtocol):
    """One kept-alive connection: head, body, answer, and again."""

    def __init__(self, counters: _Counters) -> None:
        self._counters = counters
        self._buffer = bytearray(1 << 20)
        self._view = memoryview(self._buffer)
        self._head = b""
        self._body_left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        start = 0
        if not self._body_left:
            self._head += self._view[:nbytes]
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            # The head may have come in pieces: the body begins where this piece has the rest of it.
            start = end + 4 - (len(self._head) - nbytes)
            self._body_left = content_length(self._head[:end])
            self._head = b""
            self._counters.in_flight += 1
            self._counters.received.most_in_flight = max(
                self._counters.received.most_in_flight, self._counters.in_flight
            )
        received = self._counters.received
        received.contacts += self._buffer.count(b"@", start, nbytes)
        received.body_bytes += nbytes - start
        self._body_left -= nbytes - start
        if not self._body_left:
            received.requests += 1
            self._counters.in_flight -= 1
            self._transport.write(ANSWER)


async def _serve() -> None:
    counters = _Counters()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(counters), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps(asdict(counters.received)), flush=True)


@dataclass
class Sink:
    """A running sink.

    :param received: what it received, after the ``with`` block.
    """

    port: int
    received: Received | None = None


@contextmanager
def running() -> Iterator[Sink]:
    """Start a sink in a new process."""
    with served("benchmarks.contact_import.sink") as service:
        sink = Sink(service.port)
        yield sink
    sink.received = Received(**(service.counts or {}))


if __name__ == "__main__":
    asyncio.run(_serve())
