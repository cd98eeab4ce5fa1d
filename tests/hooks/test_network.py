"""TLS, proxies and redirects: the credentials reach the service that the connection names, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.emulator import Emulator, EmulatorSettings
from airflow_provider_mail.hooks.mail import MailHook
from tests.hooks.wire import Authority, Proxy

MakeHook = Callable[..., MailHook]
Send = Callable[[MailHook], object]


def sync_send(hook: MailHook) -> object:
    return hook.send(GetLists())


def async_send(hook: MailHook) -> object:
    async def send() -> object:
        async with await hook.get_async_conn() as client:
            return await client.send(GetLists())

    return asyncio.run(send())


both_clients = pytest.mark.parametrize("send", [sync_send, async_send])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secure(authority: Authority) -> Iterator[Emulator]:
    """The service over TLS, with a certificate of an authority that the system does not know."""
    with Emulator(EmulatorSettings(tls_certificate=str(authority.issue()))) as running:
        yield running


@both_clients
def test_a_certificate_of_ones_own_is_trusted_through_the_bundle(
    make_hook: MakeHook, secure: Emulator, authority: Authority, send: Send
) -> None:
    send(make_hook(host=secure.base_url, password=secure.api_key, extra={"ca_bundle": str(authority.bundle)}))
    (entry,) = secure.journal.entries()
    assert (entry["code"], entry["auth"]) == (200, "api_key")


@both_clients
def test_nothing_is_sent_to_who_cannot_prove_who_he_is(make_hook: MakeHook, secure: Emulator, send: Send) -> None:
    with pytest.raises(MailConfigError, match=r"certificate is not trusted.*Set ca_bundle"):
        send(make_hook(host=secure.base_url, password=secure.api_key))
    assert secure.journal.entries() == []


@both_clients
def test_a_certificate_for_another_address_is_not_enough(make_hook: MakeHook, authority: Authority, send: Send) -> None:
    extra = {"ca_bundle": str(authority.bundle)}
    with Emulator(EmulatorSettings(tls_certificate=str(authority.issue("127.0.0.2")))) as other:
        with pytest.raises(MailConfigError, match="IP address mismatch"):
            send(make_hook(host=other.base_url, password=other.api_key, extra=extra))
        assert other.journal.entries() == []


@both_clients
def test_a_proxy_carries_the_request(make_hook: MakeHook, emulator: Emulator, send: Send) -> None:
    with Proxy() as proxy:
        hook = make_hook(host=emulator.base_url, password=emulator.api_key, extra={"proxy": proxy.url})
        send(hook)
        hook.close()
    assert proxy.seen == [f"POST {emulator.base_url}/v5/lists/get HTTP/1.1"]
    assert emulator.journal.count("lists/get") == 1


@both_clients
def test_a_proxy_sees_nothing_of_what_goes_through_it_over_tls(
    make_hook: MakeHook, secure: Emulator, authority: Authority, send: Send
) -> None:
    with Proxy() as proxy:
        extra = {"proxy": proxy.url, "ca_bundle": str(authority.bundle)}
        hook = make_hook(host=secure.base_url, password=secure.api_key, extra=extra)
        send(hook)
        hook.close()
    assert proxy.seen == [f"CONNECT {secure.base_url.removeprefix('https://')} HTTP/1.1"]
    assert secure.journal.count("lists/get") == 1


@both_clients
def test_the_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, make_hook: MakeHook, emulator: Emulator, send: Send
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy")
    with Proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        hook = make_hook(host=emulator.base_url, password=emulator.api_key)
        send(hook)
        hook.close()
    assert len(proxy.seen) == 1
    assert emulator.journal.count("lists/get") == 1


@both_clients
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_credentials_do_not_follow_a_redirect(make_hook: MakeHook, emulator: Emulator, send: Send, status: int) -> None:
    with Emulator() as elsewhere:
        emulator.faults.add("redirect", status=status, location=f"{elsewhere.base_url}/v5/lists/get", count=None)
        with pytest.raises(MailConfigError, match="redirect"):
            send(make_hook(host=emulator.base_url, password=emulator.api_key))
        assert elsewhere.journal.entries() == []
    assert emulator.journal.count() == 1
