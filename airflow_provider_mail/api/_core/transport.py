"""The httpx clients: httpx's own transports, on the package's network backends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from airflow_provider_mail.api._core.network import AsyncBackend, Backend, Trust
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConfigError

T = TypeVar("T", httpx.HTTPTransport, httpx.AsyncHTTPTransport)

_IDLE_SECONDS = 5.0
"""An idle connection is closed after this time."""


def http_client(config: ClientConfig) -> httpx.Client:
    """Create an httpx client for threads.

    :raises MailConfigError: the environment names an invalid proxy.
    """
    trust = Trust(config)
    return httpx.Client(transport=_transport(httpx.HTTPTransport, config, trust, Backend(trust)), **_options(config))


def async_http_client(config: ClientConfig) -> httpx.AsyncClient:
    """Create an httpx client for an event loop.

    :raises MailConfigError: the environment names an invalid proxy.
    """
    trust = Trust(config)
    transport = _transport(httpx.AsyncHTTPTransport, config, trust, AsyncBackend(trust))
    return httpx.AsyncClient(transport=transport, **_options(config))


def proxy_url(config: ClientConfig) -> str | None:
    """Return the connection's proxy, or the one that the environment names for the service's address."""
    if config.proxy:
        return config.proxy
    url = httpx.URL(config.base_url)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _options(config: ClientConfig) -> dict[str, Any]:
    return {
        # Waiting for a free connection is throttling, not a failure, so it has no limit.
        "timeout": httpx.Timeout(config.timeout, pool=None),
        # The service has no sessions, and one invalid cookie would break every later request.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        # A redirect would send the credential header to its target.
        "follow_redirects": False,
    }


def _transport(transport_type: type[T], config: ClientConfig, trust: Trust, backend: Backend | AsyncBackend) -> T:
    limits = httpx.Limits(
        max_connections=config.max_in_flight,
        max_keepalive_connections=config.max_in_flight,
        keepalive_expiry=_IDLE_SECONDS,
    )
    try:
        transport = transport_type(verify=trust.initial, limits=limits, proxy=proxy_url(config))
    except (ValueError, ImportError, RuntimeError, httpx.InvalidURL):
        transport = None
    if transport is None:
        # Outside of the except block: httpx's error shows the proxy's URL with its password.
        raise MailConfigError(
            "proxy: a proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) is invalid"
        )
    # httpcore takes a backend as an argument, but httpx does not pass one on. Without ours, no request can be sent:
    # the exchange finds that no data was read.
    pool: Any = transport._pool
    assert hasattr(pool, "_network_backend"), "this httpcore keeps its network backend elsewhere"
    pool._network_backend = backend
    return transport


_is_own_request = ContextVar("_is_own_request", default=False)


@contextmanager
def redact_http_logs() -> Iterator[None]:
    """Redact the HTTP logs of requests in the ``with`` block; those of other requests stay unchanged."""
    token = _is_own_request.set(True)
    try:
        yield
    finally:
        _is_own_request.reset(token)


class _RedactingFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_own_request.get():
            return True
        if isinstance(record.args, tuple) and record.args:  # httpx: method, URL, version, status, reason
            record.args = tuple(
                arg.copy_with(query=None) if isinstance(arg, httpx.URL) else arg for arg in record.args[:4]
            ) + tuple("" for _ in record.args[4:])
        elif not record.args:  # httpcore: the event and its result
            for marker in (" return_value=", " exception="):
                record.msg = str(record.msg).partition(marker)[0]
        return True


for _name in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks"):
    logging.getLogger(_name).addFilter(_RedactingFilter())
