"""Read a list page by page, and prove that it is complete.

The service reports ``totalRecords`` and accepts a ``pageSize`` whose maximum is mostly not specified, and the list may
change while it is read. So neither a page's size nor a counter ends the reading: only an empty page does, or two
consecutive pages without new records. Records are distinguished by their identity. A list that ends with fewer records
than ``totalRecords`` is an error with both numbers. So is a list of which no page has a valid ``totalRecords``, since
the specification lists the field: nothing proves that such a list is complete.

One change cannot be detected: between two pages, one record is removed before the current position and another is added
after it (or the reverse, if the pages are requested concurrently). All other changes result in a complete list or an
error. A caller that would delete a missed record elsewhere reads the list a second time (:meth:`Pager.read_again`). A
caller that must detect every change uses :attr:`Changes.REFUSE`. :attr:`Changes.ALLOW_GROWTH` permits additions: a list
that changed is read again, and every record of the first reading must be in the second, which proves that no record was
removed, moved toward the beginning or missed. The second reading requests one page at a time. An addition moves records
to later pages only, but with concurrent requests it can move one to a page that was already read.

`require_complete` judges whether an answer is everything that the service has, from all that was learned about it: what
records, removes or replaces something because an answer lacks it asks there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import Future
from enum import Enum
from itertools import compress
from typing import Generic, TypeVar

from airflow_provider_mail.api._core.pacing import Interrupt, Workers
from airflow_provider_mail.api._core.requests import Client, PagedRequest, PageResponse
from airflow_provider_mail.api.errors import (
    MailError,
    MailIncompleteError,
    MailRejectedError,
    MailResponseError,
    MailValidationError,
)

SAMPLE = 20
"""How many records are asked for one by one, of many that two readings lack."""


def require_complete(
    operation: str,
    *,
    got: int,
    total: int | None,
    found: Collection[str] = (),
    what: str = "records came",
    hint: str = "",
) -> None:
    """Reject an answer that is not complete, given all that was learned about it.

    :param got: the number of distinct records of all its readings.
    :param total: the number of records that the service reports; ``None`` or negative if it reports none.
    :param found: records that no reading has, and that another operation returns although they belong to the answer.
    :param what: what was counted, and of which part of the data, for the message.
    :raises MailIncompleteError: the answer is short, or it is not known whether it is.
    """
    expected = None
    if found:
        reason = f"{got} {what}, and at least {len(found)} are missing that the service returns elsewhere"
        expected = max(total or 0, got + len(found))
    elif total is None or total < 0:
        reason = f"{got} {what}, and no response has a valid totalRecords, so it is not known whether they are all"
    elif got < total:
        reason, expected = f"{got} {what}, the service reports {total}", total
    else:
        return
    raise MailIncompleteError(
        f"{operation}: {reason}{f'. {hint}' if hint else ''}", got=got, expected=expected, operation=operation
    )


Item = TypeVar("Item")

MAX_WITHOUT_TOTAL = 10_000_000
"""Maximum number of records that are read when the service reports no total."""

MAX_AT_ONCE = 16
"""Maximum number of pages that :func:`find` requests at once. The client sends at most ``max_in_flight`` of them."""

MAX_GROWTH = 10_000
"""A list may double and grow by this many records while it is read. Beyond that it counts as endless."""


class Changes(Enum):
    """What happens when a list changes while it is read."""

    PROVE = "prove"
    """Continue; the list must have as many distinct records as the highest total."""
    ALLOW_GROWTH = "allow growth"
    """Allow additions. A list that changed is read again; an error if a record of the first reading is missing."""
    REFUSE = "refuse"
    """Raise an error at the first sign of a change: a different total, or known records among new ones."""
    ACCEPT = "accept"
    """Continue; the list must have as many distinct records as the lowest total."""


_MAX_HASHES = 500_000


class _SeenRecords:
    """The identities of known records: half a million hashes in a set, which is fast and takes 35 megabytes, and the
    others in ten megabytes plus six bytes each.

    Two records with the same hash look like a repeat and cause an error, never a silent loss.
    """

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._digests: dict[int, bytes] = {}
        self._digest_count = 0

    def __len__(self) -> int:
        return len(self._hashes) + self._digest_count

    def add(self, identities: Iterable[object]) -> list[bool]:
        hashes = [*map(hash, identities)]
        if len(self._hashes) < _MAX_HASHES and len(page := {*hashes}) == len(hashes) and page.isdisjoint(self._hashes):
            self._hashes |= page
            return [True] * len(hashes)
        return [*map(self._add, hashes)]

    def missing(self, identities: Iterable[object]) -> list[bool]:
        """Return for each record whether it is unknown."""
        return [self._is_new(number) for number in map(hash, identities)]

    def _is_new(self, number: int) -> bool:
        if number in self._hashes:
            return False
        bucket, digest = _place(number)
        return digest not in self._digests.get(bucket, b"")

    def _add(self, number: int) -> bool:
        if not self._is_new(number):
            return False
        if len(self._hashes) < _MAX_HASHES:
            self._hashes.add(number)
        else:
            bucket, digest = _place(number)
            self._digests[bucket] = self._digests.get(bucket, b"") + digest
            self._digest_count += 1
        return True


def _place(number: int) -> tuple[int, bytes]:
    """Split a hash into the number of a bucket and the digest in it."""
    return number & 0xFFFF, (number >> 16).to_bytes(6, "little", signed=True)


class Pager(Generic[Item]):
    """Decides which page to request next and when the list has ended. Does no I/O.

    :param request: requests the first page; the service may cap or reject its ``page_size``.
    :param changes: what happens when the list changes while it is read.
    """

    def __init__(self, request: PagedRequest[PageResponse[Item]], changes: Changes = Changes.PROVE) -> None:
        if request.page_index not in (None, 1):
            raise MailValidationError("page_index: must be 1 to read the whole list", operation=request.path)
        self.next_request: PagedRequest[PageResponse[Item]] | None = request
        self._operation = request.path
        self._changes = changes
        self._index = 1
        self._fullest = 0
        self._stale = False
        self._seen = _SeenRecords()
        self._request = request
        self._first_reading: _SeenRecords | None = None
        self._confirming = False
        self._seen_twice = 0
        self._repeats = 0
        self._stale_repeats = 0
        self._max_records = MAX_WITHOUT_TOTAL
        self._total: int | None = None
        self._lowest_total: int | None = None
        self._first_total: int | None = None

    @property
    def reading(self) -> int:
        """1, or 2 while a list that changed is read again."""
        return 1 if self._first_reading is None else 2

    @property
    def page_count(self) -> int | None:
        """The number of pages with records, as far as known; ``None`` until then."""
        return -(-self._total // self._fullest) if self._fullest and self._total is not None else None

    def read_again(self) -> None:
        """Start over after the end of the list; `feed` then returns only records that the first reading lacks.

        Together, the two readings have every record that was in the list throughout, unless both of them missed it. The
        second reading must be complete by itself; records of the first one may be missing.
        """
        assert self.next_request is None, "the list has not ended"
        seen, self._confirming = self._seen, True
        self._seen, self._first_reading = _SeenRecords(), seen
        self._stale, self._repeats, self._stale_repeats = False, 0, 0
        self._total = self._lowest_total = self._first_total = None
        self.next_request, self._index = self._request, 1

    def missing(self, identities: Iterable[object]) -> list[bool]:
        """Return for each record whether no reading has it."""
        identities = [*identities]
        lacking = self._seen.missing(identities)
        earlier = self._first_reading.missing(identities) if self._first_reading is not None else lacking
        return [*map(min, lacking, earlier)]

    def ahead(self, max_pages: int) -> list[PagedRequest[PageResponse[Item]]]:
        """Return the requests after the next one, for concurrent pages; feed their responses in order.

        They end with the empty page that ends the list. While a list is read again, there are none.

        :param max_pages: maximum number of pages, the next one included.
        """
        if self.next_request is None or self.page_count is None or self._first_reading is not None:
            return []
        indices = range(self._index + 1, min(self._index + max_pages, self.page_count + 1) + 1)
        return [self.next_request.model_copy(update={"page_index": index}) for index in indices]

    def feed(self, page: PageResponse[Item]) -> list[Item]:
        """Process a page; return its records that were not on an earlier page.

        :raises MailIncompleteError: the list has ended and records are missing, or it has changed and must not change.
        :raises MailResponseError: the list has no end.
        """
        assert self.next_request is not None, "the list has ended"
        self._note_total(page)
        # `new`: not on an earlier page of this reading. `fresh`: also not in the first reading.
        new = list(compress(page.records, self._seen.add(map(page.identity, page.records))))
        fresh = new
        if self._first_reading is not None:
            fresh = list(compress(new, self._first_reading.missing(map(page.identity, new))))
            self._seen_twice += len(new) - len(fresh)
        if len(self._seen) > self._max_records:
            raise MailResponseError(
                f"{self._operation}: the list has no end: {len(self._seen)} distinct records received, the service "
                f"reports {'?' if self._total is None else self._total}",
                operation=self._operation,
            )
        # One page of known records may mean that as many records were added before the current position.
        ended = not new and (self._stale or not page.records)
        self._stale = not new
        self._note_repeats(len(page.records) - len(new))
        if not ended:
            self._fullest = max(self._fullest, len(page.records))
            self._go_to(self._index + 1)
        else:
            self._end()
        if self._changes is Changes.REFUSE:
            self._refuse_changes()
        return fresh

    def rejected(self, error: MailRejectedError) -> None:
        """Handle the rejection of a page that is too large or after the last one.

        :raises MailRejectedError: the page is neither.
        """
        assert self.next_request is not None, "the list has ended"
        if self._index == 1 and self.next_request.page_size is not None:
            # The specification mostly does not show the maximum page size: use the service's default.
            self.next_request = self.next_request.model_copy(update={"page_size": None})
        elif self._index > 1 and self._expected is not None and len(self._seen) >= self._expected:
            self._end()
        else:
            raise error

    def _note_total(self, page: PageResponse[Item]) -> None:
        total = page.total_records
        if total is None or total < 0:
            return
        if self._total is None:
            self._first_total = total
            self._max_records = 2 * total + MAX_GROWTH
        # The highest total: a deleted record has moved later ones forward, perhaps to a page that was already read.
        self._total = max(total, self._total or 0)
        # The total of a page after the end of the list may not be that of the list.
        if page.records or self._lowest_total is None:
            lowest = self._total if self._lowest_total is None else self._lowest_total
            self._lowest_total = min(total, lowest)

    def _note_repeats(self, repeats: int) -> None:
        # Pages after the last one may repeat the last or the first page: only repeats before new records show a change.
        self._stale_repeats += repeats
        if not self._stale:
            self._repeats, self._stale_repeats = self._repeats + self._stale_repeats, 0

    def _refuse_changes(self) -> None:
        if not self._repeats and self._lowest_total == self._total:
            return
        signs = [f"{self._repeats} records were received again"] if self._repeats else []
        if self._lowest_total != self._total:
            signs.append(f"the service reported {self._lowest_total} and {self._total} records")
        raise MailIncompleteError(
            f"{self._operation}: the list changed while it was read: {' and '.join(signs)} "
            f"({len(self._seen)} distinct records received)",
            got=len(self._seen),
            expected=self._total or 0,
            operation=self._operation,
        )

    def _go_to(self, index: int) -> None:
        assert self.next_request is not None
        self._index = index
        self.next_request = self.next_request.model_copy(update={"page_index": index})

    def _end(self) -> None:
        """End the list: check that it is complete, or read it again if its growth must be proved."""
        changed = bool(self._repeats) or self._lowest_total != self._total
        if self._changes is Changes.ALLOW_GROWTH and changed and self._first_reading is None:
            self._first_reading, self._seen, self._stale = self._seen, _SeenRecords(), False
            self._go_to(1)
            return
        require_complete(self._operation, got=len(self._seen), total=self._expected, what="distinct records received")
        first = None if self._confirming else self._first_reading
        if first is not None and (gone := len(first) - self._seen_twice):
            raise MailIncompleteError(
                f"{self._operation}: the list changed while it was read: {gone} of {len(first)} "
                "records were missing when it was read again",
                got=self._seen_twice,
                expected=len(first),
                operation=self._operation,
            )
        self.next_request = None

    @property
    def _expected(self) -> int | None:
        """The minimum number of distinct records."""
        if self._changes is Changes.ACCEPT:
            return self._lowest_total
        # At its end, a growing list reports more records than it had when its first pages were read.
        return self._first_total if self._changes is Changes.ALLOW_GROWTH else self._total


def next_page(client: Client, pager: Pager[Item]) -> list[Item]:
    """Return the new records of the next page; an empty list for the last one.

    :raises MailIncompleteError: the list has ended and records are missing.
    """
    request = pager.next_request
    assert request is not None, "the list has ended"
    try:
        page: PageResponse[Item] = client.send(request)
    except MailRejectedError as error:
        pager.rejected(error)
        return []
    return pager.feed(page)


def next_pages(client: Client, pager: Pager[Item], max_pages: int) -> list[Item]:
    """Return the new records of the next pages, which are requested concurrently as soon as their number is known.

    :raises MailIncompleteError: the list has ended and records are missing.
    """
    ahead = pager.ahead(max_pages)[: max_pages - 1]
    if not ahead:
        return next_page(client, pager)
    records: list[Item] = []
    responses: list[PageResponse[Item] | MailError] = client.send_all([pager.next_request, *ahead])  # type: ignore[list-item]
    reading = pager.reading
    for response in responses:
        if pager.next_request is None or pager.reading != reading:
            break
        if not isinstance(response, MailError):
            records += pager.feed(response)
        elif records:
            break  # The page is requested again if the caller needs more than the records before it.
        elif isinstance(response, MailRejectedError):
            pager.rejected(response)
        else:
            raise response
    return records


def all_records(client: Client, request: PagedRequest[PageResponse[Item]]) -> Iterator[Item]:
    """Yield the records of a list; the list is complete, or the iterator raises an error.

    :raises MailIncompleteError: after the last record, when records are missing.
    :raises MailResponseError: the list has no end.
    """
    pager = Pager(request)
    while pager.next_request is not None:
        yield from next_page(client, pager)


def find(
    client: Client, request: PagedRequest[PageResponse[Item]], matches: Callable[[Item], bool], tries: int = 3
) -> Item | None:
    """Return the first record that matches, or ``None`` when the complete list has none.

    The service's filters mean "contains", so the records of each page are compared. One page is requested first, then
    twice as many pages each time. A list that changed while it was read is read again.

    :raises MailIncompleteError: the list was incomplete every time.
    """
    for attempt in range(1, tries + 1):
        pager = Pager(request)
        at_once = 1
        try:
            while pager.next_request is not None:
                for record in next_pages(client, pager, at_once):
                    if matches(record):
                        return record
                at_once = min(2 * at_once, MAX_AT_ONCE)
        except MailIncompleteError:
            if attempt == tries:
                raise
            continue
        return None
    raise AssertionError("unreachable")


def concurrent_pages(
    client: Client,
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
    :raises MailResponseError: the list has no end.
    :raises MailInterruptedError: the interrupt ended the read.
    """
    # Never more threads than connections: httpcore may close a connection just assigned to a waiting thread (its issue
    # 1110).
    threads = min(at_once, client.config.max_in_flight)
    requested: dict[int, Future[PageResponse[Item]]] = {}
    reading = pager.reading
    with Workers[PageResponse[Item]](threads, "mail-pages", interrupted_by) as workers:
        while (next_request := pager.next_request) is not None:
            if pager.reading != reading:
                # A second reading uses no page that was requested ahead by the first.
                reading = pager.reading
                while requested:
                    requested.popitem()[1].cancel()
            # Pages are consumed in order; twice as many requests as threads prevent a slow page from blocking.
            for request in (next_request, *pager.ahead(2 * threads)):
                page_index = request.page_index or 1
                if page_index not in requested:
                    requested[page_index] = workers.submit(client.send, request)
            future = requested.pop(next_request.page_index or 1)
            workers.first_done([future])
            try:
                page = future.result()
            except MailRejectedError as rejection:
                pager.rejected(rejection)
                continue
            records = pager.feed(page)
            on_total(page.total_records)
            if records:
                yield records
