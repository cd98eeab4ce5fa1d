"""Code 500 with a kept campaign: cancelled, continued with, or left and named, and never treated as complete later.

What tries that die may do in any order is in `tests/machines/test_creating.py`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Attachment, Campaign, CreateCampaign
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailPendingCampaignError,
    MailRejectedError,
    MailServerError,
)
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.flows.create_once import Creation, CreationState
from mail_emulator import Emulator
from tests.api.driving import Rehearsal

pytestmark = pytest.mark.usefixtures("clock")

SENDS, GET, CANCEL = "/v5/campaign/mail/sends", "/v5/campaign/mail/get", "/v5/campaign/mail/cancel"
NAME = "spring"
RUN_AGAIN = "Cancel or delete it at the service, fix the cause, and run again"
LOOK_LATER = "It is new, so that may change: look at it 15 minutes after its creation"
BEFORE = "before that time, cancel or delete it at the service, fix the cause, and run again. After it is sent, running"


class Case:
    """A service that keeps the first campaign whose creation fails, and a campaign with an attachment, in an hour."""

    def __init__(self, service: Emulator, client: MailClient) -> None:
        service.add_list("customers")
        service.settings.kept_task_state = "scheduled"
        service.settings.sending_seconds = 10_000
        service.faults.add("attachment_failed", SENDS)
        self.service, self.client = service, client
        self.request = CreateCampaign(
            mail_name=NAME,
            sender_mail="news@example.com",
            subject="Spring",
            content="<p>Spring</p>",
            send_date=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1),
            send_list_names=["customers"],
            attachment=Attachment(file_name="a.pdf", file_data="YQ=="),
        )

    def ask_for(self, **fields: Any) -> None:
        self.request = self.request.model_copy(update=fields)

    def create(self, choice: Any = "fail", **options: Any) -> Creation:
        options = {"on_incomplete": choice, **options}
        return create_campaign(self.client, self.request, **options)

    def kept(self, choice: Any = "fail", **options: Any) -> str:
        """What the error says of the kept campaign."""
        with pytest.raises(MailIncompleteCampaignError, match=f"the service kept the campaign {NAME!r}") as raised:
            self.create(choice, **options)
        assert not raised.value.temporary
        return str(raised.value)

    @property
    def held(self) -> dict[str, Any]:
        (campaign,) = self.service.campaigns(NAME)
        return campaign

    @property
    def sends(self) -> int:
        return self.service.journal.count(SENDS)


@pytest.fixture
def case(emulator: Emulator, client: MailClient) -> Case:
    return Case(emulator, client)


def incomplete() -> CreationState:
    """What is known of a try that got code 500."""
    return CreationState(creation=Creation(incomplete=True))


def page(step: Any, campaigns: list[Any]) -> Any:
    return step.response(mail_list=campaigns, total_records=len(campaigns))


def shown(status: int, send_time: datetime) -> Campaign:
    return Campaign.model_validate(
        {"mailName": NAME, "mailStatus": status, "sendByDateTime": int(send_time.timestamp() * 1000)}
    )


@pytest.mark.parametrize("lost", [False, True])
def test_cancelled(lost: bool, case: Case) -> None:
    if lost:
        case.service.faults.add("close_after", CANCEL)
    text = case.kept("cancel")
    assert case.held["cancelled"]
    assert f"{SENDS}: code 500" in text
    assert "It was cancelled: it is not sent. Delete it (its name may still be taken)" in text


@pytest.mark.parametrize(
    ("kept_as", "is_now", "code", "words"),
    [
        ("draft", True, None, f"code 403: rejected.*; it shows mailStatus -1. {LOOK_LATER}"),
        ("scheduled", True, None, "code 403: rejected.*; it shows mailStatus 1. It is being sent: running again"),
        ("scheduled", False, 400, "code 400: rejected.*; it shows mailStatus 1"),
        ("scheduled", False, 500, "code 500"),
    ],
)
def test_not_cancelled(kept_as: Any, is_now: bool, code: int | None, words: str, case: Case) -> None:
    case.service.settings.kept_task_state = kept_as
    if code:
        case.service.faults.add("code_before", CANCEL, count=None, code=code)
    if is_now:
        case.ask_for(send_date=None)
    assert re.search(f"It could not be cancelled: .*{words}", case.kept("cancel"))
    assert not case.held["cancelled"]


@pytest.mark.parametrize("is_now", [True, False])
def test_a_draft_is_not_continued_with(is_now: bool, case: Case) -> None:
    """Also with its send time ahead; unless a draft was asked for."""
    case.service.settings.kept_task_state = "draft"
    if is_now:
        case.ask_for(send_date=None)
    assert "It is a draft, so it is not adopted" in case.kept("keep")
    case.service.faults.add("task_check_failed", SENDS)
    case.ask_for(only_save=True, mail_name="saved")
    assert case.create("keep").incomplete


@pytest.mark.parametrize(
    ("fault", "params", "adopted"),
    [
        ("code_before", {}, False),  # nothing was created
        # Only the document's code 500 says that the campaign was kept; the 500 of a proxy says nothing.
        ("http_error_after", {"status": 500}, True),
    ],
)
def test_a_500_that_kept_nothing(fault: str, params: Any, adopted: bool, case: Case) -> None:
    state = CreationState()
    case.service.faults.clear()
    case.service.faults.add(fault, SENDS, **params)
    creation = case.create("cancel", state=state)
    assert (creation.adopted, creation.incomplete, state.creation.incomplete) == (adopted, False, False)
    assert case.held["guid"] == creation.guid
    assert not any(entry["operation"] == CANCEL for entry in case.service.journal.processed())


@pytest.mark.parametrize(
    ("state", "status", "advice"),
    [
        ("shows late", 1, "It is being sent: running again"),
        ("draft", 1, f"It may be sent at .*: {BEFORE}"),
        ("scheduled", -1, f"It may be sent at .*: {BEFORE}"),
        ("scheduled", 1, f"It is sent at .*: {BEFORE}"),
        ("sending", 1, "It is being sent: running again, under another mail_name or after deleting it, mails every"),
        ("done", 1, "It was sent: running again, under another mail_name or after deleting it, mails every recipient"),
        ("failed", 1, RUN_AGAIN),
    ],
)
def test_no_advice_mails_everybody_twice(state: Any, status: Any, advice: str, case: Case) -> None:
    case.service.settings.scheduled_status = status
    if state == "shows late":  # to delete what shows as a draft at first, and is being sent, would mail twice
        case.service.settings.draft_at_first_seconds = 20
        case.ask_for(send_date=None)
        assert advice in case.kept()
        return
    case.service.faults.add("http_error_before", GET, skip=1, count=None, status=503)
    attempts = CreationState()
    with pytest.raises(MailError):
        case.create(state=attempts)
    case.service.faults.clear()
    if state in ("sending", "done"):
        case.service.clock.advance(3601 + (10_000 if state == "done" else 0))
    else:
        case.service.set_campaign_state(NAME, state)
    text = case.kept(state=attempts)
    assert re.search(advice, text)
    assert ("run again" in text) == (state not in ("sending", "done"))
    assert ("mail_name" in text) == (state != "failed")


@pytest.mark.parametrize(("minutes", "advice"), [(0, f"{LOOK_LATER}. If it was sent, running again"), (16, RUN_AGAIN)])
def test_what_shows_as_a_draft_may_be_sent_later(minutes: int, advice: str, case: Case) -> None:
    case.service.settings.kept_task_state = "draft"
    case.ask_for(send_date=None)
    case.service.faults.add("http_error_before", GET, skip=1, count=None, status=503)
    attempts = CreationState()
    with pytest.raises(MailError):
        case.create(state=attempts)
    case.service.faults.clear()
    case.service.clock.advance(60 * minutes)
    assert advice in case.kept("keep", state=attempts)


# What a later try does about it.


@pytest.mark.parametrize(("choice", "scheduled"), [("cancel", 1), ("keep", 1), ("keep", -1), ("fail", 1)])
def test_the_next_try_remembers(choice: Any, scheduled: Any, case: Case) -> None:
    case.service.settings.scheduled_status = scheduled
    case.kept()
    state = incomplete()
    if choice == "keep":
        creation = case.create(choice, state=state)
        assert (creation.incomplete, creation.adopted, creation.guid) == (True, True, case.held["guid"])
        case.ask_for(subject="Others'")
        with pytest.raises(MailConflictError, match="differs in subject"):
            case.create(choice, state=incomplete())
        case.ask_for(subject="Spring")
    else:
        assert "an earlier try was answered with code 500" in case.kept(choice, state=state)
    assert case.held["cancelled"] == (choice == "cancel")
    assert case.sends == 1
    if choice == "cancel":
        case.service.clock.advance(7200)  # it was not sent meanwhile
    case.service.set_campaign_state(NAME, "removed")
    creation = case.create(state=state, allow_past_send_date=True)
    assert (creation.adopted, creation.incomplete, state.creation.incomplete) == (False, False, False)


def test_what_was_continued_with_and_sent_is_not_created_again(case: Case) -> None:
    state = CreationState()
    case.create("keep", state=state)
    case.service.clock.advance(7200)
    case.service.set_campaign_state(NAME, "removed")
    with pytest.raises(MailConflictError, match=r"is gone: .* It was sent, or its send time has passed"):
        case.create("keep", state=state, allow_past_send_date=True)
    assert case.sends == 1


def test_who_remembers_waits_for_it_to_show(case: Case) -> None:
    looks = iter([[], [], [shown(1, datetime.now(UTC) + timedelta(hours=1))]])
    rehearsal = Rehearsal(lambda step: page(step, next(looks)))
    with pytest.raises(MailIncompleteCampaignError):
        create_campaign(rehearsal, case.request, state=incomplete())
    assert [step.path for step in rehearsal.asked] == [GET] * 3
    assert rehearsal.pauses == [1.0, 2.0]


# Scheduled, or a draft that looks like it?


def test_without_the_permission_to_cancel_nothing_is_adopted(case: Case) -> None:
    """Only a cancellation shows whether it is scheduled."""
    case.service.faults.clear()
    case.service.settings.scheduled_status = -1
    case.create()
    for code, error in ((401, MailAuthError), (503, MailServerError)):
        case.service.faults.add("code_before", CANCEL, count=None, code=code)
        with pytest.raises(error):
            case.create()
        case.service.faults.clear()
    assert case.create().adopted


@pytest.mark.parametrize("before", [-1, 3])
@pytest.mark.parametrize("later", [-1, 1, 2, 3, None])
def test_its_send_time_comes_while_we_ask(later: int | None, before: int, case: Case) -> None:
    sent = datetime.now(UTC) - timedelta(seconds=1)
    looks = chain([[shown(before, sent + timedelta(seconds=3))]], repeat([] if later is None else [shown(later, sent)]))

    def play(step: Any) -> Any:
        if step.path == CANCEL:
            assert step.sandbox_mode is True
            return MailRejectedError("not scheduled", operation=CANCEL)
        return page(step, next(looks))

    rehearsal = Rehearsal(play)
    request = case.request.model_copy(update={"send_date": sent})
    if later in (1, 2):
        assert create_campaign(rehearsal, request, ignore=["send_date"]).adopted
        assert [step.path for step in rehearsal.asked] == [GET, CANCEL, GET]
    else:
        with pytest.raises(MailPendingCampaignError if later else MailConflictError, match="cancelled, or only saved"):
            create_campaign(rehearsal, request, ignore=["send_date"])
