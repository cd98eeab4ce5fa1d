"""The client, for threads and for an event loop.

``send`` sends one request. An operation of several requests is a function whose first argument is a client, such as
``find_campaign(client, name)``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import cached_property, partial
from itertools import count
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar

import httpx
from pydantic import SecretStr

from airflow_provider_mail import __version__
from airflow_provider_mail.api._core import pacing
from airflow_provider_mail.api._core.pacing import Interrupt, ServiceClock, Throttle, Workers, current_interrupt, sleep
from airflow_provider_mail.api._core.pagination import Pager, next_page
from airflow_provider_mail.api._core.requests import Effect, MailRequest, MailResponse, PagedRequest, PageResponse
from airflow_provider_mail.api._core.responses import MEMORY_RATIO, HttpResponse, parse_response, read_body
from airflow_provider_mail.api._core.shared_rate import LATE_SECONDS, SharedRate
from airflow_provider_mail.api._core.transport import (
    ERRORS,
    TOTAL_TIMEOUT_FACTOR,
    Call,
    Connections,
    Transmission,
    transport_error,
)
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAuthError,
    MailConnectError,
    MailError,
    MailHeldError,
    MailInterruptedError,
    MailRateLimitError,
    MailRejectedError,
    MailResponseError,
    MailSandboxError,
    clear_traceback_frames,
)
from airflow_provider_mail.api.lists import GetLists

__all__ = ["AsyncMailClient", "MailClient", "RequestAttempt"]

log = logging.getLogger(__name__)

R = TypeVar("R", bound=MailResponse)
T = TypeVar("T")
P = ParamSpec("P")
Item = TypeVar("Item")

MAX_MISSED = 3
"""A request that has missed so many slots is sent."""

_USER_AGENT = f"airflow-provider-mail/{__version__}"


class RequestAttempt(NamedTuple):
    """An HTTP request that is about to be sent.

    :param repeated: whether it repeats a request that failed.
    :param throttled: seconds that it was held back, to keep the rate or because the service is overloaded.
    """

    operation: str
    repeated: bool
    throttled: float


OnRequest: TypeAlias = Callable[[RequestAttempt], None]
BeforeRequest: TypeAlias = Callable[[str], None]
Renew: TypeAlias = Callable[[], ClientConfig | None]


class MailClient:
    """A client for threads; several threads may share one.

    :param config: the client's settings.
    :param on_request: called before each HTTP request with the path of its operation, whether it repeats a request that
        failed, and the seconds that it was delayed; must not block. Default: nothing is called.
    :param before_request: called with the path of the operation right before the first byte of each HTTP request, when
        the rate and a free connection have been waited for. A ``MailError`` that it raises prevents the request.
        Default: nothing is called.
    :param renew: returns the settings as they are now, or ``None``; called after a 401. If their credentials have
        changed, the client continues with them. Default: the credentials do not change.
    """

    _clock: Callable[[], float] = staticmethod(time.monotonic)
    _draw: Callable[[], float] = staticmethod(random.random)

    def __init__(
        self,
        config: ClientConfig,
        *,
        on_request: OnRequest | None = None,
        before_request: BeforeRequest | None = None,
        renew: Renew | None = None,
    ) -> None:
        self.config = config
        self.max_seconds = config.timeout * TOTAL_TIMEOUT_FACTOR
        self.throttle = Throttle(config.requests_per_second, self._clock)
        self.service_clock = ServiceClock()
        """The service's time; see :class:`~airflow_provider_mail.api._core.pacing.ServiceClock`."""
        self._on_request = on_request
        self._before_request = before_request
        self._renew = renew
        self._renewal = threading.Lock()
        # Reads, and every valid credential may send it.
        self._credentials_probe = GetLists(page_size=1)
        self._connections = {os.getpid(): Connections(config)}

    def send(self, request: MailRequest[R]) -> R:
        """Carry out one operation and return its response.

        A 401 carries nothing out. If the connection has other credentials by then, since its token was renewed or its
        key exchanged, the operation is repeated with them, once.

        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        self.enter_process()
        with clear_traceback_frames():
            used = self.config
            try:
                return self._attempts(request)
            except MailAuthError as error:
                is_probe = request is self._credentials_probe or not request.authenticated
                if is_probe or error.may_have_taken_effect or not self._is_renewed(used):
                    raise
            return self._attempts(request)

    def _is_renewed(self, used: ClientConfig) -> bool:
        """Read the credentials again, unless another thread has; return whether they have changed."""
        with self._renewal:
            if self.config is used and self._renew is not None:
                latest = self._renew()
                # Another service or account is not what the work began with.
                if latest is not None and latest.base_url == used.base_url:
                    self.config = used.with_credentials_of(latest)
            if self.config.credentials() == used.credentials():
                return False
        log.warning("The service rejected the credentials, and the connection has others by now: continuing with them.")
        return True

    def _attempts(self, request: MailRequest[R]) -> R:
        """Send a request until there is a response or a final error."""
        request = self._apply_sandbox(request)
        call = self._call(request)
        secrets = [value.get_secret_value() for value in vars(request).values() if isinstance(value, SecretStr)]
        secrets += self.config.credentials().values()
        throttled = self._wait_for_slot()
        started = self._clock()
        response_lost = False
        for attempt in count(1):
            if self._on_request is not None:
                self._on_request(RequestAttempt(request.path, attempt > 1, throttled))
            sent = self._clock()
            try:
                http_response = self.fetch(call)
                max_memory = MEMORY_RATIO * self.config.max_response_bytes
                response = parse_response(request, http_response, secrets, max_memory)
                # Only for a success: a failure may be the response of a proxy, with the proxy's time.
                received = time.time()
                # The local clock may have been set meanwhile.
                self.service_clock.observe(http_response.headers, received - (self._clock() - sent), received)
                return response
            except (MailHeldError, MailInterruptedError):
                raise
            except MailError as failure:
                error = failure
            pause = self.config.retry.pause_before_repeat(
                error, attempt, self._clock() - started, repeatable=request.effect.repeatable, draw=self._draw
            )
            if pause is None:
                break
            response_lost = response_lost or error.may_have_taken_effect
            log.warning("%s Trying again in %.1f s (attempt %d failed).", _sentence(error), pause, attempt)
            throttled = pause if self._slow_down(error, pause) else 0.0
            self.pause(pause)
            throttled += self._wait_for_slot()
        if response_lost and request.effect is not Effect.READ and not error.may_have_taken_effect:
            # An earlier attempt may have caused the rejection of a deletion; a lookup determines it.
            if not (request.effect is Effect.DELETE and isinstance(error, MailRejectedError)):
                raise _after_lost_response(error)
            if self._took_effect(request):
                return request.read({"code": 200, "message": None})
        raise self._send_error(request, error) if request.effect is Effect.SEND else error

    def _send_error(self, request: MailRequest[Any], error: MailError) -> MailError:
        """Return the error of a send: was it carried out, or may it have been?

        A page of a proxy (a 4xx without a ``code``) comes instead of the request or of its response; a harmless request
        shows which. Credentials that the service rejects cannot read, either: the specification does not show its 401.
        And a proxy that stops a send stops its form with ``sandboxMode``, too.
        """
        sandboxed = request.model_copy(update={"sandbox_mode": True})
        is_page = isinstance(error, MailResponseError) and 400 <= (error.status or 0) < 500 and request != sandboxed
        if error.code is None and request.authenticated and (is_page or isinstance(error, MailAuthError)):
            if not self._is_answered_by(error, sandboxed if is_page else self._credentials_probe):
                return _ambiguous(error)
            if is_page:
                return _stopped(error)
        return _ambiguous(error) if error.may_have_taken_effect else error

    def _is_answered_by(self, error: MailError, probe: MailRequest[Any]) -> bool:
        """Return whether another request gets the same response."""
        try:
            self.send(probe)
        except MailAuthError:
            return isinstance(error, MailAuthError)
        except MailError as other:
            return (other.status, other.code) == (error.status, None)
        return False

    def _wait_for_slot(self) -> float:
        """Wait until the request may be sent, by the rate of this client and by that of all; return the seconds.

        A slot reserved before a pause is replaced by one after it.
        """
        waited = 0.0
        while (wait := self.throttle.reserve()) > 0:
            self.pause(wait)
            waited += wait
            if not self.throttle.paused:
                break
        if self.config.rate_limit_url is not None:
            waited += self._wait_for_shared_slot()
        return waited

    def _wait_for_shared_slot(self) -> float:
        """Wait for a slot of the rate that all processes share; return the seconds.

        A slot that is missed is replaced, but not forever: an overloaded machine is always late.
        """
        waited = 0.0
        missed = 0
        while True:
            slot = self.shared_rate.reserve()
            due = self._clock() + slot.wait
            if slot.wait > 0:
                self.pause(slot.wait)
                waited += slot.wait
            if slot.granted:
                if self._clock() <= due + LATE_SECONDS or missed == MAX_MISSED:
                    return waited
                missed += 1

    def _slow_down(self, error: MailError, pause: float) -> bool:
        """Pause the whole client, and all that share its rate, when the service is overloaded; return whether it is."""
        overloaded = error.retry_after is not None or isinstance(error, MailRateLimitError)
        if overloaded:
            seconds = pause if error.retry_after is None else error.retry_after
            self.throttle.pause(seconds)
            if self.config.rate_limit_url is not None:
                self.shared_rate.pause_all(seconds)
        return overloaded

    def _apply_sandbox(self, request: MailRequest[R]) -> MailRequest[R]:
        if not self.config.sandbox or request.effect is Effect.READ or not request.authenticated:
            return request
        if not request.takes_sandbox:
            raise MailSandboxError(
                f"{request.path} has no sandboxMode and the connection is in sandbox mode: nothing was sent. "
                "Switch sandbox off on the connection, or leave this operation out.",
                operation=request.path,
            )
        return request.model_copy(update={"sandbox_mode": True})

    def _call(self, request: MailRequest[Any]) -> Call:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": _USER_AGENT}
        if request.authenticated:
            headers |= self.config.credentials()
        if request.method == "GET":
            return Call(request.path, "GET", headers, None, request.query(), request.effect)
        headers["Content-Type"] = "application/json"
        if request.effect is Effect.SEND:
            # No send uses a connection again, and the pool would try each that is idle.
            headers["Connection"] = "close"
        return Call(request.path, "POST", headers, request.payload(), None, request.effect)

    def _took_effect(self, request: MailRequest[Any]) -> bool:
        try:
            return request.took_effect(self)
        except MailError as lookup_error:
            raise _after_lost_response(lookup_error) from None

    def send_all(self, requests: Sequence[MailRequest[R]]) -> list[R | MailError]:
        """Carry out operations concurrently, as far as the connection's ``max_in_flight`` allows.

        :param requests: none of them depends on another one.
        :return: the responses in the same order; errors are returned, not raised.
        """
        if len(requests) < 2:
            return [self._result(request) for request in requests]
        threads = min(len(requests), self.config.max_in_flight)
        with Workers[R | MailError](threads, "mail-requests") as workers:
            futures = [workers.submit(self._result, request) for request in requests]
            while pending := [future for future in futures if not future.done()]:
                workers.first_done(pending)
            return [future.result() for future in futures]

    def _result(self, request: MailRequest[R]) -> R | MailError:
        try:
            return self.send(request)
        except MailError as error:
            return error

    def open_ahead(self) -> None:
        """Open the connection of a change, which needs a new one, while something is looked up before it."""
        self.enter_process()
        self._connections[os.getpid()].open_ahead()

    def pause(self, seconds: float) -> None:
        """Wait.

        :param seconds: how long.
        :raises MailInterruptedError: the work is interrupted.
        """
        sleep(seconds)

    def pages(self, request: PagedRequest[PageResponse[Item]]) -> Iterator[list[Item]]:
        """Yield the records of a list page by page; the list is complete, or the iterator raises an error.

        :param request: the request of the first page.
        :raises MailIncompleteError: after the last page, when records are missing.
        :raises MailResponseError: when the list has no end.
        """
        pager = Pager(request)
        while pager.next_request is not None:
            if records := next_page(self, pager):
                yield records

    @cached_property
    def shared_rate(self) -> SharedRate:
        return SharedRate(self.config)

    def enter_process(self) -> None:
        """Replace the connections and locks of the parent process after a fork.

        On a shared connection, each process would read responses of the other; a lock may be held by a thread that does
        not exist in this process.
        """
        process = os.getpid()
        if process not in self._connections:
            self.after_fork()
            self.__dict__.pop("shared_rate", None)
            self._connections.setdefault(process, Connections(self.config))
            for other in self._connections.keys() - {process}:
                # Do not close it: closing needs the client's locks.
                self._connections.pop(other, None)

    def after_fork(self) -> None:
        """Replace what must not be shared with the parent process."""
        self.throttle = Throttle(self.config.requests_per_second, self._clock)
        self._renewal = threading.Lock()

    def fetch(self, call: Call) -> HttpResponse:
        if (interrupted_by := current_interrupt()) is not None:
            interrupted_by.check()
        transmission = Transmission(call, self.max_seconds, self._before_request)
        try:
            with transmission, self._connections[os.getpid()].stream(call) as response:
                log.debug("%s: HTTP %d", call.path, response.status)
                transmission.check_response(response.status)
                headers = httpx.Headers(response.headers)
                body = read_body(call.path, headers, response.iter_stream(), self.config.max_response_bytes)
                return HttpResponse(response.status, headers, body)
        except ERRORS as error:
            late = transmission.seconds if transmission.late else None
            failure = transport_error(call.path, error, self.config, late)
        # Outside of the except block, so that __context__ does not lead to an error that may hold the credentials.
        raise failure

    def close(self) -> None:
        if "shared_rate" in self.__dict__:
            self.shared_rate.close()
        if (connections := self._connections.get(os.getpid())) is not None:
            connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _after_lost_response(error: MailError) -> MailError:
    """Add to an error message that an earlier attempt may have succeeded."""
    text = f"{_sentence(error)} The response to an earlier attempt was lost: it may have been carried out."
    return error.with_text(text, may_have_taken_effect=True)


NOT_REPEATED = " It is not sent again, because it may have been carried out."


def _ambiguous(error: MailError) -> MailAmbiguousSendError:
    return MailAmbiguousSendError(_sentence(error) + NOT_REPEATED, operation=error.operation, **error.details)


def _stopped(error: MailError) -> MailConnectError:
    return MailConnectError(
        f"{error.operation}: HTTP {error.status} with a proxy's page. The proxy does not pass this request on, nor its "
        "form with sandboxMode: nothing was sent. Correct the proxy, or the connection's host, and try again",
        operation=error.operation,
        reason=f"HTTP {error.status}",
    )


def _sentence(error: MailError) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


class AsyncMailClient:
    """A client for one event loop: a `MailClient` in threads, at most ``max_in_flight`` of them.

    A cancelled call ends its requests, as far as the operating system allows: a host name lookup or a connection that
    is being opened ends by its own time limit, in a thread that nothing waits for.

    :param config: the client's settings.
    :param on_request: called before each HTTP request, in its thread; see `MailClient`. Default: nothing is called.
    :param before_request: called right before the first byte of each HTTP request, in its thread; see `MailClient`.
        Default: nothing is called.
    """

    def __init__(
        self, config: ClientConfig, *, on_request: OnRequest | None = None, before_request: BeforeRequest | None = None
    ) -> None:
        self._client = MailClient(config, on_request=on_request, before_request=before_request)
        self._threads = asyncio.Semaphore(config.max_in_flight)
        self.config = config
        self.service_clock = self._client.service_clock
        """The service's time; see :class:`~airflow_provider_mail.api._core.pacing.ServiceClock`."""

    async def send(self, request: MailRequest[R]) -> R:
        """Carry out one operation and return its response.

        :param request: the operation.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        return await self.run(MailClient.send, request)

    async def run(
        self, operation: Callable[Concatenate[MailClient, P], T], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Carry out an operation of several requests and return its result.

        :param operation: a function whose first argument is a client, such as ``find_campaign``.
        :param arguments: its other arguments.
        :param options: its other arguments.
        :raises MailError: the first error that the operation does not handle.
        """
        async with self._threads:
            ended_by = Interrupt()
            work = partial(ended_by.run, partial(operation, self._client, *arguments, **options))
            done = asyncio.wrap_future(_start(work))
            # Nobody may be left to ask for the error of a cancelled call.
            done.add_done_callback(asyncio.Future.exception)
            try:
                # A cancellation would end `await done` before the thread.
                await asyncio.wait([done])
            except asyncio.CancelledError:
                ended_by.abort()
                await asyncio.wait([done], timeout=pacing.GRACE_SECONDS)
                raise
        try:
            return done.result()
        finally:
            del done  # The traceback of an error refers to this frame.

    async def pages(self, request: PagedRequest[PageResponse[Item]]) -> AsyncIterator[list[Item]]:
        """Yield the records of a list page by page; the list is complete, or the iterator raises an error.

        :param request: the request of the first page.
        :raises MailIncompleteError: after the last page, when records are missing.
        :raises MailResponseError: when the list has no end.
        """
        pager = Pager(request)
        while pager.next_request is not None:
            if records := await self.run(next_page, pager):
                yield records

    async def close(self) -> None:
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _start(work: Callable[[], T]) -> Future[T]:
    """Call a function in a new thread.

    A daemon, so that the end of the process never waits for a thread that cannot be interrupted. Starting one takes a
    twentieth of the CPU time of a request.
    """
    future: Future[T] = Future()
    context = copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="mail-async", daemon=True).start()
    return future
