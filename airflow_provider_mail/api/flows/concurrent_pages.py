"""Read a long list with concurrent page requests; completeness is verified by the same `Pager` as for other lists."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TypeVar

from airflow_provider_mail.api._core.interrupt import Interrupt, Workers
from airflow_provider_mail.api._core.pagination import Pager
from airflow_provider_mail.api._core.requests import PageResponse
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailRejectedError

Item = TypeVar("Item")


def concurrent_pages(
    client: MailClient,
    pager: Pager[Item],
    at_once: int,
    interrupt: Interrupt | None = None,
    on_total: Callable[[int | None], None] = lambda total: None,
) -> Generator[list[Item], None, None]:
    """Yield the records of a list page by page; the list is complete, or the iterator raises.

    Memory holds a few more pages than are in flight. Close the iterator to end early: requests in flight may take two
    more seconds.

    :param client: the client that all threads share.
    :param pager: has the request of the first page, and decides what to do when the list changes while it is read.
    :param at_once: concurrent requests; limited by the client's own ``max_in_flight``.
    :param interrupt: ends the read from outside, such as from ``on_kill`` of an operator.
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
    with Workers[PageResponse[Item]](threads, "mail-pages", interrupt) as workers:
        try:
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
                    _cancel(requested)
                if records:
                    yield records
        finally:
            _cancel(requested)


def _cancel(requested: dict[int, Future[PageResponse[Item]]]) -> None:
    for future in requested.values():
        future.cancel()
    requested.clear()
