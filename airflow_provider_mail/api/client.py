"""The two clients, for threads and for asyncio: they execute the steps that `_core.exchange` determines.

``send`` sends one request; ``pages``, ``run`` and :func:`concurrent_pages` are built on it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

import httpx

from airflow_provider_mail.api._core import interrupt
from airflow_provider_mail.api._core.exchange import (
    BeforeWrite,
    Call,
    Exchange,
    FlowRunner,
    OnRequest,
    PauseAll,
    Reserve,
    Steps,
    transport_error,
)
from airflow_provider_mail.api._core.pagination import Pager, next_page
from airflow_provider_mail.api._core.requests import (
    Concurrent,
    Flow,
    MailRequest,
    MailResponse,
    PagedRequest,
    PageResponse,
    Pause,
)
from airflow_provider_mail.api._core.responses import BodyReader, HttpResponse
from airflow_provider_mail.api._core.shared_rate import AsyncSharedRate, SharedRate
from airflow_provider_mail.api._core.transport import Transmission, async_http_client, http_client
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailError, MailRejectedError, clear_traceback_frames
from airflow_provider_mail.api.lists import GetLists

__all__ = ["AsyncMailClient", "MailClient"]

R = TypeVar("R", bound=MailResponse)
T = TypeVar("T")
Http = TypeVar("Http", bound=httpx.Client | httpx.AsyncClient)
Item = TypeVar("Item")

_READ = httpx.ByteStream(b"")
"""Takes the place of a response's stream once it is read: the two refer to each other, so that the body of the request
would stay in memory until the garbage collector finds them."""


class _Client(Generic[Http]):
    def __init__(
        self, config: ClientConfig, *, on_request: OnRequest | None = None, before_write: BeforeWrite | None = None
    ) -> None:
        self.config = config
        self._exchange = Exchange(config, credentials_probe=GetLists(page_size=1), on_request=on_request)
        self.service_clock = self._exchange.service_clock
        """The service's time; see :class:`~airflow_provider_mail.api._core.clock.ServiceClock`."""
        self._before_write = before_write
        self._https = {os.getpid(): self._create_http()}
        self._urls: dict[str, httpx.URL] = {}

    def _create_http(self) -> Http:
        raise NotImplementedError

    @property
    def _http(self) -> Http:
        return self._https[os.getpid()]

    def _arguments(self, call: Call) -> dict[str, Any]:
        """Return the arguments of httpx's ``stream`` for a request."""
        # Parsing the address for each request would take a tenth of the request's CPU time.
        url = self._urls.get(call.path) or self._urls.setdefault(call.path, httpx.URL(self.config.base_url + call.path))
        return {
            "method": call.method,
            "url": url,
            "headers": dict(call.headers),
            "content": call.content,
            "params": call.params,
        }

    def _enter_process(self) -> None:
        """Replace the connections and locks of the parent process after a fork.

        On a shared connection, each process would read responses of the other; a lock may be held by a thread that does
        not exist in this process.
        """
        process = os.getpid()
        if process not in self._https:
            self._exchange.after_fork()
            self.__dict__.pop("_shared_rate", None)
            self._https.setdefault(process, self._create_http())
            for other in self._https.keys() - {process}:
                # Do not close it: closing needs the client's locks.
                self._https.pop(other, None)


class MailClient(_Client[httpx.Client]):
    """A client for threads; several threads may share one.

    :param config: the client's settings.
    :param on_request: called before each HTTP request with the path of its operation, whether it repeats a request that
        failed, and the seconds that it was delayed; must not block. Default: nothing is called.
    :param before_write: called with the path of the operation right before the first byte of each HTTP request, when
        the rate and a free connection have been waited for. A ``MailError`` that it raises prevents the request.
        Default: nothing is called.
    """

    def _create_http(self) -> httpx.Client:
        return http_client(self.config)

    def send(self, request: MailRequest[R]) -> R:
        """Carry out one operation and return its response.

        :param request: the operation.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        response: R = self._drive(self._exchange.send(request))
        return response

    def run(self, flow: Flow[T]) -> T:
        """Carry out a flow and return its result.

        :param flow: several requests in a row, such as ``find_campaign(name)``.
        :raises MailError: the first error that the flow does not handle.
        """
        result: T = self._drive(flow)
        return result

    def pages(self, request: PagedRequest[PageResponse[Item]]) -> Iterator[list[Item]]:
        """Yield the records of a list page by page; the list is complete, or the iterator raises an error.

        :param request: the request of the first page.
        :raises MailIncompleteError: after the last page, when records are missing.
        :raises MailAnswerError: when the list has no end.
        """
        pager = Pager(request)
        while pager.next_request is not None:
            if records := self.run(next_page(pager)):
                yield records

    def _drive(self, steps: Steps[Any] | Flow[Any]) -> Any:
        self._enter_process()
        with clear_traceback_frames():
            runner = FlowRunner(steps)
            while runner.step is not None:
                try:
                    result = self._perform(runner.step)
                except MailError as error:
                    runner.fail(error)
                else:
                    runner.send(result)
            return runner.result

    @cached_property
    def _shared_rate(self) -> SharedRate:
        return SharedRate(self.config)

    def _perform(self, step: Call | Pause | Reserve | PauseAll | Concurrent | MailRequest[Any]) -> Any:
        if isinstance(step, Call):
            return self._fetch(step)
        if isinstance(step, Pause):
            return interrupt.sleep(step.seconds)
        if isinstance(step, Reserve):
            return self._shared_rate.reserve()
        if isinstance(step, PauseAll):
            return self._shared_rate.pause_all(step.seconds)
        if isinstance(step, Concurrent):
            return self._send_all(step.requests)
        return self.send(step)

    def _send_all(self, requests: Sequence[MailRequest[Any]]) -> list[MailResponse | MailError]:
        threads = min(len(requests), self.config.max_in_flight)
        with interrupt.Workers[MailResponse | MailError](threads, "mail-requests") as workers:
            futures = [workers.submit(self._result, request) for request in requests]
            while pending := [future for future in futures if not future.done()]:
                workers.first_done(pending)
            return [future.result() for future in futures]

    def _result(self, request: MailRequest[Any]) -> MailResponse | MailError:
        try:
            response: MailResponse = self.send(request)
        except MailError as error:
            return error
        return response

    def _fetch(self, call: Call) -> HttpResponse:
        if (interrupted_by := interrupt.current()) is not None:
            interrupted_by.check()
        transmission = Transmission(call.path, self._exchange.max_seconds, call.effect, self._before_write)
        try:
            with transmission, self._http.stream(**self._arguments(call)) as response:
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
        if "_shared_rate" in self.__dict__:
            self._shared_rate.close()
        if (http := self._https.get(os.getpid())) is not None:
            http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncMailClient(_Client[httpx.AsyncClient]):
    """A client for one event loop.

    :param config: the client's settings.
    :param on_request: called before each HTTP request with the path of its operation, whether it repeats a request that
        failed, and the seconds that it was delayed; must not block. Default: nothing is called.
    :param before_write: called with the path of the operation right before the first byte of each HTTP request, when
        the rate and a free connection have been waited for. A ``MailError`` that it raises prevents the request.
        Default: nothing is called.
    """

    def _create_http(self) -> httpx.AsyncClient:
        return async_http_client(self.config)

    async def send(self, request: MailRequest[R]) -> R:
        """Carry out one operation and return its response.

        :param request: the operation.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        response: R = await self._drive(self._exchange.send(request))
        return response

    async def run(self, flow: Flow[T]) -> T:
        """Carry out a flow and return its result.

        :param flow: several requests in a row, such as ``find_campaign(name)``.
        :raises MailError: the first error that the flow does not handle.
        """
        result: T = await self._drive(flow)
        return result

    async def pages(self, request: PagedRequest[PageResponse[Item]]) -> AsyncIterator[list[Item]]:
        """Yield the records of a list page by page; the list is complete, or the iterator raises an error.

        :param request: the request of the first page.
        :raises MailIncompleteError: after the last page, when records are missing.
        :raises MailAnswerError: when the list has no end.
        """
        pager = Pager(request)
        while pager.next_request is not None:
            if records := await self.run(next_page(pager)):
                yield records

    async def _drive(self, steps: Steps[Any] | Flow[Any]) -> Any:
        self._enter_process()
        with clear_traceback_frames():
            runner = FlowRunner(steps)
            while runner.step is not None:
                try:
                    result = await self._perform(runner.step)
                except MailError as error:
                    runner.fail(error)
                else:
                    runner.send(result)
            return runner.result

    @cached_property
    def _shared_rate(self) -> AsyncSharedRate:
        return AsyncSharedRate(self.config)

    async def _perform(self, step: Call | Pause | Reserve | PauseAll | Concurrent | MailRequest[Any]) -> Any:
        if isinstance(step, Call):
            return await self._fetch(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Reserve):
            return await self._shared_rate.reserve()
        if isinstance(step, PauseAll):
            return await self._shared_rate.pause_all(step.seconds)
        if isinstance(step, Concurrent):
            slots = asyncio.Semaphore(self.config.max_in_flight)
            return await asyncio.gather(*(self._result(request, slots) for request in step.requests))
        return await self.send(step)

    async def _result(self, request: MailRequest[Any], slots: asyncio.Semaphore) -> MailResponse | MailError:
        async with slots:
            try:
                response: MailResponse = await self.send(request)
            except MailError as error:
                return error
        return response

    async def _fetch(self, call: Call) -> HttpResponse:
        transmission = Transmission(call.path, self._exchange.max_seconds, call.effect, self._before_write)
        try:
            with transmission:
                async with self._http.stream(**self._arguments(call)) as response:
                    transmission.check_response(response.status_code)
                    body = BodyReader(call.path, self.config.max_answer_bytes, response.status_code, response.headers)
                    async for chunk in response.aiter_raw():
                        body.feed(chunk)
                    response.stream = _READ
                    return body.response()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            late = transmission.seconds if transmission.late else None
            failure = transport_error(call.path, error, self.config, late)
        # Outside of the except block, so that __context__ does not lead to httpx's error, which holds the credentials.
        raise failure

    async def close(self) -> None:
        if "_shared_rate" in self.__dict__:
            await self._shared_rate.close()
        if (http := self._https.get(os.getpid())) is not None:
            await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def concurrent_pages(
    client: MailClient,
    pager: Pager[Item],
    at_once: int,
    interrupted_by: interrupt.Interrupt | None = None,
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
    with interrupt.Workers[PageResponse[Item]](threads, "mail-pages", interrupted_by) as workers:
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
