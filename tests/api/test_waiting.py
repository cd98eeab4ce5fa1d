"""What polls of a campaign mean: every row of them, against the model; and examples that were faults once."""

from __future__ import annotations

import itertools
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import Campaign
from airflow_provider_mail.api.errors import (
    MailAnswerLostError,
    MailAuthError,
    MailConfigError,
    MailError,
    MailIncompleteError,
    MailRateLimitError,
    MailServerError,
)
from airflow_provider_mail.api.flows.polling import (
    HEARTBEAT_SECONDS,
    MAX_BACKOFF,
    PollDecision,
    PollErrorBudget,
    Polls,
    StatusLog,
    WaitStatus,
    status_line,
)
from airflow_provider_mail.api.flows.waits import MAX_SCHEDULED_PAUSE, CampaignWait, PollResult
from tests.machines.waiting_model import CONFIRM_SECONDS, Poll, expected

NOW = datetime.now(UTC)
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


RESULTS = st.sampled_from(
    [None, DRAFT, campaign(-1, PAST), WAITS_AS_DRAFT, SOON, SENDING, campaign(0), campaign(3), DONE, FAILED, BLIP,
     MailAnswerLostError("lost"), MailRateLimitError("slow down"), MailIncompleteError("short", got=1, expected=2), KEY,
     MailConfigError("no such host")]
)  # fmt: skip
PAUSES = st.sampled_from([0.1, 10.0, 60.0, 150.0, CONFIRM_SECONDS, 3600.0])


def poll_of(result: PollResult, at: float) -> Poll:
    if isinstance(result, MailError):
        return Poll(at, error="temporary" if result.temporary else "rejected")
    if result is None:
        return Poll(at)
    return Poll(at, result.mail_status, result.send_by_date_time and result.send_by_date_time.timestamp())


STEPS = st.lists(st.tuples(RESULTS, PAUSES), min_size=1, max_size=14)


@given(STEPS, st.booleans(), st.booleans(), st.integers(0, 3), st.sampled_from([0.0, 100.0, 600.0]), st.integers(0, 14))
def test_every_row_of_polls(
    steps: list[tuple[PollResult, float]], seen: bool, before: bool, errors: int, seconds: float, restart: int
) -> None:
    limits: dict[str, Any] = {"max_errors": errors, "timeout": seconds, "polled_before": before}
    wait = CampaignWait("news", PollErrorBudget(**limits), seen=seen)
    polls: list[Poll] = []
    at = T0
    for number, (result, pause) in enumerate(steps):
        if number == restart:  # another process continues
            state = json.loads(json.dumps(wait.state))
            wait = CampaignWait("news", PollErrorBudget(**limits), state=state)
        at += pause
        polls.append(poll_of(result, at))
        decision = wait.decide(result, at)
        assert decision.status == expected(polls, seen=seen, **limits)
        assert decision.message
        assert 0 <= decision.pause <= max(MAX_SCHEDULED_PAUSE, MAX_BACKOFF)
        if decision.status is not WaitStatus.WAITING:
            return


@pytest.mark.parametrize("restarts", [False, True])
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
        ([WAITS_AS_DRAFT], f"campaign 'news': scheduled for {AHEAD:%Y-%m-%d %H:%M:%S} UTC (mailStatus -1)"),
        ([DRAFT], "campaign 'news': shows as a draft (mailStatus -1)"),
        ([campaign(1, AHEAD)], "campaign 'news': sending (mailStatus 1)"),
        ([BLIP] * 3, "3 polls in a row failed, for 600 s (poll_error_timeout: 600 s), the last with: blip"),
        ([BLIP], "poll failed (1 in a row; the wait ends after 600 s of failed polls): blip"),
    ],
    ids=itertools.count(),
)
def test_the_message_says_what_was_seen(results: list[PollResult], message: str, restarts: bool) -> None:
    assert decisions(results, every=300, restarts=restarts)[-1].message == message


@pytest.mark.parametrize("result", [None, DRAFT])
def test_what_may_pass_is_judged_by_time_and_not_by_polls(result: PollResult) -> None:
    """A new campaign may appear late, and the status it has until then is not shown in the document."""
    assert statuses([SENDING, *[result] * 302], every=1) == ["waiting"] * 301 + ["failed"] * 2
    assert statuses([SENDING, result, SENDING, result], every=3600) == ["waiting"] * 4
    assert statuses([SENDING, result, result], every=3600) == ["waiting"] * 2 + ["failed"]


def test_the_minutes_of_a_draft_begin_at_its_send_time() -> None:
    """Once a scheduled campaign that still showed as a draft just after its send time failed the wait."""
    assert set(statuses([WAITS_AS_DRAFT] * 50)) == {"waiting"}
    assert statuses([SOON] * 11) == ["waiting"] * 10 + ["failed"]


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

    class Recorder:
        state: dict[str, Any] = {}  # noqa: RUF012

        def decide(self, result: Any, at: float, offset: float = 0.0) -> PollDecision:
            times["decided"] = at
            return PollDecision(WaitStatus.WAITING, "waiting")

    def poll() -> tuple[object, float]:
        times["responded"] = time.time()
        return None, 0.0

    next(Polls(Recorder(), poll, log=print))
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
