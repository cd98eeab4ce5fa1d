"""Push over several connections, and measure the answers.

    python -m benchmarks.webhook_receive.sender URL CONNECTIONS SECONDS RATE FIRST

Each connection sends its next push after the answer to the last one; with a rate (pushes a second, of all connections),
at its time, and what it waits for is part of its answer's time. Prints JSON: pushes, seconds, and the seconds of all
answers in order.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

from benchmarks.webhook_receive.pushes import body


def run(url: str, connections: int, seconds: float, rate: float, first: int) -> dict[str, object]:
    """Push for some time.

    :param url: the callback URL.
    :param rate: pushes a second; 0 for as many as possible.
    :param first: number of the first push.
    """
    numbers = itertools.count(first)
    answers: list[float] = []
    start = time.perf_counter()

    def push() -> None:
        with _connect(url) as connection:
            for number in numbers:
                request = _request(url, body(number))
                due = start + (number - first) / rate if rate else time.perf_counter()
                if max(due, time.perf_counter()) > start + seconds:
                    return
                time.sleep(max(0, due - time.perf_counter()))
                connection.sendall(request)
                _read_answer(connection)
                answers.append(time.perf_counter() - due)

    threads = [threading.Thread(target=push) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"pushes": len(answers), "seconds": time.perf_counter() - start, "answers": sorted(answers)}


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 80))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _request(url: str, content: bytes) -> bytes:
    lines = {
        "Host": urlsplit(url).netloc,
        "User-Agent": "ServiceWebhooks",
        "Content-Type": "application/json;charset=UTF-8",
        "Content-Length": str(len(content)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {urlsplit(url).path} HTTP/1.1\r\n{head}\r\n".encode() + content


def _read_answer(connection: socket.socket) -> None:
    answer = b""
    while b"\r\n\r\n" not in answer:
        received = connection.recv(65536)
        if not received:
            raise ConnectionError("closed without an answer")
        answer += received
    head, _, body_start = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"answered {head.splitlines()[0].decode()}")
    lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    remaining = next(int(value) for name, _, value in lines if name == b"content-length") - len(body_start)
    while remaining > 0:
        remaining -= len(connection.recv(remaining))


if __name__ == "__main__":
    url, connections, seconds, rate, first = sys.argv[1:]
    print(json.dumps(run(url, int(connections), float(seconds), float(rate), int(first))))
