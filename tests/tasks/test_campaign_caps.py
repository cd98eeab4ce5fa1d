"""At most so many campaigns and recipients of a day, counted at the service, whoever created the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail.operators.preflight import MailPreflightOperator
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import CAMPAIGN, campaign

CREATES = "campaign/mail/sends"
TOMORROW = "2026-11-27T09:00:00Z"


@pytest.fixture(autouse=True)
def _service(emulator: Emulator, clock: Clock) -> None:
    clock.set_wall_clock((datetime(2026, 11, 26, 12, tzinfo=UTC) - datetime.now(UTC)).total_seconds())
    emulator.add_list("newsletter", count=30)
    emulator.add_campaign("yesterday", send_date="2026-11-25T23:59:00Z", sent=900)
    emulator.add_campaign("today", send_date="2026-11-26T00:00:00Z", sent=100)
    emulator.add_campaign("sending", send_date="2026-11-26T11:59:00Z", state="sending", sent=0)
    emulator.add_campaign("draft", state="draft")
    emulator.add_campaign("tomorrow", send_date=TOMORROW, state="scheduled")


@pytest.mark.parametrize(
    ("caps", "arguments", "problem"),
    [
        ({"max_campaigns_per_day": 3}, {}, None),
        ({"max_campaigns_per_day": 2}, {}, "2 campaigns of 2026-11-26 exist, 2 may be sent"),
        ({"max_campaigns_per_day": 2}, {"send_date": TOMORROW}, None),
        ({"max_campaigns_per_day": 1}, {"send_date": TOMORROW}, "1 campaigns of 2026-11-27 exist, 1 may be sent"),
        ({"max_campaigns_per_day": 0}, {"only_save": True}, None),
        ({"max_campaigns_per_day": 0}, {"sandbox_mode": True}, None),
        ({"max_recipients_per_day": 130}, {}, None),
        ({"max_recipients_per_day": "129"}, {}, "2026-11-26 would have 130 recipients, 129 may be"),
        ({"max_recipients_per_day": 10}, {"send_date": TOMORROW}, "2026-11-27 would have 30 recipients, 10 may be"),
        ({"max_recipients_per_day": "many"}, {}, "max_recipients_per_day: must be a whole number"),
    ],
)
def test_what_may_be_created(
    run: Run, emulator: Emulator, connect: Connect, caps: dict[str, Any], arguments: dict[str, Any], problem: str | None
) -> None:
    connect(**caps)
    done = run(lambda: campaign(**arguments))
    assert (done.state, emulator.journal.count(CREATES)) == (("failed", 0) if problem else ("success", 1))
    assert (problem or "") in done.log


def test_a_campaign_that_exists_is_adopted(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(max_campaigns_per_day=3)
    for _ in range(2):
        assert run(lambda: campaign(adopt_older=True)).state == "success"
    assert emulator.journal.count(CREATES) == 1


def test_preflight_says_it_before(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(max_campaigns_per_day=2, max_recipients_per_day=100)
    done = run(lambda: MailPreflightOperator(task_id=TASK, unsubscribe_pattern=None, fail_on="never", **CAMPAIGN))
    assert [finding["text"] for finding in done.returned["findings"] if finding["check"] == "caps"] == [
        "max_campaigns_per_day: 2 campaigns of 2026-11-26 exist, 2 may be sent",
        "max_recipients_per_day: 2026-11-26 would have 130 recipients, 100 may be",
    ]


def test_a_sent_campaign_counts_on_the_day_of_the_service(run: Run, emulator: Emulator, connect: Connect) -> None:
    """A send time in another zone belongs to the day in UTC."""
    connect(max_campaigns_per_day=2)
    late = datetime(2026, 11, 27, 1, tzinfo=UTC).astimezone().replace(microsecond=0) - timedelta(hours=1)
    assert run(lambda: campaign(send_date=late)).state == "success"
