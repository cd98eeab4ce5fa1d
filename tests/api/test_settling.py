"""What polls of a campaign's statistics mean: every row of them, against a model; and examples."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import CampaignStats
from airflow_provider_mail.api.errors import MailAuthError, MailError, MailServerError
from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget, WaitStatus
from airflow_provider_mail.api.flows.waits import MAX_STATS_PAUSE, StatsPollResult, StatsStabilityTracker, find_stats
from mail_emulator import Emulator
from tests.api.driving import Driver
from tests.machines.waiting_model import CONFIRM_SECONDS

SENT = datetime(2026, 3, 10, 9, tzinfo=UTC)
SENT_AT = SENT.timestamp()
HOUR = 3600.0
BLIP, KEY = MailServerError("blip"), MailAuthError("the key is rejected")
Results = list[tuple[StatsPollResult, float]]


def record(opens: int, send_time: datetime | None = SENT, name: str = "news") -> CampaignStats:
    counts = {"sentCount": 100, "clickCount": 0, "hardBounce": 0, "softBounce": 0, "unsentCount": 0}
    millis = None if send_time is None else int(send_time.timestamp() * 1000)
    return CampaignStats.model_validate(
        {"mailName": name, "mailSendDate": millis, "openCount": opens, "unsubscribeCount": 0, **counts}
    )


def tracker(errors: PollErrorBudget | None = None, **options: Any) -> StatsStabilityTracker:
    return StatsStabilityTracker("news", errors, **{"stable_checks": 3, "min_interval": HOUR} | options)


def decisions(
    results: Results, errors: dict[str, Any] | None = None, *, restarts: bool = False, **options: Any
) -> list[PollDecision]:
    """The decisions of one process or, if it ``restarts``, of another one after each poll."""
    settling = tracker(PollErrorBudget(**(errors or {})), **options)
    found = []
    for result, after in results:
        found.append(settling.decide(result, SENT_AT + after))
        if restarts:
            state = json.loads(json.dumps(settling.state))
            settling = tracker(PollErrorBudget(**(errors or {})), state=state, **options)
    return found


def same(opens: int | None, *hours: float) -> Results:
    return [(None if opens is None else record(opens), hour * HOUR) for hour in hours]


def expected(results: Results, needed: int, apart: float, age: float | None) -> WaitStatus:
    """The rules, read off the whole row of polls that found the record, backwards from the last."""
    last, at = results[-1]
    if isinstance(last, MailError):
        return WaitStatus.WAITING
    if last is None:
        found = [(result, when) for result, when in results if not isinstance(result, MailError)]
        existed = any(result is not None for result, _ in found)
        missing = list(takewhile(lambda each: each[0] is None, reversed(found)))
        gone = len(missing) > 1 and at - missing[-1][1] >= CONFIRM_SECONDS
        return WaitStatus.FAILED if existed and gone else WaitStatus.WAITING
    if age is not None and at >= age:
        return WaitStatus.COMPLETE
    good = [(result.open_count, when) for result, when in results if isinstance(result, CampaignStats)]
    while any(opens != last.open_count for opens, _ in good):
        good.pop(0)
    counted = [good[0][1]]
    for _, when in good[1:]:
        if when - counted[-1] >= apart * 0.99:
            counted.append(when)
    return WaitStatus.COMPLETE if len(counted) >= needed else WaitStatus.WAITING


RESULTS = st.just(None) | st.just(BLIP) | st.integers(0, 2).map(record)
PAUSES = st.sampled_from([60.0, 1800.0, HOUR - 1, HOUR, 2 * HOUR])
AGES = st.sampled_from([None, 0.0, 3 * HOUR, 40 * HOUR])


@given(st.lists(st.tuples(RESULTS, PAUSES), min_size=1, max_size=16), st.integers(2, 4), AGES, st.integers(0, 16))
def test_every_row_of_polls(steps: Results, needed: int, age: float | None, restart: int) -> None:
    options: dict[str, Any] = {"stable_checks": needed, "max_age": age}
    settling = tracker(PollErrorBudget(timeout=1e9), **options)
    results: Results = []
    after = 0.0
    for number, (result, pause) in enumerate(steps):
        if number == restart:  # another process continues
            settling = tracker(PollErrorBudget(timeout=1e9), state=json.loads(json.dumps(settling.state)), **options)
        after += pause
        results.append((result, after))
        decision = settling.decide(result, SENT_AT + after)
        assert decision.status is expected(results, needed, HOUR, age), results
        if decision.status is WaitStatus.COMPLETE:
            assert isinstance(result, CampaignStats)
            assert decision.result["open_count"] == result.open_count
        if decision.status is not WaitStatus.WAITING:
            return


AGE = {"stable_checks": None, "max_age": 24 * HOUR}
FEW = {"max_errors": 1, "timeout": 10}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("results", "options", "ends", "message"),
    [
        (same(7, 0, 1, 2), {}, "complete", "statistics of campaign 'news' are final: the same in 3 of 3 observations"),
        ([(record(7), number * 600.0) for number in range(13)], {}, "complete", "3 of 3"),
        (same(7, 0, 1) + same(8, 1.5, 2.5, 3.5), {}, "complete", "3 of 3"),
        (same(7, 1, 23) + same(9, 24), AGE, "complete", "it was sent 1 day, 0:00:00 ago"),
        (same(7, 1, 23), AGE, "waiting", "are not old enough"),
        # Without a send time there is no age.
        ([(record(7, None), 99 * HOUR)], AGE, "waiting", "are not old enough"),
        # Nothing counts before the send time.
        (same(0, -5, -4, -3, -2, -1), {}, "waiting", "it will be sent at 2026-03-10 09:00:00 UTC"),
        (same(0, -5, -4, -3, 1, 2), {}, "waiting", "2 of 3"),
        (same(None, *range(50)), {}, "waiting", "there are no statistics of a campaign 'news' (yet)"),
        (same(1, 0) + same(None, 1), {}, "waiting", "were not found (any more)"),
        (same(1, 0) + same(None, 1, 2), {}, "failed", "have disappeared: was it deleted?"),
        (same(1, 0) + [(None, float(number)) for number in range(301)], {}, "failed", "have disappeared"),
        ([(KEY, 0)], {}, "refused", "the key is rejected"),
        ([(record(1), 0), (KEY, 1), (KEY, 11)], {"errors": FEW}, "refused", "2 polls in a row failed"),
        ([(BLIP, 0), (BLIP, 10)], {"errors": FEW}, "error", "2 polls in a row failed"),
    ],
)
def test_how_a_row_of_polls_ends(
    results: Results, options: dict[str, Any], ends: str, message: str, restarts: bool
) -> None:
    *earlier, last = decisions(results, restarts=restarts, **options)
    assert {decision.status.value for decision in earlier} <= {"waiting"}
    assert last.status.value == ends
    assert message in last.message


def test_it_is_known_when_a_poll_is_useful() -> None:
    settling = tracker(**AGE)
    assert settling.decide(record(7), SENT_AT).pause == MAX_STATS_PAUSE
    assert settling.decide(record(7), SENT_AT + 24 * HOUR - 60).pause == 60
    assert settling.not_before == SENT_AT + 24 * HOUR
    settling = tracker()
    assert (settling.decide(record(0), SENT_AT - 60).pause, settling.not_before) == (60, SENT_AT)


def test_times_are_by_the_clock_of_the_service() -> None:
    """It is two days ahead: what it shows as sent an hour ago was."""
    ahead = 48 * HOUR
    settling = tracker(max_age=HOUR)
    assert "it will be sent" in settling.decide(record(0), SENT_AT - ahead - 60, ahead).message
    assert settling.decide(record(0), SENT_AT - ahead + 60, ahead).pause == 0
    assert settling.decide(record(1), SENT_AT - ahead + HOUR, ahead).status is WaitStatus.COMPLETE


def march(day: int) -> date:
    return date(2026, 3, day)


def test_the_days_to_request(monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 3, 11, 23, 59, tzinfo=UTC).timestamp()
    settling = tracker()
    assert settling.days(march(1), None, at) == (march(1), march(11))
    assert settling.days(march(1), march(5), at) == (march(1), march(5))
    assert settling.days(march(31), None, at) == (march(31), march(31))
    settling.decide(record(1), at)
    # It was sent on the 10th in UTC: in the service's zone, whichever that is, on that day or beside it.
    try:
        for zone in ("Etc/GMT-14", "UTC", "Etc/GMT+12"):  # of the worker
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert settling.days(march(1), None, at) == (march(9), march(11))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert settling.days(march(1), None, at + 99 * HOUR) == (march(9), march(11))
    assert settling.days(march(1), None, at - 24 * HOUR) == (march(9), march(10))
    settling.decide(None, at)  # is it elsewhere?
    assert settling.days(march(1), None, at) == (march(1), march(11))


@pytest.mark.parametrize("other", [{}, {"mail_name": "other"}, {"min_interval": 60.0}])
def test_state_of_something_else_is_not_taken_over(other: dict[str, Any]) -> None:
    settling = tracker()
    settling.decide(record(1), SENT_AT)
    assert (tracker(state=settling.state | other).record is None) == bool(other)


def test_a_longer_name_is_another_campaign(emulator: Emulator, client: Driver) -> None:
    today = datetime.now(UTC).date()
    days = (today - timedelta(days=1), today)
    emulator.add_campaign("news extra")
    assert client.run(find_stats("news", days)) is None
    emulator.add_campaign("news", sent=7)
    found = client.run(find_stats("news", days))
    assert (found.mail_name, found.sent_count) == ("news", 7)
