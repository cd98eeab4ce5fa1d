"""TLS: the credentials reach the service that the connection names, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator, EmulatorSettings
from tests.hooks.wire import Authority

LIST = "/v5/lists/get"


async def async_send(hook: MailHook) -> None:
    async with await hook.get_async_conn() as client:
        await client.send(GetLists())


@pytest.fixture(params=["sync", "async"])
def send(request: pytest.FixtureRequest, make_hook: Callable[..., MailHook]) -> Callable[..., None]:
    """Send one request over a connection of these fields, with a client of either kind."""

    def send(service: Emulator, **extra: str) -> None:
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


def test_a_certificate_is_trusted_only_through_the_bundle(
    secure: Emulator, authority: Authority, send: Callable[..., None]
) -> None:
    with pytest.raises(MailConfigError, match=r"certificate is not trusted.*Set ca_bundle"):
        send(secure)
    assert secure.journal.entries() == []
    send(secure, ca_bundle=str(authority.bundle))
    (entry,) = secure.journal.entries()
    assert (entry["code"], entry["auth"]) == (200, "api_key")


def test_a_certificate_for_another_address_is_not_trusted(authority: Authority, send: Callable[..., None]) -> None:
    with Emulator(EmulatorSettings(tls_certificate=str(authority.issue("127.0.0.2")))) as other:
        with pytest.raises(MailConfigError, match="IP address mismatch"):
            send(other, ca_bundle=str(authority.bundle))
        assert other.journal.entries() == []
