"""Finding the record of an exact name among many that contain it: with concurrent pages, and the same proof."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail import api
from airflow_provider_mail.api.campaigns import existing_campaigns
from mail_emulator import Emulator
from tests.api.driving import Driver, Rehearsal
from tests.api.parts import Concurrent, Flow
from tests.api.test_paging import CAPS, ENDS, JOINS, End, Listing, Moves, in_turn, names
from tests.api.wire import Gate

GET = "campaign/mail/get"
NAMES = st.text(alphabet="aAbB-", min_size=1, max_size=4)


@given(st.lists(NAMES, max_size=60, unique=True), NAMES, CAPS, ENDS, JOINS, st.randoms(use_true_random=False))
def test_the_name_is_exact_in_whatever_order_pages_arrive(
    existing: list[str], wanted: str, cap: int, end: End, changes: Moves, random: Random
) -> None:
    listing = Listing(list(existing), cap=cap, end=end, moves=changes)
    try:
        record = Rehearsal(listing, shuffle=random.shuffle).run(api.find_list(wanted))
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
        assert rehearsal.run(api.find_list("list")).list_name == "list"
        assert (rehearsal.steps, len(rehearsal.asked)) == (rounds, pages)


@pytest.mark.parametrize("kind", [api.MailServerError, api.MailRejectedError])
def test_a_page_that_fails_matters_only_if_it_is_needed(kind: type[api.MailError]) -> None:
    def read(place: int) -> Any:
        listing = Listing(with_list(place, 1000))
        fails = kind("fails", operation=api.GetLists.path)
        return Rehearsal(lambda request: fails if (request.page_index or 1) >= 6 else listing(request))

    assert read(499).run(api.find_list("list")).list_name == "list"
    with pytest.raises(kind):
        read(500).run(api.find_list("list"))


def test_a_list_that_moved_is_read_again_once() -> None:
    listing = Listing(names(250), moves=[[(4, False)]])
    assert Rehearsal(listing).run(api.find_list("list")) is None
    assert listing.asked == 4 + 4, "three pages and the empty one, twice"
    with pytest.raises(api.MailIncompleteError):
        Rehearsal(Listing(names(250), says=lambda n: n + 1)).run(api.find_list("list"))


@pytest.mark.parametrize("total", [None, -1])
def test_without_a_total_a_missing_name_proves_nothing(total: int | None, emulator: Emulator, client: Driver) -> None:
    listing = Listing(names(25), says=lambda _: total)
    assert Rehearsal(listing).run(api.find_list("list-3")).list_name == "list-3"
    with pytest.raises(api.MailIncompleteError, match="no response has a valid totalRecords"):
        Rehearsal(listing).run(api.find_list("list"))
    emulator.faults.add("wrong_total", GET, count=None, by=None)
    with pytest.raises(api.MailIncompleteError, match="no response has a valid totalRecords"):
        client.run(existing_campaigns(["news"]))


def test_a_list_with_fewer_pages_than_requested_ends() -> None:
    """The number of pages is calculated from the largest one so far: a larger one makes it too high."""
    rehearsal = Rehearsal(in_turn([names(40)[a:b] for a, b in [(0, 2), (2, 4), (4, 6), (6, 40)]], total=40))
    assert rehearsal.run(api.find_list("list")) is None
    assert [request.page_index or 1 for request in rehearsal.asked] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.both_clients
def test_no_more_requests_than_the_connection_allows(connect: Any) -> None:
    def respond(body: dict[str, Any]) -> dict[str, Any]:
        first = (body.get("pageIndex", 1) - 1) * 100
        names = [str(number) for number in range(first, min(first + 100, 1200))]
        return {"mailList": [{"mailName": n, "guid": n, "mailStatus": 2} for n in names], "totalRecords": 1200}

    with Gate(3, respond, is_held=lambda body: body.get("pageIndex", 1) > 3) as gate:
        assert connect(gate.base_url, max_in_flight=3).run(api.find_campaign("spring")) is None
    assert gate.most == 3
    assert sorted(body.get("pageIndex", 1) for body in gate.bodies) == list(range(1, 14))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mail-requests")]


@pytest.mark.both_clients
def test_errors_are_results_of_single_requests(emulator: Emulator, client: Driver) -> None:
    emulator.add_list("news")
    emulator.faults.add("code_before", "lists/get", code=401, count=None, where={"search": "old"})

    def flow() -> Flow[Any]:
        return (yield Concurrent([api.GetLists(search="news"), api.GetLists(search="old"), api.GetLists()]))

    found, failed, every = client.run(flow())
    assert [one.list_name for one in found.records] == [one.list_name for one in every.records] == ["news"]
    assert isinstance(failed, api.MailAuthError)


def test_the_exact_name_among_those_that_contain_it(emulator: Emulator, client: Driver) -> None:
    """With lost pages on the way, and whichever way the service compares and sorts."""
    existing = ("News", "news", "100%_news", "néws", "新闻")
    for number in range(150):
        emulator.add_campaign(f"news {number}", sent=1)
    for name in (*existing, "news-2", "old news"):
        emulator.add_list(name)
        emulator.add_campaign(name, sent=1)
        emulator.add_template(name, subject=name, content="c")
    finders = ((api.find_list, "list_name"), (api.find_template, "template_name"), (api.find_campaign, "mail_name"))
    for ignores_case, newest_first in ((True, False), (False, True)):
        emulator.settings.contains_ignores_case, emulator.settings.newest_first = ignores_case, newest_first
        emulator.faults.add("close_after", GET, skip=2, count=2)
        for find, attribute in finders:
            assert [getattr(client.run(find(name)), attribute) for name in existing] == list(existing)
            assert [client.run(find(name)) for name in ("new", "NEWS", "ews", "%")] == [None] * 4


@pytest.mark.parametrize(("wanted", "requests"), [(3, 6), (25, 2)])
def test_existing_names_are_found_one_by_one_or_in_the_list(
    emulator: Emulator, client: Driver, wanted: int, requests: int
) -> None:
    """Names that contain another one are others."""
    emulator.add_campaigns(30, prefix="news", first_day="2026-01-01")
    existing = [f"news-{number:06}" for number in range(wanted - 1)]
    emulator.journal.clear()
    assert client.run(existing_campaigns([*existing, "news-00000"])) == set(existing)
    assert emulator.journal.count(GET) <= requests
