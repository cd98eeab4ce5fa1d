"""The httpx clients: connection pools of httpcore on the package's network backends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from airflow_provider_mail.api._core.network import AsyncBackend, Backend, Trust
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConfigError

_IDLE_SECONDS = 5.0
"""An idle connection is closed after this time."""


def http_client(config: ClientConfig) -> httpx.Client:
    """Create an httpx client for threads.

    :raises MailConfigError: the environment names an invalid proxy.
    """
    backend = Backend(trust := Trust(config))
    pool: httpcore.ConnectionPool = _pool(
        config, trust, backend, httpcore.ConnectionPool, httpcore.HTTPProxy, httpcore.SOCKSProxy
    )
    return httpx.Client(transport=_Transport(pool), **_options(config))


def async_http_client(config: ClientConfig) -> httpx.AsyncClient:
    """Create an httpx client for an event loop.

    :raises MailConfigError: the environment names an invalid proxy.
    """
    backend = AsyncBackend(trust := Trust(config))
    pool: httpcore.AsyncConnectionPool = _pool(
        config, trust, backend, httpcore.AsyncConnectionPool, httpcore.AsyncHTTPProxy, httpcore.AsyncSOCKSProxy
    )
    return httpx.AsyncClient(transport=_AsyncTransport(pool), **_options(config))


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


def _pool(config: ClientConfig, trust: Trust, backend: Any, direct: Any, http: Any, socks: Any) -> Any:
    options = {
        "ssl_context": trust.initial,
        "max_connections": config.max_in_flight,
        "max_keepalive_connections": config.max_in_flight,
        "keepalive_expiry": _IDLE_SECONDS,
        "network_backend": backend,
    }
    url = proxy_url(config)
    if url is None:
        return direct(**options)
    try:
        proxy = httpx.Proxy(url)
        target = httpcore.URL(
            scheme=proxy.url.raw_scheme, host=proxy.url.raw_host, port=proxy.url.port, target=proxy.url.raw_path
        )
        if proxy.url.scheme.startswith("socks"):
            return socks(proxy_url=target, proxy_auth=proxy.raw_auth, **options)
        return http(proxy_url=target, proxy_auth=proxy.raw_auth, **options)
    except (ValueError, ImportError, RuntimeError, httpx.InvalidURL):
        pass
    # Outside of the except block: httpx's error shows the proxy's URL with its password.
    raise MailConfigError("proxy: a proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) is invalid")


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Convert httpcore's errors into httpx's of the same names."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.ProxyError,
        httpcore.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


def _core_request(request: httpx.Request) -> httpcore.Request:
    url = request.url
    return httpcore.Request(
        method=request.method,
        url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


def _response(response: httpcore.Response, stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> httpx.Response:
    return httpx.Response(
        response.status, headers=response.headers, stream=stream, extensions=dict(response.extensions)
    )


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _httpx_errors():
            yield from self._stream

    def close(self) -> None:
        self._stream.close()


class _Transport(httpx.BaseTransport):
    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with _httpx_errors():
            response = self._pool.handle_request(_core_request(request))
        return _response(response, _Body(response.stream))

    def close(self) -> None:
        self._pool.close()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx_errors():
            async for piece in self._stream:
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _AsyncTransport(httpx.AsyncBaseTransport):
    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with _httpx_errors():
            response = await self._pool.handle_async_request(_core_request(request))
        return _response(response, _AsyncBody(response.stream))

    async def aclose(self) -> None:
        await self._pool.aclose()
