"""OAuth 2.0, authorization-code flow (specification, "OAuth" and "Authentication")."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlencode

from pydantic import ConfigDict, Field, SecretStr, field_serializer

from airflow_provider_mail.api._core.fields import Text
from airflow_provider_mail.api._core.requests import Effect, MailRequest, MailResponse

__all__ = ["GetToken", "authorize_url"]


def authorize_url(base_url: str, *, client_id: str, redirect_uri: str, state: str | None = None) -> str:
    """Return the URL of the consent page, which a user opens in a browser.

    After approval the browser is redirected to ``<redirect_uri>?code=<AUTHORIZATION_CODE>``; the code is valid for five
    minutes and can be used once.

    :param base_url: the service's base address.
    :param client_id: the OAuth application's id.
    :param redirect_uri: exactly as registered on the platform.
    :param state: protection against forged redirects (RFC 6749). The specification does not mention it, so the service
        may not return it. The specification does not support PKCE.
    """
    query = {"client_id": client_id, "response_type": "code", "redirect_uri": redirect_uri, "scope": "All"}
    if state is not None:
        query["state"] = state
    return f"{base_url.rstrip('/')}/v5/auth/oauth/authorize?{urlencode(query)}"


class TokenResponse(MailResponse):
    """The access token; ``expires_in`` is in seconds, -1 means never."""

    access_token: SecretStr
    expires_in: int


Secret = Annotated[SecretStr, Field(min_length=1)]
"""Non-empty text that no message and no ``repr`` shows."""


class GetToken(MailRequest[TokenResponse]):
    """Exchange an authorization code for a token; never repeated, because a code can be used once.

    :param grant_type: always ``authorization_code``.
    :param client_id: the OAuth application's id.
    :param client_secret: the OAuth application's secret.
    :param code: the authorization code, valid for five minutes.
    """

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
