"""Reading a list to its end, and proving that it was the end.

The service says ``totalRecords``, takes a ``pageSize`` whose maximum is mostly "not shown", and may change while it is
read. So neither the page size that was asked for nor one counter alone is trusted: records are told apart by their
identity, pages that repeat are noticed, and a list that ends short is an error with both numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from airflow_provider_mail.api.base import Flow, PagedRequest, PageResponse
from airflow_provider_mail.api.errors import MailIncompleteError

Item = TypeVar("Item")


class Pager(Generic[Item]):
    """Decides which page to ask for next, and when it was the last. Does no I/O.

    :param request: the first page's request; its ``page_size`` may be capped by the service.
    """

    def __init__(self, request: PagedRequest[PageResponse[Item]]) -> None:
        if request.page_index not in (None, 1):
            raise ValueError("page_index: reading to the end starts at page 1")
        self.next_request: PagedRequest[PageResponse[Item]] | None = request
        self._index = 1
        self._seen: set[int] = set()
        self._longest = 0

    def feed(self, page: PageResponse[Item]) -> list[Item]:
        """Take a page in; returns its records that were not on an earlier page.

        :raises MailIncompleteError: when this was the last page and records are missing.
        """
        request = self.next_request
        assert request is not None, "the last page was read already"
        records = page.records
        fresh = []
        for record in records:
            # A hash a record keeps a million of them in little memory; a collision would look like a repeat and end
            # in an error, never in a silent loss.
            key = hash(page.identity(record))
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(record)
        self._longest = max(self._longest, len(records))
        if self._ended(page, fresh, request.page_size):
            self.next_request = None
            self._prove(page, request)
        else:
            self._index += 1
            self.next_request = request.model_copy(update={"page_index": self._index})
        return fresh

    def _ended(self, page: PageResponse[Item], fresh: list[Item], asked: int | None) -> bool:
        if not fresh:
            return True  # Empty, or nothing but repeats: asking on would never end.
        if page.total_records is None or len(self._seen) < page.total_records:
            return False
        # The total is reached. A page shorter than others, or than what was asked for, agrees that this is the end.
        return len(page.records) < max(self._longest, asked or 0)

    def _prove(self, page: PageResponse[Item], request: PagedRequest[PageResponse[Item]]) -> None:
        got, expected = len(self._seen), page.total_records
        if expected is not None and got < expected:
            raise MailIncompleteError(
                f"{request.path}: {got} different records came, the service says there are {expected}",
                got=got,
                expected=expected,
                operation=request.path,
            )


def find(request: PagedRequest[Any], matches: Callable[[Any], bool], tries: int = 3) -> Flow[Any]:
    """The one record that matches, or ``None`` when the whole list was read without it.

    The service's own filters mean "contains", so pages are read and compared until the record is found. A listing that
    changed under the reader proves nothing: it is read again.

    :raises MailIncompleteError: when the list could not be read whole in that many tries.
    """
    for attempt in range(1, tries + 1):
        pager: Pager[Any] = Pager(request)
        try:
            while (page := pager.next_request) is not None:
                for record in pager.feed((yield page)):
                    if matches(record):
                        return record
        except MailIncompleteError:
            if attempt == tries:
                raise
            continue
        return None
    raise AssertionError("unreachable")
