"""What a request may do on the wire: how long it takes in all, and which connections it may use.

httpx limits each read and write, so a peer that sends a byte now and then, in whatever part of a response, could hold
a request for ever; and httpx gives a request any connection that is idle, with whatever has come over it unasked. Both
are decided here, below httpx, where every byte passes: in network backends of httpcore, one for threads and one for an
event loop. They know the request by a context variable, since a request is carried out by one thread or task.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

import httpcore

from airflow_provider_mail.api._core import interrupt
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAnswerLostError, MailConfigError

log = logging.getLogger(__name__)

_PIECE = 1 << 16
"""Bytes that are written at a time by a thread: the deadline is checked in between."""

_current: ContextVar[Transmission | None] = ContextVar("_current", default=None)


class Transmission:
    """One HTTP request on its way and its response; to be used in a ``with`` statement.

    :param operation: for errors.
    :param seconds: from the first step on the network, such as connecting, to the last byte of the response.
    :param fresh: send it over a connection that no other request has used. Over another one, a response may come that
        belongs to an earlier request (one answered twice), and nothing in it tells. Needed by whatever changes
        something: it would be taken for done.
    """

    def __init__(self, operation: str, seconds: float, *, fresh: bool) -> None:
        self._operation = operation
        self.seconds = seconds
        self._fresh = fresh
        self._until: float | None = None
        self._connection: object = None
        self._answered = self._cut = False
        self._token: Token[Transmission | None] | None = None

    @property
    def late(self) -> bool:
        """Whether its time is over."""
        return self._until is not None and time.monotonic() > self._until - 0.001

    def left(self, timeout: float | None, error: type[httpcore.TimeoutException]) -> float:
        """Seconds for the next step: no more than ``timeout``.

        :raises error: when there are none left.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = now + self.seconds
        left = self._until - now
        if left <= 0:
            raise error
        return left if timeout is None else min(timeout, left)

    def writes(self, connection: _Used) -> None:
        """Note that it is about to be sent over a connection.

        :raises httpcore.ConnectionNotAvailable: it must not; the pool closes that connection and gives it another.
        """
        self._answered = False
        if self._connection is not connection:
            if self._fresh and connection.used:
                raise httpcore.ConnectionNotAvailable
            connection.used = True
            self._connection = connection

    def was_cut(self) -> None:
        """Note that it could not be sent as a whole. httpcore reads the response all the same."""
        self._cut = True

    def reads(self, data: bytes) -> None:
        """Note what came after the last write."""
        self._answered = self._answered or bool(data)

    def check_response(self, status: int) -> None:
        """Refuse a response that cannot be this request's.

        :raises MailAnswerLostError: the response had come before the request was sent, or calls a request a success
            that was not sent as a whole.
        """
        if not self._answered or (self._cut and status < 400):
            raise MailAnswerLostError(
                f"{self._operation}: a response came that belongs to another request, so the answer was lost",
                operation=self._operation,
            )

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _current.reset(self._token)


def _left(timeout: float | None, error: type[httpcore.TimeoutException]) -> float | None:
    transmission = _current.get()
    return timeout if transmission is None else transmission.left(timeout, error)


class Trust:
    """Gives each new connection the TLS settings of the moment: the files with certificates may be renewed.

    :param config: whose settings; ``first`` is what the connection pool is made with.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self.first = self._last = config.ssl_context()
        self._warned = False

    def now(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """What to use instead of a context: the same, if it is another one than the pool's, such as a proxy's."""
        if context is not self.first:
            return context
        try:
            self._last = self._config.ssl_context()
            self._warned = False
        except MailConfigError as error:
            # Perhaps it is being written. What was read before was good.
            if not self._warned:
                log.warning("%s; the certificates read before stay in force", error)
            self._warned = True
        return self._last


class _Used:
    """What both kinds of streams know of their connection."""

    used = False

    def _begin_write(self) -> None:
        transmission = _current.get()
        if transmission is not None:
            transmission.writes(self)

    @contextmanager
    def _noting_a_cut(self) -> Iterator[None]:
        try:
            yield
        except httpcore.WriteError:
            transmission = _current.get()
            if transmission is not None:
                transmission.was_cut()
            raise

    def _end_read(self, data: bytes) -> bytes:
        transmission = _current.get()
        if transmission is not None:
            transmission.reads(data)
        return data


class _Stream(_Used, httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, trust: Trust) -> None:
        self._stream = stream
        self._trust = trust

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._interruptible(httpcore.ReadError):
            return self._end_read(self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._begin_write()
        with self._noting_a_cut(), self._interruptible(httpcore.WriteError):
            for begin in range(0, len(buffer), _PIECE):
                self._stream.write(buffer[begin : begin + _PIECE], _left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(self._trust.now(ssl_context), server_hostname, left), self._trust)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    @contextmanager
    def _interruptible(self, kind: type[httpcore.NetworkError]) -> Iterator[None]:
        ended_by = interrupt.current()
        with contextlib.nullcontext() if ended_by is None else self._watched(ended_by, kind):
            yield

    @contextmanager
    def _watched(self, ended_by: interrupt.Interrupt, kind: type[httpcore.NetworkError]) -> Iterator[None]:
        try:
            with ended_by.watching(self._stream.get_extra_info("socket")):
                yield
        except ConnectionAbortedError as error:
            raise kind from error


class Backend(httpcore.SyncBackend):
    """Makes connections for threads."""

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
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left, local_address, socket_options), self._trust)


class _AsyncStream(_Used, httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, trust: Trust) -> None:
        self._stream = stream
        self._trust = trust

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._end_read(await self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout)))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._begin_write()
        with self._noting_a_cut():
            await self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        stream = await self._stream.start_tls(self._trust.now(ssl_context), server_hostname, left)
        return _AsyncStream(stream, self._trust)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class AsyncBackend(httpcore.AnyIOBackend):
    """Makes connections for an event loop."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        stream = await super().connect_tcp(host, port, left, local_address, socket_options)
        return _AsyncStream(stream, self._trust)
