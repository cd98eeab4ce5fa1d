"""What a row of looks at a campaign's statistics means: every row, against the rules written down once more."""

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
from airflow_provider_mail.api.flows.polling import CONFIRM_SECONDS, PollDecision, PollErrorBudget, WaitStatus
from airflow_provider_mail.api.flows.wait_stats import MAX_PAUSE, StatsPollResult, StatsStabilityTracker, find_stats
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver

SENT = datetime(2026, 3, 10, 9, tzinfo=UTC)
SENT_AT = SENT.timestamp()
HOUR = 3600.0
BLIP, KEY = MailServerError("blip"), MailAuthError("key refused")


def record(opens: int, send_time: datetime | None = SENT, name: str = "news") -> CampaignStats:
    counts = {"sentCount": 100, "clickCount": 0, "hardBounce": 0, "softBounce": 0, "unsentCount": 0}
    millis = None if send_time is None else int(send_time.timestamp() * 1000)
    return CampaignStats.model_validate(
        {"mailName": name, "mailSendDate": millis, "openCount": opens, "unsubscribeCount": 0, **counts}
    )


NAMES = {"polled_before": "polled_before", "poll_error_timeout": "timeout", "max_poll_errors": "max_errors"}


def budget(options: dict[str, Any]) -> PollErrorBudget:
    return PollErrorBudget(**{NAMES[name]: options.pop(name) for name in NAMES.keys() & options.keys()})


def judge(looks: list[tuple[StatsPollResult, float]], **options: Any) -> list[PollDecision]:
    settling = StatsStabilityTracker("news", budget(options), **{"stable_checks": 3, "min_interval": HOUR} | options)
    return [settling.decide(look, SENT_AT + after) for look, after in looks]


def outcomes(looks: list[tuple[StatsPollResult, float]], **options: Any) -> list[str]:
    return [verdict.status.value for verdict in judge(looks, **options)]


def expected(looks: list[tuple[StatsPollResult, float]], needed: int, apart: float, age: float | None) -> WaitStatus:
    """The rules, read off the whole row of looks that found the record, backwards from the last."""
    last, at = looks[-1]
    if isinstance(last, MailError):
        return WaitStatus.WAITING
    if last is None:
        found = [(look, when) for look, when in looks if not isinstance(look, MailError)]
        was_there = any(look is not None for look, _ in found)
        missing = list(takewhile(lambda each: each[0] is None, reversed(found)))
        gone = len(missing) > 1 and at - missing[-1][1] >= CONFIRM_SECONDS
        return WaitStatus.FAILED if was_there and gone else WaitStatus.WAITING
    if age is not None and at >= age:
        return WaitStatus.COMPLETE
    good = [(look.open_count, when) for look, when in looks if isinstance(look, CampaignStats)]
    while any(opens != last.open_count for opens, _ in good):
        good.pop(0)
    counted = [good[0][1]]
    for _, when in good[1:]:
        if when - counted[-1] >= apart * 0.99:
            counted.append(when)
    return WaitStatus.COMPLETE if len(counted) >= needed else WaitStatus.WAITING


LOOKS = st.one_of(st.just(None), st.just(BLIP), st.integers(0, 2).map(record))


@given(
    st.lists(st.tuples(LOOKS, st.sampled_from([60.0, 1800.0, HOUR - 1, HOUR, 2 * HOUR])), min_size=1, max_size=16),
    st.integers(2, 4),
    st.sampled_from([None, 0.0, 3 * HOUR, 40 * HOUR]),
    st.integers(0, 16),
)
def test_every_row_of_looks(
    steps: list[tuple[StatsPollResult, float]], needed: int, age: float | None, restart: int
) -> None:
    options = {"stable_checks": needed, "min_interval": HOUR, "max_age": age}
    settling = StatsStabilityTracker("news", PollErrorBudget(timeout=1e9), **options)  # type: ignore[arg-type]
    looks: list[tuple[StatsPollResult, float]] = []
    after = 0.0
    for number, (look, pause) in enumerate(steps):
        if number == restart:  # another process goes on where this one was
            memory = json.loads(json.dumps(settling.state))
            settling = StatsStabilityTracker("news", PollErrorBudget(timeout=1e9), state=memory, **options)  # type: ignore[arg-type]
        after += pause
        looks.append((look, after))
        verdict = settling.decide(look, SENT_AT + after)
        assert verdict.status is expected(looks, needed, HOUR, age), looks
        if verdict.status is WaitStatus.COMPLETE:
            assert isinstance(look, CampaignStats)
            assert verdict.result["open_count"] == look.open_count
        if verdict.status is not WaitStatus.WAITING:
            return


def test_the_final_record_is_plain_json() -> None:
    last = judge([(record(7), 0), (record(7), HOUR), (record(7), 2 * HOUR)])[-1]
    assert last.status is WaitStatus.COMPLETE
    assert json.loads(json.dumps(last.result)) == {
        "mail_name": "news",
        "mail_send_date": "2026-03-10T09:00:00Z",
        "sent_count": 100,
        "open_count": 7,
        "click_count": 0,
        "hard_bounce": 0,
        "soft_bounce": 0,
        "unsent_count": 0,
        "unsubscribe_count": 0,
    }
    assert last.message == "statistics of campaign 'news' are final: the same in 3 of 3 observations"


def test_looks_in_between_count_for_nothing_and_a_change_begins_anew() -> None:
    often = [(record(7), number * 600.0) for number in range(13)]
    assert outcomes(often) == ["waiting"] * 12 + ["complete"]
    late = [
        (record(7), 0),
        (record(7), HOUR),
        (record(8), 1.5 * HOUR),
        (record(8), 2.5 * HOUR),
        (record(8), 3.5 * HOUR),
    ]
    assert outcomes(late) == ["waiting"] * 4 + ["complete"]


def test_after_a_resume_the_interval_still_holds() -> None:
    options: dict[str, Any] = {"stable_checks": 2, "min_interval": HOUR}
    first = StatsStabilityTracker("news", **options)
    assert first.decide(record(7), SENT_AT).status is WaitStatus.WAITING
    resumed = StatsStabilityTracker("news", state=first.state, **options)
    assert resumed.decide(record(7), SENT_AT + 600).status is WaitStatus.WAITING
    assert resumed.decide(record(7), SENT_AT + HOUR).status is WaitStatus.COMPLETE


def test_age_alone() -> None:
    options = {"stable_checks": None, "max_age": 24 * HOUR}
    looks = [(record(7), HOUR), (record(7), 23 * HOUR), (record(9), 24 * HOUR)]
    assert outcomes(looks, **options) == ["waiting", "waiting", "complete"]
    assert "it was sent 1 day, 0:00:00 ago" in judge(looks, **options)[-1].message
    settling = StatsStabilityTracker("news", **options)  # type: ignore[arg-type]
    assert settling.decide(record(7), SENT_AT).pause == MAX_PAUSE
    assert settling.not_before == SENT_AT + 24 * HOUR
    assert settling.decide(record(7), SENT_AT + 24 * HOUR - 60).pause == 60
    # Without a send time there is no age.
    assert outcomes([(record(7, None), 99 * HOUR)], **options) == ["waiting"]


def test_nothing_counts_before_the_send_time() -> None:
    looks = [(record(0), -number * HOUR) for number in (5, 4, 3, 2, 1)] + [
        (record(0), number * HOUR) for number in (1, 2, 3)
    ]
    assert outcomes(looks) == ["waiting"] * 7 + ["complete"]
    settling = StatsStabilityTracker("news", stable_checks=2)
    assert settling.decide(record(0), SENT_AT - 60).pause == 60
    assert settling.not_before == SENT_AT


def test_the_times_are_the_service_s() -> None:
    """Its clock is two days ahead: what it shows as sent an hour ago was."""
    ahead = 48 * HOUR
    settling = StatsStabilityTracker("news", stable_checks=2, max_age=HOUR)
    assert settling.decide(record(0), SENT_AT - ahead - 60, ahead).message.startswith(
        "statistics of campaign 'news': it will"
    )
    assert settling.decide(record(0), SENT_AT - ahead + 60, ahead).pause == 0
    assert settling.decide(record(1), SENT_AT - ahead + HOUR, ahead).status is WaitStatus.COMPLETE


def test_the_days_to_ask_for() -> None:
    today = date(2026, 3, 11)
    at = datetime(2026, 3, 11, 23, 59, tzinfo=UTC).timestamp()
    settling = StatsStabilityTracker("news", stable_checks=2)
    assert settling.days(date(2026, 3, 1), None, at) == (date(2026, 3, 1), today)
    assert settling.days(date(2026, 3, 1), date(2026, 3, 5), at) == (date(2026, 3, 1), date(2026, 3, 5))
    assert settling.days(date(2026, 4, 1), None, at) == (date(2026, 4, 1), date(2026, 4, 1))
    settling.decide(record(1), at)
    # It was sent on the 10th in UTC: in the service's zone, whichever that is, on that day or beside it.
    assert settling.days(date(2026, 3, 1), None, at) == (date(2026, 3, 9), today)
    assert settling.days(date(2026, 3, 1), None, at + 99 * HOUR) == (date(2026, 3, 9), date(2026, 3, 11))
    assert settling.days(date(2026, 3, 1), None, at - 24 * HOUR) == (date(2026, 3, 9), date(2026, 3, 10))
    settling.decide(None, at)  # is it elsewhere?
    assert settling.days(date(2026, 3, 1), None, at) == (date(2026, 3, 1), today)


def test_the_zone_of_the_machine_changes_no_day(monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 3, 11, 23, 59, tzinfo=UTC).timestamp()
    settling = StatsStabilityTracker("news", stable_checks=2)
    settling.decide(record(1), at)
    days = set()
    try:
        for zone in ("Etc/GMT-14", "UTC", "Etc/GMT+12"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            days.add(settling.days(date(2026, 3, 1), None, at))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert days == {(date(2026, 3, 9), date(2026, 3, 11))}


def test_disappeared_and_never_there() -> None:
    assert outcomes([(None, number * HOUR) for number in range(50)]) == ["waiting"] * 50
    often = [(record(1), 0.0), *((None, number * 1.0) for number in range(302))]
    assert outcomes(often) == ["waiting"] * 301 + ["failed"] * 2  # type: ignore[arg-type]
    assert outcomes([(record(1), 0), (None, HOUR), (None, 2 * HOUR)]) == ["waiting"] * 2 + ["failed"]


def test_looks_that_fail() -> None:
    assert outcomes([(KEY, 0)]) == ["refused"]
    assert outcomes([(KEY, 0)], polled_before=True) == ["waiting"]
    options = {"max_poll_errors": 1, "poll_error_timeout": 10}
    assert outcomes([(record(1), 0), (KEY, 1), (KEY, 11)], **options) == ["waiting", "waiting", "refused"]
    row = [(BLIP, 0), (BLIP, 9), (record(1), 10), (BLIP, 11), (BLIP, 20)]
    assert outcomes(row, **options) == ["waiting"] * 5  # type: ignore[arg-type]
    assert outcomes([(BLIP, 0), (BLIP, 10)], **options) == ["waiting", "error"]


@pytest.mark.parametrize("other", [{"mail_name": "other"}, {"apart": 60.0}])
def test_a_memory_of_something_else_is_not_taken_over(other: dict[str, Any]) -> None:
    settling = StatsStabilityTracker("news", stable_checks=2, min_interval=HOUR)
    settling.decide(record(1), SENT_AT)
    assert StatsStabilityTracker("news", stable_checks=2, min_interval=HOUR, state=settling.state).record is not None
    assert (
        StatsStabilityTracker("news", stable_checks=2, min_interval=HOUR, state=settling.state | other).record is None
    )


def test_a_longer_name_is_another_campaign(emulator: Emulator, client: Driver) -> None:
    today = datetime.now(UTC).date()
    days = (today - timedelta(days=1), today)
    emulator.add_campaign("news extra")
    assert client.run(find_stats("news", days)) is None
    emulator.add_campaign("news", sent=7)
    found = client.run(find_stats("news", days))
    assert (found.mail_name, found.sent_count) == ("news", 7)
