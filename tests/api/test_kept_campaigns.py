"""Code 500 with a kept campaign: cancelled, continued with, or left and named, and never treated as complete later.

What tries that die may do in any order is in `tests/machines/test_creating.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Attachment, Campaign, CreateCampaign, is_scheduled
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailPendingCampaignError,
    MailRejectedError,
)
from airflow_provider_mail.api.flows.adopt_campaign import Creation
from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.flows.create_once import CreationState
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver, Rehearsal

pytestmark = pytest.mark.usefixtures("clock")

SENDS, GET, CANCEL = "/v5/campaign/mail/sends", "/v5/campaign/mail/get", "/v5/campaign/mail/cancel"
NAME = "spring"
CHOICES = ("cancel", "keep", "fail")


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("customers")
    emulator.settings.kept_task_state = "scheduled"
    return emulator


@pytest.fixture
def request_(service: Emulator) -> CreateCampaign:
    """A campaign with an attachment, to be sent in an hour."""
    return CreateCampaign(
        mail_name=NAME,
        sender_mail="news@example.com",
        subject="Spring",
        content="<p>Spring</p>",
        send_date=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1),
        send_list_names=["customers"],
        attachment=Attachment(file_name="a.pdf", file_data="YQ=="),
    )


def create(client: Driver, request: CreateCampaign, **options: Any) -> Creation:
    return client.run(create_campaign(request, **{"clock": client.client.service_clock, **options}))


def held(service: Emulator, name: str = NAME) -> dict[str, Any]:
    (campaign,) = service.campaigns(name)
    return campaign


def incomplete() -> CreationState:
    """What a try remembers that got code 500."""
    state = CreationState()
    state.mark_incomplete()
    return state


def page(step: Any, campaigns: list[Any]) -> Any:
    return step.response(mail_list=campaigns, total_records=len(campaigns))


def shown(status: int, send_time: datetime) -> Campaign:
    return Campaign.model_validate(
        {"mailName": NAME, "mailStatus": status, "sendByDateTime": int(send_time.timestamp() * 1000)}
    )


# What the user chose.


@pytest.mark.both_clients
@pytest.mark.parametrize("lost", [False, True])
def test_cancelled(lost: bool, service: Emulator, client: Driver, request_: CreateCampaign) -> None:
    service.faults.add("attachment_failed", SENDS)
    if lost:
        service.faults.add("close_after", CANCEL)
    with pytest.raises(MailIncompleteCampaignError) as raised:
        create(client, request_, on_incomplete="cancel")
    assert held(service)["cancelled"]
    text = str(raised.value)
    assert "the service kept the campaign 'spring'" in text
    assert "It was cancelled: it is not sent. Delete it (its name may still be taken)" in text
    assert (raised.value.code, raised.value.temporary) == (500, False)


@pytest.mark.parametrize(
    ("kept", "now", "code", "words"),
    [
        ("draft", True, None, "code 403: rejected.*; it shows mailStatus -1. Cancel or delete it.* run again"),
        ("scheduled", True, None, "code 403: rejected.*; it shows mailStatus 1. It is being sent: running again"),
        ("scheduled", False, 400, "code 400: rejected.*; it shows mailStatus 1"),
        ("scheduled", False, 500, "code 500"),
    ],
)
def test_not_cancelled(
    kept: Any, now: bool, code: int | None, words: str, service: Emulator, client: Driver, request_: CreateCampaign
) -> None:
    service.settings.kept_task_state = kept
    service.settings.sending_seconds = 10_000.0
    service.faults.add("attachment_failed", SENDS)
    if code:
        service.faults.add("code_before", CANCEL, count=None, code=code)
    request = request_.model_copy(update={"send_date": None}) if now else request_
    with pytest.raises(MailIncompleteCampaignError, match=f"It could not be cancelled: .*{words}") as raised:
        create(client, request, on_incomplete="cancel")
    assert not raised.value.temporary
    assert not held(service)["cancelled"]


@pytest.mark.parametrize("scheduled", [-1, 1])
def test_continued_with(scheduled: Any, service: Emulator, client: Driver, request_: CreateCampaign) -> None:
    service.settings.scheduled_status = scheduled
    service.faults.add("attachment_failed", SENDS)
    creation = create(client, request_, on_incomplete="keep")
    assert (creation.incomplete, creation.adopted, creation.guid) == (True, True, held(service)["guid"])
    assert service.journal.count(SENDS) == 1


@pytest.mark.parametrize("attached", [True, False])
def test_left_and_named(attached: bool, service: Emulator, client: Driver, request_: CreateCampaign) -> None:
    """The document gives two reasons for a kept task; without an attachment one is left."""
    service.faults.add("task_check_failed", SENDS)
    request = request_ if attached else request_.model_copy(update={"attachment": None})
    with pytest.raises(MailIncompleteCampaignError) as raised:
        create(client, request)
    reasons = "adding the attachment or the task check failed" if attached else "the task check failed"
    assert f"(that is: {reasons}). It is sent at {request.send_date:%Y-%m-%dT%H:%M:%SZ}: cancel" in str(raised.value)
    assert service.journal.count(CANCEL) == 0


@pytest.mark.parametrize(
    ("fault", "params", "adopted"),
    [
        ("code_before", {}, False),  # nothing was created
        # Only the document's code 500 says that the campaign was kept; the 500 of a proxy says nothing.
        ("http_error_after", {"status": 500}, True),
    ],
)
def test_a_500_that_kept_nothing(
    fault: str, params: Any, adopted: bool, service: Emulator, client: Driver, request_: CreateCampaign
) -> None:
    state = CreationState()
    service.faults.add(fault, SENDS, **params)
    creation = create(client, request_, on_incomplete="cancel", memory=state)
    assert (creation.adopted, creation.incomplete, state.incomplete) == (adopted, False, False)
    assert held(service)["guid"] == creation.guid
    assert not any(entry["operation"] == CANCEL for entry in service.journal.processed())


@pytest.mark.parametrize(
    ("state", "status", "advice"),
    [
        ("draft", 1, "Cancel or delete it at the service, fix the cause, and run again"),
        ("scheduled", -1, "Cancel or delete it at the service, fix the cause, and run again"),
        ("scheduled", 1, "delete it at the service before that time, fix the cause, and run again. After it"),
        ("sending", 1, "It is being sent: running again, under another mail_name or after deleting it, mails every"),
        ("done", 1, "It was sent: running again, under another mail_name or after deleting it, mails every recipient"),
        ("failed", 1, "Cancel or delete it at the service, fix the cause, and run again"),
    ],
)
def test_no_advice_mails_everybody_twice(
    state: Any, status: Any, advice: str, service: Emulator, client: Driver, request_: CreateCampaign
) -> None:
    service.settings.scheduled_status = status
    service.settings.sending_seconds = 10_000
    service.faults.add("attachment_failed", SENDS)
    service.faults.add("http_error_before", GET, skip=1, count=None, status=503)
    attempts = CreationState()
    with pytest.raises(MailError):
        create(client, request_, memory=attempts)
    service.faults.clear()
    if state in ("sending", "done"):
        service.clock.advance(3601 + (10_000 if state == "done" else 0))
    else:
        service.set_campaign_state(NAME, state)
    with pytest.raises(MailIncompleteCampaignError) as raised:
        create(client, request_, memory=attempts)
    text = str(raised.value)
    assert advice in text
    assert ("run again" in text) == (state not in ("sending", "done"))
    assert ("mail_name" in text) == (state in ("sending", "done") or (state, status) == ("scheduled", 1))


# What a later try does about it.


@pytest.mark.parametrize("choice", CHOICES)
def test_the_next_try_remembers(choice: Any, service: Emulator, client: Driver, request_: CreateCampaign) -> None:
    service.faults.add("attachment_failed", SENDS)
    with pytest.raises(MailIncompleteCampaignError):
        create(client, request_)
    state = incomplete()
    if choice == "keep":
        assert create(client, request_, on_incomplete=choice, memory=state).incomplete
    else:
        with pytest.raises(MailIncompleteCampaignError, match="an earlier try was answered with code 500"):
            create(client, request_, on_incomplete=choice, memory=state)
    assert held(service)["cancelled"] == (choice == "cancel")
    assert service.journal.count(SENDS) == 1
    if choice != "keep":
        service.set_campaign_state(NAME, "removed")
        creation = create(client, request_, memory=state)
        assert (creation.adopted, creation.incomplete, state.incomplete) == (False, False, False)
        assert create(client, request_, memory=state).adopted


# Scheduled, or a draft that looks like it?


@pytest.mark.parametrize("fault", [None, "close_before", "close_after", "http_error_after", "html_after"])
def test_asking_whether_it_is_scheduled_changes_nothing(
    fault: str | None, service: Emulator, client: Driver, request_: CreateCampaign
) -> None:
    service.settings.scheduled_status = -1
    create(client, request_)
    for expected in (True, False):
        if fault is not None:
            service.faults.add(fault, CANCEL)
        assert client.run(is_scheduled(NAME)) is expected
        assert held(service)["state"] == ("scheduled" if expected else service.settings.state_after_cancel)
        if expected:
            assert client.run(cancel_campaign(NAME)).done


@pytest.mark.parametrize("before", [-1, 3])
@pytest.mark.parametrize("later", [-1, 1, 2, 3, None])
def test_its_send_time_comes_while_we_ask(later: int | None, before: int, request_: CreateCampaign) -> None:
    sent = datetime.now(UTC) - timedelta(seconds=1)
    looks = chain([[shown(before, sent + timedelta(seconds=3))]], repeat([] if later is None else [shown(later, sent)]))

    def play(step: Any) -> Any:
        if step.path == CANCEL:
            assert step.sandbox_mode is True
            return MailRejectedError("not scheduled", operation=CANCEL)
        return page(step, next(looks))

    rehearsal = Rehearsal(play)
    flow = create_campaign(request_.model_copy(update={"send_date": sent}), ignore=["send_date"])
    if later in (1, 2):
        assert rehearsal.run(flow).adopted
        assert [step.path for step in rehearsal.asked] == [GET, CANCEL, GET]
    else:
        with pytest.raises(MailPendingCampaignError if later else MailConflictError, match="cancelled, or only saved"):
            rehearsal.run(flow)


@pytest.mark.parametrize(
    ("key", "words"), [("emulator-api-key", "no campaign of that name"), ("wrong", "rejected the credentials")]
)
def test_nothing_to_cancel(key: str, words: str, service: Emulator, connect: Callable[..., Driver]) -> None:
    cancellation = connect(service.base_url, api_key=key).run(cancel_campaign(NAME))
    assert not cancellation.done
    assert words in cancellation.text
    assert service.journal.count() == 1 or key != "wrong"
