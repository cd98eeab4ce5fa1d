"""The connections: httpx's pool, on a backend that limits the time of a request and chooses its connection.

httpx's own client would take as much CPU time again as its pool, which is httpcore's, for redirects, cookies and the
like, of which the service has none.

The pool limits each read and write, so a peer that occasionally sends a byte could keep a request open forever. It also
uses any idle connection for a request, together with any data that has arrived on it unrequested. The backend sees
every byte. It finds the request in a context variable, because one thread carries it out.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Self

import httpcore
import httpx

from airflow_provider_mail.api._core.pacing import current_interrupt
from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api.config import ClientConfig, connect_error_message, network_reason, proxy_url
from airflow_provider_mail.api.errors import MailConfigError, MailConnectError, MailError, MailResponseLostError

log = logging.getLogger(__name__)

_IDLE_SECONDS = 5.0
"""An idle connection is closed after this time."""

_AHEAD_SECONDS = 2.0
"""A connection that was opened in advance is used within this time: services close those on which nothing arrives."""

TOTAL_TIMEOUT_FACTOR = 4
"""A request and its response may take this multiple of the connection's timeout, even while bytes arrive."""

_CHUNK = 1 << 16
"""Bytes that a thread writes at a time; the deadline is checked in between."""

_current: ContextVar[Transmission] = ContextVar("_current")
"""Set while a client sends a request: nothing else reads from or writes to its connections."""


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request.

    :param effect: determines whether it may use a connection that has served other requests.
    """

    path: str
    method: str
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(repr=False)
    params: Mapping[str, str] | None = field(repr=False)
    effect: Effect = Effect.READ


class Transmission:
    """One attempt to send a request and to receive its response; use it in a ``with`` statement.

    :param call: its effect determines which connections the request may use. On a used one, a second response to an
        earlier request looks like the response to this request, which would count as done.
    :param seconds: time limit from the first step on the network, such as connecting, to the last byte of the response.
    :param before_request: called with the operation before the first byte is sent on a connection; an error that it
        raises prevents that.
    """

    def __init__(self, call: Call, seconds: float, before_request: Callable[[str], None] | None) -> None:
        self._operation = call.path
        self.seconds = seconds
        self._effect = call.effect
        self.needs_new = call.effect not in (Effect.READ, Effect.REPEATABLE)
        """Whether it uses no connection that has served another request."""
        self._before_request = before_request
        self._deadline: float | None = None
        self._connection: _Stream | None = None
        self.received = False
        """Whether data arrived after the last write."""
        self.truncated = False
        """Whether a write failed: httpcore still reads the response."""
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
        self.received = False
        if self._connection is not connection:
            if not self._may_use(connection):
                raise httpcore.ConnectionNotAvailable
            if self._before_request is not None:
                self._before_request(self._operation)
            connection.operations.add(self._operation)
            self._connection = connection
            if self.needs_new:
                connection.open_next(self._operation)

    def _may_use(self, connection: _Stream) -> bool:
        if self._effect is Effect.READ or not connection.operations:
            return True
        return (
            not self.needs_new
            and connection.operations == {self._operation}
            and not connection.failed
            and not connection.has_unread_data()
        )

    def check_response(self, status: int) -> None:
        """Reject a response that cannot belong to this request.

        :raises MailResponseLostError: the response arrived before the request was sent, or reports success for a
            request that was not sent completely.
        """
        if self._connection is not None and status >= 400:
            self._connection.failed = True
        if not self.received or (self.truncated and status < 400):
            raise MailResponseLostError(
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


class _Stream(httpcore.NetworkStream):
    """A connection, and what was sent on it."""

    def __init__(self, stream: httpcore.NetworkStream, backend: Backend) -> None:
        self._stream = stream
        self._backend = backend
        self.secured: _Stream | None = None
        """The same connection with TLS, if it was opened in advance."""
        self.was_awaited = False
        """Whether it was opened in advance, and a request waited for it."""
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
        _current.get().received |= bool(data)
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
            _current.get().truncated = True
            raise

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        if self.secured is not None:
            return self.secured
        seconds = _remaining(timeout, httpcore.ConnectTimeout)
        context = self._backend.latest_tls(ssl_context)
        return _Stream(self._stream.start_tls(context, server_hostname, seconds), self._backend)

    def open_next(self, operation: str) -> None:
        """Open another connection for the next request of a series."""
        self._backend.open_next(operation, self.was_awaited)

    def is_quiet(self) -> bool:
        """Whether an unused connection is open and nothing has arrived on it."""
        connection = self._stream.get_extra_info("socket")
        connection.settimeout(0)
        try:
            # Not `is_readable`: the session tickets of TLS arrive unrequested, and are no data.
            connection.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self._stream.close()

    @contextmanager
    def _interruptible(self, error_type: type[httpcore.NetworkError]) -> Iterator[None]:
        if (interrupted_by := current_interrupt()) is None:
            yield
            return
        try:
            with interrupted_by.watching(self._stream.get_extra_info("socket")):
                yield
        except ConnectionAbortedError as error:
            raise error_type from error


class Backend(httpcore.SyncBackend):
    """Opens connections, and those of a series of requests in advance.

    Each request that must not happen twice needs a new connection, which takes two or three round trips. So the second
    request of an operation, and each further one, has a thread open another one: two as long as requests wait for them.

    :param at_once: how many are ahead of the requests at most; none behind a proxy.
    """

    def __init__(self, config: ClientConfig, at_once: int) -> None:
        origin = _url(config.base_url).origin
        self._host, self._port, self._is_secure = origin.host.decode(), origin.port, origin.scheme == b"https"
        self._config = config
        self.tls = self._latest_tls = config.ssl_context()
        """The TLS settings with which the pool is created."""
        self._has_warned = False
        self._at_once = at_once
        self._changed = threading.Condition()
        self._operation: str | None = None
        self._opening = self._waiting = 0
        self._opened: deque[tuple[float, _Stream, ssl.SSLContext | None]] | None = deque()

    def latest_tls(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Return the TLS settings for a new connection, in place of the pool's: certificate files may be renewed.

        A context that is not the pool's, such as a proxy's, is returned unchanged.
        """
        if context is not self.tls:
            return context
        try:
            self._latest_tls = self._config.ssl_context()
            self._has_warned = False
        except MailConfigError as error:
            # The file may be incomplete. The certificates that were read before were valid.
            if not self._has_warned:
                log.warning("%s; continuing with the certificates read before", error)
            self._has_warned = True
        return self._latest_tls

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        seconds = _remaining(timeout, httpcore.ConnectTimeout)
        if _current.get().needs_new and (opened := self._take_opened(seconds)) is not None:
            return opened
        seconds = _remaining(timeout, httpcore.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, seconds, local_address, socket_options), self)

    def open_next(self, operation: str, was_awaited: bool) -> None:
        """Open a connection in advance if this is a series; two if the last one was late."""
        is_series, self._operation = operation == self._operation, operation
        if is_series:
            self.open_ahead(1 + was_awaited)

    def open_ahead(self, count: int) -> None:
        """Open connections in advance."""
        with self._changed:
            ahead = self._at_once if self._opened is None else self._opening + len(self._opened)
            count = min(count, self._at_once - ahead)
            self._opening += count
        for _ in range(count):
            threading.Thread(target=self._open, name="mail-connect", daemon=True).start()

    def _open(self) -> None:
        stream, context = None, None
        # An error shows again, and is reported, when the next request opens its connection itself.
        with contextlib.suppress(httpcore.NetworkError, httpcore.TimeoutException, MailConfigError):
            raw = super().connect_tcp(self._host, self._port, self._config.timeout)
            stream = _Stream(raw, self)
            if self._is_secure:
                context = self.latest_tls(self.tls)
                stream.secured = _Stream(raw.start_tls(context, self._host, self._config.timeout), self)
        with self._changed:
            self._opening -= 1
            self._changed.notify_all()
            if stream is not None and self._opened is not None and bool(stream.secured) == self._is_secure:
                self._opened.append((time.monotonic(), stream, context))
                return
        if stream is not None:
            stream.close()

    def _take_opened(self, seconds: float) -> _Stream | None:
        """Return a connection that was opened a moment ago, is still open, and trusts what is trusted now.

        One that is being opened is waited for, since another one would take longer.
        """
        was_awaited = False
        while True:
            with self._changed:
                was_awaited = was_awaited or not self._opened
                self._waiting += 1
                self._changed.wait_for(lambda: self._opened or self._opening < self._waiting, seconds)
                self._waiting -= 1
                if not self._opened:
                    return None
                at, stream, context = self._opened.popleft()
            is_new = time.monotonic() - at < _AHEAD_SECONDS
            is_trusted = context is None or context is self.latest_tls(self.tls)
            used = stream.secured or stream
            if is_new and is_trusted and used.is_quiet():
                used.was_awaited = was_awaited
                return stream
            stream.close()

    def close(self) -> None:
        """Close the connections that no request has taken, and open none in advance any more."""
        with self._changed:
            opened, self._opened = self._opened or (), None
        for _, stream, _ in opened:
            (stream.secured or stream).close()


ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    httpx.InvalidURL,
)
"""What `Connections.stream` raises; :func:`transport_error` converts them."""


class Connections:
    """The connections of a client, which threads may share.

    :raises MailConfigError: the environment names an invalid proxy.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._base_url = config.base_url
        self._urls: dict[str, httpcore.URL] = {}
        # Waiting for a free connection is throttling, not a failure, so it has no limit.
        self._extensions = {"timeout": {**dict.fromkeys(("connect", "read", "write"), config.timeout), "pool": None}}
        try:
            proxy = (url := proxy_url(config)) and httpx.Proxy(url)
            self._backend = Backend(config, 0 if proxy else config.max_in_flight)
            self._pool = _pool(config, self._backend, proxy or None)
        except ImportError:
            problem = "needs a package for SOCKS: pip install 'httpx[socks]'"
        except (ValueError, RuntimeError, httpx.InvalidURL):
            problem = "is invalid"
        else:
            return
        # Outside of the except block: httpx's error shows the proxy's URL with its password.
        raise MailConfigError(
            f"proxy: a proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) {problem}"
        )

    def stream(self, call: Call) -> AbstractContextManager[httpcore.Response]:
        """Send a request; the body of its response is to be read.

        Redirects are not followed: they would send the credential header to their target.
        """
        # Parsing the address for each request would take a tenth of the request's CPU time.
        url = self._urls.get(call.path) if call.params is None else _url(self._base_url + call.path, call.params)
        if url is None:
            url = self._urls[call.path] = _url(self._base_url + call.path)
        headers = list(call.headers.items())
        return self._pool.stream(call.method, url, headers=headers, content=call.content, extensions=self._extensions)

    def open_ahead(self) -> None:
        """Open a connection in advance for a request that needs a new one."""
        self._backend.open_ahead(1)

    def close(self) -> None:
        self._backend.close()
        self._pool.close()


def _url(text: str, params: Mapping[str, str] | None = None) -> httpcore.URL:
    url = httpx.URL(text) if params is None else httpx.URL(text, params=params)
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _pool(config: ClientConfig, backend: Backend, proxy: httpx.Proxy | None) -> httpcore.ConnectionPool:
    settings: dict[str, Any] = {
        "ssl_context": backend.tls,
        "max_connections": config.max_in_flight,
        "max_keepalive_connections": config.max_in_flight,
        "keepalive_expiry": _IDLE_SECONDS,
        "network_backend": backend,
    }
    if proxy is None:
        return httpcore.ConnectionPool(**settings)
    url = httpcore.URL(scheme=proxy.url.raw_scheme, host=proxy.url.raw_host, port=proxy.url.port, target=b"/")
    if proxy.url.scheme in ("socks5", "socks5h"):
        import_module("socksio")
        return httpcore.SOCKSProxy(url, proxy.raw_auth, **settings)
    return httpcore.HTTPProxy(url, proxy.raw_auth, proxy.headers.raw, proxy_ssl_context=proxy.ssl_context, **settings)


def transport_error(operation: str, error: Exception, config: ClientConfig, late: float | None = None) -> MailError:
    """Convert an error of `ERRORS`: either the request provably did not arrive, or it may have been carried out.

    Do not chain the error: it may carry the request with its credentials.

    :param late: the total time limit in seconds, if the request exceeded it.
    """
    error_type = type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return MailConfigError(
            f"{operation}: the service's certificate is not trusted: {error}. Set ca_bundle on the connection if the "
            "certificate is your own",
            operation=operation,
        )
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout | httpcore.PoolTimeout | httpcore.ProxyError):
        reason = network_reason(error)
        return MailConnectError(
            f"{operation}: {connect_error_message(reason, config)}", operation=operation, reason=reason
        )
    if isinstance(error, httpcore.UnsupportedProtocol | httpcore.LocalProtocolError | httpx.InvalidURL):
        return MailConfigError(f"{operation}: the request could not be built ({error_type})", operation=operation)
    if late is not None:
        return MailResponseLostError(
            f"{operation}: the response was not complete after {late:g} s ({TOTAL_TIMEOUT_FACTOR} times the "
            "connection's timeout), the request may have been carried out",
            operation=operation,
        )
    return MailResponseLostError(
        f"{operation}: the response was lost ({error_type}), the request may have been carried out", operation=operation
    )


class RedactingFilter(logging.Filter):
    """Redacts the logs of requests that are sent in a `Transmission`; those of others stay unchanged."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _current.get(None) is not None and not record.args:  # the event and its result
            for marker in (" return_value=", " exception="):
                record.msg = str(record.msg).partition(marker)[0]
        return True


for _name in ("connection", "http11", "proxy", "socks"):
    logging.getLogger(f"httpcore.{_name}").addFilter(RedactingFilter())
