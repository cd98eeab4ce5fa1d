"""The httpx client: httpx's transport, on a backend that limits the time of a request and chooses its connection.

httpx limits each read and write, so a peer that occasionally sends a byte could keep a request open forever. httpx also
uses any idle connection for a request, together with any data that has arrived on it unrequested. The backend sees
every byte. It finds the request in a context variable, because one thread carries it out.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Self
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from airflow_provider_mail.api._core import interrupt
from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAnswerLostError, MailConfigError

log = logging.getLogger(__name__)

_IDLE_SECONDS = 5.0
"""An idle connection is closed after this time."""

_CHUNK = 1 << 16
"""Bytes that a thread writes at a time; the deadline is checked in between."""

_current: ContextVar[Transmission] = ContextVar("_current")
"""Set while a client sends a request: nothing else reads from or writes to its connections."""


class Transmission:
    """One attempt to send a request and to receive its response; use it in a ``with`` statement.

    :param seconds: time limit from the first step on the network, such as connecting, to the last byte of the response.
    :param effect: determines which connections the request may use. On a used one, a second response to an earlier
        request looks like the response to this request, which would count as done.
    :param before_write: called with the operation before the first byte is sent on a connection; an error that it
        raises prevents that.
    """

    def __init__(
        self, operation: str, seconds: float, effect: Effect, before_write: Callable[[str], None] | None
    ) -> None:
        self._operation = operation
        self.seconds = seconds
        self._effect = effect
        self._before_write = before_write
        self._deadline: float | None = None
        self._connection: _Stream | None = None
        self._received = self._truncated = False
        self._token: Token[Transmission] | None = None

    @property
    def late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline - 0.001

    def remaining(self, timeout: float | None, error: type[httpcore.TimeoutException]) -> float:
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self.seconds
        remaining = self._deadline - now
        if remaining <= 0:
            raise error
        return remaining if timeout is None else min(timeout, remaining)

    def begin_write(self, connection: _Stream) -> None:
        """Record the connection that the request is sent on.

        :raises httpcore.ConnectionNotAvailable: it must not be used; the pool closes it and provides another one.
        """
        self._received = False
        if self._connection is not connection:
            if not self._may_use(connection):
                raise httpcore.ConnectionNotAvailable
            if self._before_write is not None:
                self._before_write(self._operation)
            connection.operations.add(self._operation)
            self._connection = connection

    def _may_use(self, connection: _Stream) -> bool:
        if self._effect is Effect.READ or not connection.operations:
            return True
        return (
            self._effect is Effect.REPEATABLE
            and connection.operations == {self._operation}
            and not connection.failed
            and not connection.has_unread_data()
        )

    def write_failed(self) -> None:
        """httpcore still reads the response."""
        self._truncated = True

    def data_read(self, data: bytes) -> None:
        """Record that data arrived after the last write."""
        self._received = self._received or bool(data)

    def check_response(self, status: int) -> None:
        """Reject a response that cannot belong to this request.

        :raises MailAnswerLostError: the response arrived before the request was sent, or reports success for a request
            that was not sent completely.
        """
        if self._connection is not None and status >= 400:
            self._connection.failed = True
        if not self._received or (self._truncated and status < 400):
            raise MailAnswerLostError(
                f"{self._operation}: the response belongs to another request, so the response to this one was lost",
                operation=self._operation,
            )

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _current.reset(self._token)


def _remaining(timeout: float | None, error: type[httpcore.TimeoutException]) -> float:
    return _current.get().remaining(timeout, error)


class Trust:
    """The current TLS settings for each new connection: certificate files may be renewed.

    :param config: the client's settings. The connection pool is created with ``initial``.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self.initial = self._current = config.ssl_context()
        self._warned = False

    def current(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Return the current settings; a context that is not the pool's, such as a proxy's, is returned unchanged."""
        if context is not self.initial:
            return context
        try:
            self._current = self._config.ssl_context()
            self._warned = False
        except MailConfigError as error:
            # The file may be incomplete. The certificates that were read before were valid.
            if not self._warned:
                log.warning("%s; continuing with the certificates read before", error)
            self._warned = True
        return self._current


class _Stream(httpcore.NetworkStream):
    """A connection, and what was sent on it."""

    def __init__(self, stream: httpcore.NetworkStream, trust: Trust) -> None:
        self._stream = stream
        self._trust = trust
        self.operations: set[str] = set()
        """The operations that were sent on it."""
        self.failed = False
        """Whether a response had an error status. A proxy that gave up on a request may still forward its response."""
        self._awaits_response = False

    def get_extra_info(self, info: str) -> Any:
        value = self._stream.get_extra_info(info)
        # The pool closes an idle connection that is readable. Another thread may have sent a request since the pool saw
        # that it was idle, so that the data is the response. Look at the flag last: it is set before the request is
        # sent.
        return value and not self._awaits_response if info == "is_readable" else value

    def has_unread_data(self) -> bool:
        """Return whether something has arrived after the last response, or may have."""
        tls = self._stream.get_extra_info("ssl_object")
        if isinstance(tls, ssl.SSLObject):
            return True  # TLS within TLS reads ahead, so the socket does not show it.
        return bool((tls is not None and tls.pending()) or self._stream.get_extra_info("is_readable"))

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._interruptible(httpcore.ReadError):
            data = self._stream.read(max_bytes, _remaining(timeout, httpcore.ReadTimeout))
        self._awaits_response = False
        _current.get().data_read(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._awaits_response = True
        _current.get().begin_write(self)
        try:
            with self._interruptible(httpcore.WriteError):
                for begin in range(0, len(buffer), _CHUNK):
                    self._stream.write(buffer[begin : begin + _CHUNK], _remaining(timeout, httpcore.WriteTimeout))
        except httpcore.WriteError:
            _current.get().write_failed()
            raise

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        seconds = _remaining(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(self._trust.current(ssl_context), server_hostname, seconds), self._trust)

    def close(self) -> None:
        self._stream.close()

    @contextmanager
    def _interruptible(self, error_type: type[httpcore.NetworkError]) -> Iterator[None]:
        if (interrupted_by := interrupt.current()) is None:
            yield
            return
        try:
            with interrupted_by.watching(self._stream.get_extra_info("socket")):
                yield
        except ConnectionAbortedError as error:
            raise error_type from error


class Backend(httpcore.SyncBackend):
    def __init__(self, trust: Trust) -> None:
        self._trust = trust

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        seconds = _remaining(timeout, httpcore.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, seconds, local_address, socket_options), self._trust)


def http_client(config: ClientConfig) -> httpx.Client:
    """Create an httpx client, which threads may share.

    :raises MailConfigError: the environment names an invalid proxy.
    """
    trust = Trust(config)
    return httpx.Client(transport=_transport(config, trust), **_options(config))


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


def _transport(config: ClientConfig, trust: Trust) -> httpx.HTTPTransport:
    limits = httpx.Limits(
        max_connections=config.max_in_flight,
        max_keepalive_connections=config.max_in_flight,
        keepalive_expiry=_IDLE_SECONDS,
    )
    try:
        transport = httpx.HTTPTransport(verify=trust.initial, limits=limits, proxy=proxy_url(config))
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
    pool._network_backend = Backend(trust)
    return transport


class RedactingFilter(logging.Filter):
    """Redacts the HTTP logs of requests that are sent in a `Transmission`; those of others stay unchanged."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _current.get(None) is None:
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
    logging.getLogger(_name).addFilter(RedactingFilter())
