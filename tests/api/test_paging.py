"""Reading lists: complete, or an error with both numbers, whatever the service does with its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail import api
from tests.api.driving import Rehearsal
from tests.api.parts import PagedRequest, Pager, next_page, pagination

End = Literal["empty", "last page again", "first page again", "rejected"]
Moves = list[list[tuple[int, bool]]]


@dataclass
class Listing:
    """A service that holds lists by name, and pages through them in its own way.

    :param cap: the largest page it gives.
    :param says: what it says of totalRecords, given how many there are.
    :param end: what it does with a page behind the last.
    :param moves: what happens before each page after the first: at a place, a name joins or one leaves.
    """

    names: list[str]
    cap: int = 1000
    rejects_large: bool = False
    says: Callable[[int], int | None] = lambda count: count
    end: End = "empty"
    moves: Moves = field(default_factory=list)
    asked: int = 0
    removed: set[str] = field(default_factory=set)
    joined: int = 0

    def __call__(self, request: api.GetLists) -> Any:
        if self.asked and self.moves:
            for place, joins in self.moves.pop(0):
                self._move(place, joins)
        self.asked += 1
        matching = [name for name in self.names if (request.search or "").lower() in name.lower()]
        wanted = request.page_size or 10
        if wanted > self.cap and self.rejects_large:
            return api.MailRejectedError("pageSize too large", operation=request.path, code=400)
        size, index = min(wanted, self.cap), request.page_index or 1
        last = max(1, -(-len(matching) // size))
        if index > last and self.end == "rejected":
            return api.MailRejectedError("no such page", operation=request.path, code=400)
        if index > last and self.end != "empty":
            index = last if self.end == "last page again" else 1
        page = matching[(index - 1) * size : index * size]
        return request.response(lists=[{"listName": name} for name in page], total_records=self.says(len(matching)))

    def _move(self, place: int, joins: bool) -> None:
        if joins:
            self.joined += 1
            self.names.insert(place % (len(self.names) + 1), f"new-{self.joined}")
        elif self.names:
            self.removed.add(self.names.pop(place % len(self.names)))


def names(count: int) -> list[str]:
    return [f"list-{number}" for number in range(count)]


def records(pager: Pager[Any], service: Callable[[Any], Any]) -> Iterator[str]:
    rehearsal = Rehearsal(service)
    while pager.next_request is not None:
        for record in rehearsal.run(next_page(pager)):
            yield record.list_name


def read(service: Callable[[Any], Any], request: PagedRequest[Any] | None = None) -> list[str]:
    """All names, in the order in which they came."""
    return list(records(Pager(request or api.GetLists()), service))


def in_turn(pages: list[list[str]], total: int | None) -> Callable[[api.GetLists], Any]:
    """A service that responds with these pages, whichever is requested, and then with empty ones."""
    left = iter(pages)
    return lambda request: request.response(lists=[{"listName": name} for name in next(left, [])], total_records=total)


def moves(joins: st.SearchStrategy[bool], most: int, pages: int = 12) -> st.SearchStrategy[Moves]:
    return st.lists(st.lists(st.tuples(st.integers(0, 100), joins), max_size=most), max_size=pages)


COUNTS = st.integers(0, 60)
CAPS = st.integers(1, 30)
JOINS, LEAVES = moves(st.just(True), 4), moves(st.just(False), 3)
ENDS: st.SearchStrategy[End] = st.sampled_from(["empty", "last page again", "first page again", "rejected"])


@given(COUNTS, CAPS, st.none() | st.integers(1, 70), ENDS, st.booleans())
def test_a_list_that_holds_still_is_read_whole(count: int, cap: int, size: Any, end: End, rejects_large: bool) -> None:
    listing = Listing(names(count), cap=cap, end=end, rejects_large=rejects_large and cap >= 10)
    assert read(listing, api.GetLists(page_size=size)) == names(count)
    assert listing.asked <= -(-count // min(cap, size or 10)) + 3 + count * listing.rejects_large


@given(COUNTS, CAPS, ENDS, st.none() | st.just(-1) | st.integers(-100, 100).map(str))
def test_the_total_decides_whether_a_list_is_complete(count: int, cap: int, end: End, total: Any) -> None:
    """One that is too low hides no record; without a valid one, or with one too high, the list is an error."""
    off = int(total) if isinstance(total, str) else None
    says: Callable[[int], int | None] = (lambda n: max(n + off, 0)) if off is not None else (lambda n: total)
    complete = off is not None and off <= 0
    listing = Listing(names(count), cap=cap, says=says, end=end if complete or end != "rejected" else "empty")
    if complete:
        assert read(listing) == names(count)
        return
    expected = None if off is None else count + off
    text = "and no response has a valid totalRecords" if off is None else f"the service reports {expected}"
    with pytest.raises(
        api.MailIncompleteError, match=f"/v5/lists/get: {count} distinct records received, {text}"
    ) as raised:
        read(listing)
    assert (raised.value.got, raised.value.expected) == (count, expected)
    assert raised.value.temporary


@given(COUNTS, st.integers(3, 12), JOINS | LEAVES)
def test_a_list_that_changes_hides_no_record(count: int, cap: int, changes: Moves) -> None:
    listing = Listing(names(count), cap=cap, moves=changes)
    try:
        result = read(listing)
    except api.MailIncompleteError:
        return
    assert set(names(count)) - listing.removed <= set(result)
    assert len(result) == len(set(result))


@given(
    st.integers(1, 60), st.integers(3, 12), st.lists(st.integers(0, 100), max_size=12), st.sampled_from([7, 500_000])
)
def test_a_second_reading_has_what_the_first_missed(count: int, cap: int, leaving: list[int], hashes: int) -> None:
    """Between two pages one leaves and another joins at the end, so that the total stays.

    :param hashes: so many records are remembered in a set.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pagination, "_MAX_HASHES", hashes)
        check_second_reading(count, cap, leaving)


def check_second_reading(count: int, cap: int, leaving: list[int]) -> None:
    listing = Listing(names(count), cap=cap, moves=[[(place, False), (-1, True)] for place in leaving])
    pager: Pager[Any] = Pager(api.GetLists())
    first = set(records(pager, listing))
    listing.moves.clear()
    pager.read_again()
    second = set(records(pager, listing))
    assert first.isdisjoint(second)
    assert set(listing.names) <= first | second


def test_a_page_that_was_pushed_down_whole_does_not_end_the_list() -> None:
    assert read(Listing(names(25), moves=[[(0, True)] * 10], says=lambda _: 25)) == names(25)


@pytest.mark.parametrize("total", [lambda read: 5, lambda read: 0, lambda read: None, lambda read: read + 20_000])
def test_a_list_without_end_is_an_error(total: Callable[[int], int | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose total runs ahead."""
    if total(0) is None:
        monkeypatch.setattr(pagination, "MAX_WITHOUT_TOTAL", 30_000)

    def endless(request: api.GetLists) -> Any:
        first = ((request.page_index or 1) - 1) * 1000
        assert first < 60_000
        page = [{"listName": f"list-{number}"} for number in range(first, first + 1000)]
        return request.response(lists=page, total_records=total(first))

    with pytest.raises(api.MailAnswerError, match="no end"):
        read(endless, api.GetLists(page_size=1000))


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=40), st.none() | st.integers(-3, 12))
def test_any_pages_end_in_a_list_or_an_error(pages: list[list[str]], total: int | None) -> None:
    try:
        result = read(in_turn(pages, total))
    except api.MailIncompleteError as error:
        assert error.expected is None or error.got < error.expected  # noqa: PT017
    else:
        assert total is not None
        assert 0 <= total <= len(result) == len(set(result))


@pytest.mark.parametrize(
    ("error", "index", "size"),
    [
        (api.MailRejectedError, None, None), (api.MailRejectedError, None, 500), (api.MailAuthError, 2, None),
        (api.MailRejectedError, 3, None),
    ],
)  # fmt: skip
def test_a_rejected_page_is_not_the_end(error: type[api.MailError], index: int | None, size: int | None) -> None:
    """Neither of a list that is rejected whole, nor a page before the last, nor where the credentials are revoked."""
    listing, no = Listing(names(25 if index == 3 else 10)), error("no", operation=api.GetLists.path)
    with pytest.raises(error):
        read(
            lambda request: no if index in (None, request.page_index) else listing(request),
            api.GetLists(page_size=size),
        )


def test_reading_starts_at_the_first_page() -> None:
    with pytest.raises(api.MailValidationError, match="page_index"):
        Pager(api.GetLists(page_index=2))
