"""The service's time is what its `Date` headers show; where they show nothing possible, it is the local time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.lists import GetLists
from mail_emulator import Emulator
from tests.api.driving import Driver
from tests.api.parts import MAX_OFFSET, ServiceClock, http_date

SENT = 1_800_000_000.25
DAY = 86_400.0
OFFSETS, WAYS = st.floats(-MAX_OFFSET + DAY, MAX_OFFSET - DAY), st.floats(0, 60)


def header(moment: float) -> dict[str, str]:
    return {"date": formatdate(moment, usegmt=True)}


@given(OFFSETS | st.just(0.0), WAYS, WAYS, st.floats(-1_000_000, 1_000_000))
def test_the_offset_is_as_exact_as_the_header(offset: float, there: float, back: float, at: float) -> None:
    """And no request is dated later than the service dated it: of a slow response not much later than it was sent."""
    sent = SENT + at
    stamped, received = sent + there, sent + there + back
    clock = ServiceClock()
    clock.observe(header(stamped + offset), sent, received)
    assert abs(clock.offset - offset) <= max(1.0, there, back) + 1.0
    assert abs(clock.offset) <= abs(offset), "the smallest offset that explains the header"
    assert clock.asked_at is not None
    asked = clock.asked_at.timestamp() - offset
    if clock.offset:
        assert sent - 1.0 - back - 1e-3 <= asked <= min(stamped, sent + 2.0) + 1e-3
    else:
        assert clock.asked_at.timestamp() == pytest.approx(sent, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "tomorrow", "2027-01-15T08:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
        "Fri, 99 Dec 2027 23:59:59 GMT", "Fri, 31 Dec 2027 23:59:59 +9999999999",
    ],
)  # fmt: skip
def test_what_cannot_be_the_time_is_ignored(text: str | None) -> None:
    headers = {} if text is None else {"date": text}
    clock = ServiceClock()
    clock.observe(headers, SENT, SENT)
    assert (clock.offset, clock.asked_at) == (0.0, None)
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
def test_both_clients_know_the_time_of_the_service(emulator: Emulator, client: Driver, days: int) -> None:
    clock = client.client.service_clock
    for offset in (days * DAY, -days * DAY):
        emulator.clock.advance(offset)
        client.send(GetLists())
        assert clock.now().timestamp() == pytest.approx(emulator.clock.now().timestamp(), abs=30)


def test_only_responses_of_the_service_count(emulator: Emulator, client: Driver) -> None:
    """A failure may come from a proxy, which has a clock of its own; without a date it is the local time."""
    emulator.clock.advance(2 * DAY)
    emulator.faults.add("html_before", "lists/get", count=3)
    with pytest.raises(MailError):
        client.send(GetLists())
    emulator.settings.date_header = False
    client.send(GetLists())
    assert client.client.service_clock.offset == 0.0


def test_the_earliest_request_of_a_reading_dates_it() -> None:
    clock = ServiceClock()
    assert clock.asked_at is None
    for sent in (SENT + 5, SENT + 3, SENT + 9):
        clock.observe(header(sent), sent, sent)
    assert clock.asked_at == datetime.fromtimestamp(SENT + 3, UTC)
    clock.restart()
    clock.observe({}, SENT, SENT)
    assert clock.asked_at is None
