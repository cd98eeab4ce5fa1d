"""What a row of looks at a campaign means: every row, against the rules written down once more and plainly."""

from __future__ import annotations

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
from airflow_provider_mail.api.waiting import CampaignWait, Look, Outcome, Verdict
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver

AHEAD, PAST = datetime.now(UTC) + timedelta(days=1), datetime.now(UTC) - timedelta(days=1)


def campaign(status: int, send_time: datetime | None = None, **stats: int) -> Campaign:
    millis = None if send_time is None else int(send_time.timestamp() * 1000)
    fields: dict[str, Any] = {"mailName": "news", "mailStatus": status, "sendByDateTime": millis}
    return Campaign.model_validate({**fields, "mailStats": stats or None})


BLIP, KEY = MailServerError("blip"), MailAuthError("key refused")
DRAFT, WAITS_AS_DRAFT, SENDING = campaign(-1), campaign(-1, AHEAD), campaign(1, AHEAD)
DONE, FAILED = campaign(2, PAST, sentCount=7), campaign(4, PAST)


def judge(looks: list[Look], **options: Any) -> list[Verdict]:
    wait = CampaignWait("news", **options)
    return [wait.judge(look) for look in looks]


def outcomes(looks: list[Look], **options: Any) -> list[Outcome]:
    return [verdict.outcome for verdict in judge(looks, **options)]


def expected(looks: list[Look], seen: bool, looked: bool, bearable: int) -> Outcome:
    """The rules, read off the whole row instead of counted along it."""
    last = looks[-1]
    good = [look for look in looks if not isinstance(look, MailError)]
    if isinstance(last, MailError):
        if not last.temporary and not looked and not good:
            return Outcome.REFUSED
        in_a_row = len(list(takewhile(lambda look: isinstance(look, MailError), reversed(looks))))
        if in_a_row <= bearable:
            return Outcome.WAITING
        return Outcome.ERROR if last.temporary else Outcome.REFUSED
    if last is None:
        missing = len(list(takewhile(lambda look: look is None, reversed(good))))
        was_there = seen or any(look is not None for look in good)
        return Outcome.FAILED if was_there and missing >= 3 else Outcome.WAITING
    if last.mail_status == -1:
        idle = len(list(takewhile(lambda look: look is not None and look.is_idle_draft, reversed(good))))
        return Outcome.FAILED if idle >= 3 else Outcome.WAITING
    return {2: Outcome.COMPLETE, 4: Outcome.FAILED}.get(last.mail_status, Outcome.WAITING)


LOOKS = st.sampled_from(
    [None, DRAFT, campaign(-1, PAST), WAITS_AS_DRAFT, SENDING, campaign(0), campaign(3), DONE, FAILED, BLIP,
     MailAnswerLostError("lost"), MailRateLimitError("slow down"), MailIncompleteError("short", got=1, expected=2), KEY,
     MailConfigError("no such host")]
)  # fmt: skip


@given(st.lists(LOOKS, min_size=1, max_size=14), st.booleans(), st.booleans(), st.integers(0, 3))
def test_every_row_of_looks(looks: list[Look], seen: bool, looked: bool, bearable: int) -> None:
    wait = CampaignWait("news", seen=seen, looked=looked, max_poll_errors=bearable)
    for number, look in enumerate(looks, 1):
        verdict = wait.judge(look)
        assert verdict.outcome is expected(looks[:number], seen, looked, bearable)
        assert verdict.message
        if verdict.outcome is not Outcome.WAITING:
            return


def test_sent() -> None:
    assert outcomes([None, SENDING, SENDING, DONE]) == ["waiting", "waiting", "waiting", "complete"]
    assert judge([DONE])[0].mail_stats == {"sent_count": 7}
    assert judge([campaign(2)])[0].mail_stats == {}


def test_failed_cancelled_and_vanished_say_which() -> None:
    assert "mailStatus 4" in judge([FAILED])[0].message
    assert "saved only, or cancelled" in judge([DRAFT] * 3)[2].message
    assert "disappeared" in judge([SENDING, None, None, None])[3].message
    for verdict in (judge([FAILED])[0], judge([DRAFT] * 3)[2], judge([SENDING, None, None, None])[3]):
        assert verdict.outcome is Outcome.FAILED
        assert "'news'" in verdict.message


def test_what_was_never_there_is_waited_for() -> None:
    assert set(outcomes([None] * 50)) == {"waiting"}
    assert outcomes([None] * 3, seen=True) == ["waiting", "waiting", "failed"]


def test_a_scheduled_campaign_that_shows_as_a_draft_waits_for_its_time() -> None:
    assert set(outcomes([WAITS_AS_DRAFT] * 50)) == {"waiting"}
    wait = CampaignWait("news")
    wait.judge(WAITS_AS_DRAFT)
    assert wait.not_before == pytest.approx(AHEAD.timestamp(), abs=1)
    wait.judge(DRAFT)
    assert wait.not_before == 0.0


def test_refused_credentials_end_a_wait_that_never_worked_and_are_borne_by_one_that_did() -> None:
    assert outcomes([KEY]) == ["refused"]
    assert outcomes([KEY], looked=True) == ["waiting"]
    assert outcomes([SENDING, KEY, KEY, SENDING, DONE]) == ["waiting"] * 4 + ["complete"]
    assert outcomes([SENDING, *[KEY] * 11])[-1] == "refused"


def test_blips_are_borne_and_counted_in_a_row() -> None:
    assert outcomes([BLIP] * 11) == ["waiting"] * 10 + ["error"]
    assert set(outcomes(([BLIP] * 10 + [SENDING]) * 5)) == {"waiting"}
    assert "11 looks in a row failed, the last with: blip" in judge([BLIP] * 11)[-1].message


def test_errors_between_do_not_make_a_missing_campaign_present() -> None:
    assert outcomes([SENDING, None, BLIP, None, BLIP, None])[-1] == "failed"


@pytest.mark.parametrize("end", ["done", "failed", "draft", "removed"])
def test_a_real_campaign(end: Any, emulator: Emulator, client: Driver) -> None:
    """It shows late, is being sent, and then goes out, fails, or is taken back: to a draft, or altogether."""
    emulator.settings.visible_after_looks = 2
    emulator.settings.sending_looks = 4
    emulator.settings.campaign_outcome = "failed" if end == "failed" else "done"
    emulator.add_list("customers", count=50)
    client.send(CreateCampaign(mail_name="news", sender_mail="news@example.com", send_list_names=["customers"]))
    wait = CampaignWait("news")
    verdicts: list[Verdict] = []
    while not verdicts or verdicts[-1].outcome is Outcome.WAITING:
        if len(verdicts) == 4 and end in ("draft", "removed"):
            emulator.set_campaign_state("news", end)
        verdicts.append(wait.judge(client.run(find_campaign("news"))))
    assert verdicts[-1].outcome == ("complete" if end == "done" else "failed")
    assert len(verdicts) == 7, "two looks too early, then four of sending, or two and three of patience"
    assert verdicts[-1].mail_stats.get("sent_count") == (50 if end == "done" else None)
