"""Back-off, Retry-After and the throttle, with the dice and the clock in hand."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api._core.requests import Effect
from airflow_provider_mail.api._core.retry import Throttle, retry_after_seconds
from airflow_provider_mail.api.config import RetryRule
from airflow_provider_mail.api.errors import (
    MailAnswerError,
    MailAnswerLostError,
    MailAuthError,
    MailConfigError,
    MailConflictError,
    MailConnectError,
    MailError,
    MailIncompleteCampaignError,
    MailRateLimitError,
    MailRejectedError,
    MailSandboxError,
    MailServerError,
    MailValidationError,
)
from tests.api.driving import Time

RULE = RetryRule(attempts=5, total_seconds=300, base_seconds=0.5, cap_seconds=30, retry_after_cap_seconds=120)

FINAL = [MailAuthError, MailConfigError, MailConflictError, MailIncompleteCampaignError, MailRejectedError,
         MailSandboxError, MailValidationError]  # fmt: skip
NEVER_ARRIVED = [MailConnectError, MailRateLimitError]
UNKNOWN = [MailAnswerLostError, MailAnswerError, MailServerError]


def pause(
    error: MailError,
    effect: Effect = Effect.READ,
    attempt: int = 1,
    elapsed: float = 0.0,
    draw: float = 1.0,
    rule: RetryRule = RULE,
) -> float | None:
    return rule.pause_before_repeat(error, attempt, elapsed, repeatable=effect.repeatable, draw=lambda: draw)


@pytest.mark.parametrize("effect", Effect)
def test_what_is_repeated(effect: Effect) -> None:
    for final in FINAL:
        assert pause(final("no"), effect) is None
    for error in NEVER_ARRIVED:
        assert pause(error("later"), effect) is not None
    for error in UNKNOWN:
        repeated = effect in (Effect.READ, Effect.REPEATABLE, Effect.DELETE)
        assert (pause(error("lost"), effect) is not None) == repeated


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_pause_is_full_jitter_under_a_doubling_and_capped_bound(attempt: int, draw: float) -> None:
    error = MailConnectError("x")
    rule = RetryRule(attempts=20_000, base_seconds=0.5, cap_seconds=30)
    waits = pause(error, attempt=attempt, draw=draw, rule=rule)
    assert waits is not None
    bound = min(30.0, 0.5 * 2 ** min(attempt - 1, 40))
    assert waits == pytest.approx(draw * bound)


def test_attempts_are_bounded_but_for_429() -> None:
    assert pause(MailServerError("x"), attempt=4) is not None
    assert pause(MailServerError("x"), attempt=5) is None
    assert pause(MailConnectError("x"), attempt=5) is None
    assert pause(MailRateLimitError("x"), attempt=500) is not None
    assert pause(MailRateLimitError("x"), rule=RetryRule(attempts=1)) is None, "1 repeats nothing"


@pytest.mark.parametrize("error", [MailServerError("x"), MailConnectError("x"), MailRateLimitError("x")])
def test_total_time_is_bounded(error: MailError) -> None:
    assert pause(error, elapsed=299.4) is not None
    assert pause(error, elapsed=299.6) is None
    assert pause(error, elapsed=300.1, draw=0.0) is None


@pytest.mark.parametrize("asked", [None, 0.0, 1.0])
@pytest.mark.parametrize("draw", [0.5, 1.0])
def test_endless_429_end_in_bounded_time_and_requests(asked: float | None, draw: float) -> None:
    elapsed, sent = 0.0, 1
    error = MailRateLimitError("x", retry_after=asked)
    while (waits := pause(error, attempt=sent, elapsed=elapsed, draw=draw)) is not None:
        elapsed += waits
        sent += 1
    assert elapsed <= 300
    assert 5 < sent < 30


@pytest.mark.parametrize("kind", [MailRateLimitError, MailServerError])
def test_retry_after_is_honoured_under_its_cap(kind: type[Any]) -> None:
    assert pause(kind("x", retry_after=7.0), draw=0.0) == 7.0
    assert pause(kind("x", retry_after=7.0), draw=1.0) == 7.5, "whoever was told the same must not return together"
    assert pause(kind("x", retry_after=120.0), draw=0.0) == 120.0
    assert pause(kind("x", retry_after=120.1), draw=0.0) is None
    assert pause(kind("x", retry_after=100.0), elapsed=250, draw=0.0) is None


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("0", 0, 0), ("7", 7, 7), (" 7 ", 7, 7), ("1.5", 1.5, 1.5), ("0120", 120, 120),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0), ("Wed, 21 Oct 2015 07:28:00 -0000", 0, 0),
    ],
)  # fmt: skip
def test_retry_after_that_can_be_read(value: str, least: float, most: float) -> None:
    seconds = retry_after_seconds({"retry-after": value})
    assert seconds is not None
    assert least <= seconds <= most


def test_retry_after_as_a_date_counts_from_now() -> None:
    seconds = retry_after_seconds({"retry-after": in_seconds(60)})
    assert seconds is not None
    assert 50 < seconds <= 60
    assert retry_after_seconds({"retry-after": in_seconds(-60)}) == 0


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-1", "nan", "inf", "-inf", "1e400", "9" * 400, "²", "Wed", "0 0 0 0 0 0", "1:2:3",
     "Oct +999999999999999999999999 10000 99:99:99", "Wed, 99 Oct 2015 07:28:00 GMT", "\x00"],
)  # fmt: skip
def test_retry_after_that_is_nonsense(value: str) -> None:
    assert retry_after_seconds({"retry-after": value}) is None
    assert retry_after_seconds({}) is None


DATE_WORDS = ["Mon,", "Oct", "2015", "21", "07:28:00", "GMT", "99999999999999999999", "-1", "+9999", ":", "1:2:3:4",
              "99:99:99", ",", "-", "+999999999999999999999999", "10000"]  # fmt: skip


@given(st.text(max_size=30) | st.lists(st.sampled_from(DATE_WORDS), max_size=7).map(" ".join))
def test_retry_after_never_crashes(value: str) -> None:
    seconds = retry_after_seconds({"retry-after": value})
    assert seconds is None or seconds >= 0


def test_places_are_spaced_evenly() -> None:
    now = Time()
    throttle = Throttle(10.0, now)
    assert [throttle.reserve() for _ in range(4)] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    now.now += 1.0
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([0.0, 0.1]), "unused time is not saved up"


def test_without_a_rate_nobody_waits() -> None:
    throttle = Throttle(None, Time())
    assert [throttle.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_hold_stops_everybody_and_never_shortens() -> None:
    now = Time()
    throttle = Throttle(10.0, now)
    throttle.pause(5.0)
    throttle.pause(1.0)
    assert throttle.paused
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([5.0, 5.1])
    now.now += 5.0
    assert not throttle.paused


def test_no_place_is_given_twice_to_threads() -> None:
    throttle = Throttle(1000.0, Time())
    places: list[float] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        for _ in range(200):
            places.append(throttle.reserve())  # noqa: PERF401

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(places) == pytest.approx([number / 1000 for number in range(1600)])


def test_the_clock_is_real_by_default() -> None:
    throttle = Throttle(50.0)
    first = time.monotonic()
    assert throttle.reserve() == 0.0
    assert 0.0 < throttle.reserve() <= 0.02 + (time.monotonic() - first)
