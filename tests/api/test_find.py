"""Finding the one record of an exact name among many that contain it: several pages under way, and the same proof."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api._core.interrupt import Interrupt
from airflow_provider_mail.api._core.requests import Concurrent, Flow
from airflow_provider_mail.api.campaigns import existing_campaigns, find_campaign
from airflow_provider_mail.api.client import AsyncMailClient, MailClient
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailError,
    MailIncompleteError,
    MailInterruptedError,
    MailRejectedError,
    MailServerError,
)
from airflow_provider_mail.api.lists import GetLists, find_list
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver, Rehearsal, driver
from tests.api.test_pages_at_once import config
from tests.api.test_paging import CAPS, ENDS, INSERTS, NAMES, End, Listing, names, unique

GET = "campaign/mail/get"


@given(st.lists(NAMES, max_size=60, unique=True), NAMES, CAPS, ENDS, INSERTS, st.randoms(use_true_random=False))
def test_it_is_exact_in_whatever_order_the_pages_are_answered(
    there: list[str], wanted: str, cap: int, end: End, moves: Any, random: Random
) -> None:
    listing = Listing(list(there), cap=cap, end=end, moves=unique(moves))
    try:
        found = Rehearsal(listing, shuffle=random.shuffle).run(find_list(wanted))
    except MailError as error:
        assert isinstance(error, MailIncompleteError | MailRejectedError)  # noqa: PT017
        assert moves
        return
    assert (found.list_name if found else None) == (wanted if wanted in there else None)


def with_list(place: int, count: int) -> list[str]:
    """Many names that contain "list", and at one place the name itself."""
    return [*names(place), "list", *(f"another list {number}" for number in range(count - place))]


def test_it_takes_few_rounds_and_stops_at_the_name() -> None:
    for place, rounds, pages in ((0, 1, 1), (1234, 4, 15), (9_990, 10, 101)):
        rehearsal = Rehearsal(Listing(with_list(place, 9_999)))
        assert rehearsal.run(find_list("list")).list_name == "list"
        assert (rehearsal.steps, len(rehearsal.asked)) == (rounds, pages)


@pytest.mark.parametrize("kind", [MailServerError, MailRejectedError])
def test_a_page_that_does_not_come_matters_only_if_it_is_needed(kind: type[MailError]) -> None:
    def answer(request: GetLists) -> Any:
        if (request.page_index or 1) >= 6:
            return kind("fails", operation=request.path)
        return listing(request)

    listing = Listing(with_list(499, 1000))
    assert Rehearsal(answer).run(find_list("list")).list_name == "list"
    listing = Listing(with_list(500, 1000))
    with pytest.raises(kind):
        Rehearsal(answer).run(find_list("list"))


# Over real connections.


@pytest.fixture
def many(emulator: Emulator) -> Emulator:
    for number in range(1200):
        emulator.add_campaign(f"spring {number}", sent=1)
    return emulator


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_no_more_under_way_than_the_connection_allows(
    kind: str, many: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, under_way, lock = 0, 0, threading.Lock()

    def count(change: int) -> None:
        nonlocal most, under_way
        with lock:
            under_way += change
            most = max(most, under_way)

    send, send_async = MailClient.send, AsyncMailClient.send

    def watched(client: MailClient, request: Any) -> Any:
        count(1)
        try:
            return send(client, request)
        finally:
            count(-1)

    async def watched_async(client: AsyncMailClient, request: Any) -> Any:
        count(1)
        try:
            return await send_async(client, request)
        finally:
            count(-1)

    monkeypatch.setattr(MailClient, "send", watched)
    monkeypatch.setattr(AsyncMailClient, "send", watched_async)
    many.settings.latency_seconds = 0.02
    client = driver(kind, config(many.base_url, max_in_flight=3))

    assert client.run(find_campaign("spring")) is None

    client.close()
    assert most == 3
    asked = [entry["body"].get("pageIndex", 1) for entry in many.journal.entries(GET)]
    assert sorted(asked) == list(range(1, 14))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mail-requests")]


@pytest.mark.both_clients
def test_errors_are_results_of_single_requests(emulator: Emulator, client: Driver) -> None:
    emulator.add_list("news")
    emulator.faults.add("code_before", "lists/get", code=401, count=None, where={"search": "old"})

    def flow() -> Flow[Any]:
        return (yield Concurrent([GetLists(search="news"), GetLists(search="old"), GetLists()]))

    found, failed, every = client.run(flow())
    assert [one.list_name for one in found.records] == [one.list_name for one in every.records] == ["news"]
    assert isinstance(failed, MailAuthError)


@pytest.mark.both_clients
def test_lost_pages_are_asked_for_again(many: Emulator, client: Driver) -> None:
    many.faults.add("close_after", GET, skip=2, count=5)
    many.add_campaign("spring", sent=1)
    assert client.run(find_campaign("spring")).mail_name == "spring"


@pytest.mark.not_unit
def test_an_interrupt_ends_it(many: Emulator) -> None:
    interrupt = Interrupt()
    many.faults.add("delay", GET, count=None, seconds=25, where={"pageIndex": 3})
    with MailClient(config(many.base_url)) as client:
        timer = threading.Timer(0.3, interrupt.stop)
        timer.start()
        started = time.monotonic()
        with pytest.raises(MailInterruptedError):
            interrupt.run(client.run, find_campaign("spring"))
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(("wanted", "requests"), [(3, 6), (25, 2)])
def test_names_that_exist_are_found_one_by_one_or_in_the_list(
    emulator: Emulator, client: Driver, wanted: int, requests: int
) -> None:
    """Names that contain another one are others."""
    emulator.add_campaigns(30, prefix="news", first_day="2026-01-01")
    names = [f"news-{number:06}" for number in range(wanted - 1)]
    emulator.journal.clear()
    assert client.run(existing_campaigns([*names, "news-00000"])) == set(names)
    assert emulator.journal.count(GET) <= requests


def test_without_a_total_it_is_not_known_which_names_exist(emulator: Emulator, client: Driver) -> None:
    emulator.faults.add("wrong_total", GET, count=None, by=None)
    with pytest.raises(MailIncompleteError, match="no response has a valid totalRecords"):
        client.run(existing_campaigns(["news"]))
