"""Reading a long list with several pages under way, proven by the same `Pager` as any other."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import TypeVar

from airflow_provider_mail.api._core.interrupt import Interrupt, Workers
from airflow_provider_mail.api._core.pagination import Changes, Pager
from airflow_provider_mail.api._core.requests import PagedRequest, PageResponse
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailRejectedError

Item = TypeVar("Item")


def concurrent_pages(
    client: MailClient,
    request: PagedRequest[PageResponse[Item]],
    at_once: int,
    changes: Changes = Changes.REFUSE,
    interrupt: Interrupt | None = None,
) -> Generator[list[Item], None, None]:
    """The records of a list, page by page, complete or ending in an error.

    Memory holds a few pages more than are under way. Close the iterator to end early: what is under way gets
    two seconds.

    :param client: the client whose connections are used by all threads.
    :param request: for the first page.
    :param at_once: pages under way at once; no more than the client's own ``max_in_flight``.
    :param changes: what becomes of the reading when the list changes meanwhile.
    :param interrupt: ends the reading from outside, such as from ``on_kill`` of an operator.
    :raises MailIncompleteError: when records are missing, or the list has changed and must not.
    :raises MailAnswerError: when the list has no end.
    :raises MailInterruptedError: the interrupt ended it.
    """
    pager = Pager(request, changes)
    reading = pager.reading
    # Never more threads than connections: httpcore may close one that a waiting thread was just given (its issue 1110).
    threads = min(at_once, client.config.max_in_flight)
    asked: dict[int, Future[PageResponse[Item]]] = {}
    with Workers[PageResponse[Item]](threads, "mail-pages", interrupt) as workers:
        try:
            while (wanted := pager.next_request) is not None:
                # Pages are taken in order, so twice as many as can be under way: one that is late holds nobody up.
                for each in (wanted, *pager.ahead(2 * threads)):
                    index = each.page_index or 1
                    if index not in asked:
                        asked[index] = workers.submit(client.send, each)
                future = asked.pop(wanted.page_index or 1)
                workers.first_done([future])
                try:
                    page = future.result()
                except MailRejectedError as refusal:
                    pager.rejected(refusal)
                    continue
                records = pager.feed(page)
                if pager.reading != reading:
                    # What was asked for ahead belongs to the reading before.
                    reading = pager.reading
                    _cancel(asked)
                if records:
                    yield records
        finally:
            _cancel(asked)


def _cancel(asked: dict[int, Future[PageResponse[Item]]]) -> None:
    for future in asked.values():
        future.cancel()
    asked.clear()
