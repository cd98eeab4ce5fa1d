"""A client behind a proxy, of the connection or of the environment."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator
from tests.api.wire import Wire, http
from tests.hooks.conftest import API_KEY
from tests.hooks.test_network import LIST, authority, secure, send
from tests.hooks.wire import Authority

__all__ = ["authority", "secure", "send"]


@pytest.mark.parametrize("source", ["connection", "environment"])
def test_a_proxy_carries_the_request(
    source: str, monkeypatch: pytest.MonkeyPatch, send: Callable[..., None], no_such_host: str
) -> None:
    service = SimpleNamespace(base_url=f"http://{no_such_host}", api_key=API_KEY)
    with Wire(http(b'{"code": 200, "lists": [], "totalRecords": 0}')) as proxy:
        if source == "environment":
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("HTTP_PROXY", proxy.base_url)
        send(service, **({"proxy": proxy.base_url} if source == "connection" else {}))
    (request,) = proxy.requests
    assert request.startswith(f"POST {service.base_url}{LIST} HTTP/1.1\r\n".encode())


def test_a_proxy_sees_nothing_of_a_request_over_tls(
    secure: Emulator, authority: Authority, send: Callable[..., None]
) -> None:
    address = urlsplit(secure.base_url)

    def tunnel(client: socket.socket) -> None:
        with socket.create_connection((address.hostname, address.port)) as service:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            others = {client: service, service: client}
            while True:
                for source in select.select(others, [], [])[0]:
                    if not (data := source.recv(65_536)):
                        return
                    others[source].sendall(data)

    with Wire(tunnel) as proxy:
        send(secure, proxy=proxy.base_url, ca_bundle=str(authority.bundle))
    assert [request.split(b"\r\n")[0].decode() for request in proxy.requests] == [f"CONNECT {address.netloc} HTTP/1.1"]
    assert secure.journal.count("lists/get") == 1


def test_a_proxy_that_rejects_is_named(make_hook: Callable[..., MailHook]) -> None:
    with Wire(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as proxy:
        hook = make_hook(host="https://api.example.com", password=API_KEY, extra={"proxy": proxy.base_url})
        message = hook.test_connection()[1]
    assert f"through the proxy {proxy.base_url}: the proxy rejects the connection; check proxy. (" in message
    (request,) = proxy.requests
    assert request.startswith(b"CONNECT api.example.com:443 HTTP/1.1\r\n")
