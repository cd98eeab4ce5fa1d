"""What a client needs to know: where the service is, who we are, how patient and how fast we are."""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from airflow_provider_mail.api.base import describe
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.retry import RetryRule


def _web_address(value: str) -> str:
    import httpx

    value = value.strip().rstrip("/")
    try:
        url = httpx.URL(value)
    except httpx.InvalidURL:
        raise ValueError("is not a URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("must be a URL such as https://api.example.com")
    if url.userinfo or url.query or url.fragment:
        raise ValueError("must be a plain URL, without user, query or fragment")
    return value.removesuffix("/v5")


class ClientConfig(BaseModel):
    """Settings of a client.

    :raises MailConfigError: naming the settings that are missing or wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: Annotated[str, AfterValidator(_web_address)]
    auth_type: Literal["api_key", "oauth"] = "api_key"
    api_key: SecretStr | None = None
    access_token: SecretStr | None = None
    sandbox: bool = False
    timeout: float = Field(default=30.0, gt=0, le=3600)
    requests_per_second: float | None = Field(default=None, gt=0)
    max_in_flight: int = Field(default=16, ge=1, le=1000)
    ca_bundle: Path | None = None
    proxy: str | None = None
    max_answer_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    retry: RetryRule = RetryRule()

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise MailConfigError(describe(error)) from None

    @model_validator(mode="after")
    def _complete(self) -> ClientConfig:
        needed = "api_key" if self.auth_type == "api_key" else "access_token"
        secret: SecretStr | None = getattr(self, needed)
        if secret is None or not secret.get_secret_value().strip():
            raise ValueError(f"{needed}: is empty, and auth_type is {self.auth_type}")
        if not secret.get_secret_value().isascii() or not secret.get_secret_value().isprintable():
            raise ValueError(f"{needed}: holds characters that cannot stand in a header")
        if self.ca_bundle is not None and not self.ca_bundle.exists():
            raise ValueError(f"ca_bundle: no such file: {self.ca_bundle}")
        return self

    def credentials(self) -> dict[str, str]:
        """The header that authenticates a request (document, "Authentication")."""
        if self.auth_type == "oauth":
            assert self.access_token is not None
            return {"OAuth": self.access_token.get_secret_value().strip()}
        assert self.api_key is not None
        return {"ApiKey": self.api_key.get_secret_value().strip()}

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings; built once for each CA bundle and process, since one takes 16 ms."""
        return _ssl_context(self.ca_bundle)


@lru_cache(maxsize=8)
def _ssl_context(ca_bundle: Path | None) -> ssl.SSLContext:
    import certifi

    context = ssl.create_default_context(cafile=certifi.where())
    if ca_bundle is not None:
        try:
            if ca_bundle.is_dir():
                context.load_verify_locations(capath=ca_bundle)
            else:
                context.load_verify_locations(cafile=ca_bundle)
        except (ssl.SSLError, OSError):
            raise MailConfigError(f"ca_bundle: {ca_bundle} holds no certificates that can be read") from None
    return context
