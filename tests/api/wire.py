"""A server that says what it is told to, byte by byte, whatever was asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

Script = Callable[[socket.socket], None]


class Wire:
    """Reads one request per connection, then plays the script; keeps what it was sent.

    ``answer`` may be bytes, or a function that is given the connection. ``reads`` is how much of a request is read at
    most before.
    """

    def __init__(self, answer: bytes | Script = b"") -> None:
        self.answer = answer
        self.reads: int | None = None
        self.requests: list[bytes] = []
        self._serving = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def join(self) -> None:
        """Wait until the connection that is being served is done with."""
        with self._serving:
            pass

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(5)
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
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        if end and len(body) >= length:
            return content
        if most is not None and len(content) >= most:
            return content
        piece = connection.recv(65_536 if most is None else most)
        if not piece or piece.startswith(b"\x16"):  # the beginning of TLS, for which we wait in vain
            return content
        content += piece


def http(body: bytes = b'{"code": 200}', status: str = "200 OK", *headers: str) -> bytes:
    """An answer as it should be."""
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, *headers, "", ""]).encode("latin-1") + body
