"""`MailCancelCampaignOperator` and `MailDeleteCampaignOperator`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.operators.campaigns import MailCancelCampaignOperator, MailDeleteCampaignOperator
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run

CANCEL, DELETE = "campaign/mail/cancel", "campaign/mail/delete"


def cancel(**options: Any) -> MailCancelCampaignOperator:
    return MailCancelCampaignOperator(task_id=TASK, mail_name="spring{{ '' }}", **options)


def delete(**options: Any) -> MailDeleteCampaignOperator:
    return MailDeleteCampaignOperator(task_id=TASK, mail_name="spring", **options)


def schedule(emulator: Emulator, name: str = "spring") -> None:
    emulator.add_campaign(name, state="scheduled", send_date=emulator.clock.now() + datetime.timedelta(hours=1))


def reject(emulator: Emulator, before: Any, count: int | None = 1) -> None:
    """Reject cancellations, perhaps after one that got no response."""
    if before:
        emulator.faults.add(before, CANCEL)
    emulator.faults.add("code_before", CANCEL, code=403, message="in progress", count=count)


@pytest.mark.parametrize("shows_as", ["draft", "removed", "failed"])
def test_cancelled_once(run: Run, emulator: Emulator, shows_as: Any) -> None:
    emulator.settings.state_after_cancel = shows_as
    schedule(emulator)
    schedule(emulator, "spring sale")
    emulator.faults.add("close_after", CANCEL)

    assert run(cancel).returned == {"mail_name": "spring", "cancelled": True, "sandbox": False}
    again = run(lambda: cancel(ignore_draft=shows_as == "draft"))
    assert again.returned == {"mail_name": "spring", "cancelled": False, "sandbox": False}

    assert emulator.campaigns("spring sale")[0]["state"] == "scheduled"


@pytest.mark.parametrize("state", ["sending", "done", "failed"])
def test_too_late(run: Run, emulator: Emulator, state: Any) -> None:
    emulator.add_campaign("spring", state=state)
    done = run(lambda: cancel(retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    assert "campaign 'spring' cannot be cancelled, it shows mailStatus" in done.log


@pytest.mark.parametrize("fault", [None, "close_before"])
@pytest.mark.parametrize(("status", "hours"), [(-1, 9), (1, -9)])
def test_a_rejected_cancellation_is_never_green(
    run: Run, emulator: Emulator, hours: int, status: Any, fault: Any
) -> None:
    """Whatever it shows as and the worker's clock says, while the service would still cancel it."""
    emulator.clock.advance(hours=hours)
    emulator.settings.scheduled_status = status
    schedule(emulator)
    reject(emulator, fault)
    done = run(cancel)
    assert (done.state == "success") == bool(emulator.campaigns("spring")[0]["cancelled"])
    assert done.state == "success" or "'spring' cannot be cancelled" in done.log or "in progress" in done.log
    if done.state == "failed":
        assert run(cancel).returned["cancelled"] is True
    assert emulator.campaigns("spring")[0]["cancelled"]


@pytest.mark.parametrize("age", [0, 3600])
def test_a_draft_may_be_accepted(run: Run, emulator: Emulator, age: int) -> None:
    sent = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    emulator.add_campaign("spring", state="draft", send_date=sent)
    done = run(cancel)
    assert done.state == "failed"
    assert "set ignore_draft=True" in done.log
    assert run(lambda: cancel(ignore_draft=True)).returned["cancelled"] is False


@pytest.mark.parametrize("fault", [None, "close_before"])
@pytest.mark.parametrize("ignore_draft", [False, True])
def test_a_scheduled_campaign_that_cannot_be_cancelled(
    run: Run, emulator: Emulator, ignore_draft: bool, fault: Any
) -> None:
    """Every cancellation is rejected, for example for want of a permission, and it shows as a draft."""
    emulator.settings.scheduled_status = -1
    schedule(emulator)
    reject(emulator, fault, count=None)
    assert run(lambda: cancel(ignore_draft=ignore_draft)).state == ("success" if ignore_draft else "failed")


@pytest.mark.parametrize("make", [cancel, delete])
def test_nothing_of_that_name(run: Run, emulator: Emulator, make: Any) -> None:
    emulator.add_campaign("spring sale")
    assert run(make).state == "success"
    done = run(lambda: make(ignore_if_missing=False, retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    assert emulator.journal.count(DELETE) == 0


def test_deleted_once(run: Run, emulator: Emulator) -> None:
    for name in ("spring", "spring sale"):
        emulator.add_campaign(name)
    for deleted in (True, False):
        assert run(delete).returned == {"mail_name": "spring", "deleted": deleted, "sandbox": False}
    assert [entry["body"] for entry in emulator.journal.entries(DELETE)] == [{"mailName": "spring"}]
