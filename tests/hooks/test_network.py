"""TLS and proxies: the credentials reach the service that the connection names, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator, EmulatorSettings
from tests.api.wire import Wire, http
from tests.hooks.conftest import API_KEY
from tests.hooks.wire import Authority

Send = Callable[..., None]


async def async_send(hook: MailHook) -> None:
    async with await hook.get_async_conn() as client:
        await client.send(GetLists())


@pytest.fixture(params=["sync", "async"])
def send(request: pytest.FixtureRequest, make_hook: Callable[..., MailHook]) -> Send:
    """Send one request over a connection of these fields, with a client of either kind."""

    def send(service: Any, **extra: str) -> None:
        hook = make_hook(host=service.base_url, password=service.api_key, extra=extra)
        hook.send(GetLists()) if request.param == "sync" else asyncio.run(async_send(hook))
        hook.close()

    return send


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secure(authority: Authority) -> Iterator[Emulator]:
    """The service over TLS, with a certificate of an authority that the system does not know."""
    with Emulator(EmulatorSettings(tls_certificate=str(authority.issue()))) as running:
        yield running


def test_a_certificate_is_trusted_only_through_the_bundle(secure: Emulator, authority: Authority, send: Send) -> None:
    with pytest.raises(MailConfigError, match=r"certificate is not trusted.*Set ca_bundle"):
        send(secure)
    assert secure.journal.entries() == []
    send(secure, ca_bundle=str(authority.bundle))
    (entry,) = secure.journal.entries()
    assert (entry["code"], entry["auth"]) == (200, "api_key")


@pytest.mark.parametrize("source", ["connection", "environment"])
def test_a_proxy_carries_the_request(
    source: str, monkeypatch: pytest.MonkeyPatch, send: Send, no_such_host: str
) -> None:
    service = SimpleNamespace(base_url=f"http://{no_such_host}", api_key=API_KEY)
    with Wire(http(b'{"code": 200, "lists": [], "totalRecords": 0}')) as proxy:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url if source == "environment" else "")
        send(service, **({"proxy": proxy.base_url} if source == "connection" else {}))
    (request,) = proxy.requests
    assert request.startswith(f"POST {service.base_url}/v5/lists/get HTTP/1.1\r\n".encode())


def test_a_proxy_that_rejects_is_named(make_hook: Callable[..., MailHook]) -> None:
    with Wire(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as proxy:
        hook = make_hook(host="https://api.example.com", password=API_KEY, extra={"proxy": proxy.base_url})
        message = hook.test_connection()[1]
    assert f"through the proxy {proxy.base_url}: the proxy rejects the connection; check proxy. (" in message
