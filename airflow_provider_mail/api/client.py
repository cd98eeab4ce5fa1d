"""The client, for threads and for an event loop.

``send`` sends one request. An operation of several requests is a function whose first argument is a client, such as
``find_campaign(client, name)``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import cached_property, partial
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from airflow_provider_mail.api._core import pacing
from airflow_provider_mail.api._core.exchange import BeforeRequest, Call, Exchange, OnRequest, Renew, transport_error
from airflow_provider_mail.api._core.pacing import Interrupt, Workers, current_interrupt, sleep
from airflow_provider_mail.api._core.pagination import Pager, next_page
from airflow_provider_mail.api._core.requests import MailRequest, MailResponse, PagedRequest, PageResponse
from airflow_provider_mail.api._core.responses import BodyReader, HttpResponse
from airflow_provider_mail.api._core.shared_rate import SharedRate
from airflow_provider_mail.api._core.transport import Transmission, http_client
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailError, MailRejectedError
from airflow_provider_mail.api.lists import GetLists

__all__ = ["AsyncMailClient", "MailClient"]

R = TypeVar("R", bound=MailResponse)
T = TypeVar("T")
P = ParamSpec("P")
Item = TypeVar("Item")

_READ = httpx.ByteStream(b"")
"""Takes the place of a response's stream once it is read: the two refer to each other, so that the body of the request
would stay in memory until the garbage collector finds them."""


class MailClient(Exchange):
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

    def __init__(
        self,
        config: ClientConfig,
        *,
        on_request: OnRequest | None = None,
        before_request: BeforeRequest | None = None,
        renew: Renew | None = None,
    ) -> None:
        super().__init__(config, credentials_probe=GetLists(page_size=1), on_request=on_request, renew=renew)
        self._before_request = before_request
        self._https = {os.getpid(): http_client(config)}
        self._urls: dict[str, httpx.URL] = {}

    def send_all(self, requests: Sequence[MailRequest[R]]) -> list[R | MailError]:
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

    def pause(self, seconds: float) -> None:
        sleep(seconds)

    def pages(self, request: PagedRequest[PageResponse[Item]]) -> Iterator[list[Item]]:
        """Yield the records of a list page by page; the list is complete, or the iterator raises an error.

        :param request: the request of the first page.
        :raises MailIncompleteError: after the last page, when records are missing.
        :raises MailAnswerError: when the list has no end.
        """
        pager = Pager(request)
        while pager.next_request is not None:
            if records := next_page(self, pager):
                yield records

    @cached_property
    def shared_rate(self) -> SharedRate:  # type: ignore[override]
        return SharedRate(self.config)

    def enter_process(self) -> None:
        """Replace the connections and locks of the parent process after a fork.

        On a shared connection, each process would read responses of the other; a lock may be held by a thread that does
        not exist in this process.
        """
        process = os.getpid()
        if process not in self._https:
            self.after_fork()
            self.__dict__.pop("shared_rate", None)
            self._https.setdefault(process, http_client(self.config))
            for other in self._https.keys() - {process}:
                # Do not close it: closing needs the client's locks.
                self._https.pop(other, None)

    def fetch(self, call: Call) -> HttpResponse:
        if (interrupted_by := current_interrupt()) is not None:
            interrupted_by.check()
        # Parsing the address for each request would take a tenth of the request's CPU time.
        url = self._urls.get(call.path) or self._urls.setdefault(call.path, httpx.URL(self.config.base_url + call.path))
        transmission = Transmission(call.path, self.max_seconds, call.effect, self._before_request)
        try:
            with (
                transmission,
                self._https[os.getpid()].stream(
                    call.method, url, headers=call.headers, content=call.content, params=call.params
                ) as response,
            ):
                transmission.check_response(response.status_code)
                body = BodyReader(call.path, self.config.max_answer_bytes, response.status_code, response.headers)
                for chunk in response.iter_raw():
                    body.feed(chunk)
                response.stream = _READ
                return body.response()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            late = transmission.seconds if transmission.late else None
            failure = transport_error(call.path, error, self.config, late)
        # Outside of the except block, so that __context__ does not lead to httpx's error, which holds the credentials.
        raise failure

    def close(self) -> None:
        if "shared_rate" in self.__dict__:
            self.shared_rate.close()
        if (http := self._https.get(os.getpid())) is not None:
            http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        :raises MailAnswerError: when the list has no end.
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


def concurrent_pages(
    client: MailClient,
    pager: Pager[Item],
    at_once: int,
    interrupted_by: Interrupt | None = None,
    on_total: Callable[[int | None], None] = lambda total: None,
) -> Generator[list[Item], None, None]:
    """Yield the records of a list page by page; the list is complete, or the iterator raises.

    Memory holds a few more pages than are in flight. Close the iterator to end early: requests in flight may take two
    more seconds.

    :param client: the client that all threads share.
    :param pager: has the request of the first page, and decides what to do when the list changes while it is read.
    :param at_once: concurrent requests; limited by the client's own ``max_in_flight``.
    :param interrupted_by: ends the read from outside, such as from ``on_kill`` of an operator.
    :param on_total: called with the number of records that a page reports, before the page is yielded.
    :raises MailIncompleteError: records are missing, or the list has changed and the pager does not allow it.
    :raises MailAnswerError: the list has no end.
    :raises MailInterruptedError: the interrupt ended the read.
    """
    reading = pager.reading
    # Never more threads than connections: httpcore may close a connection just assigned to a waiting thread (its issue
    # 1110).
    threads = min(at_once, client.config.max_in_flight)
    requested: dict[int, Future[PageResponse[Item]]] = {}
    with Workers[PageResponse[Item]](threads, "mail-pages", interrupted_by) as workers:
        while (next_request := pager.next_request) is not None:
            # Pages are consumed in order; twice as many requests as threads prevent a slow page from blocking.
            for request in (next_request, *pager.ahead(2 * threads)):
                index = request.page_index or 1
                if index not in requested:
                    requested[index] = workers.submit(client.send, request)
            future = requested.pop(next_request.page_index or 1)
            workers.first_done([future])
            try:
                page = future.result()
            except MailRejectedError as rejection:
                pager.rejected(rejection)
                continue
            records = pager.feed(page)
            on_total(page.total_records)
            if pager.reading != reading:
                # The pages requested ahead belong to the previous read.
                reading = pager.reading
                for ahead in requested.values():
                    ahead.cancel()
                requested.clear()
            if records:
                yield records
