"""Reading a list to its end, and proving that it was the end.

The service says ``totalRecords``, takes a ``pageSize`` whose maximum is mostly "not shown", and may change while it is
read. So neither a page's size nor a counter ends a reading: only an empty page does, or two in a row with nothing new.
Records are told apart by their identity, and a list that ends with fewer than any page said there are is an error with
both numbers.

What no reader of such pages can see: a record taken out before the place that was reached, and another put in behind
it, between two pages; and, where the service says no total, a whole page put in before that place, twice in a row.
Everything else that moves ends in the whole list or in an error. Who needs to know that nothing
moved at all lets every sign of it be an error (:attr:`Changes.REFUSE`), or allows growth alone
(:attr:`Changes.ALLOW_GROWTH`): a list that changed is then read a second time, and every record of the first reading
must be in the second. So nothing was taken out meanwhile, no record has moved towards the beginning of the list, and
none was missed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from airflow_provider_mail.api._core.requests import Flow, PagedRequest, PageResponse
from airflow_provider_mail.api.errors import (
    MailAnswerError,
    MailIncompleteError,
    MailRejectedError,
    MailValidationError,
)

Item = TypeVar("Item")

MAX_WITHOUT_TOTAL = 10_000_000
"""So many records are read when the service does not say how many there are."""

GROWTH = 10_000
"""A list may grow by this and double while it is read. Beyond, the pages are not taken for an honest list any more."""


class Changes(Enum):
    """What becomes of a reading whose list changes meanwhile."""

    PROVE = "prove"
    """It goes on, and must end with as many different records as any page said there are."""
    ALLOW_GROWTH = "allow growth"
    """Records may be added. A list that changed is read twice; an error if a record of the first reading is gone."""
    REFUSE = "refuse"
    """It ends in an error at the first sign: another total, or records that come again beside new ones."""
    ACCEPT = "accept"
    """It goes on, and must end with as many different records as the lowest total."""


class _Seen:
    """Which records were there: at most ten megabytes, and six bytes more for each; a set of a million hashes takes 90.

    Two records with one hash would look like a repeat and end in an error, never in a silent loss.
    """

    def __init__(self) -> None:
        self._marks: dict[int, bytes] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, identity: object) -> bool:
        shelf, mark = self._place(identity)
        return mark in self._marks.get(shelf, b"")

    def add(self, identity: object) -> bool:
        """Whether it is new."""
        shelf, mark = self._place(identity)
        marks = self._marks.get(shelf, b"")
        if mark in marks:
            return False
        self._marks[shelf] = marks + mark
        self._count += 1
        return True

    @staticmethod
    def _place(identity: object) -> tuple[int, bytes]:
        number = hash(identity)
        return number & 0xFFFF, (number >> 16).to_bytes(6, "little", signed=True)


class Pager(Generic[Item]):
    """Decides which page to ask for next, and when it was the last. Does no I/O.

    :param request: the first page's request; its ``page_size`` may be capped or refused by the service.
    :param changes: what becomes of the reading when the list changes meanwhile.
    """

    def __init__(self, request: PagedRequest[PageResponse[Item]], changes: Changes = Changes.PROVE) -> None:
        if request.page_index not in (None, 1):
            raise MailValidationError("page_index: reading to the end starts at page 1", operation=request.path)
        self.next_request: PagedRequest[PageResponse[Item]] | None = request
        self._operation = request.path
        self._changes = changes
        self._index = 1
        self._fullest = 0
        self._stale = False
        self._seen = _Seen()
        self._first_reading: _Seen | None = None
        self._seen_twice = 0
        self._repeats = 0
        self._stale_repeats = 0
        self._most = MAX_WITHOUT_TOTAL
        self._total: int | None = None
        self._lowest_total: int | None = None
        self._highest_total: int | None = None
        self._first_total: int | None = None

    @property
    def reading(self) -> int:
        """1, or 2 while the list is read again because it changed."""
        return 1 if self._first_reading is None else 2

    def ahead(self, most: int) -> list[PagedRequest[PageResponse[Item]]]:
        """The requests behind the next one, for who asks for several pages at once: they are fed in order all the same.

        As far as there should be pages, the empty one that ends the list included, and not more than ``most``.
        """
        if self.next_request is None or not self._fullest or self._total is None:
            return []
        last = -(-self._total // self._fullest) + 1
        indices = range(self._index + 1, min(self._index + most, last) + 1)
        return [self.next_request.model_copy(update={"page_index": index}) for index in indices]

    def feed(self, page: PageResponse[Item]) -> list[Item]:
        """Take a page in; returns its records that were not on an earlier page.

        :raises MailIncompleteError: when this was the last page and records are missing, or the list has changed and
            must not.
        :raises MailAnswerError: when there is no end.
        """
        assert self.next_request is not None, "the last page was read already"
        self._note_total(page)
        # `new` are those that were not on an earlier page of this reading; `fresh` of them were in no reading before.
        new = [record for record in page.records if self._seen.add(page.identity(record))]
        fresh = new
        if self._first_reading is not None:
            fresh = [record for record in new if page.identity(record) not in self._first_reading]
            self._seen_twice += len(new) - len(fresh)
        if len(self._seen) > self._most:
            raise MailAnswerError(
                f"{self._operation}: the list has no end: {len(self._seen)} different records came, the service says "
                f"there are {'?' if self._total is None else self._total}",
                operation=self._operation,
            )
        # One page of repeats may mean that as many records were put in before the place that was reached.
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

    def refused(self, error: MailRejectedError) -> None:
        """Take in that the service refused a page: one larger than it gives, or one behind the last.

        :raises MailRejectedError: when it is neither.
        """
        assert self.next_request is not None, "the last page was read already"
        if self._index == 1 and self.next_request.page_size is not None:
            # The largest page is mostly not shown in the document: the one that the service gives by itself will do.
            self.next_request = self.next_request.model_copy(update={"page_size": None})
        elif self._index > 1 and self._expected is not None and len(self._seen) >= self._expected:
            self._end()
        else:
            raise error

    def _note_total(self, page: PageResponse[Item]) -> None:
        total = page.total_records
        if total is None:
            return
        if self._total is None:
            self._first_total = total
            self._most = 2 * total + GROWTH
        # The highest that was said: a record deleted meanwhile has moved those behind it, perhaps past the reader.
        self._total = max(total, self._total or 0)
        # What is said behind the end of the list need not be about the list.
        if page.records or self._lowest_total is None:
            lowest = self._total if self._lowest_total is None else self._lowest_total
            self._lowest_total = min(max(total, 0), lowest)
            self._highest_total = max(total, self._highest_total or 0)

    def _note_repeats(self, repeats: int) -> None:
        # Pages behind the last one may be the last or the first again: only what comes before new records has moved.
        self._stale_repeats += repeats
        if not self._stale:
            self._repeats, self._stale_repeats = self._repeats + self._stale_repeats, 0

    def _refuse_changes(self) -> None:
        if not self._repeats and self._lowest_total == self._total:
            return
        signs = [f"{self._repeats} records came again"] if self._repeats else []
        if self._lowest_total != self._total:
            signs.append(f"the service said there were {self._lowest_total}, and {self._total}")
        raise MailIncompleteError(
            f"{self._operation}: the list changed while it was read: {' and '.join(signs)} "
            f"({len(self._seen)} different records had come)",
            got=len(self._seen),
            expected=self._total or 0,
            operation=self._operation,
        )

    def _go_to(self, index: int) -> None:
        assert self.next_request is not None
        self._index = index
        self.next_request = self.next_request.model_copy(update={"page_index": index})

    def _end(self) -> None:
        """The end of the list: prove that it is whole, or read it again where growth has to be proven."""
        self._prove()
        if self._changes is not Changes.ALLOW_GROWTH or not self._changed():
            self.next_request = None
        elif self._first_reading is None:
            self._first_reading, self._seen, self._stale = self._seen, _Seen(), False
            self._go_to(1)
        elif gone := len(self._first_reading) - self._seen_twice:
            raise MailIncompleteError(
                f"{self._operation}: the list changed while it was read: of {len(self._first_reading)} records {gone} "
                "were not there any more when it was read again",
                got=self._seen_twice,
                expected=len(self._first_reading),
                operation=self._operation,
            )
        else:
            self.next_request = None

    def _changed(self) -> bool:
        return bool(self._repeats) or self._lowest_total != self._highest_total

    @property
    def _expected(self) -> int | None:
        """How many different records there must be at least."""
        if self._changes is Changes.ACCEPT:
            return self._lowest_total
        # At its end a growing list says more than there was to read when its pages were read.
        return self._first_total if self._changes is Changes.ALLOW_GROWTH else self._total

    def _prove(self) -> None:
        got, expected = len(self._seen), self._expected
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
