"""Reading a list to its end, and proving that it was the end.

The service says ``totalRecords``, takes a ``pageSize`` whose maximum is mostly "not shown", and may change while it is
read. So neither a page's size nor a counter ends a reading: only an empty page does, or two in a row with nothing new.
Records are told apart by their identity, and a list that ends with fewer than any page said there are is an error with
both numbers.

What no reader of such pages can see: a record taken out before the place that was reached, and another put in behind
it, between two pages. Everything else that moves ends in the whole list or in an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from airflow_provider_mail.api.base import Flow, PagedRequest, PageResponse
from airflow_provider_mail.api.errors import (
    MailAnswerError,
    MailAuthError,
    MailIncompleteError,
    MailRejectedError,
    MailValidationError,
)

Item = TypeVar("Item")

MOST_WITHOUT_TOTAL = 10_000_000
"""So many records are read when the service does not say how many there are."""

GROWTH = 10_000
"""A list may grow by this and double while it is read. Beyond, the pages are not taken for an honest list any more."""


class Pager(Generic[Item]):
    """Decides which page to ask for next, and when it was the last. Does no I/O.

    :param request: the first page's request; its ``page_size`` may be capped or refused by the service.
    """

    def __init__(self, request: PagedRequest[PageResponse[Item]]) -> None:
        if request.page_index not in (None, 1):
            raise MailValidationError("page_index: reading to the end starts at page 1", operation=request.path)
        self.next_request: PagedRequest[PageResponse[Item]] | None = request
        self._operation = request.path
        self._index = 1
        self._stale = False
        self._seen: set[int] = set()
        self._most = MOST_WITHOUT_TOTAL
        self._total: int | None = None

    def feed(self, page: PageResponse[Item]) -> list[Item]:
        """Take a page in; returns its records that were not on an earlier page.

        :raises MailIncompleteError: when this was the last page and records are missing.
        :raises MailAnswerError: when there is no end.
        """
        assert self.next_request is not None, "the last page was read already"
        self._note_total(page.total_records)
        fresh = []
        for record in page.records:
            # A hash a record keeps a million of them in little memory; a collision would look like a repeat and end
            # in an error, never in a silent loss.
            key = hash(page.identity(record))
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(record)
        if len(self._seen) > self._most:
            raise MailAnswerError(
                f"{self._operation}: the list has no end: {len(self._seen)} different records came, the service says "
                f"there are {'?' if self._total is None else self._total}",
                operation=self._operation,
            )
        # One page of repeats may mean that as many records were put in before the place that was reached.
        ended = not fresh and (self._stale or not page.records)
        self._stale = not fresh
        if not ended:
            self._index += 1
            self.next_request = self.next_request.model_copy(update={"page_index": self._index})
        else:
            self.next_request = None
            self._prove()
        return fresh

    def refused(self, error: MailRejectedError) -> None:
        """Take in that the service refused a page: one larger than it gives, or one behind the last.

        :raises MailRejectedError: when it is neither.
        """
        assert self.next_request is not None, "the last page was read already"
        if self._index == 1 and self.next_request.page_size is not None:
            # The largest page is mostly not shown in the document: the one that the service gives by itself will do.
            self.next_request = self.next_request.model_copy(update={"page_size": None})
        elif self._index > 1 and self._total is not None and len(self._seen) >= self._total:
            self.next_request = None
        else:
            raise error

    def _note_total(self, total: int | None) -> None:
        if total is None:
            return
        if self._total is None:
            self._most = 2 * total + GROWTH
        # The highest that was said: a record deleted meanwhile has moved those behind it, perhaps past the reader.
        self._total = max(total, self._total or 0)

    def _prove(self) -> None:
        got, expected = len(self._seen), self._total
        if expected is not None and got < expected:
            raise MailIncompleteError(
                f"{self._operation}: {got} different records came, the service says there are {expected}",
                got=got,
                expected=expected,
                operation=self._operation,
            )


def next_page(pager: Pager[Item]) -> Flow[list[Item]]:
    """The new records of the next page; none of the last.

    :raises MailIncompleteError: when that was the last page and records are missing.
    """
    request = pager.next_request
    assert request is not None, "the last page was read already"
    try:
        page: PageResponse[Item] = yield request
    except MailAuthError:
        raise
    except MailRejectedError as error:
        pager.refused(error)
        return []
    return pager.feed(page)


def find(request: PagedRequest[Any], matches: Callable[[Any], bool], tries: int = 3) -> Flow[Any]:
    """The one record that matches, or ``None`` when the whole list was read without it.

    The service's own filters mean "contains", so pages are read and compared until the record is found. A listing that
    changed under the reader proves nothing: it is read again.

    :raises MailIncompleteError: when the list could not be read whole in that many tries.
    """
    for attempt in range(1, tries + 1):
        pager: Pager[Any] = Pager(request)
        try:
            while pager.next_request is not None:
                for record in (yield from next_page(pager)):
                    if matches(record):
                        return record
        except MailIncompleteError:
            if attempt == tries:
                raise
            continue
        return None
    raise AssertionError("unreachable")
