"""A client behind a proxy, of the connection or of the environment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

import pytest

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.mail import MailHook
from tests.hooks.conftest import API_KEY, make_hook
from tests.hooks.test_network import LIST, authority, secure, send
from tests.hooks.wire import Authority

__all__ = ["authority", "make_hook", "secure", "send"]


class Proxy:
    """An HTTP proxy on loopback for one request a connection; a context manager.

    `seen` holds the first line of every request, such as `CONNECT 127.0.0.1:8443 HTTP/1.1`.

    :param rejects: respond to everything with 407.
    """

    def __init__(self, *, rejects: bool = False) -> None:
        self._rejects = rejects
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[str] = []

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._thread.join()

    def _accept(self) -> None:
        threads = []
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threads.append(threading.Thread(target=self._serve, args=(client,)))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65_536)
            line, rest = head.split(b"\r\n", 1)
            self.seen.append(line.decode())
            method, target, version = line.split(b" ")
            if self._rejects:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            tunnel = method == b"CONNECT"
            url = urlsplit(f"//{target.decode()}" if tunnel else target.decode())
            with socket.create_connection((url.hostname, url.port)) as server:
                self._open.append(server)
                if tunnel:
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    server.sendall(b" ".join([method, url.path.encode(), version]) + b"\r\n" + rest)
                back = threading.Thread(target=_pump, args=(server, client))
                back.start()
                _pump(client, server)
                back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("source", ["connection", "environment"])
def test_a_proxy_carries_the_request(
    source: str, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, send: Callable[..., None]
) -> None:
    with Proxy() as proxy:
        if source == "environment":
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
        send(emulator, **({"proxy": proxy.url} if source == "connection" else {}))
    assert proxy.seen == [f"POST {emulator.base_url}{LIST} HTTP/1.1"]
    assert emulator.journal.count("lists/get") == 1


def test_a_proxy_sees_nothing_of_a_request_over_tls(
    secure: Emulator, authority: Authority, send: Callable[..., None]
) -> None:
    with Proxy() as proxy:
        send(secure, proxy=proxy.url, ca_bundle=str(authority.bundle))
    assert proxy.seen == [f"CONNECT {secure.base_url.removeprefix('https://')} HTTP/1.1"]
    assert secure.journal.count("lists/get") == 1


def test_a_proxy_that_rejects_is_named(make_hook: Callable[..., MailHook]) -> None:
    with Proxy(rejects=True) as proxy:
        hook = make_hook(host="https://api.example.com", password=API_KEY, extra={"proxy": proxy.url})
        message = hook.test_connection()[1]
    assert f"through the proxy {proxy.url}: the proxy rejects the connection; check proxy. (" in message
    assert proxy.seen == ["CONNECT api.example.com:443 HTTP/1.1"]
