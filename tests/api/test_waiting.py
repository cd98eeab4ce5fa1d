"""What a row of polls of a campaign means: every row, against the rules written down once more and plainly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.campaigns import Campaign, CreateCampaign, find_campaign
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
    CONFIRM_SECONDS,
    HEARTBEAT_SECONDS,
    MAX_BACKOFF,
    PollDecision,
    PollErrorBudget,
    Polls,
    StatusLog,
    WaitStatus,
    status_line,
)
from airflow_provider_mail.api.flows.wait_campaign import MAX_PAUSE, CampaignWait, PollResult
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver

NOW = datetime.now(UTC)
T0 = NOW.timestamp()
AHEAD, PAST = NOW + timedelta(days=1), NOW - timedelta(days=1)


def campaign(status: int, send_time: datetime | None = None, **stats: int) -> Campaign:
    millis = None if send_time is None else int(send_time.timestamp() * 1000)
    fields: dict[str, Any] = {"mailName": "news", "mailStatus": status, "sendByDateTime": millis}
    return Campaign.model_validate({**fields, "mailStats": stats or None})


BLIP, KEY = MailServerError("blip"), MailAuthError("key refused")
DRAFT, WAITS_AS_DRAFT, SENDING = campaign(-1), campaign(-1, AHEAD), campaign(1, PAST)
DONE, FAILED = campaign(2, PAST, sentCount=7), campaign(4, PAST)
SOON = campaign(-1, NOW + timedelta(seconds=CONFIRM_SECONDS))


NAMES = {"polled_before": "polled_before", "poll_error_timeout": "timeout", "max_poll_errors": "max_errors"}


def budget(options: dict[str, Any]) -> PollErrorBudget:
    return PollErrorBudget(**{NAMES[name]: options.pop(name) for name in NAMES.keys() & options.keys()})


def judge(looks: list[PollResult], every: float = 60.0, **options: Any) -> list[PollDecision]:
    wait = CampaignWait("news", budget(options), **options)
    return [wait.decide(look, T0 + number * every) for number, look in enumerate(looks)]


def outcomes(looks: list[PollResult], every: float = 60.0, **options: Any) -> list[WaitStatus]:
    return [verdict.status for verdict in judge(looks, every, **options)]


Polled = list[tuple[PollResult, float]]


def streak(polls: Polled, same: Callable[[PollResult, float], bool]) -> tuple[int, float]:
    """How many polls at the end showed the same, and from the first to the last of them how many seconds passed."""
    row = list(takewhile(lambda polled: same(*polled), reversed(polls)))
    return len(row), row[0][1] - row[-1][1] if row else 0.0


def is_idle_draft(look: PollResult, at: float) -> bool:
    if look is None or isinstance(look, MailError) or look.mail_status != -1:
        return False
    return look.send_by_date_time is None or look.send_by_date_time.timestamp() <= at


def expected(polls: Polled, seen: bool, looked: bool, most: int, seconds: float) -> WaitStatus:
    """The rules, read off the whole row instead of counted along it."""
    last = polls[-1][0]
    good = [polled for polled in polls if not isinstance(polled[0], MailError)]
    if isinstance(last, MailError):
        if not last.temporary and not looked and not good:
            return WaitStatus.REFUSED
        in_a_row, lasted = streak(polls, lambda look, _: isinstance(look, MailError))
        if in_a_row <= most or lasted < seconds:
            return WaitStatus.WAITING
        return WaitStatus.ERROR if last.temporary else WaitStatus.REFUSED
    if last is None:
        missing, lasted = streak(good, lambda look, _: look is None)
        was_there = seen or any(look is not None for look, _ in good)
        return WaitStatus.FAILED if was_there and missing > 1 and lasted >= CONFIRM_SECONDS else WaitStatus.WAITING
    if last.mail_status == -1:
        idle, lasted = streak(good, is_idle_draft)
        return WaitStatus.FAILED if idle > 1 and lasted >= CONFIRM_SECONDS else WaitStatus.WAITING
    return {2: WaitStatus.COMPLETE, 4: WaitStatus.FAILED}.get(last.mail_status, WaitStatus.WAITING)


LOOKS = st.sampled_from(
    [None, DRAFT, campaign(-1, PAST), WAITS_AS_DRAFT, SOON, SENDING, campaign(0), campaign(3), DONE, FAILED, BLIP,
     MailAnswerLostError("lost"), MailRateLimitError("slow down"), MailIncompleteError("short", got=1, expected=2), KEY,
     MailConfigError("no such host")]
)  # fmt: skip
PAUSES = st.sampled_from([0.1, 10.0, 60.0, 150.0, CONFIRM_SECONDS, 3600.0])


@given(
    st.lists(st.tuples(LOOKS, PAUSES), min_size=1, max_size=14),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([0.0, 100.0, 600.0]),
    st.integers(0, 14),
)
def test_every_row_of_polls(
    steps: list[tuple[PollResult, float]], seen: bool, looked: bool, most: int, seconds: float, restart: int
) -> None:
    limits: dict[str, Any] = {"max_errors": most, "timeout": seconds, "polled_before": looked}
    wait = CampaignWait("news", PollErrorBudget(**limits), seen=seen)
    polls: Polled = []
    at = T0
    for number, (look, pause) in enumerate(steps):
        if number == restart:  # another process continues
            memory = json.loads(json.dumps(wait.state))
            wait = CampaignWait("news", PollErrorBudget(**limits), state=memory)
        at += pause
        polls.append((look, at))
        verdict = wait.decide(look, at)
        assert verdict.status is expected(polls, seen, looked, most, seconds)
        assert verdict.message
        assert 0 <= verdict.pause <= max(MAX_PAUSE, MAX_BACKOFF)
        if verdict.status is not WaitStatus.WAITING:
            return


def test_sent() -> None:
    assert outcomes([None, SENDING, SENDING, DONE]) == ["waiting", "waiting", "waiting", "complete"]
    assert judge([DONE])[0].result == {"sent_count": 7}
    assert judge([campaign(2)])[0].result == {}


def test_failed_cancelled_and_vanished_say_which() -> None:
    failed, draft = judge([FAILED])[0], judge([DRAFT] * 2, every=300)[1]
    vanished = judge([SENDING, None, None], every=300)[2]
    assert "mailStatus 4" in failed.message
    assert "saved only, or cancelled" in draft.message
    assert "disappeared" in vanished.message
    for verdict in (failed, draft, vanished):
        assert verdict.status is WaitStatus.FAILED
        assert "'news'" in verdict.message


@pytest.mark.parametrize("look", [None, DRAFT])
def test_what_may_pass_is_judged_by_time_and_not_by_polls(look: PollResult) -> None:
    """A new campaign may appear late, and the status it has until then is not shown in the document."""
    often = outcomes([SENDING, *[look] * 302], every=1)
    assert often == ["waiting"] * 301 + ["failed"] * 2
    assert outcomes([SENDING, look, SENDING, look], every=3600) == ["waiting"] * 4
    assert outcomes([SENDING, look, look], every=3600)[-1] == "failed"


def test_what_was_never_there_is_waited_for_and_named_as_such() -> None:
    assert set(outcomes([None] * 50)) == {"waiting"}
    assert outcomes([None] * 6, seen=True) == ["waiting"] * 5 + ["failed"]
    assert "campaign 'news' was never seen" in judge([None] * 50)[-1].message
    assert "never seen" not in judge([SENDING, None])[-1].message
    # A process that cannot know what others have seen does not say so.
    assert "never seen" not in judge([None], seen=None)[-1].message


def test_a_scheduled_campaign_that_shows_as_a_draft_waits_for_its_time() -> None:
    assert set(outcomes([WAITS_AS_DRAFT] * 50)) == {"waiting"}
    first, then = judge([WAITS_AS_DRAFT, DRAFT])
    assert first.message == f"campaign 'news': scheduled for {AHEAD:%Y-%m-%d %H:%M:%S} UTC (mailStatus -1)"
    assert (first.pause, then.pause) == (MAX_PAUSE, 0.0)
    # The minutes for which a draft is confirmed begin at the send time.
    assert outcomes([SOON] * 11) == ["waiting"] * 10 + ["failed"]
    soon = campaign(-1, NOW + timedelta(seconds=100))
    assert judge([soon])[0].pause == pytest.approx(100, abs=1)


def test_what_is_being_sent_is_polled_whatever_its_send_time() -> None:
    """It may have been sent before its time, at the service."""
    assert judge([campaign(1, AHEAD)])[0].pause == 0.0
    assert judge([campaign(1, AHEAD)])[0].message == "campaign 'news': sending (mailStatus 1)"
    # What a scheduled one shows is not in the document: one of which that is known may show as sending.
    scheduled = judge([campaign(1, AHEAD), campaign(1, PAST)], scheduled=True)
    assert [verdict.pause for verdict in scheduled] == [MAX_PAUSE, 0.0]
    assert judge([WAITS_AS_DRAFT, campaign(1, AHEAD)])[1].pause == MAX_PAUSE


@pytest.mark.parametrize("status", [-1, 0, 1])
def test_the_send_time_is_the_service_s(status: int) -> None:
    two_days = 2 * 86_400.0
    sent_there = campaign(status, NOW + timedelta(seconds=two_days - 60))
    wait = CampaignWait("news", scheduled=True)
    assert wait.decide(sent_there, T0, two_days).pause == 0.0
    assert wait.decide(sent_there, T0, 0.0).pause == MAX_PAUSE
    behind = campaign(status, NOW - timedelta(seconds=two_days - 60))
    assert wait.decide(behind, T0, -two_days).pause == pytest.approx(60, abs=1)


def test_refused_credentials_end_a_wait_that_never_worked_and_not_at_once_one_that_did() -> None:
    assert outcomes([KEY]) == ["refused"]
    assert outcomes([KEY], polled_before=True) == ["waiting"]
    assert outcomes([SENDING, KEY, KEY, SENDING, DONE]) == ["waiting"] * 4 + ["complete"]
    assert outcomes([SENDING, *[KEY] * 11]) == ["waiting"] * 11 + ["refused"]


@pytest.mark.parametrize("every", [0.2, 1.0, 10.0, 60.0])
def test_an_outage_of_minutes_ends_no_wait_whatever_its_interval(every: float) -> None:
    polls = int(180 / every)
    assert set(outcomes([SENDING, *[BLIP] * polls, SENDING], every)) == {"waiting"}
    assert outcomes([BLIP] * (int(600 / every) + 2), every)[-1] == "error"


def test_two_errors_hours_apart_end_no_wait() -> None:
    assert outcomes([BLIP, BLIP, SENDING, BLIP, BLIP], every=3600) == ["waiting"] * 5
    assert outcomes([BLIP] * 3, every=3600)[-1] == "error"


def test_the_time_for_which_polls_may_fail_can_be_chosen() -> None:
    assert outcomes([BLIP] * 4, every=60, poll_error_timeout=120) == ["waiting"] * 2 + ["error"] * 2
    message = judge([BLIP] * 3, every=60, poll_error_timeout=120)[-1].message
    assert message == "3 polls in a row failed, for 120 s (poll_error_timeout: 120 s), the last with: blip"


def test_failed_polls_are_repeated_ever_more_slowly() -> None:
    pauses = [verdict.pause for verdict in judge([BLIP] * 12, every=1)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, *[60.0] * 5]
    assert judge([BLIP, BLIP, SENDING, BLIP], every=1)[-1].pause == 0.5


def test_errors_between_do_not_make_a_missing_campaign_present() -> None:
    assert outcomes([SENDING, None, BLIP, None, BLIP, None, None])[-1] == "failed"


def test_a_memory_of_another_campaign_is_not_taken_over() -> None:
    wait = CampaignWait("news")
    wait.decide(SENDING, T0)
    assert CampaignWait("news", state=wait.state).seen is True
    assert CampaignWait("other", state=wait.state).seen is False


# --- what is logged ---


def logged(looks: list[PollResult], every: float) -> list[str]:
    status_log = StatusLog()
    verdicts = enumerate(judge(looks, every))
    return [verdict.message for number, verdict in verdicts if status_log.is_due(verdict, T0 + number * every)]


def test_the_time_of_a_poll_is_before_its_request() -> None:
    """The response to a slow poll may hold counts from before the age that ends a wait."""
    answered: list[float] = []
    decided: list[float] = []

    class Recorder:
        def decide(self, result: Any, at: float, offset: float = 0.0) -> PollDecision:
            decided.append(at)
            return PollDecision(WaitStatus.WAITING, "waiting")

    def poll() -> tuple[object, float]:
        answered.append(time.time())
        return None, 0.0

    next(Polls(Recorder(), poll, log=print))
    assert decided <= answered


def test_a_line_for_each_change_and_none_for_what_is_known() -> None:
    rows: list[PollResult] = [*[None] * 20, *[SENDING] * 20, *[BLIP] * 5, *[SENDING] * 10, DONE]
    assert [line.split("(")[0].strip() for line in logged(rows, every=30)] == [
        "campaign 'news' was never seen: the service has none of exactly this name",
        "campaign 'news': sending",
        "poll failed",
        "campaign 'news': sending",
        "campaign 'news' was sent",
    ]


def test_a_heartbeat() -> None:
    lines = logged([SENDING] * 601, every=60)  # ten hours
    assert len(lines) == 1 + 10 * 3600 / HEARTBEAT_SECONDS


def test_a_line_says_when_the_next_poll_is_and_when_the_wait_is_given_up() -> None:
    sending, later = judge([SENDING])[0], judge([WAITS_AS_DRAFT])[0]
    end_time = datetime(2026, 11, 24, 8, tzinfo=UTC).timestamp()
    assert status_line(sending, 60, end_time) == (
        "campaign 'news': sending (mailStatus 1); next poll in 60 s, deadline 2026-11-24 08:00:00 UTC"
    )
    assert status_line(later, 60, None).endswith("; next poll in 300 s")
    assert status_line(judge([DONE])[0], 60, end_time) == "campaign 'news' was sent"


@pytest.mark.both_clients
@pytest.mark.parametrize("end", ["done", "failed", "draft", "removed"])
def test_a_real_campaign(end: Any, emulator: Emulator, client: Driver) -> None:
    """It shows late, is being sent, and then goes out, fails, or is taken back: to a draft, or altogether."""
    emulator.settings.visible_after_looks = 2
    emulator.settings.sending_looks = 4
    emulator.settings.campaign_outcome = "failed" if end == "failed" else "done"
    emulator.add_list("customers", count=50)
    client.send(CreateCampaign(mail_name="news", sender_mail="news@example.com", send_list_names=["customers"]))
    wait, at = CampaignWait("news"), time.time()
    verdicts: list[PollDecision] = []
    while not verdicts or verdicts[-1].status is WaitStatus.WAITING:
        if len(verdicts) == 4 and end in ("draft", "removed"):
            emulator.set_campaign_state("news", end)
        at += 150
        verdicts.append(wait.decide(client.run(find_campaign("news")), at))
    assert verdicts[-1].status == ("complete" if end == "done" else "failed")
    assert len(verdicts) == 7, "two polls too early, then four of sending, or two and three of patience"
    assert verdicts[-1].result.get("sent_count") == (50 if end == "done" else None)
