"""The settings of a client, and the messages that name the setting to fix when the service cannot be reached."""

from __future__ import annotations

import errno
import os
import random
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConfigError,
    MailConnectError,
    MailError,
    MailRateLimitError,
    MailRejectedError,
    MailResponseError,
    MailResponseLostError,
    MailServerError,
    chain_of,
    describe_validation_error,
)

__all__ = ["ClientConfig", "RetrySettings"]


MAX_TOKEN_BYTES = 512
"""Maximum length of an access token (specification, "Limits")."""


def _url(value: str, example: str) -> str:
    value = value.strip().rstrip("/")
    if not value:
        raise ValueError("is empty")
    try:
        url = httpx.URL(value)
        url.raw_host.decode().encode("idna")  # As in the resolver, which would raise UnicodeError.
    except (httpx.InvalidURL, UnicodeError):
        raise ValueError("is not a URL") from None
    if url.scheme not in ("http", "https") or not url.host or re.search(r"\s", value):
        raise ValueError(f"must be a URL such as {example}")
    if url.userinfo or url.query or url.fragment:
        raise ValueError("must be a plain URL, without user, query or fragment")
    return value


def _base_url(value: str) -> str:
    return re.sub(r"(?<=[^/])/v5$", "", _url(value, "https://api.example.com"))


def _proxy(value: str) -> str:
    # Without a password: Airflow before 3.1 shows this field to everybody who may view connections.
    return _url(value, "http://proxy.example.com:3128")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Limits for repeating one request inside a client.

    :param attempts: the maximum number of times that a request is sent; 1 never repeats. With more than 1, a response
        with 429 does not count: the request was not carried out. ``total_seconds`` limits these repetitions.
    :param total_seconds: no further attempt begins later than this many seconds after the first.
    :param base_seconds: the longest pause after the first failure, in seconds; it doubles with each failure.
    :param cap_seconds: the longest pause in seconds.
    :param retry_after_cap_seconds: the longest ``Retry-After`` that is honored, in seconds. A response with a longer
        one is a final error.
    """

    attempts: int = 5
    total_seconds: float = 300.0
    base_seconds: float = 0.5
    cap_seconds: float = 30.0
    retry_after_cap_seconds: float = 120.0

    def pause_before_repeat(
        self,
        error: MailError,
        attempt: int,
        elapsed: float,
        *,
        repeatable: bool,
        draw: Callable[[], float] = random.random,
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or ``None`` when the error is final.

        :param error: the failure of the last attempt.
        :param attempt: how many times the request was sent.
        :param elapsed: seconds since it was first sent.
        :param repeatable: whether the request may be sent again although it may have taken effect.
        :param draw: returns a random number from 0 to 1. Full jitter: clients that fail together do not return
            together.
        """
        if not error.temporary or (error.may_have_taken_effect and not repeatable):
            return None
        if attempt >= self.attempts and (self.attempts == 1 or not isinstance(error, MailRateLimitError)):
            return None
        retry_after = error.retry_after or 0.0
        if retry_after > self.retry_after_cap_seconds:
            return None
        # Also in addition to Retry-After: clients that received the same value must not return together.
        jitter = draw() * min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 64))
        pause = retry_after + jitter
        return pause if elapsed + pause <= self.total_seconds else None


class ClientConfig(BaseModel):
    """The settings of a client, immutable.

    :param base_url: the service's base address, ``http://`` or ``https://``; a ``/v5`` at its end is removed.
    :param auth_type: the credential that requests carry: ``api_key`` (default) or ``oauth``.
    :param api_key: the API key; required with ``auth_type="api_key"``.
    :param access_token: the OAuth access token, at most 512 bytes; required with ``auth_type="oauth"``.
    :param sandbox: send ``sandboxMode`` with every write, and reject writes that do not support it before they are
        sent. Default: false.
    :param timeout: seconds for connecting and for each read and write. A whole request may take four times as long.
        Default: 30; at most 3,600.
    :param requests_per_second: maximum number of requests per second of this client. Default: ``None``, no limit.
    :param rate_limit_url: URL of a Redis, ``redis://`` or ``rediss://``, in which all clients of the account share
        ``requests_per_second``. Default: none, each client keeps it by itself.
    :param rate_limit_account: identifies the account there. Default: its credential, which a renewal changes.
    :param rate_limit_when_away: what to do while Redis cannot be used: ``local`` keeps the rate in each client, which
        together may exceed it; ``wait`` sends nothing. Default: ``local``.
    :param max_in_flight: maximum number of concurrent connections, and therefore of concurrent requests, from 1 to
        1,000. Default: 16.
    :param ca_bundle: file with certificates (PEM) that are trusted in addition to the default ones. Default: none.
    :param proxy: URL of a proxy, without a password. Default: the proxy that the environment names, if any.
    :param max_response_bytes: maximum size of a response body in bytes, compressed or decompressed. Default: 64 MiB; at
        least 1,024. Decoded, a response may take four times as much memory.
    :param retry: when and how often requests are repeated; see :class:`RetrySettings`.
    :raises MailConfigError: a setting is missing or invalid; the message names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: Annotated[str, AfterValidator(_base_url)]
    auth_type: Literal["api_key", "oauth"] = "api_key"
    api_key: SecretStr | None = Field(default=None, validate_default=True)
    access_token: SecretStr | None = Field(default=None, validate_default=True)
    sandbox: bool = False
    timeout: float = Field(default=30.0, gt=0, le=3600)
    requests_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rate_limit_url: SecretStr | None = None
    rate_limit_account: str | None = None
    rate_limit_when_away: Literal["local", "wait"] = "local"
    max_in_flight: int = Field(default=16, ge=1, le=1000)
    ca_bundle: Path | None = None
    proxy: Annotated[str, AfterValidator(_proxy)] | None = None
    max_response_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    retry: RetrySettings = RetrySettings()

    def __init__(self, **fields: Any) -> None:
        """Check the settings.

        :param fields: the settings by name.
        """
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise MailConfigError(describe_validation_error(error)) from None

    @field_validator("api_key", "access_token")
    @classmethod
    def _is_header_value(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        text = secret.get_secret_value().strip() if secret else ""
        auth_type = info.data.get("auth_type")
        if not text and info.field_name == {"api_key": "api_key", "oauth": "access_token"}.get(auth_type or ""):
            raise ValueError(f"is empty, and auth_type is {auth_type}")
        if not text.isascii() or not text.isprintable():
            raise ValueError("has characters that a header cannot contain")
        if info.field_name == "access_token" and len(text) > MAX_TOKEN_BYTES:
            raise ValueError(f"{len(text)} bytes, at most {MAX_TOKEN_BYTES} are allowed: is it an access token?")
        return SecretStr(text) if text else None

    @field_validator("rate_limit_url")
    @classmethod
    def _has_rate(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if url is not None and info.data.get("requests_per_second") is None:
            raise ValueError("needs requests_per_second: the rate that all processes share")
        return url

    @field_validator("ca_bundle")
    @classmethod
    def _file_exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"no such file: {path}")
        return path

    def credentials(self) -> dict[str, str]:
        """Return the header that authenticates a request (specification, "Authentication")."""
        if self.auth_type == "oauth":
            assert self.access_token is not None
            return {"OAuth": self.access_token.get_secret_value()}
        assert self.api_key is not None
        return {"ApiKey": self.api_key.get_secret_value()}

    def with_credentials_of(self, other: ClientConfig) -> ClientConfig:
        fields = ("auth_type", "api_key", "access_token")
        return self.model_copy(update={name: getattr(other, name) for name in fields})

    def ssl_context(self) -> ssl.SSLContext:
        """Return the TLS settings, cached until a certificate file changes: creating them takes 16 ms.

        For ``http://``, they trust nobody and take no time.

        :raises MailConfigError: ``ca_bundle``, or the file that ``SSL_CERT_FILE`` names, cannot be read.
        """
        if self.base_url.startswith("http://") and self.ca_bundle is None:
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        default = os.environ.get("SSL_CERT_FILE")
        return _ssl_context(
            self.ca_bundle, default, _version("ca_bundle", self.ca_bundle), _version("SSL_CERT_FILE", default)
        )


def _version(setting: str, file: str | Path | None) -> tuple[int, ...]:
    """Return a value that changes when the file is written or replaced."""
    if not file:
        return ()
    try:
        status = Path(file).stat()
    except OSError:
        raise MailConfigError(f"{setting}: {file} cannot be read") from None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


@lru_cache(maxsize=8)
def _ssl_context(
    ca_bundle: Path | None, default: str | None, version: tuple[int, ...], default_version: tuple[int, ...]
) -> ssl.SSLContext:
    setting, file = "SSL_CERT_FILE", default
    try:
        context = httpx.create_ssl_context()  # reads what SSL_CERT_FILE names
        context.set_alpn_protocols(["http/1.1"])
        if ca_bundle is not None:
            setting, file = "ca_bundle", str(ca_bundle)
            context.load_verify_locations(cafile=ca_bundle)
    except OSError:
        raise MailConfigError(f"{setting}: {file} contains no readable certificates") from None
    return context


NO_TLS = "the server does not use TLS; is it http:// instead of https:// ({http}), or another port?"

# The first key that occurs in the reason applies. The resolver's error numbers are negative.
CONNECT_MESSAGES = {
    "[SSL: WRONG_VERSION_NUMBER]": NO_TLS,
    "[SSL: RECORD_LAYER_FAILURE]": NO_TLS,
    "[SSL": "TLS fails; check host (base URL) and port.",
    "[Errno -": "no such host; check host (base URL).",
    f"[Errno {errno.ECONNREFUSED}]": "nothing listens there; check host (base URL) and port.",
    "ConnectTimeout": "the connection timed out; check host (base URL), port, and whether a firewall lies in between.",
    "ProxyError": "the proxy rejects the connection; check {proxy}.",
}
DEFAULT_MESSAGE = "check host (base URL), port and network."

# Failures before the proxy connects to the service.
PROXY_MESSAGES = {
    "[Errno -": "no such proxy host; check {proxy}.",
    f"[Errno {errno.ECONNREFUSED}]": "nothing listens at the proxy's address; check {proxy}.",
    "[Errno": "the proxy cannot be reached; check {proxy}.",
    "ConnectTimeout": "the connection to the proxy timed out; check {proxy}.",
}

_OWN_PROXY = "proxy"
_OTHER_PROXY = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY in the environment"


def network_reason(error: Exception) -> str:
    """Return the message of the operating system or TLS library, which may be in a cause of httpx's error.

    :param error: httpx's error; that of the asynchronous client has no message of its own.
    """
    causes = list(chain_of(error))
    for cause in causes:
        if isinstance(cause, BaseExceptionGroup):  # one error for each address of the host
            for exception in cause.exceptions:
                causes += chain_of(exception)
    messages = map(str, causes)
    message = next((text for text in messages if "[Errno" in text or "[SSL" in text), str(error))
    return f"{type(error).__name__}: {message}"


def connect_error_message(reason: str, config: ClientConfig) -> str:
    """Explain why the service cannot be reached, at which address, through which proxy, and which setting to check.

    :param reason: see :func:`network_reason`, such as ``ConnectError: [Errno 111] Connection refused``.
    """
    proxy, setting = _proxy_in_use(config)
    candidates = [*(PROXY_MESSAGES.items() if proxy else ()), *CONNECT_MESSAGES.items()]
    message = next((message for key, message in candidates if key in reason), DEFAULT_MESSAGE)
    http = f"http://{config.base_url.partition('://')[2]}"
    through = f" through the proxy {proxy}" if proxy else ""
    meaning = message.format(proxy=setting, http=http)
    return f"{config.base_url} cannot be reached{through}: {meaning} ({reason})"


def explain(error: MailError, config: ClientConfig) -> str:
    service, credential = config.base_url, credential_of(config)
    text = str(error).removeprefix(f"{error.operation}: ")
    if isinstance(error, MailConnectError):
        return text
    if isinstance(error, MailAuthError):
        service_message = f": {error.service_message}" if error.service_message else ""
        return f"{service} rejects the {credential}{service_message}. Check it, and auth_type."
    if isinstance(error, MailRateLimitError):
        return f"{service} received too many requests; try again later."
    if isinstance(error, MailResponseLostError):
        return f"{service} disconnects or is silent for {config.timeout:g} s; check host (base URL), port and timeout."
    if isinstance(error, MailResponseError):
        return f"{service} does not respond as the service does: {text}"
    if isinstance(error, MailRejectedError):
        return f"{service} rejects the request ({text}); check host (base URL) and {credential}."
    if isinstance(error, MailServerError):
        return f"{service} has an internal error ({text}); try again later."
    return f"{service}: {text}"


def clear_text_warning(config: ClientConfig) -> str:
    """Return a warning when the credential is sent unencrypted; empty for HTTPS and for loopback addresses."""
    url = urlsplit(config.base_url)
    if url.scheme == "https" or _is_loopback(url.hostname or ""):
        return ""
    return (
        f"host (base URL): {config.base_url} is not encrypted, so others can read the {credential_of(config)} "
        "and everything else that is sent: use https://"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def credential_of(config: ClientConfig) -> str:
    return "access_token (OAuth access token)" if config.auth_type == "oauth" else "password (API key)"


def _proxy_in_use(config: ClientConfig) -> tuple[str, str]:
    """Return the proxy without its password (empty: no proxy), and the setting that names it."""
    if config.proxy:
        return config.proxy, _OWN_PROXY
    scheme, _, host = (proxy_url(config) or "").rpartition("://")
    return f"{scheme}://{host.rpartition('@')[2]}" if scheme else "", _OTHER_PROXY


def proxy_url(config: ClientConfig) -> str | None:
    """Return the connection's proxy, or the one that the environment names for the service's address."""
    if config.proxy:
        return config.proxy
    url = httpx.URL(config.base_url)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    # NO_PROXY may name a port, or the ASCII form of the host.
    if not proxy or proxy_bypass(url.host) or proxy_bypass(url.netloc.decode()):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
