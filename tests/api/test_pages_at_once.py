"""Concurrent pages: proven like a reading page by page, bounded, and ended as soon as something is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail import api
from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages
from mail_emulator import Emulator
from tests.api.driving import QUICK, Rehearsal
from tests.api.parts import Changes, Pager, next_pages
from tests.api.test_paging import CAPS, COUNTS, ENDS, JOINS, LEAVES, End, Listing, Moves, moves, names
from tests.api.wire import Gate
from tests.support.sampling import examples

LIST = "contacts/list/get"


def config(base_url: str = "http://127.0.0.1:9", **fields: Any) -> api.ClientConfig:
    return api.ClientConfig(base_url=base_url, api_key="emulator-api-key", retry=QUICK, timeout=60, **fields)


class Rehearsed(api.MailClient):
    """A client whose responses come from a script, one at a time whichever thread sends."""

    def __init__(self, answers: Callable[[Any], Any]) -> None:
        super().__init__(config())
        self._answers = answers
        self._turn = threading.Lock()

    def send(self, request: Any) -> Any:
        with self._turn:
            result = self._answers(request)
        if isinstance(result, api.MailError):
            raise result
        return result


def read(listing: Callable[[Any], Any], changes: Changes = Changes.REFUSE, at_once: int = 4) -> list[str]:
    with Rehearsed(listing) as client:
        pages = concurrent_pages(client, api.GetLists(), at_once, changes)
        return [record.list_name for page in pages for record in page]


AT_ONCE = st.integers(1, 6)
SOME = settings(max_examples=examples(30))


@SOME
@given(COUNTS, CAPS, ENDS, AT_ONCE)
def test_a_list_that_holds_still_is_read_whole_in_order(count: int, cap: int, end: End, at_once: int) -> None:
    listing = Listing(names(count), cap=cap, end=end)
    assert read(listing, at_once=at_once) == names(count)
    assert listing.asked <= -(-count // min(cap, 10)) + 3


@SOME
@given(COUNTS, CAPS, AT_ONCE, JOINS | LEAVES, st.sampled_from([Changes.REFUSE, Changes.ACCEPT]))
def test_a_list_that_changes_is_whole_or_an_error(
    count: int, cap: int, at_once: int, changes: Moves, mode: Changes
) -> None:
    """Accepted changes: as many records as the lowest total. Else: every record that was there all the time."""
    totals: list[int] = []
    listing = Listing(names(count), cap=cap, moves=changes, says=lambda n: totals.append(n) or n)  # type: ignore[func-returns-value]
    try:
        result = read(listing, mode, at_once)
    except api.MailIncompleteError as error:
        assert mode is Changes.REFUSE or error.got < (error.expected or 0)  # noqa: PT017
        return
    assert len(set(result)) == len(result)
    if mode is Changes.ACCEPT:
        assert len(result) >= min(totals)
    else:
        assert set(names(count)) - listing.removed <= set(result)


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
        read(Listing(names(count), moves=changes, says=lambda n: total or n), at_once=1)


# Additions allowed. More than a page of 10 put in twice in a row looks like the end of the list; fewer do not.
GROWTH = moves(st.just(True), 4, 20)


@SOME
@given(st.integers(1, 60), AT_ONCE, GROWTH, st.integers(0, 1_000_000).map(Random))
def test_a_list_that_grows_is_read_whole(count: int, at_once: int, changes: Moves, chance: Random) -> None:
    """Through threads, and in whatever order its pages arrive."""
    for shuffled in (False, True):
        listing = Listing(names(count), moves=list(changes))
        if shuffled:
            rehearsal = Rehearsal(listing, shuffle=chance.shuffle)
            pager, result = Pager[Any](api.GetLists(), Changes.ALLOW_GROWTH), list[str]()
            while pager.next_request is not None:
                result += [record.list_name for record in rehearsal.run(next_pages(pager, at_once))]
        else:
            result = read(listing, Changes.ALLOW_GROWTH, at_once)
        assert len(result) == len(set(result))
        assert set(names(count)) <= set(result) <= set(listing.names)


@SOME
@given(st.integers(1, 60), AT_ONCE, moves(st.booleans(), 1))
def test_growth_hides_no_removal(count: int, at_once: int, changes: Moves) -> None:
    """Sign-ups and removals, a page between any two of them: no record that was there all the time is missed."""
    listing = Listing(names(count), moves=changes)
    try:
        result = read(listing, Changes.ALLOW_GROWTH, at_once)
    except api.MailIncompleteError:
        return
    assert len(result) == len(set(result))
    assert set(names(count)) - listing.removed <= set(result)


def test_growth_excuses_no_missing_record() -> None:
    gone = Listing(names(50), moves=[[(99, True)], [(4, False)]])
    with pytest.raises(api.MailIncompleteError, match="1 of 50 records were missing when it was read again") as raised:
        read(gone, Changes.ALLOW_GROWTH, at_once=1)
    assert raised.value.operation == api.GetLists.path
    short = Listing(names(25), says=lambda n: 30 if n == 25 else 31, moves=[[(99, True)]])
    with pytest.raises(api.MailIncompleteError, match="26 distinct records received, the service reports 30"):
        read(short, Changes.ALLOW_GROWTH, at_once=1)


@pytest.mark.parametrize("changes", Changes)
def test_a_list_that_holds_still_is_read_once(changes: Changes) -> None:
    listing = Listing(names(25))
    assert read(listing, changes, at_once=1) == names(25)
    assert listing.asked == 4
    with pytest.raises(api.MailIncompleteError, match="no response has a valid totalRecords"):
        read(Listing(names(25), says=lambda _: None), changes, at_once=1)


def test_a_page_behind_the_last_has_no_valid_total() -> None:
    listing = Listing(names(25))

    def forgetful(request: api.GetLists) -> Any:
        page = listing(request)
        return page if page.records else page.model_copy(update={"total_records": 0})

    assert read(forgetful) == names(25)


def test_no_page_is_requested_ahead_before_the_number_is_known() -> None:
    pager: Pager[Any] = Pager(api.GetLists())
    assert pager.ahead(5) == []
    pager.feed(api.GetLists.response(lists=[{"listName": "a"}, {"listName": "b"}], total_records=7))
    assert [[request.page_index for request in pager.ahead(most)] for most in (99, 2)] == [[3, 4, 5], [3, 4]]


# Over real connections.


@pytest.fixture
def everybody(emulator: Emulator) -> Emulator:
    emulator.add_list("everybody", count=95)
    return emulator


@pytest.fixture
def client(everybody: Emulator) -> Iterator[api.MailClient]:
    with api.MailClient(config(everybody.base_url, max_in_flight=4)) as client:
        yield client


def contacts(client: api.MailClient, at_once: int = 4) -> list[str | None]:
    pages = concurrent_pages(client, api.GetListContacts(list_name="everybody", page_size=10), at_once)
    return [contact.id for page in pages for contact in page]


def test_no_more_requests_than_the_connection_allows() -> None:
    def respond(body: dict[str, Any]) -> dict[str, Any]:
        first = (body.get("pageIndex", 1) - 1) * 10
        return {"contactList": [{"id": str(n)} for n in range(first, min(first + 10, 395))], "totalRecords": 395}

    with (
        Gate(4, respond, is_held=lambda body: body.get("pageIndex", 1) > 1) as gate,
        api.MailClient(config(gate.base_url, max_in_flight=4)) as client,
    ):
        assert contacts(client, at_once=50) == [str(number) for number in range(395)]
    assert gate.most == 4


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "code_before", "code": 400}, api.MailRejectedError),
        ({"kind": "code_before", "code": 401}, api.MailAuthError),
        ({"kind": "http_error_before"}, api.MailServerError),
    ],
)
def test_a_page_that_fails_ends_the_list(client: api.MailClient, everybody: Emulator, fault: Any, error: Any) -> None:
    everybody.faults.add(operation=LIST, count=None, where={"pageIndex": 5}, **fault)
    with pytest.raises(error):
        contacts(client)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mail-pages")]


def test_closing_early_sends_only_what_is_in_flight(client: api.MailClient, everybody: Emulator) -> None:
    with closing(concurrent_pages(client, api.GetListContacts(list_name="everybody", page_size=1), 4)) as pages:
        next(pages)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mail-pages")]
    assert everybody.journal.count(LIST) <= 1 + 8 + 1
