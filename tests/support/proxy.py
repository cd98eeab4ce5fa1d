"""A TCP proxy in front of a database, which can stop forwarding: the connections stay open, and nothing moves."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Proxy:
    """Forwards to a Unix socket, from `with` to the end of it.

    :param target: the path of the socket.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[_Pair] = []
        self._changed = threading.Condition()
        self._holds_new = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.release()
        for pair in self._pairs:
            pair.close()

    def hold(self, *, new: bool) -> None:
        """Stop forwarding on the connections that are open.

        :param new: also on those that are opened from now on.
        """
        with self._changed:
            self._holds_new = new
            for pair in self._pairs:
                pair.flows.clear()

    def release(self) -> None:
        """Forward everything again, also what was held."""
        with self._changed:
            self._holds_new = False
            for pair in self._pairs:
                pair.flows.set()

    def wait_for_held(self, timeout: float) -> None:
        """Wait until bytes are held."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(pair.holds for pair in self._pairs), timeout)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._target)
                except OSError:  # the database is down
                    client.close()
                    continue
                with self._changed:
                    pair = _Pair(client, server, self._changed)
                    if not self._holds_new:
                        pair.flows.set()
                    self._pairs.append(pair)
                pair.start()


class _Pair:
    """One connection of a client, and the one of the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket, changed: threading.Condition) -> None:
        self._client, self._server, self._changed = client, server, changed
        self.flows = threading.Event()
        self.holds = False

    def start(self) -> None:
        for ends in ((self._client, self._server), (self._server, self._client)):
            threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def close(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.flows.is_set():
                    with self._changed:
                        self.holds = True
                        self._changed.notify_all()
                self.flows.wait()
                self.holds = False
                target.sendall(data)
            self.flows.wait()
            target.shutdown(socket.SHUT_WR)
