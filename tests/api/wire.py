"""Servers for what the emulator does not do: one that sends bytes from a script, one that holds requests together."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from tests.support.serving import Handler, Server

Script = Callable[[socket.socket], None]


class Wire:
    """Reads one request of each connection, then plays a script; keeps the requests.

    ``answer`` is bytes, or a function that is given the connection. ``reads`` is how much of a request is read at most.

    :param certificate: serves over TLS, with this certificate.
    """

    def __init__(self, answer: bytes | Script = b"", *, certificate: Path | None = None) -> None:
        self.answer = answer
        self.reads: int | None = None
        self.requests: list[bytes] = []
        self._serving = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self.base_url = f"http{'s' if self._tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def join(self) -> None:
        """Wait until the script of the current connection has ended."""
        with self._serving:
            pass

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(60)
            # Else a second response is held back until the client has acknowledged the first.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with self._serving, connection, contextlib.suppress(OSError):
                self.requests.append(read_request(connection, self.reads))
                if callable(self.answer):
                    self.answer(connection)
                else:
                    connection.sendall(self.answer)


def read_request(connection: socket.socket, most: int | None = None) -> bytes:
    """One request; no more than ``most`` bytes of it."""
    content = b""
    while True:
        head, end, body = content.partition(b"\r\n\r\n")
        lengths = (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if (end and len(body) >= next(lengths, 0)) or (most is not None and len(content) >= most):
            return content
        piece = connection.recv(65_536 if most is None else most)
        if not piece or piece.startswith(b"\x16"):  # the beginning of TLS: no request follows
            return content
        content += piece


def http(body: bytes = b'{"code": 200}', status: str = "200 OK", *headers: str, close: bool = True) -> bytes:
    """A valid response, after which the connection is closed or kept."""
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    head += ["Connection: close"] * close
    return "\r\n".join([*head, *headers, "", ""]).encode("latin-1") + body


class Gate(Server):
    """A service that responds to no request before so many are under way at once; ``most`` is how many were.

    :param together: how many.
    :param respond: makes the fields of a response from the body of a request.
    :param is_held: whether a request waits for others.
    """

    def __init__(
        self,
        together: int,
        respond: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: {},
        is_held: Callable[[dict[str, Any]], bool] = lambda body: True,
    ) -> None:
        self.most = under_way = 0
        self.bodies: list[dict[str, Any]] = []
        lock, opened = threading.Lock(), threading.Event()

        class Holding(Handler):
            protocol_version = "HTTP/1.1"

            def do_POST(handler) -> None:
                nonlocal under_way
                body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                with lock:
                    self.bodies.append(body)
                    under_way += 1
                    self.most = max(self.most, under_way)
                    is_last = under_way == together and not opened.is_set()
                if is_last:
                    for _ in range(200):  # lets requests beyond the limit arrive, if there are any
                        os.sched_yield()
                    opened.set()
                if is_held(body):
                    assert opened.wait(60)
                with lock:
                    response = json.dumps({"code": 200, **respond(body)}).encode()
                    under_way -= 1
                handler.wfile.write(http(response, close=False))

        super().__init__(Holding)


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port on loopback on which nothing listens; it stays taken, so that nothing else can."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
