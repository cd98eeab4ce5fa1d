"""Several pages under way: proven like a reading page by page, bounded, and over as soon as something is wrong."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api._core.pagination import Changes, Pager, next_pages
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.contacts import Contact, GetListContacts
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailError,
    MailIncompleteError,
    MailRejectedError,
    MailServerError,
)
from airflow_provider_mail.api.flows.concurrent_pages import concurrent_pages
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import QUICK, Rehearsal
from tests.api.test_paging import DELETES, FAULTS, INSERTS, Listing, names, unique
from tests.support.sampling import examples, pairwise

LIST = "contacts/list/get"


def config(base_url: str = "http://127.0.0.1:9", **settings: Any) -> ClientConfig:
    return ClientConfig(base_url=base_url, api_key="emulator-api-key", retry=QUICK, timeout=60, **settings)


class Rehearsed(MailClient):
    """A client whose answers come from a script, a page at a time whichever thread asks."""

    def __init__(self, answers: Callable[[Any], Any]) -> None:
        super().__init__(config())
        self._rehearsal = Rehearsal(answers)
        self._turn = threading.Lock()

    def send(self, request: Any) -> Any:
        def flow() -> Any:
            return (yield request)

        with self._turn:
            return self._rehearsal.run(flow())


def read(listing: Callable[[Any], Any], changes: Changes = Changes.REFUSE, at_once: int = 4) -> list[str]:
    with Rehearsed(listing) as client:
        pages = concurrent_pages(client, GetLists(), at_once, changes)
        return [record.list_name for page in pages for record in page]


COUNTS, CAPS, AT_ONCE = st.integers(0, 60), st.integers(1, 30), st.integers(1, 6)
ENDS: Any = st.sampled_from(["empty", "last page again", "first page again", "refused"])
SOME = settings(max_examples=examples(30))


@SOME
@given(COUNTS, CAPS, ENDS, AT_ONCE)
def test_a_list_that_holds_still_is_read_whole_in_order(count: int, cap: int, end: Any, at_once: int) -> None:
    listing = Listing(names(count), cap=cap, end=end)
    assert read(listing, at_once=at_once) == names(count)
    assert listing.asked <= -(-count // min(cap, 10)) + 3


@SOME
@given(COUNTS, CAPS, AT_ONCE, INSERTS | DELETES)
def test_whatever_moves_it_is_the_whole_list_or_an_error(
    count: int, cap: int, at_once: int, moves: list[list[tuple[int, str | None]]]
) -> None:
    """Put in or taken out: who was there all the time is there, and nobody twice."""
    listing = Listing(names(count), cap=cap, moves=unique(moves))
    try:
        result = read(listing, at_once=at_once)
    except MailIncompleteError:
        return
    assert len(result) == len(set(result))
    assert set(names(count)) - listing.removed <= set(result)


@SOME
@given(COUNTS, CAPS, INSERTS | DELETES)
def test_what_is_accepted_is_at_least_the_lowest_total(
    count: int, cap: int, moves: list[list[tuple[int, str | None]]]
) -> None:
    said: list[int] = []

    def says(number: int) -> int:
        said.append(number)
        return number

    listing = Listing(names(count), cap=cap, moves=unique(moves), says=says)
    try:
        result = read(listing, Changes.ACCEPT)
    except MailIncompleteError as error:
        assert error.got < error.expected  # noqa: PT017
        return
    assert len(set(result)) == len(result) >= min(said)


def test_signs_of_change_are_named() -> None:
    grown = Listing(names(30), moves=[[], [(99, "new")]])
    with pytest.raises(MailIncompleteError, match="the service reported 30 and 31 records"):
        read(grown, at_once=1)
    pushed = Listing(names(30), moves=[[], [(0, "new")]], says=lambda _: 30)
    with pytest.raises(MailIncompleteError, match="changed while it was read: 1 records were received again"):
        read(pushed, at_once=1)


def test_one_taken_out_and_one_put_in_is_noticed_when_a_page_comes_between() -> None:
    """The total is the same before and after, and the list is long enough."""
    listing = Listing(names(50), moves=[[], [(4, None)], [], [(49, "new")]])
    with pytest.raises(MailIncompleteError, match="changed while it was read"):
        read(listing, at_once=1)


# More than a page of 10 put in twice in a row looks like the end of the list; fewer do not.
GROWTH = st.lists(
    st.lists(st.integers(0, 100), max_size=4).map(lambda places: [(place, f"new-{place}") for place in places]),
    max_size=20,
)
ONE_BY_ONE = st.lists(st.lists(st.tuples(st.integers(0, 100), st.sampled_from([None, "new"])), max_size=1), max_size=20)


@SOME
@given(st.integers(1, 60), AT_ONCE, GROWTH)
def test_a_list_that_grows_is_read_whole(count: int, at_once: int, moves: list[list[tuple[int, str | None]]]) -> None:
    listing = Listing(names(count), moves=unique(moves))
    result = read(listing, Changes.ALLOW_GROWTH, at_once)
    assert len(result) == len(set(result))
    assert set(names(count)) <= set(result) <= set(listing.names)


@SOME
@given(st.integers(1, 60), AT_ONCE, GROWTH, st.integers(0, 1_000_000).map(random.Random))
def test_so_it_is_in_whatever_order_its_pages_are_answered(
    count: int, at_once: int, moves: list[list[tuple[int, str | None]]], chance: random.Random
) -> None:
    listing = Listing(names(count), moves=unique(moves))
    rehearsal, pager = Rehearsal(listing, shuffle=chance.shuffle), Pager[Any](GetLists(), Changes.ALLOW_GROWTH)
    result: list[str] = []
    while pager.next_request is not None:
        result += [record.list_name for record in rehearsal.run(next_pages(pager, at_once))]
    assert len(result) == len(set(result))
    assert set(names(count)) <= set(result) <= set(listing.names)


@SOME
@given(st.integers(1, 60), AT_ONCE, ONE_BY_ONE)
def test_growth_hides_no_removal(count: int, at_once: int, moves: list[list[tuple[int, str | None]]]) -> None:
    """Sign-ups and removals, a page between any two of them: nobody who was there all the time is missed."""
    listing = Listing(names(count), moves=unique(moves))
    try:
        result = read(listing, Changes.ALLOW_GROWTH, at_once)
    except MailIncompleteError:
        return
    assert len(result) == len(set(result))
    assert set(names(count)) - listing.removed <= set(result)


def test_a_list_that_only_grew_after_its_last_page_is_read_once() -> None:
    listing = Listing(names(25), moves=[[], [], [(99, "new")]])
    assert read(listing, Changes.ALLOW_GROWTH, at_once=1) == names(25)
    assert listing.asked == 4


def test_a_removal_while_the_list_grows_is_named() -> None:
    listing = Listing(names(50), moves=[[(99, "new")], [(4, None)]])
    with pytest.raises(MailIncompleteError, match="1 of 50 records were missing when it was read again"):
        read(listing, Changes.ALLOW_GROWTH, at_once=1)


def test_growth_does_not_excuse_a_short_list() -> None:
    listing = Listing(names(25), says=lambda n: 30 if n == 25 else 31, moves=[[(99, "new")]])
    with pytest.raises(MailIncompleteError, match="26 distinct records received, the service reports 30"):
        read(listing, Changes.ALLOW_GROWTH, at_once=1)


def test_pages_behind_the_last_say_nothing_of_the_list() -> None:
    listing = Listing(names(25))

    def forgetful(request: GetLists) -> Any:
        page = listing(request)
        return page if page.records else page.model_copy(update={"total_records": 0})

    assert read(forgetful) == names(25)


def test_no_page_is_asked_for_before_the_first_has_told_how_many_there_are() -> None:
    pager: Pager[Any] = Pager(GetLists())
    assert pager.ahead(5) == []
    pager.feed(GetLists.response.model_validate({"lists": [{"listName": "a"}, {"listName": "b"}], "totalRecords": 7}))
    assert [request.page_index for request in pager.ahead(99)] == [3, 4, 5]
    assert [request.page_index for request in pager.ahead(2)] == [3, 4]


# Over real connections.


@pytest.fixture
def everybody(emulator: Emulator) -> Emulator:
    emulator.add_list("everybody", count=95)
    return emulator


@pytest.fixture
def client(everybody: Emulator) -> Iterator[MailClient]:
    with MailClient(config(everybody.base_url, max_in_flight=4)) as client:
        yield client


def contacts(client: MailClient, at_once: int = 4, **fields: Any) -> list[Contact]:
    pages = concurrent_pages(client, GetListContacts(list_name="everybody", page_size=10, **fields), at_once)
    return [contact for page in pages for contact in page]


def test_all_contacts_once(client: MailClient, everybody: Emulator) -> None:
    assert [contact.id for contact in contacts(client)] == [
        contact["id"] for contact in everybody.contacts("everybody")
    ]
    asked = [entry["body"].get("pageIndex", 1) for entry in everybody.journal.entries(LIST)]
    assert sorted(asked) == list(range(1, 12))


def test_no_more_under_way_than_the_connection_allows(
    client: MailClient, everybody: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody.settings.latency_seconds = 0.02
    under_way, most, lock = [0], [0], threading.Lock()
    original = client.send

    def send(request: Any) -> Any:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        try:
            return original(request)
        finally:
            with lock:
                under_way[0] -= 1

    monkeypatch.setattr(client, "send", send)
    assert len(contacts(client, at_once=50)) == 95
    assert most[0] == 4


@pytest.mark.parametrize("kind", ["close_after", "http_error_before", "too_many_requests", "cut_json"])
def test_lost_pages_are_asked_for_again(client: MailClient, everybody: Emulator, kind: str) -> None:
    params = {"retry_after": 0} if kind == "too_many_requests" else {}
    everybody.faults.add(kind, LIST, skip=3, count=2, **params)
    assert len(contacts(client)) == 95


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "code_before", "code": 400}, MailRejectedError),
        ({"kind": "code_before", "code": 401}, MailAuthError),
        ({"kind": "http_error_before"}, MailServerError),
    ],
)
def test_a_page_that_does_not_come_ends_it(
    client: MailClient, everybody: Emulator, fault: dict[str, Any], error: type[MailError]
) -> None:
    everybody.faults.add(operation=LIST, count=None, where={"pageIndex": 5}, **fault)
    with pytest.raises(error):
        contacts(client)
    assert threading.active_count() < 20


@pairwise(fault=FAULTS, skip=[0, 1, 4, 9], count=[1, 2, None])
def test_pages_that_go_wrong(
    client: MailClient, everybody: Emulator, fault: tuple[str, dict[str, Any]], skip: int, count: int | None
) -> None:
    everybody.faults.add(fault[0], LIST, skip=skip, count=count, **fault[1])
    try:
        result = contacts(client)
    except MailIncompleteError:
        return
    assert sorted(contact.id or "" for contact in result) == sorted(
        contact["id"] for contact in everybody.contacts("everybody")
    )


def test_who_stops_early_waits_for_nothing_more_than_what_is_under_way(client: MailClient, everybody: Emulator) -> None:
    pages = concurrent_pages(client, GetListContacts(list_name="everybody", page_size=1), 4)
    with closing(pages):
        next(pages)
    asked = everybody.journal.count(LIST)
    assert asked <= 1 + 8 + 1
    time.sleep(0.05)
    assert everybody.journal.count(LIST) == asked
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mail-pages")]
