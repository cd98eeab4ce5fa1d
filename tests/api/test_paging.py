"""Reading lists: complete, or an error with both numbers, whatever the service does with its pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api._core import pagination
from airflow_provider_mail.api._core.pagination import Pager, next_page
from airflow_provider_mail.api._core.requests import PagedRequest
from airflow_provider_mail.api.campaigns import GetCampaigns, find_campaign
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import (
    MailAnswerError,
    MailAuthError,
    MailError,
    MailIncompleteError,
    MailRejectedError,
    MailValidationError,
)
from airflow_provider_mail.api.lists import GetLists, find_list
from airflow_provider_mail.api.templates import GetTemplates, find_template
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import KINDS, Driver, Rehearsal
from tests.support.sampling import pairwise

End = Literal["empty", "last page again", "first page again", "refused"]


@dataclass
class Listing:
    """A service that holds lists by name, newest or oldest first, and pages through them in its own way.

    :param cap: the largest page it gives.
    :param says: what it says of totalRecords, given how many there are.
    :param end: what it does with a page behind the last.
    :param moves: what happens before each page after the first: names to put in at a place, or a place to take out.
    """

    names: list[str]
    cap: int = 1000
    refuses_large: bool = False
    says: Callable[[int], int | None] = lambda count: count
    end: End = "empty"
    moves: list[list[tuple[int, str | None]]] = field(default_factory=list)
    asked: int = 0
    removed: set[str] = field(default_factory=set)

    def __call__(self, request: GetLists) -> Any:
        if self.asked and self.moves:
            for place, name in self.moves.pop(0):
                self._move(place, name)
        self.asked += 1
        matching = [name for name in self.names if (request.search or "").lower() in name.lower()]
        wanted = request.page_size or 10
        if wanted > self.cap and self.refuses_large:
            return MailRejectedError("pageSize too large", operation=request.path, code=400)
        size, index = min(wanted, self.cap), request.page_index or 1
        last = max(1, -(-len(matching) // size))
        if index > last and self.end == "refused":
            return MailRejectedError("no such page", operation=request.path, code=400)
        if index > last and self.end != "empty":
            index = last if self.end == "last page again" else 1
        page = matching[(index - 1) * size : index * size]
        return request.response(lists=[{"listName": name} for name in page], total_records=self.says(len(matching)))

    def _move(self, place: int, name: str | None) -> None:
        if name is not None:
            self.names.insert(place % (len(self.names) + 1), name)
        elif self.names:
            self.removed.add(self.names.pop(place % len(self.names)))


def read(listing: Callable[[Any], Any], request: PagedRequest[Any] | None = None) -> list[str]:
    """All names, in the order in which they came."""
    pager: Pager[Any] = Pager(request or GetLists())
    rehearsal = Rehearsal(listing)
    names = []
    while pager.next_request is not None:
        names += [record.list_name for record in rehearsal.run(next_page(pager))]
    return names


def in_turn(pages: list[list[str]], total: int | None) -> Callable[[GetLists], Any]:
    """A service that responds with these pages, whichever is requested, and then with empty ones."""
    left = iter(pages)

    def respond(request: GetLists) -> Any:
        return request.response(lists=[{"listName": name} for name in next(left, [])], total_records=total)

    return respond


COUNTS = st.integers(0, 60)
CAPS = st.integers(1, 30)
SIZES = st.none() | st.integers(1, 70)
ENDS: st.SearchStrategy[End] = st.sampled_from(["empty", "last page again", "first page again", "refused"])


def names(count: int) -> list[str]:
    return [f"list-{number}" for number in range(count)]


@given(COUNTS, CAPS, SIZES, ENDS, st.booleans())
def test_a_list_that_holds_still_is_read_whole_whatever_the_page(
    count: int, cap: int, size: int | None, end: End, refuses_large: bool
) -> None:
    listing = Listing(names(count), cap=cap, end=end, refuses_large=refuses_large and cap >= 10)
    assert read(listing, GetLists(page_size=size)) == names(count)
    assert listing.asked <= -(-count // min(cap, size or 10)) + 3 + count * listing.refuses_large


@given(COUNTS, CAPS, ENDS, st.sampled_from([None, -1]))
def test_a_list_without_a_total_is_an_error(count: int, cap: int, end: End, total: int | None) -> None:
    end = "empty" if end == "refused" else end
    with pytest.raises(MailIncompleteError, match=f"{count} distinct records received, and no response has a valid"):
        read(Listing(names(count), cap=cap, end=end, says=lambda _: total))


@pytest.mark.parametrize("total", [None, -1])
def test_find_concludes_nothing_without_a_total(total: int | None) -> None:
    listing = Listing(names(25), says=lambda _: total)
    assert Rehearsal(listing).run(find_list("list-3")).list_name == "list-3"
    with pytest.raises(MailIncompleteError, match="no response has a valid totalRecords"):
        Rehearsal(listing).run(find_list("list"))


def drain(pager: Pager[Any], listing: Listing) -> set[str]:
    found: set[str] = set()
    while pager.next_request is not None:
        found |= {record.list_name for record in Rehearsal(listing).run(next_page(pager))}
    return found


@given(st.integers(1, 60), st.integers(3, 12), st.lists(st.integers(0, 100), max_size=12))
def test_a_second_reading_has_whom_the_first_missed(count: int, cap: int, leavers: list[int]) -> None:
    """Between two pages one leaves and another joins at the end, so that the total stays."""
    moves: list[list[tuple[int, str | None]]] = [
        [(place, None), (-1, f"new-{number}")] for number, place in enumerate(leavers)
    ]
    listing = Listing(names(count), cap=cap, moves=moves)
    pager: Pager[Any] = Pager(GetLists())
    first = drain(pager, listing)
    listing.moves.clear()
    pager.read_again()
    second = drain(pager, listing)
    assert first.isdisjoint(second)
    assert set(listing.names) <= first | second


@given(COUNTS, CAPS, ENDS, st.integers(1, 100))
def test_a_total_that_is_too_low_hides_nothing(count: int, cap: int, end: End, off: int) -> None:
    assert read(Listing(names(count), cap=cap, end=end, says=lambda n: max(n - off, 0))) == names(count)


@given(COUNTS, CAPS, st.sampled_from(["empty", "last page again", "first page again"]), st.integers(1, 100))
def test_a_total_that_is_too_high_is_an_error_with_both_numbers(count: int, cap: int, end: Any, off: int) -> None:
    with pytest.raises(MailIncompleteError) as raised:
        read(Listing(names(count), cap=cap, end=end, says=lambda n: n + off))
    assert (raised.value.got, raised.value.expected) == (count, count + off)
    assert f"{count} distinct records received, the service reports {count + off}" in str(raised.value)
    assert raised.value.operation == "/v5/lists/get"
    assert raised.value.temporary


INSERTS = st.lists(
    st.lists(st.integers(0, 100), max_size=4).map(lambda places: [(place, f"new-{place}") for place in places]),
    max_size=12,
)
DELETES = st.lists(
    st.lists(st.integers(0, 100), max_size=3).map(lambda places: [(place, None) for place in places]), max_size=12
)


def unique(moves: list[list[tuple[int, str | None]]]) -> list[list[tuple[int, str | None]]]:
    return [
        [(place, None if name is None else f"{name}-{round_}-{number}") for number, (place, name) in enumerate(some)]
        for round_, some in enumerate(moves)
    ]


@given(COUNTS, st.integers(3, 12), INSERTS)
def test_what_is_put_in_while_reading_hides_nothing(
    count: int, cap: int, moves: list[list[tuple[int, str | None]]]
) -> None:
    listing = Listing(names(count), cap=cap, moves=unique(moves))
    try:
        result = read(listing)
    except MailIncompleteError:
        return
    assert set(names(count)) <= set(result)
    assert len(result) == len(set(result))


@given(COUNTS, st.integers(3, 12), DELETES)
def test_what_is_taken_out_while_reading_hides_nothing(
    count: int, cap: int, moves: list[list[tuple[int, str | None]]]
) -> None:
    listing = Listing(names(count), cap=cap, moves=moves)
    try:
        result = read(listing)
    except MailIncompleteError:
        return
    assert set(names(count)) - listing.removed <= set(result)


def test_a_record_that_slips_past_the_reader_is_an_error() -> None:
    listing = Listing(names(30), moves=[[(4, None)]])
    with pytest.raises(MailIncompleteError) as raised:
        read(listing)
    assert (raised.value.got, raised.value.expected) == (29, 30)


def test_a_page_that_was_pushed_down_whole_is_read_on() -> None:
    listing = Listing(names(25), moves=[[(0, f"new-{number}") for number in range(10)]], says=lambda _: 25)
    assert read(listing) == names(25)


@pytest.mark.parametrize("total", [5, 0, -7, None])
def test_a_list_without_end_ends_in_an_error(total: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "MAX_WITHOUT_TOTAL", 3000)
    monkeypatch.setattr(pagination, "MAX_GROWTH", 3000)
    asked = []

    def endless(request: GetLists) -> Any:
        asked.append(request)
        first = ((request.page_index or 1) - 1) * 10
        records = [{"listName": f"list-{number}"} for number in range(first, first + 10)]
        return request.response(lists=records, total_records=total)

    with pytest.raises(MailAnswerError, match="no end"):
        read(endless)
    assert len(asked) < 310


def test_a_list_that_runs_away_with_its_total_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "MAX_GROWTH", 1000)

    def running(request: GetLists) -> Any:
        first = ((request.page_index or 1) - 1) * 10
        records = [{"listName": f"list-{number}"} for number in range(first, first + 10)]
        return request.response(lists=records, total_records=first + 500)

    with pytest.raises(MailAnswerError, match="no end"):
        read(running)


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=40), st.none() | st.integers(-3, 12))
def test_any_pages_end_in_a_list_or_an_error(pages: list[list[str]], total: int | None) -> None:
    """Pages that have nothing to do with what was asked for."""
    try:
        result = read(in_turn(pages, total))
    except MailIncompleteError as error:
        assert error.expected is None or error.got < error.expected  # noqa: PT017
    else:
        assert total is not None
        assert total >= 0
        assert len(result) >= total
        assert len(result) == len(set(result))


def test_a_refused_list_is_refused() -> None:
    def refuse(request: GetLists) -> Any:
        return MailRejectedError("no such list", operation=request.path, code=404)

    with pytest.raises(MailRejectedError, match="no such list"):
        read(refuse)
    with pytest.raises(MailRejectedError, match="no such list"):
        read(refuse, GetLists(page_size=500))


def test_refused_credentials_are_never_the_end_of_a_list() -> None:
    listing = Listing(names(10))

    def revoked(request: GetLists) -> Any:
        return listing(request) if request.page_index is None else MailAuthError("no", operation=request.path)

    with pytest.raises(MailAuthError):
        read(revoked)


def test_a_page_refused_in_the_middle_is_no_end() -> None:
    listing = Listing(names(25))

    def broken(request: GetLists) -> Any:
        return listing(request) if request.page_index != 3 else MailRejectedError("no", operation=request.path)

    with pytest.raises(MailRejectedError):
        read(broken)


def test_reading_starts_at_the_first_page() -> None:
    with pytest.raises(MailValidationError, match="page_index"):
        Pager(GetLists(page_index=2))


# Finding by exact name under filters that mean "contains".

NAMES = st.text(alphabet="aAbB-", min_size=1, max_size=4)


@given(st.lists(NAMES, max_size=40, unique=True), NAMES, CAPS, ENDS, INSERTS)
def test_find_is_exact(there: list[str], wanted: str, cap: int, end: End, moves: Any) -> None:
    listing = Listing(list(there), cap=cap, end=end, moves=unique(moves))
    try:
        found = Rehearsal(listing).run(find_list(wanted))
    except MailError as error:
        assert isinstance(error, MailIncompleteError | MailRejectedError)  # noqa: PT017
        assert moves
        return
    assert (found.list_name if found else None) == (wanted if wanted in there else None)


def test_find_reads_no_further_than_it_must() -> None:
    listing = Listing([f"x-{number}" for number in range(100)], cap=10)
    assert Rehearsal(listing).run(find_list("x-3")).list_name == "x-3"
    assert listing.asked <= 4


def test_find_reads_again_what_moved_and_gives_up_with_both_numbers() -> None:
    listing = Listing(names(250), moves=[[(4, None)]])
    assert Rehearsal(listing).run(find_list("list")) is None
    assert listing.asked == 4 + 4, "three pages and the empty one, twice"
    short = Listing(names(250), says=lambda n: n + 1)
    with pytest.raises(MailIncompleteError):
        Rehearsal(short).run(find_list("list"))


def test_find_ends_with_a_list_that_has_fewer_pages_than_were_requested_at_once() -> None:
    """The number of pages is calculated from the largest one so far: a larger one makes it too high."""
    pages = [names(40)[start:end] for start, end in [(0, 2), (2, 4), (4, 6), (6, 40)]]
    rehearsal = Rehearsal(in_turn(pages, total=40))
    assert rehearsal.run(find_list("list")) is None
    requested = [request.page_index or 1 for request in rehearsal.asked]
    assert requested == [1, 2, 3, 4, 5, 6, 7], "the list ended with the fifth page"


# Against the emulator: every list, every fault of pages.

COUNT = 25


def fill(emulator: Emulator) -> None:
    for number in range(COUNT):
        emulator.add_list(f"name-{number:02}")
        emulator.add_template(f"name-{number:02}", subject="s", content="c")
    emulator.add_list("everybody", count=COUNT)
    emulator.add_campaigns(COUNT, prefix="name", first_day="2026-01-01")


LISTS: dict[str, PagedRequest[Any]] = {
    "lists": GetLists(search="name", page_size=10),
    "templates": GetTemplates(template_name="name", page_size=10),
    "campaigns": GetCampaigns(mail_name="name", page_size=10),
    "contacts": GetListContacts(list_name="everybody", page_size=10),
}
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("capped_pages", {"size": 3}),
    ("repeated_page", {"back": 1}),
    ("shifted_pages", {"by": 1}),
    ("shifted_pages", {"by": 7}),
    ("empty_page", {}),
    ("wrong_total", {"by": 1}),
    ("wrong_total", {"by": -1}),
    ("wrong_total", {"by": -1000}),
]


@pairwise(kind=LISTS, fault=FAULTS, count=[1, None], skip=[0, 1, 2, 3], connect=KINDS, indirect=["connect"])
def test_pages_that_go_wrong(
    kind: str, fault: tuple[str, dict[str, Any]], count: int | None, skip: int, emulator: Emulator, client: Driver
) -> None:
    fill(emulator)
    request = LISTS[kind]
    emulator.faults.add(fault[0], request.path, count=count, skip=skip, **fault[1])
    try:
        pages = client.pages(request)
    except MailIncompleteError as error:
        assert error.got < error.expected  # noqa: PT017
        assert error.operation == request.path  # noqa: PT017
    else:
        assert sum(map(len, pages)) == COUNT
        assert all(pages), "no empty page is handed out"
        assert len({type(request).response.identity(record) for page in pages for record in page}) == COUNT


@pairwise(
    limit=[("cap", 1), ("cap", 7), ("cap", 10), ("cap", 1000), ("reject", 10), ("reject", 25), ("reject", 1000)],
    size=[None, 10, 100, 1000],
    kind=["lists", "templates", "campaigns"],
)
def test_any_largest_page_of_the_service(
    limit: tuple[Any, int], size: int | None, kind: str, emulator: Emulator, client: Driver
) -> None:
    """The document does not show the largest page, nor what becomes of a request for a larger one."""
    emulator.settings.oversized_page, emulator.settings.max_page_size = limit
    fill(emulator)
    request = LISTS[kind].model_copy(update={"page_size": size})
    assert sum(map(len, client.pages(request))) == COUNT


@pytest.mark.both_clients
@pytest.mark.parametrize("ignores_case", [True, False])
@pytest.mark.parametrize("newest_first", [True, False])
def test_the_exact_name_among_those_that_contain_it(
    ignores_case: bool, newest_first: bool, emulator: Emulator, client: Driver
) -> None:
    emulator.settings.contains_ignores_case = ignores_case
    emulator.settings.newest_first = newest_first
    for name in ("News", "news", "news-2", "old news", "100%_news", "néws", "新闻"):
        emulator.add_list(name)
        emulator.add_campaign(name, sent=1)
        emulator.add_template(name, subject=name, content="c")
    for number in range(150):
        emulator.add_campaign(f"news {number}", sent=1)
    for name in ("News", "news", "100%_news", "néws", "新闻"):
        for flow, attribute in (
            (find_list(name), "list_name"), (find_template(name), "template_name"), (find_campaign(name), "mail_name"),
        ):  # fmt: skip
            assert getattr(client.run(flow), attribute) == name
    for name in ("new", "NEWS", "ews", "%"):
        assert client.run(find_campaign(name)) is None
        assert client.run(find_list(name)) is None
        assert client.run(find_template(name)) is None
