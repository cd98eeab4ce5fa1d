"""What polls of a campaign, and of its statistics, mean: every row of them, against a model; and examples."""

from __future__ import annotations

import itertools
import json
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Campaign, CampaignStats
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import MailAuthError, MailServerError
from airflow_provider_mail.api.flows.statistics import find_stats
from airflow_provider_mail.api.flows.waits import (
    HEARTBEAT_SECONDS,
    MAX_POLL_ERRORS,
    MAX_SCHEDULED_PAUSE,
    MAX_STATS_PAUSE,
    CampaignWait,
    PollDecision,
    PollResult,
    Polls,
    StatsPollResult,
    StatsStabilityTracker,
    StatusLog,
    Wait,
    WaitStatus,
    status_line,
)
from mail_emulator import Emulator
from tests.machines.waiting_model import CONFIRM_SECONDS

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
T0 = NOW.timestamp()
AHEAD, PAST = NOW + timedelta(days=1), NOW - timedelta(days=1)


def campaign(status: int, send_time: datetime | None = None, **stats: int) -> Campaign:
    millis = None if send_time is None else int(send_time.timestamp() * 1000)
    fields: dict[str, Any] = {"mailName": "news", "mailStatus": status, "sendByDateTime": millis}
    return Campaign.model_validate({**fields, "mailStats": stats or None})


BLIP, KEY = MailServerError("blip"), MailAuthError("the key is rejected")
DRAFT, WAITS_AS_DRAFT, SENDING = campaign(-1), campaign(-1, AHEAD), campaign(1, PAST)
DONE, FAILED = campaign(2, PAST, sentCount=7), campaign(4, PAST)
SOON = campaign(-1, NOW + timedelta(seconds=CONFIRM_SECONDS))


def decisions(
    results: list[PollResult], every: float = 60.0, *, restarts: bool = False, **options: Any
) -> list[PollDecision]:
    """The decisions of one process or, if it ``restarts``, of another one after each poll."""
    wait = CampaignWait("news", **options)
    found = []
    for number, result in enumerate(results):
        found.append(wait.decide(result, T0 + number * every))
        if restarts:
            wait = CampaignWait("news", state=json.loads(json.dumps(wait.state)))
    return found


def statuses(results: list[PollResult], every: float = 60.0, **options: Any) -> list[WaitStatus]:
    return [decision.status for decision in decisions(results, every, **options)]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([DONE], "campaign 'news' was sent"),
        ([FAILED], "campaign 'news': the service reports that sending failed (mailStatus 4)"),
        ([DRAFT] * 2, "campaign 'news' is a draft (mailStatus -1): saved only, or cancelled before its send time"),
        ([SENDING, None, None], "campaign 'news' has disappeared: deleted or cancelled at the service"),
        ([None] * 9, "campaign 'news' was never seen: the service has none of exactly this name (yet)"),
        ([SENDING, None], "campaign 'news' was not found (any more)"),
        ([KEY], "the key is rejected"),
        ([WAITS_AS_DRAFT], f"campaign 'news': scheduled for {AHEAD:%F %T} UTC (mailStatus -1)"),
        ([DRAFT], "campaign 'news': shows as a draft (mailStatus -1)"),
        ([DRAFT, None, DRAFT], "campaign 'news': shows as a draft (mailStatus -1)"),
        ([DRAFT, SENDING, DRAFT], "campaign 'news': shows as a draft (mailStatus -1)"),
        ([SENDING, None, SENDING, None], "campaign 'news' was not found (any more)"),
        (
            [WAITS_AS_DRAFT, campaign(1, AHEAD)],
            f"campaign 'news': scheduled for {AHEAD:%Y-%m-%d %H:%M:%S} UTC (mailStatus 1)",
        ),
        ([SENDING, KEY], "poll failed (1 in a row; the wait ends after 600 s of failed polls): the key is rejected"),
        ([campaign(1, AHEAD)], "campaign 'news': sending (mailStatus 1)"),
        ([BLIP] * 3, "3 polls in a row failed, for 600 s (poll_error_timeout: 600 s), the last with: blip"),
        ([BLIP], "poll failed (1 in a row; the wait ends after 600 s of failed polls): blip"),
    ],
    ids=itertools.count(),
)
def test_the_message_says_what_was_seen(results: list[PollResult], message: str) -> None:
    for restarts in (False, True):
        assert decisions(results, every=300, restarts=restarts)[-1].message == message


def test_the_minutes_of_a_draft_begin_at_its_send_time() -> None:
    """Once a scheduled campaign that still showed as a draft just after its send time failed the wait."""
    assert set(statuses([WAITS_AS_DRAFT] * 50)) == {"waiting"}
    assert statuses([SOON] * 11) == ["waiting"] * 10 + ["failed"]
    assert statuses([BLIP] * (MAX_POLL_ERRORS + 1), every=700) == ["waiting"] * MAX_POLL_ERRORS + ["error"]


@pytest.mark.parametrize(
    ("results", "options", "pauses"),
    [
        ([WAITS_AS_DRAFT, DRAFT], {}, [MAX_SCHEDULED_PAUSE, 0]),
        ([campaign(-1, NOW + timedelta(seconds=100))], {}, [100]),
        # It may have been sent before its time, at the service; but one that was scheduled may show as sending.
        ([campaign(1, AHEAD)], {}, [0]),
        ([campaign(1, AHEAD), campaign(1, PAST)], {"scheduled": True}, [MAX_SCHEDULED_PAUSE, 0]),
        ([WAITS_AS_DRAFT, campaign(1, AHEAD)], {}, [MAX_SCHEDULED_PAUSE, MAX_SCHEDULED_PAUSE]),
        ([BLIP] * 12, {}, [0.5, 1, 2, 4, 8, 16, 32, *[60.0] * 5]),
        ([BLIP, BLIP, SENDING, BLIP], {}, [0.5, 1, 0, 0.5]),
    ],
)
def test_pauses(results: list[PollResult], options: dict[str, Any], pauses: list[float]) -> None:
    found = [decision.pause for decision in decisions(results, every=1, **options)]
    assert found == pytest.approx(pauses, abs=1e-2)


@pytest.mark.parametrize("status", [-1, 0, 1])
def test_the_send_time_is_by_the_clock_of_the_service(status: int) -> None:
    two_days = 2 * 86_400.0
    sent_there = campaign(status, NOW + timedelta(seconds=two_days - 60))
    wait = CampaignWait("news", scheduled=True)
    assert wait.decide(sent_there, T0, two_days).pause == 0.0
    assert wait.decide(sent_there, T0, 0.0).pause == MAX_SCHEDULED_PAUSE
    behind = campaign(status, NOW - timedelta(seconds=two_days - 60))
    assert wait.decide(behind, T0, -two_days).pause == pytest.approx(60, abs=1)


def test_the_time_of_a_poll_is_before_its_request() -> None:
    """The response to a slow poll may hold counts from before the age that ends a wait."""
    times: dict[str, float] = {}

    class Recorder(Wait):
        def _decide(self, result: Any, at: float, offset: float) -> PollDecision:
            times["decided"] = at
            return PollDecision(WaitStatus.WAITING, "waiting")

    def poll() -> tuple[object, float]:
        times["responded"] = time.time()
        return "found", 0.0

    next(Polls(Recorder("news"), poll, log=print))
    assert times["decided"] <= times["responded"]


# --- what is logged ---


def logged(results: list[PollResult], every: float) -> list[str]:
    status_log = StatusLog()
    numbered = enumerate(decisions(results, every))
    return [decision.message for number, decision in numbered if status_log.is_due(decision, T0 + number * every)]


def test_a_line_for_each_change_and_else_one_in_an_hour() -> None:
    rows: list[PollResult] = [*[None] * 20, *[SENDING] * 20, *[BLIP] * 5, *[SENDING] * 10, DONE]
    assert [line.split("(")[0].strip() for line in logged(rows, every=30)] == [
        "campaign 'news' was never seen: the service has none of exactly this name",
        "campaign 'news': sending",
        "poll failed",
        "campaign 'news': sending",
        "campaign 'news' was sent",
    ]
    assert len(logged([SENDING] * 601, every=60)) == 1 + 10 * 3600 / HEARTBEAT_SECONDS


def test_a_line_names_the_next_poll_and_the_deadline() -> None:
    sending, later = decisions([SENDING])[0], decisions([WAITS_AS_DRAFT])[0]
    end_time = datetime(2026, 11, 24, 8, tzinfo=UTC).timestamp()
    assert status_line(sending, 60, end_time) == (
        "campaign 'news': sending (mailStatus 1); next poll in 60 s, deadline 2026-11-24 08:00:00 UTC"
    )
    assert status_line(later, 60, None).endswith("; next poll in 300 s")
    assert status_line(decisions([DONE])[0], 60, end_time) == "campaign 'news' was sent"


# --- statistics that no longer change ---

SENT = datetime(2026, 3, 10, 9, tzinfo=UTC)
SENT_AT = SENT.timestamp()
HOUR = 3600.0
Results = list[tuple[StatsPollResult, float]]


def record(opens: int, send_time: datetime | None = SENT, name: str = "news") -> CampaignStats:
    counts = {"sentCount": 100, "clickCount": 0, "hardBounce": 0, "softBounce": 0, "unsentCount": 0}
    millis = None if send_time is None else int(send_time.timestamp() * 1000)
    return CampaignStats.model_validate(
        {"mailName": name, "mailSendDate": millis, "openCount": opens, "unsubscribeCount": 0, **counts}
    )


def tracker(**options: Any) -> StatsStabilityTracker:
    return StatsStabilityTracker("news", **{"stable_checks": 3, "min_interval": HOUR} | options)


def stats_decisions(results: Results, *, restarts: bool = False, **options: Any) -> list[PollDecision]:
    """The stats_decisions of one process or, if it ``restarts``, of another one after each poll."""
    settling = tracker(**options)
    found = []
    for result, after in results:
        found.append(settling.decide(result, SENT_AT + after))
        if restarts:
            state = json.loads(json.dumps(settling.state))
            settling = tracker(state=state, **options)
    return found


def same(opens: int | None, *hours: float) -> Results:
    return [(None if opens is None else record(opens), hour * HOUR) for hour in hours]


AGE = {"stable_checks": None, "max_age": 24 * HOUR}
FEW = {"poll_error_timeout": 10}


@pytest.mark.parametrize(
    ("results", "options", "ends", "message"),
    [
        (same(7, 0, 1, 2), {}, "complete", "statistics of campaign 'news' are final: the same in 3 of 3 observations"),
        ([(record(7), number * 600.0) for number in range(13)], {}, "complete", "3 of 3"),
        (same(7, 0, 1) + same(8, 1.5, 2.5, 3.5), {}, "complete", "3 of 3"),
        (same(7, 1, 23) + same(9, 24), AGE, "complete", "it was sent 1 day, 0:00:00 ago"),
        # Without a send time there is no age.
        ([(record(7, None), 99 * HOUR)], AGE, "waiting", "are not old enough"),
        # Nothing counts before the send time.
        (same(0, -5, -4, -3, -2, -1), {}, "waiting", "it will be sent at 2026-03-10 09:00:00 UTC"),
        (same(0, -5, -4, -3, 1, 2), {}, "waiting", "2 of 3"),
        (same(1, 0) + same(None, 1), {}, "waiting", "were not found (any more)"),
        (same(1, 0) + same(None, 1, 2), {}, "failed", "have disappeared: was it deleted?"),
        (same(1, 0) + same(None, 1) + same(1, 2) + same(None, 3), {}, "waiting", "were not found (any more)"),
        (same(None, 0, 1), {}, "waiting", "there are no statistics of a campaign 'news' (yet)"),
        ([*same(7, 0, 1), (record(7).model_copy(update={"click_count": 1}), 2 * HOUR)], {}, "waiting", "1 of 3"),
        ([(KEY, 0)], {}, "refused", "the key is rejected"),
        ([(record(1), 0), (KEY, 1), (KEY, 5), (KEY, 11)], FEW, "refused", "3 polls in a row failed"),
        ([(BLIP, 0), (BLIP, 5), (BLIP, 10)], FEW, "error", "3 polls in a row failed"),
    ],
)
def test_how_a_row_of_polls_ends(results: Results, options: dict[str, Any], ends: str, message: str) -> None:
    for restarts in (False, True):
        *earlier, last = stats_decisions(results, restarts=restarts, **options)
        assert {decision.status.value for decision in earlier} <= {"waiting"}
        assert last.status.value == ends
        assert message in last.message
        found = results[-1][0]
        assert ends != "complete" or last.result["open_count"] == getattr(found, "open_count", None)


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


@pytest.mark.parametrize("other", [{}, {"awaited": ["other", HOUR]}, {"awaited": ["news", 60.0]}])
def test_state_of_something_else_is_not_taken_over(other: dict[str, Any]) -> None:
    settling = tracker()
    settling.decide(record(1), SENT_AT)
    assert (tracker(state=settling.state | other).record is None) == bool(other)


def test_a_longer_name_is_another_campaign(emulator: Emulator, client: MailClient) -> None:
    today = datetime.now(UTC).date()
    days = (today - timedelta(days=1), today)
    emulator.add_campaign("news extra")
    assert find_stats(client, "news", days) is None
    emulator.add_campaign("news", sent=7)
    found = find_stats(client, "news", days)
    assert (found.mail_name, found.sent_count) == ("news", 7)
