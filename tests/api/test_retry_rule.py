"""Backoff, Retry-After and the throttle, with a clock and a random number that the test chooses; the service's time.

The service's time is what its `Date` headers show; where they show nothing possible, it is the local time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail import api
from mail_emulator import Emulator
from tests.api.driving import Driver, Time
from tests.api.parts import MAX_OFFSET, ServiceClock, Throttle, retry_after_seconds
from tests.support.clock import Clock

RULE = api.RetryRule(attempts=5, total_seconds=300, base_seconds=0.5, cap_seconds=30, retry_after_cap_seconds=120)
FINAL = [
    api.MailAuthError, api.MailConfigError, api.MailConflictError, api.MailIncompleteCampaignError,
    api.MailRejectedError, api.MailSandboxError, api.MailValidationError,
]  # fmt: skip
NEVER_ARRIVED = [api.MailConnectError, api.MailRateLimitError]
UNKNOWN = [api.MailAnswerLostError, api.MailAnswerError, api.MailServerError]


def pause(
    error: api.MailError, attempt: int = 1, elapsed: float = 0.0, draw: float = 1.0, rule: api.RetryRule = RULE,
    *, repeatable: bool = True,
) -> float | None:  # fmt: skip
    return rule.pause_before_repeat(error, attempt, elapsed, repeatable=repeatable, draw=lambda: draw)


@pytest.mark.parametrize("repeatable", [True, False])
def test_what_is_repeated(repeatable: bool) -> None:
    expected = dict.fromkeys(FINAL, False) | dict.fromkeys(NEVER_ARRIVED, True) | dict.fromkeys(UNKNOWN, repeatable)
    assert {kind: pause(kind("x"), repeatable=repeatable) is not None for kind in expected} == expected


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_pause_is_full_jitter_below_a_doubling_bound(attempt: int, draw: float) -> None:
    rule = api.RetryRule(attempts=20_000, base_seconds=0.5, cap_seconds=30)
    seconds = pause(api.MailConnectError("x"), attempt=attempt, draw=draw, rule=rule)
    assert seconds == pytest.approx(draw * min(30.0, 0.5 * 2 ** min(attempt - 1, 40)))


LIMITED, BUSY, AWAY = api.MailRateLimitError("x"), api.MailServerError("x"), api.MailConnectError("x")


def retry_after(seconds: float) -> list[api.MailError]:
    return [kind("x", retry_after=seconds) for kind in (api.MailRateLimitError, api.MailServerError)]


@pytest.mark.parametrize(
    ("errors", "changes", "seconds"),
    [
        # The number of attempts, which a 429 does not count for; 1 repeats nothing.
        ([BUSY], {"attempt": 4, "draw": 0.0}, 0.0),
        ([BUSY, AWAY], {"attempt": 5}, None),
        ([LIMITED], {"attempt": 500, "draw": 0.0}, 0.0),
        ([LIMITED], {"rule": api.RetryRule(attempts=1)}, None),
        # The total time, of every error.
        ([BUSY, AWAY, LIMITED], {"elapsed": 299.4}, 0.5),
        ([BUSY, AWAY, LIMITED], {"elapsed": 299.6}, None),
        ([LIMITED], {"elapsed": 300.1, "draw": 0.0}, None),
        # Retry-After, up to its limit, with jitter on top: clients with the same value must not return together.
        (retry_after(7), {"draw": 0.0}, 7.0),
        (retry_after(7), {"draw": 1.0}, 7.5),
        (retry_after(120), {"draw": 0.0}, 120.0),
        (retry_after(120.1), {"draw": 0.0}, None),
        (retry_after(100), {"elapsed": 250, "draw": 0.0}, None),
    ],
)
def test_the_limits_of_a_pause(errors: list[api.MailError], changes: dict[str, Any], seconds: float | None) -> None:
    assert {pause(error, **changes) for error in errors} == {seconds}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("7", 7), (" 7 ", 7), ("1.5", 1.5), ("0120", 120),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("Wed, 21 Oct 2015 07:28:00 -0000", 0),
        *((value, None) for value in (
            "", "soon", "-1", "nan", "inf", "-inf", "1e400", "9" * 400, "²", "Wed", "0 0 0 0 0 0", "1:2:3", "\x00",
            "Oct +999999999999999999999999 10000 99:99:99", "Wed, 99 Oct 2015 07:28:00 GMT",
        )),
    ],
)  # fmt: skip
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after_seconds({"retry-after": value}) == seconds


def test_retry_after_as_a_date_counts_from_now(clock: Clock) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    assert retry_after_seconds({"retry-after": until}) == pytest.approx(86_400, abs=60)
    clock.sleep(90_000)
    assert retry_after_seconds({"retry-after": until}) == 0
    assert retry_after_seconds({}) is None


def test_slots_are_spaced_evenly_and_behind_a_pause() -> None:
    now = Time()
    throttle, unlimited = Throttle(10.0, now), Throttle(None, now)
    assert [throttle.reserve() for _ in range(4)] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    now.now += 1.0
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([0.0, 0.1]), "unused time is not saved up"
    now.now += 0.5
    assert [unlimited.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    throttle.pause(5.0)
    throttle.pause(1.0)
    assert throttle.paused, "a pause is not shortened"
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([5.0, 5.1])
    now.now += 5.0
    assert not throttle.paused


# The service's clock.

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


def test_only_responses_of_the_service_count(emulator: Emulator, client: Driver) -> None:
    """A failure may come from a proxy, which has a clock of its own; without a date it is the local time."""
    emulator.clock.advance(2 * DAY)
    emulator.faults.add("html_before", "lists/get", count=3)
    with pytest.raises(api.MailError):
        client.send(api.GetLists())
    emulator.settings.date_header = False
    client.send(api.GetLists())
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
