"""`MailCancelCampaignOperator` and `MailDeleteCampaignOperator`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.operators.campaigns import MailCancelCampaignOperator, MailDeleteCampaignOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.tasks.conftest import TASK
from tests.tasks.loading import executed

CANCEL, DELETE = "campaign/mail/cancel", "campaign/mail/delete"


def cancel(**options: Any) -> dict[str, Any]:
    return executed(MailCancelCampaignOperator(task_id=TASK, mail_name="spring", **options))


def schedule(emulator: Emulator, name: str = "spring") -> None:
    emulator.add_campaign(name, state="scheduled", send_date=emulator.clock.now() + datetime.timedelta(hours=1))


@pytest.mark.parametrize("shows_as", ["draft", "removed", "failed"])
def test_cancelled_once(emulator: Emulator, shows_as: Any) -> None:
    emulator.settings.state_after_cancel = shows_as
    for name in ("spring", "spring sale"):
        schedule(emulator, name)
    emulator.faults.add("close_after", CANCEL)
    for cancelled in (True, False):
        found = cancel(ignore_draft=shows_as == "draft" and not cancelled)
        assert found == {"mail_name": "spring", "cancelled": cancelled, "sandbox": False}
    assert emulator.campaigns("spring sale")[0]["state"] == "scheduled"


@pytest.mark.parametrize("state", ["sending", "done", "failed"])
def test_too_late(emulator: Emulator, state: Any) -> None:
    emulator.add_campaign("spring", state=state)
    with pytest.raises(AirflowFailException, match="campaign 'spring' cannot be cancelled, it shows mailStatus"):
        cancel()


@pytest.mark.parametrize("fault", [None, "close_before"])
@pytest.mark.parametrize(("status", "hours"), [(-1, 9), (1, -9)])
def test_a_rejected_cancellation_is_never_green(emulator: Emulator, hours: int, status: Any, fault: Any) -> None:
    """Whatever it shows as and the worker's clock says, while the service would still cancel it."""
    emulator.clock.advance(hours=hours)
    emulator.settings.scheduled_status = status
    schedule(emulator)
    if fault:
        emulator.faults.add(fault, CANCEL)
    emulator.faults.add("code_before", CANCEL, code=403, message="in progress")
    error = None
    try:
        cancel()
    except (AirflowFailException, MailError) as raised:
        error = str(raised)
    assert (error is None) == bool(emulator.campaigns("spring")[0]["cancelled"])
    assert error is None or "'spring' cannot be cancelled" in error or "in progress" in error
    assert error is None or cancel()["cancelled"]


@pytest.mark.parametrize("rejects", [False, True])
def test_a_draft_may_be_accepted(emulator: Emulator, rejects: bool) -> None:
    """Also what shows as one because cancellations are rejected, for example for want of a permission."""
    if rejects:
        emulator.settings.scheduled_status = -1
        schedule(emulator)
        emulator.faults.add("code_before", CANCEL, code=403, message="in progress", count=None)
    else:
        emulator.add_campaign("spring", state="draft", send_date=datetime.datetime.now(datetime.UTC))
    with pytest.raises(MailError, match="set ignore_draft=True"):
        cancel()
    assert cancel(ignore_draft=True)["cancelled"] is False


@pytest.mark.parametrize("kind", [MailCancelCampaignOperator, MailDeleteCampaignOperator])
def test_nothing_of_that_name(emulator: Emulator, kind: Any) -> None:
    emulator.add_campaign("spring sale")
    executed(kind(task_id=TASK, mail_name="spring"))
    with pytest.raises(AirflowFailException):
        executed(kind(task_id=TASK, mail_name="spring", ignore_if_missing=False))
    assert emulator.journal.count(DELETE) == 0


def test_deleted_once(emulator: Emulator) -> None:
    for name in ("spring", "spring sale"):
        emulator.add_campaign(name)
    for deleted in (True, False):
        assert executed(MailDeleteCampaignOperator(task_id=TASK, mail_name="spring"))["deleted"] is deleted
    assert [entry["body"] for entry in emulator.journal.entries(DELETE)] == [{"mailName": "spring"}]
