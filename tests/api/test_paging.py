"""Reading lists: complete, or an error with both numbers, whatever the service does with its pages.

Page by page, with several pages at once, and for a record of an exact name among many that contain it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail import api
from airflow_provider_mail.api._core.pagination import concurrent_pages
from airflow_provider_mail.api.campaigns import existing_campaigns
from airflow_provider_mail.api.client import MailClient
from mail_emulator import Emulator
from tests.api.driving import QUICK, Rehearsal
from tests.api.parts import Changes, PagedRequest, Pager, next_page, pagination
from tests.api.wire import Gate
from tests.support.sampling import examples

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
        for record in next_page(rehearsal, pager):
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


@given(COUNTS, CAPS, st.none() | st.integers(1, 70), ENDS, st.booleans(), st.integers(1, 6), st.sampled_from(Changes))
def test_a_list_that_holds_still_is_read_whole_and_once(
    count: int, cap: int, size: Any, end: End, rejects_large: bool, at_once: int, mode: Changes
) -> None:
    """Page by page, and with several pages at once; in its order."""
    listing = Listing(names(count), cap=cap, end=end, rejects_large=rejects_large and cap >= 10)
    assert read(listing, api.GetLists(page_size=size)) == names(count)
    assert listing.asked <= -(-count // min(cap, size or 10)) + 3 + count * listing.rejects_large
    listing = Listing(names(count), cap=cap, end=end)
    assert read_at_once(listing, mode, at_once) == names(count)
    assert listing.asked <= -(-count // min(cap, 10)) + 3


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

    with pytest.raises(api.MailResponseError, match="no end"):
        read(endless, api.GetLists(page_size=1000))


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


@given(
    st.integers(1, 60), st.integers(3, 12), st.lists(st.integers(0, 100), max_size=12), st.sampled_from([7, 500_000])
)
def test_a_second_reading_has_what_the_first_missed(count: int, cap: int, leaving: list[int], hashes: int) -> None:
    """Between two pages one leaves and another joins at the end, so that the total stays.

    :param hashes: so many records are remembered in a set.
    """
    listing = Listing(names(count), cap=cap, moves=[[(place, False), (-1, True)] for place in leaving])
    pager: Pager[Any] = Pager(api.GetLists())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pagination, "_MAX_HASHES", hashes)
        first = set(records(pager, listing))
        listing.moves.clear()
        pager.read_again()
        second = set(records(pager, listing))
    assert first.isdisjoint(second)
    assert set(listing.names) <= first | second


# Several pages at once.


class Rehearsed(api.MailClient):
    """A client whose responses come from a script, one at a time whichever thread sends."""

    def __init__(self, answers: Callable[[Any], Any]) -> None:
        super().__init__(config("http://127.0.0.1:9"))
        self._answers = answers
        self._turn = threading.Lock()

    def send(self, request: Any) -> Any:
        with self._turn:
            result = self._answers(request)
        if isinstance(result, api.MailError):
            raise result
        return result


def config(base_url: str, **fields: Any) -> api.ClientConfig:
    return api.ClientConfig(base_url=base_url, api_key="emulator-api-key", retry=QUICK, timeout=60, **fields)


def read_at_once(listing: Callable[[Any], Any], changes: Changes = Changes.REFUSE, at_once: int = 4) -> list[str]:
    with Rehearsed(listing) as client:
        pages = concurrent_pages(client, Pager(api.GetLists(), changes), at_once)
        return [record.list_name for page in pages for record in page]


AT_ONCE = st.integers(1, 6)


@pytest.mark.parametrize(
    ("count", "changes", "total", "message"),
    [
        (30, [[], [(99, True)]], None, "the service reported 30 and 31 records"),
        (30, [[], [(0, True)]], 30, "changed while it was read: 1 records were received again"),
        # The total is the same before and after, and the list is long enough: a page came in between.
        (50, [[], [(4, False)], [], [(49, True)]], None, "changed while it was read"),
    ],
)
def test_the_signs_of_a_change_are_named(count: int, changes: Moves, total: int | None, message: str) -> None:
    with pytest.raises(api.MailIncompleteError, match=message):
        read_at_once(Listing(names(count), moves=changes, says=lambda n: total or n), at_once=1)


MODES = st.sampled_from([Changes.REFUSE, Changes.ACCEPT, Changes.ALLOW_GROWTH])


@settings(max_examples=examples(50))
@given(COUNTS, CAPS, AT_ONCE, JOINS | LEAVES | moves(st.booleans(), 1), MODES)
def test_a_list_that_changes_is_whole_or_an_error(
    count: int, cap: int, at_once: int, changes: Moves, mode: Changes
) -> None:
    """Accepted changes: as many records as the lowest total. Else: every record that was there all the time."""
    totals: list[int] = []
    cap = 1000 if mode is Changes.ALLOW_GROWTH else cap
    listing = Listing(names(count), cap=cap, moves=changes, says=lambda n: totals.append(n) or n)  # type: ignore[func-returns-value]
    try:
        result = read_at_once(listing, mode, at_once)
    except api.MailIncompleteError as error:
        assert mode is not Changes.ACCEPT or error.got < (error.expected or 0)  # noqa: PT017
        return
    assert len(set(result)) == len(result)
    if mode is Changes.ACCEPT:
        assert len(result) >= min(totals)
    else:
        assert set(names(count)) - listing.removed <= set(result)


def test_growth_excuses_no_missing_record() -> None:
    gone = Listing(names(50), moves=[[(99, True)], [(4, False)]])
    with pytest.raises(api.MailIncompleteError, match="1 of 50 records were missing when it was read again") as raised:
        read_at_once(gone, Changes.ALLOW_GROWTH, at_once=1)
    assert raised.value.operation == api.GetLists.path
    short = Listing(names(25), says=lambda n: 30 if n == 25 else 31, moves=[[(99, True)]])
    with pytest.raises(api.MailIncompleteError, match="26 distinct records received, the service reports 30"):
        read_at_once(short, Changes.ALLOW_GROWTH, at_once=1)


def test_a_second_reading_uses_no_page_that_the_first_requested_ahead() -> None:
    """Pages 2 and 3 repeat the first and so end the first reading, when others have been requested."""
    everything = names(61)
    first_pages = 0

    def moving(request: api.GetLists) -> Any:
        nonlocal first_pages
        index = request.page_index or 1
        first_pages += index == 1
        page = everything[(index - 1) * 10 : index * 10]
        if first_pages == 1 and index > 1:
            page = everything[:10] if index < 4 else [f"gone-{index}"] * (index < 8)
        total = 60 if first_pages == 1 and index == 1 else 61
        return request.response(lists=[{"listName": name} for name in page], total_records=total)

    assert sorted(read_at_once(moving, Changes.ALLOW_GROWTH)) == sorted(everything)


def test_reading_begins_with_the_first_page_and_its_total() -> None:
    listing = Listing(names(25))

    def forgetful(request: api.GetLists) -> Any:
        page = listing(request)
        return page if page.records else page.model_copy(update={"total_records": 0})

    assert read_at_once(forgetful) == names(25)
    with pytest.raises(api.MailValidationError, match="page_index"):
        Pager(api.GetLists(page_index=2))
    for mode in Changes:
        with pytest.raises(api.MailIncompleteError, match="no response has a valid totalRecords"):
            read_at_once(Listing(names(25), says=lambda _: None), mode)


# Over real connections.


def contacts(client: api.MailClient, at_once: int = 4) -> list[str | None]:
    request = api.GetListContacts(list_name="everybody", page_size=10)
    pages = concurrent_pages(client, Pager(request, Changes.REFUSE), at_once)
    return [contact.id for page in pages for contact in page]


def test_no_more_pages_at_once_than_the_connection_allows() -> None:
    def respond(body: dict[str, Any]) -> dict[str, Any]:
        first = (body.get("pageIndex", 1) - 1) * 10
        return {"contactList": [{"id": str(n)} for n in range(first, min(first + 10, 395))], "totalRecords": 395}

    with (
        Gate(4, respond, is_held=lambda body: body.get("pageIndex", 1) > 1) as gate,
        api.MailClient(config(gate.base_url, max_in_flight=4)) as client,
    ):
        assert contacts(client, at_once=50) == [str(number) for number in range(395)]
    assert gate.most == 4


def test_closing_early_sends_only_what_is_in_flight(emulator: Emulator) -> None:
    emulator.add_list("everybody", count=40)
    request = api.GetListContacts(list_name="everybody", page_size=1)
    with (
        api.MailClient(config(emulator.base_url)) as client,
        closing(concurrent_pages(client, Pager(request, Changes.REFUSE), 4)) as pages,
    ):
        next(pages)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mail-pages")]
    assert emulator.journal.count("contacts/list/get") <= 1 + 8 + 1


# A record of an exact name.

NAMES = st.text(alphabet="aAbB-", min_size=1, max_size=4)


@given(st.lists(NAMES, max_size=60, unique=True), NAMES, CAPS, ENDS, JOINS, st.randoms(use_true_random=False))
def test_the_name_is_exact_in_whatever_order_pages_arrive(
    existing: list[str], wanted: str, cap: int, end: End, changes: Moves, random: Random
) -> None:
    listing = Listing(list(existing), cap=cap, end=end, moves=changes)
    try:
        record = api.find_list(Rehearsal(listing, shuffle=random.shuffle), wanted)
    except api.MailError as error:
        assert isinstance(error, api.MailIncompleteError | api.MailRejectedError)  # noqa: PT017
        assert listing.joined
        return
    assert (record.list_name if record else None) == (wanted if wanted in existing else None)


def with_list(place: int, count: int) -> list[str]:
    """Many names that contain "list", and at one place the name itself."""
    return [*names(place), "list", *(f"another list {number}" for number in range(count - place))]


def test_it_takes_few_rounds_and_stops_at_the_name() -> None:
    for place, rounds, pages in ((0, 1, 1), (1234, 4, 15), (9_990, 10, 101)):
        rehearsal = Rehearsal(Listing(with_list(place, 9_999)))
        assert api.find_list(rehearsal, "list").list_name == "list"
        assert (rehearsal.steps, len(rehearsal.asked)) == (rounds, pages)


@pytest.mark.parametrize("kind", [api.MailServerError, api.MailRejectedError])
def test_a_page_that_fails_matters_only_if_it_is_needed(kind: type[api.MailError]) -> None:
    def at(place: int) -> Any:
        listing = Listing(with_list(place, 1000))
        fails = kind("fails", operation=api.GetLists.path)
        return Rehearsal(lambda request: fails if (request.page_index or 1) >= 6 else listing(request))

    assert api.find_list(at(499), "list").list_name == "list"
    with pytest.raises(kind):
        api.find_list(at(500), "list")


def test_a_list_that_moved_is_read_again_once() -> None:
    listing = Listing(names(250), moves=[[(4, False)]])
    assert api.find_list(Rehearsal(listing), "list") is None
    assert listing.asked == 4 + 4, "three pages and the empty one, twice"
    with pytest.raises(api.MailIncompleteError):
        api.find_list(Rehearsal(Listing(names(250), says=lambda n: n + 1)), "list")


@pytest.mark.parametrize("total", [None, -1])
def test_without_a_total_a_missing_name_proves_nothing(
    total: int | None, emulator: Emulator, client: MailClient
) -> None:
    listing = Listing(names(25), says=lambda _: total)
    assert api.find_list(Rehearsal(listing), "list-3").list_name == "list-3"
    with pytest.raises(api.MailIncompleteError, match="no response has a valid totalRecords"):
        api.find_list(Rehearsal(listing), "list")
    emulator.faults.add("wrong_total", "campaign/mail/get", count=None, by=None)
    with pytest.raises(api.MailIncompleteError, match="no response has a valid totalRecords"):
        existing_campaigns(client, ["news"])


def test_a_list_with_fewer_pages_than_requested_ends() -> None:
    """The number of pages is calculated from the largest one so far: a larger one makes it too high."""
    rehearsal = Rehearsal(in_turn([names(40)[a:b] for a, b in [(0, 2), (2, 4), (4, 6), (6, 40)]], total=40))
    assert api.find_list(rehearsal, "list") is None
    assert [request.page_index or 1 for request in rehearsal.asked] == [1, 2, 3, 4, 5, 6, 7]


def test_no_more_lookups_than_the_connection_allows(connect: Any) -> None:
    def respond(body: dict[str, Any]) -> dict[str, Any]:
        first = (body.get("pageIndex", 1) - 1) * 100
        names = [str(number) for number in range(first, min(first + 100, 1200))]
        return {"mailList": [{"mailName": n, "guid": n, "mailStatus": 2} for n in names], "totalRecords": 1200}

    with Gate(3, respond, is_held=lambda body: body.get("pageIndex", 1) > 3) as gate:
        assert api.find_campaign(connect(gate.base_url, max_in_flight=3), "spring") is None
    assert gate.most == 3
    assert sorted(body.get("pageIndex", 1) for body in gate.bodies) == list(range(1, 14))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mail-requests")]


def test_errors_are_results_of_single_requests(emulator: Emulator, client: MailClient) -> None:
    emulator.add_list("news")
    emulator.faults.add("code_before", "lists/get", code=401, count=None, where={"search": "old"})

    requests = [api.GetLists(search="news"), api.GetLists(search="old"), api.GetLists()]
    found, failed, every = client.send_all(requests)
    assert [one.list_name for one in found.records] == [one.list_name for one in every.records] == ["news"]
    assert isinstance(failed, api.MailAuthError)


@pytest.mark.parametrize(("wanted", "requests"), [(3, 6), (25, 2)])
def test_existing_names_are_found_one_by_one_or_in_the_list(
    emulator: Emulator, client: MailClient, wanted: int, requests: int
) -> None:
    """Names that contain another one are others."""
    emulator.add_campaigns(30, prefix="news", first_day="2026-01-01")
    existing = [f"news-{number:06}" for number in range(wanted - 1)]
    emulator.journal.clear()
    assert existing_campaigns(client, [*existing, "news-00000"]).keys() == set(existing)
    assert emulator.journal.count("campaign/mail/get") <= requests
