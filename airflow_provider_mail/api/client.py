"""The two clients: they carry out the steps that :mod:`.exchange` decides on, one with threads, one with asyncio.

``send`` is the only way in for one request; ``pages``, ``records`` and ``run`` are made of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from airflow_provider_mail.api.answers import TIMEOUTS, Answer, Collector
from airflow_provider_mail.api.base import Flow, MailRequest, MailResponse, PagedRequest, PageResponse, Pause
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConfigError, MailError, forgetting
from airflow_provider_mail.api.exchange import Call, Exchange, Steps, Walk, transport_error
from airflow_provider_mail.api.head import HeadTime
from airflow_provider_mail.api.list_file import ListFile
from airflow_provider_mail.api.paging import Pager, next_page
from airflow_provider_mail.api.quiet import quietly

R = TypeVar("R", bound=MailResponse)
T = TypeVar("T")
Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)
Item = TypeVar("Item")


def _options(config: ClientConfig) -> dict[str, Any]:
    """What both httpx clients are made with."""
    return {
        "base_url": config.base_url,
        # Waiting for a free connection is our own throttling, not a failure: it may take as long as it takes.
        "timeout": httpx.Timeout(config.timeout, pool=None),
        "limits": httpx.Limits(max_connections=config.max_in_flight, max_keepalive_connections=config.max_in_flight),
        "verify": config.ssl_context(),
        "proxy": config.proxy,
        # The service has no sessions, and one odd cookie would spoil every later request.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        # A redirect would carry the credential header to wherever it points.
        "follow_redirects": False,
    }


def _made(kind: type[Http], config: ClientConfig) -> Http:
    options = _options(config)
    try:
        return kind(**options)
    except (ValueError, ImportError, httpx.InvalidURL):
        pass
    # Raised out here: httpx's error shows the proxy's URL, with its password.
    raise MailConfigError(
        "proxy: the proxies that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be used"
    )


class MailClient:
    """A client for threads: one may serve many.

    :param config: where the service is and how to talk to it.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._exchange = Exchange(config)
        self.service_clock = self._exchange.service_clock
        """The service's time; see :class:`.clock.ServiceClock`."""
        self._http = _made(httpx.Client, config)
        self._extensions = {"trace": HeadTime(config.timeout * TIMEOUTS).trace}

    def send(self, request: MailRequest[R], into: ListFile | None = None) -> R:
        """Carry out one operation.

        :param into: keeps a long answer, instead of memory; the response comes without the list that it takes out.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        response: R = self._drive(self._exchange.send(request, into))
        return response

    def run(self, flow: Flow[T]) -> T:
        """Carry out several requests that belong together, such as ``find_campaign(name)``."""
        result: T = self._drive(flow)
        return result

    def pages(self, request: PagedRequest[PageResponse[Item]]) -> Iterator[list[Item]]:
        """The records of a list, page by page, complete or ending in an error.

        :raises MailIncompleteError: after the last page, when records are missing.
        :raises MailAnswerError: when the list has no end.
        """
        pager = Pager(request)
        while pager.next_request is not None:
            if records := self.run(next_page(pager)):
                yield records

    def _drive(self, steps: Steps[Any] | Flow[Any]) -> Any:
        with forgetting():
            walk = Walk(steps)
            while walk.step is not None:
                try:
                    result = self._perform(walk.step)
                except MailError as error:
                    walk.fail(error)
                else:
                    walk.go_on(result)
            return walk.result

    def _perform(self, step: Call | Pause | MailRequest[Any]) -> Any:
        if isinstance(step, Call):
            return self._fetch(step)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        return self.send(step)

    def _fetch(self, call: Call) -> Answer:
        try:
            with (
                quietly(),
                self._http.stream(
                    call.method,
                    call.path,
                    headers=dict(call.headers),
                    content=call.content,
                    params=call.params,
                    extensions=self._extensions,
                ) as response,
            ):
                collector = Collector(call.operation, self.config, response.status_code, response.headers, call.into)
                for piece in response.iter_raw():
                    collector.feed(piece)
                return collector.answer()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failure = transport_error(call.operation, error, self.config)
        # Raised out here so that not even __context__ leads to httpx's error: it holds the request with its headers.
        raise failure

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncMailClient:
    """A client for one event loop.

    :param config: where the service is and how to talk to it.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._exchange = Exchange(config)
        self.service_clock = self._exchange.service_clock
        """The service's time; see :class:`.clock.ServiceClock`."""
        self._http = _made(httpx.AsyncClient, config)
        self._extensions = {"trace": HeadTime(config.timeout * TIMEOUTS).atrace}

    async def send(self, request: MailRequest[R]) -> R:
        """Carry out one operation.

        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        response: R = await self._drive(self._exchange.send(request))
        return response

    async def run(self, flow: Flow[T]) -> T:
        """Carry out several requests that belong together, such as ``find_campaign(name)``."""
        result: T = await self._drive(flow)
        return result

    async def pages(self, request: PagedRequest[PageResponse[Item]]) -> AsyncIterator[list[Item]]:
        """The records of a list, page by page, complete or ending in an error.

        :raises MailIncompleteError: after the last page, when records are missing.
        :raises MailAnswerError: when the list has no end.
        """
        pager = Pager(request)
        while pager.next_request is not None:
            if records := await self.run(next_page(pager)):
                yield records

    async def _drive(self, steps: Steps[Any] | Flow[Any]) -> Any:
        with forgetting():
            walk = Walk(steps)
            while walk.step is not None:
                try:
                    result = await self._perform(walk.step)
                except MailError as error:
                    walk.fail(error)
                else:
                    walk.go_on(result)
            return walk.result

    async def _perform(self, step: Call | Pause | MailRequest[Any]) -> Any:
        if isinstance(step, Call):
            return await self._fetch(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        return await self.send(step)

    async def _fetch(self, call: Call) -> Answer:
        try:
            with quietly():
                async with self._http.stream(
                    call.method,
                    call.path,
                    headers=dict(call.headers),
                    content=call.content,
                    params=call.params,
                    extensions=self._extensions,
                ) as response:
                    collector = Collector(call.operation, self.config, response.status_code, response.headers)
                    async for piece in response.aiter_raw():
                        collector.feed(piece)
                    return collector.answer()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failure = transport_error(call.operation, error, self.config)
        # Raised out here so that not even __context__ leads to httpx's error: it holds the request with its headers.
        raise failure

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
