"""The OAuth flow of the specification, from the consent page to the header, with its lifetimes to the second."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAuthError, MailRejectedError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.api.oauth import GetToken, TokenResponse, authorize_url
from mail_emulator import Emulator
from tests.document.fact_rows import LIMITS, TOKEN_PERMANENT

LIMIT = {row.item: row.value[0] for row in LIMITS}
CODE_SECONDS, RENEWAL_SECONDS = LIMIT["Authorization code lifetime"], LIMIT["Token renewal window"]


@pytest.fixture(autouse=True)
def _still(emulator: Emulator) -> None:
    emulator.clock.freeze()


def authorization_code(emulator: Emulator) -> str:
    """What a user in a browser does: open the page, approve, and be sent back."""
    settings = emulator.settings
    url = authorize_url(emulator.base_url, client_id=settings.oauth_client_id, redirect_uri=settings.oauth_redirect_uri)
    assert httpx.get(url, timeout=60).status_code == 200
    parts = urlsplit(url)
    form = {name: values[0] for name, values in parse_qs(parts.query).items()} | {"decision": "approve"}
    response = httpx.post(f"{emulator.base_url}{parts.path}", data=form, timeout=60)
    target, _, query = response.headers["location"].partition("?")
    assert target == settings.oauth_redirect_uri
    return parse_qs(query)["code"][0]


def exchange(emulator: Emulator, client: MailClient, code: str | None = None) -> TokenResponse:
    settings, code = emulator.settings, code or authorization_code(emulator)
    secret = SecretStr(settings.oauth_client_secret)
    return client.send(GetToken(client_id=settings.oauth_client_id, client_secret=secret, code=SecretStr(code)))


def opens(token: TokenResponse, config: ClientConfig) -> bool:
    values = {"auth_type": "oauth", "access_token": token.access_token, "api_key": None}
    with MailClient(config.model_copy(update=values)) as client:
        try:
            return client.send(GetLists()).code == 200
        except MailAuthError:
            return False


def test_a_code_becomes_a_token_that_opens_the_service(emulator: Emulator, client: MailClient, config: ClientConfig):
    token = exchange(emulator, client)
    assert token.expires_in == TOKEN_PERMANENT
    assert 0 < len(token.access_token.get_secret_value().encode()) <= LIMIT["accessToken length"]
    assert opens(token, config)
    (entry,) = emulator.journal.entries("/v5/auth/oauth/token")
    assert (entry["method"], entry["processed"]) == ("GET", True)
    assert set(entry["body"]) == {"grant_type", "client_id", "client_secret", "code"}
    assert not {"apikey", "oauth"} & set(entry["headers"])


def test_a_token_of_512_bytes_is_read_and_sent(config: ClientConfig):
    text = "t" * LIMIT["accessToken length"]
    request = GetToken(client_id="x", client_secret=SecretStr("s"), code=SecretStr("c"))
    token = request.read({"code": 200, "message": "", "accessToken": text, "expiresIn": TOKEN_PERMANENT})
    settings = config.model_copy(update={"auth_type": "oauth", "access_token": token.access_token})
    assert settings.credentials() == {"OAuth": text}


def test_a_code_works_once_within_five_minutes(emulator: Emulator, client: MailClient):
    code = authorization_code(emulator)
    emulator.clock.advance(CODE_SECONDS)
    exchange(emulator, client, code)
    late = authorization_code(emulator)
    emulator.clock.advance(CODE_SECONDS + 1)
    for rejected in (code, late):
        with pytest.raises(MailRejectedError):
            exchange(emulator, client, rejected)


def test_near_its_end_a_token_is_renewed(emulator: Emulator, client: MailClient, config: ClientConfig):
    """And both are valid."""
    emulator.settings.oauth_token_seconds = 3600
    first = exchange(emulator, client)
    emulator.clock.advance(3600 - RENEWAL_SECONDS)
    same = exchange(emulator, client)
    assert same.access_token == first.access_token  # one active token at a time
    assert (first.expires_in, same.expires_in) == (3600, RENEWAL_SECONDS)
    emulator.clock.advance(1)
    renewed = exchange(emulator, client)
    assert renewed.access_token != first.access_token
    assert [opens(token, config) for token in (first, renewed)] == [True, True]
    emulator.clock.advance(RENEWAL_SECONDS)
    assert [opens(token, config) for token in (first, renewed)] == [False, True]
