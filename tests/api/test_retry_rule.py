"""Backoff, Retry-After and the throttle, with a clock and a random number that the test chooses."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail import api
from tests.api.driving import Time
from tests.api.parts import Throttle, retry_after_seconds
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


def test_slots_are_spaced_evenly() -> None:
    now = Time()
    throttle, unlimited = Throttle(10.0, now), Throttle(None, now)
    assert [throttle.reserve() for _ in range(4)] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    now.now += 1.0
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([0.0, 0.1]), "unused time is not saved up"
    assert [unlimited.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_pause_holds_every_request_and_never_shortens() -> None:
    now = Time()
    throttle = Throttle(10.0, now)
    throttle.pause(5.0)
    throttle.pause(1.0)
    assert throttle.paused
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([5.0, 5.1])
    now.now += 5.0
    assert not throttle.paused


def test_no_slot_is_given_to_two_threads() -> None:
    throttle, slots, start = Throttle(1000.0, Time()), list[float](), threading.Barrier(8)

    def take() -> None:
        start.wait()
        slots.extend(throttle.reserve() for _ in range(200))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(slots) == pytest.approx([number / 1000 for number in range(1600)])
