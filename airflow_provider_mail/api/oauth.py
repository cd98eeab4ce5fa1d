"""OAuth 2.0, authorization-code flow (document, "OAuth" and "Authentication")."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlencode

from pydantic import ConfigDict, Field, SecretStr, field_serializer

from airflow_provider_mail.api._core.fields import Text
from airflow_provider_mail.api._core.requests import Effect, MailRequest, MailResponse


def authorize_url(base_url: str, *, client_id: str, redirect_uri: str, state: str | None = None) -> str:
    """The consent page's address, to be opened in a browser.

    After approval the browser is sent to ``<redirect_uri>?code=<AUTHORIZATION_CODE>``; the code lives five minutes
    and works once.

    :param base_url: the service's base address.
    :param client_id: the OAuth application's id.
    :param redirect_uri: exactly as registered on the platform.
    :param state: RFC 6749's protection against forged redirects; the document does not mention it, so whether it
        comes back is the service's choice. PKCE is not offered: the document lists all parameters of both requests.
    """
    query = {"client_id": client_id, "response_type": "code", "redirect_uri": redirect_uri, "scope": "All"}
    if state is not None:
        query["state"] = state
    return f"{base_url.rstrip('/')}/v5/auth/oauth/authorize?{urlencode(query)}"


class TokenResponse(MailResponse):
    """``expires_in`` is in seconds; -1 never expires."""

    access_token: SecretStr
    expires_in: int


Secret = Annotated[SecretStr, Field(min_length=1)]
"""Required text that no message and no ``repr`` shows."""


class GetToken(MailRequest[TokenResponse]):
    """Exchange an authorization code for a token: once, within five minutes, so never repeated by itself."""

    model_config = ConfigDict(alias_generator=None)

    method = "GET"
    path = "/v5/auth/oauth/token"
    effect = Effect.SEND
    authenticated = False

    grant_type: Literal["authorization_code"] = "authorization_code"
    client_id: Text
    client_secret: Secret
    code: Secret

    @field_serializer("client_secret", "code")
    def _reveal(self, value: SecretStr) -> str:
        return value.get_secret_value()
