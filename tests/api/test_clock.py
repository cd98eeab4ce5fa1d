"""The service's time is what its `Date` headers show; where they show nothing that can be, it is the local time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api._core.clock import MAX_OFFSET, ServiceClock, http_date
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver

SENT = 1_800_000_000.25
DAY = 86_400.0


def header(moment: float) -> dict[str, str]:
    return {"date": formatdate(moment, usegmt=True)}


def ahead(clock: ServiceClock) -> float:
    """Seconds by which the clock tells a later time than the local one."""
    return (clock.now() - datetime.now(UTC)).total_seconds()


@given(
    st.floats(-MAX_OFFSET + DAY, MAX_OFFSET - DAY), st.floats(0, 60), st.floats(0, 60), st.floats(-1_000_000, 1_000_000)
)
def test_the_offset_is_as_exact_as_the_header(offset: float, way_there: float, way_back: float, at: float) -> None:
    sent = SENT + at
    stamped = sent + way_there
    clock = ServiceClock()

    clock.observe(header(stamped + offset), sent, stamped + way_back)

    assert abs(clock.offset - offset) <= max(1.0, way_there, way_back) + 1.0
    assert abs(clock.offset) <= abs(offset), "the smallest offset that explains the header"


@given(st.floats(0, 60), st.floats(0, 60), st.floats(-1_000_000, 1_000_000))
def test_clocks_that_agree_have_no_offset(way_there: float, way_back: float, at: float) -> None:
    sent = SENT + at
    clock = ServiceClock()

    clock.observe(header(sent + way_there), sent, sent + way_there + way_back)

    assert clock.offset == 0.0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"date": ""},
        {"date": "tomorrow"},
        {"date": "2027-01-15T08:00:00Z"},
        {"date": "Thu, 01 Jan 1970 00:00:00 GMT"},
        {"date": "Fri, 31 Dec 9999 23:59:59 GMT"},
        {"date": "Fri, 99 Dec 2027 23:59:59 GMT"},
        {"date": "Fri, 31 Dec 2027 23:59:59 +9999999999"},
    ],
)
def test_what_cannot_be_the_time_is_ignored(headers: dict[str, str]) -> None:
    clock = ServiceClock()
    clock.observe(headers, SENT, SENT)
    assert clock.offset == 0.0

    clock.observe(header(SENT + DAY), SENT, SENT)
    known = clock.offset
    clock.observe(headers, SENT, SENT)
    assert clock.offset == known > DAY - 2


@given(st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{1,6} [\d:]{1,9} [-+A-Z\d]{1,6}"))
def test_any_text_is_a_moment_or_none(text: str) -> None:
    moment = http_date(text)
    assert moment is None or moment.utcoffset() == timedelta(0)


@pytest.mark.both_clients
@pytest.mark.parametrize("days", [-400, -2, 2, 400])
def test_both_clients_tell_the_time_of_the_service(emulator: Emulator, client: Driver, days: int) -> None:
    clock = client.client.service_clock
    emulator.clock.advance(days * DAY)
    assert ahead(clock) == pytest.approx(0, abs=1)

    client.send(GetLists())
    assert ahead(clock) == pytest.approx(days * DAY, abs=30)

    emulator.clock.advance(-days * DAY)
    client.send(GetLists())
    assert ahead(clock) == pytest.approx(0, abs=1)


def test_only_responses_of_the_service_count(
    emulator: Emulator, connect: Callable[..., Driver], client: Driver
) -> None:
    """A failure may come from a proxy, which has a clock of its own."""
    emulator.clock.advance(2 * DAY)
    emulator.faults.add("html_before", "lists/get", count=None)
    with pytest.raises(MailError):
        client.send(GetLists())
    assert client.client.service_clock.offset == 0.0


def test_without_a_date_it_is_the_local_time(emulator: Emulator, client: Driver) -> None:
    emulator.settings.date_header = False
    emulator.clock.advance(2 * DAY)
    client.send(GetLists())
    assert client.client.service_clock.time() == pytest.approx(time.time(), abs=1)


@given(st.floats(-MAX_OFFSET + DAY, MAX_OFFSET - DAY), st.floats(0, 60), st.floats(0, 60), st.floats(0, 1))
def test_a_request_is_never_dated_later_than_it_was_stamped(
    offset: float, way_there: float, way_back: float, fraction: float
) -> None:
    """Whatever the local clock says: to the second, and of a slow response not much later than it was sent."""
    sent = SENT + fraction
    stamped, received = sent + way_there, sent + way_there + way_back
    clock = ServiceClock()

    clock.observe(header(stamped + offset), sent, received)

    assert clock.asked_at is not None
    asked = clock.asked_at.timestamp() - offset
    if clock.offset:
        assert asked <= stamped + 1e-3
        assert asked <= sent + 2.0 + 1e-3
        assert asked >= sent - 1.0 - way_back - 1e-3
    else:
        assert clock.asked_at.timestamp() == pytest.approx(sent, abs=1e-3)


def test_the_earliest_request_of_a_reading_dates_it() -> None:
    clock = ServiceClock()
    assert clock.asked_at is None
    for sent in (SENT + 5, SENT + 3, SENT + 9):
        clock.observe(header(sent), sent, sent)
    assert clock.asked_at == datetime.fromtimestamp(SENT + 3, UTC)
    clock.restart()
    clock.observe({}, SENT, SENT)
    assert clock.asked_at is None
