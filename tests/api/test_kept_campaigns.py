"""Code 500 with a kept campaign: cancelled, gone on with, or left and named, and never taken for a whole one later.

A try that dies is one whose flow is left between two steps; what it remembered is all that the next one knows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api._core.exchange import FlowRunner
from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.campaigns import Attachment, Campaign, CreateCampaign, MailStatus, is_scheduled
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConflictError,
    MailError,
    MailIncompleteCampaignError,
    MailPendingCampaignError,
    MailRejectedError,
    MailServerError,
)
from airflow_provider_mail.api.flows.adopt_campaign import Creation
from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.flows.create_once import CreationState
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.api.driving import Driver, Rehearsal
from tests.support.sampling import examples

SENDS, GET, CANCEL = "/v5/campaign/mail/sends", "/v5/campaign/mail/get", "/v5/campaign/mail/cancel"
NAME = "spring"
IN_AN_HOUR = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
REQUEST = CreateCampaign(
    mail_name=NAME,
    sender_mail="news@example.com",
    subject="Spring",
    content="<p>Spring</p>",
    send_date=IN_AN_HOUR,
    send_list_names=["customers"],
    attachment=Attachment(file_name="a.pdf", file_data="YQ=="),
)
KEPT = ("attachment_failed", "task_check_failed")
CHOICES = ("cancel", "keep", "fail")


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    emulator.add_list("customers")
    emulator.settings.kept_task_state = "scheduled"
    return emulator


def create(client: Driver, request: CreateCampaign = REQUEST, **options: Any) -> Creation:
    return client.run(create_campaign(request, **{"patience": 0.1, **options}))


def held(service: Emulator, name: str = NAME) -> dict[str, Any]:
    (campaign,) = service.campaigns(name)
    return campaign


def shown(status: int, send_time: datetime = IN_AN_HOUR) -> Campaign:
    """The campaign as the service may return it."""
    return Campaign.model_validate(
        {"mailName": NAME, "mailStatus": status, "sendByDateTime": int(send_time.timestamp() * 1000)}
    )


def remembering() -> CreationState:
    state = CreationState()
    state.mark_incomplete()
    return state


# What the user chose.


@pytest.mark.both_clients
@pytest.mark.parametrize("fault", KEPT)
def test_cancelled(fault: str, service: Emulator, client: Driver) -> None:
    service.faults.add(fault, SENDS)
    with pytest.raises(MailIncompleteCampaignError) as raised:
        create(client, on_incomplete="cancel")
    assert held(service)["cancelled"]
    text = str(raised.value)
    assert "the service kept the campaign 'spring'" in text
    assert "It was cancelled: it is not sent. Delete it (its name may still be taken)" in text
    assert (raised.value.code, raised.value.temporary) == (500, False)


@pytest.mark.parametrize(
    ("kept", "status", "advice"), [("draft", -1, "Cancel or delete it"), ("scheduled", 1, "It is being sent: ")]
)
def test_not_cancelled_because_it_is_a_draft_or_its_time_has_come(
    kept: Any, status: int, advice: str, service: Emulator, client: Driver
) -> None:
    service.settings.kept_task_state = kept
    service.settings.sending_seconds = 1000.0
    service.faults.add("attachment_failed", SENDS)
    with pytest.raises(MailIncompleteCampaignError) as raised:
        create(client, REQUEST.model_copy(update={"send_date": None}), on_incomplete="cancel")
    text = str(raised.value)
    assert "It could not be cancelled: /v5/campaign/mail/cancel: code 403: rejected" in text
    assert f"; it shows mailStatus {status}. {advice}" in text
    assert ("run again" in text) == (kept == "draft")
    assert not held(service)["cancelled"]


@pytest.mark.parametrize("status", [400, 500])
def test_not_cancelled_because_the_service_does_not(status: int, service: Emulator, client: Driver) -> None:
    service.faults.add("attachment_failed", SENDS)
    service.faults.add("code_before", CANCEL, count=None, code=status)
    with pytest.raises(MailIncompleteCampaignError, match="It could not be cancelled: ") as raised:
        create(client, on_incomplete="cancel")
    assert ("it shows mailStatus 1" in str(raised.value)) == (status == 400)
    assert not raised.value.temporary


def test_cancelled_although_the_answer_was_lost(service: Emulator, client: Driver) -> None:
    service.faults.add("attachment_failed", SENDS)
    service.faults.add("close_after", CANCEL)
    with pytest.raises(MailIncompleteCampaignError, match="It was cancelled"):
        create(client, on_incomplete="cancel")
    assert held(service)["cancelled"]


@pytest.mark.parametrize("scheduled", [-1, 1])
def test_kept_and_gone_on_with(scheduled: Any, service: Emulator, client: Driver) -> None:
    service.settings.scheduled_status = scheduled
    service.faults.add("attachment_failed", SENDS)
    creation = create(client, on_incomplete="keep")
    assert (creation.incomplete, creation.adopted, creation.guid) == (True, True, held(service)["guid"])
    assert service.journal.count(SENDS) == 1


def test_a_draft_is_not_gone_on_with(service: Emulator, client: Driver) -> None:
    service.settings.kept_task_state = "draft"
    service.faults.add("task_check_failed", SENDS)
    with pytest.raises(MailIncompleteCampaignError, match="It is a draft and will not be sent"):
        create(client, REQUEST.model_copy(update={"send_date": None}), on_incomplete="keep")
    saved = REQUEST.model_copy(update={"only_save": True, "mail_name": "saved", "send_date": None})
    service.faults.add("task_check_failed", SENDS)
    assert create(client, saved, on_incomplete="keep").incomplete


def test_a_draft_with_its_send_time_ahead_is_not_gone_on_with_either(service: Emulator, client: Driver) -> None:
    service.settings.kept_task_state = "draft"
    service.faults.add("task_check_failed", SENDS)
    with pytest.raises(MailIncompleteCampaignError, match="It is a draft and will not be sent"):
        create(client, on_incomplete="keep")


def test_what_another_made_meanwhile_is_not_gone_on_with(service: Emulator, client: Driver) -> None:
    """Somebody else's of that name, seen after our own creation failed."""
    service.add_campaign(NAME, state="scheduled")
    with pytest.raises(MailConflictError, match="differs in"):
        create(client, on_incomplete="keep", memory=remembering())


@pytest.mark.parametrize(
    ("attachment", "words"),
    [(REQUEST.attachment, "adding the attachment or the task check failed"), (None, "the task check failed")],
    ids=["attachment", "none"],
)
def test_left_and_named(attachment: Any, words: str, service: Emulator, client: Driver) -> None:
    """The document gives two reasons for a kept task; without an attachment one is left."""
    service.faults.add("task_check_failed", SENDS)
    with pytest.raises(MailIncompleteCampaignError) as raised:
        create(client, REQUEST.model_copy(update={"attachment": attachment}))
    assert f"(that is: {words}). It is sent at {IN_AN_HOUR:%Y-%m-%dT%H:%M:%SZ}: cancel" in str(raised.value)
    assert service.journal.count(CANCEL) == 0


@pytest.mark.parametrize("choice", CHOICES)
def test_code_500_that_created_nothing_is_tried_again(choice: Any, service: Emulator, client: Driver) -> None:
    state = CreationState()
    service.faults.add("code_before", SENDS)
    creation = create(client, on_incomplete=choice, memory=state)
    assert (creation.adopted, creation.incomplete, state.incomplete) == (False, False, False)
    assert service.journal.count(CANCEL) == 0


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("choice", CHOICES)
def test_an_http_error_without_a_code_is_a_lost_answer(
    choice: Any, status: int, service: Emulator, client: Driver
) -> None:
    """Only the document's code 500 says that the campaign was kept; a proxy's 500 says nothing."""
    state = CreationState()
    service.faults.add("http_error_after", SENDS, status=status)
    creation = create(client, on_incomplete=choice, memory=state)
    assert (creation.adopted, creation.incomplete, state.incomplete) == (True, False, False)
    assert held(service)["guid"] == creation.guid
    assert service.journal.count(SENDS) == 1
    assert not any(entry["operation"] == CANCEL for entry in service.journal.processed())


@pytest.mark.parametrize("scheduled_status", [-1, 1])
@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("draft", "Cancel or delete it at the service, fix the cause, and run again"),
        ("scheduled", None),
        (
            "sending",
            "It is being sent: running again, under another mail_name or after deleting it, mails every recipient",
        ),
        ("done", "It was sent: running again, under another mail_name or after deleting it, mails every recipient"),
        ("failed", "Cancel or delete it at the service, fix the cause, and run again"),
    ],
)
def test_nobody_is_advised_to_mail_everybody_twice(
    state: Any, advice: str | None, scheduled_status: Any, service: Emulator, client: Driver
) -> None:
    service.settings.scheduled_status = scheduled_status
    service.settings.sending_seconds = 10_000  # longer than the tests have been running
    service.faults.add("attachment_failed", SENDS)
    service.faults.add("http_error_before", GET, skip=1, count=None, status=503)
    attempts = CreationState()
    with pytest.raises(MailError):
        create(client, memory=attempts)
    service.faults.clear()
    if state == "sending":
        service.clock.advance(3601)  # its send time has come
    elif state == "done":
        service.clock.advance(3601 + 10_000)
    elif state != "scheduled":
        service.set_campaign_state(NAME, state)
    with pytest.raises(MailIncompleteCampaignError) as raised:
        create(client, memory=attempts, clock=client.client.service_clock)
    text = str(raised.value)
    if advice is None and scheduled_status == 1:
        assert "cancel or delete it at the service before that time, fix the cause, and run again. After it" in text
    else:
        assert (advice or "Cancel or delete it") in text
    assert ("run again" in text) == (state not in ("sending", "done"))
    assert ("mail_name" in text) == (state in ("sending", "done") or (state == "scheduled" and scheduled_status == 1))


# What a later try does about it.


def test_it_is_remembered_before_anything_else_is_done(service: Emulator, client: Driver) -> None:
    asked: list[dict[str, int]] = []

    class Noting(CreationState):
        def mark_incomplete(self) -> None:
            asked.append(service.journal.counts())
            super().mark_incomplete()

    service.faults.add("attachment_failed", SENDS)
    with pytest.raises(MailIncompleteCampaignError):
        create(client, memory=Noting())
    assert asked == [{GET: 1, SENDS: 1}]


@pytest.mark.parametrize("choice", CHOICES)
def test_who_remembers_does_not_take_it_for_whole(choice: Any, service: Emulator, client: Driver) -> None:
    service.faults.add("attachment_failed", SENDS)
    with pytest.raises(MailIncompleteCampaignError):
        create(client)
    if choice == "keep":
        assert create(client, on_incomplete=choice, memory=remembering()).incomplete
    else:
        with pytest.raises(MailIncompleteCampaignError, match="an earlier try was answered with code 500"):
            create(client, on_incomplete=choice, memory=remembering())
    assert held(service)["cancelled"] == (choice == "cancel")
    assert service.journal.count(SENDS) == 1


def test_who_remembers_looks_patiently_and_creates_when_it_is_gone(service: Emulator, client: Driver) -> None:
    service.settings.visible_after_looks = 2
    service.faults.add("attachment_failed", SENDS, count=1)
    state = CreationState()
    with pytest.raises(MailIncompleteCampaignError):
        create(client, memory=state)
    service.set_campaign_state(NAME, "removed")
    creation = create(client, memory=state)
    assert (creation.adopted, creation.incomplete, state.incomplete) == (False, False, False)
    assert create(client, memory=state).adopted


def page(step: Any, campaigns: list[Any]) -> Any:
    return step.response(mail_list=campaigns, total_records=len(campaigns))


def test_who_remembers_waits_for_it_to_show() -> None:
    looks = iter([[], [], [shown(1)]])
    rehearsal = Rehearsal(lambda step: page(step, next(looks)))
    with pytest.raises(MailIncompleteCampaignError):
        rehearsal.run(create_campaign(REQUEST, memory=remembering(), patience=30.0))
    assert [step.path for step in rehearsal.asked] == [GET] * 3
    assert rehearsal.pauses == [1.0, 2.0]


@pytest.mark.parametrize("after", ["draft", "failed", "removed", "cancelled"])
@pytest.mark.parametrize("scheduled", [-1, 1])
@pytest.mark.parametrize("remembers", [True, False])
def test_a_cancelled_one_is_not_adopted(
    remembers: bool, scheduled: Any, after: Any, service: Emulator, client: Driver
) -> None:
    """What cancelling makes of it is not shown, nor whether its name is free then; also who remembers nothing sees."""
    service.settings.state_after_cancel = after
    service.settings.scheduled_status = scheduled
    service.faults.add("attachment_failed", SENDS)
    state = CreationState()
    with pytest.raises(MailIncompleteCampaignError, match="It was cancelled"):
        create(client, on_incomplete="cancel", memory=state)
    state = state if remembers else CreationState()
    if after == "removed":
        assert not create(client, on_incomplete="cancel", memory=state).adopted
        assert [each["removed"] for each in service.campaigns(NAME)] == [True, False]
    elif after == "failed" and not remembers:
        # It is adopted as one that failed; the task that finds it says so and fails.
        creation = create(client, on_incomplete="cancel", memory=state)
        assert creation.found is not None
        assert creation.found.mail_status == MailStatus.FAILED
    else:
        with pytest.raises(MailIncompleteCampaignError if remembers else MailConflictError):
            create(client, on_incomplete="cancel", memory=state)
        assert service.journal.count(SENDS) == 1


# Scheduled, or a draft that looks like it?


@pytest.mark.parametrize("fault", [None, "close_before", "close_after", "http_error_after", "html_after"])
@pytest.mark.parametrize("scheduled", [-1, 1])
def test_asking_whether_it_is_scheduled_changes_nothing(
    scheduled: Any, fault: str | None, service: Emulator, client: Driver
) -> None:
    service.settings.scheduled_status = scheduled
    create(client)
    for expected in (True, False):
        if fault is not None:
            service.faults.add(fault, CANCEL)
        assert client.run(is_scheduled(NAME)) is expected
        assert held(service)["state"] == ("scheduled" if expected else service.settings.state_after_cancel)
        if expected:
            assert client.run(cancel_campaign(NAME)).done


def test_who_may_not_ask_adopts_nothing(service: Emulator, client: Driver) -> None:
    service.settings.scheduled_status = -1
    create(client)
    for code, error in ((401, MailAuthError), (503, MailServerError)):
        service.faults.add("code_before", CANCEL, count=3, code=code)
        with pytest.raises(error):
            create(client)
        service.faults.clear()
    assert create(client).adopted


@pytest.mark.parametrize("before", [-1, 1, 3])
@pytest.mark.parametrize("later", [-1, 1, 2, 3, None])
def test_its_send_time_comes_while_we_ask(later: int | None, before: int) -> None:
    sent = datetime.now(UTC) - timedelta(seconds=1)
    request = REQUEST.model_copy(update={"send_date": sent.replace(microsecond=0)})
    ahead = shown(before)
    looks = chain([[ahead.model_copy(update={"send_by_date_time": sent + timedelta(seconds=3)})]],
                  repeat([] if later is None else [shown(later, sent)]))  # fmt: skip

    def play(step: Any) -> Any:
        if step.path == CANCEL:
            assert step.sandbox_mode is True
            return MailRejectedError("not scheduled", operation=CANCEL)
        return page(step, next(looks))

    rehearsal = Rehearsal(play)
    flow = create_campaign(request, ignore=["send_date"])
    if later in (1, 2):
        assert rehearsal.run(flow).adopted
        assert [step.path for step in rehearsal.asked] == [GET, CANCEL, GET]
    else:
        with pytest.raises(MailPendingCampaignError if later else MailConflictError, match="cancelled, or only saved"):
            rehearsal.run(flow)


def test_cancelling_what_is_not_there(service: Emulator, client: Driver) -> None:
    cancellation = client.run(cancel_campaign("nobody"))
    assert not cancellation.done
    assert "there is no campaign of that name" in cancellation.text


def test_cancelling_with_a_refused_key(service: Emulator, connect: Callable[..., Driver]) -> None:
    cancellation = connect(service.base_url, api_key="wrong").run(cancel_campaign(NAME))
    assert not cancellation.done
    assert "rejected the credentials" in cancellation.text
    assert service.journal.count() == 1


# Any faults, any deaths, over many tries.


class Died(Exception):
    """The process was killed."""


def until_it_dies(flow: Flow[Any], steps: int) -> Flow[Any]:
    """The flow, until so many answers have come: then the process is gone."""
    walk = FlowRunner(flow)
    while walk.step is not None:
        if steps == 0:
            raise Died
        steps -= 1
        try:
            answer = yield walk.step
        except MailError as error:
            walk.fail(error)
        else:
            walk.send(answer)
    return walk.result


NUMBERS = itertools.count()
FAULTS = [
    kind.name
    for kind in FAULT_KINDS.values()
    if kind.outcome in ("lost", "error", "unreadable") and kind.name not in ("refuse", "redirect")
]
SCHEDULES = st.lists(
    st.tuples(
        st.one_of(st.tuples(st.just(SENDS), st.sampled_from([*KEPT, *KEPT, "code_before", "code_after", *FAULTS])),
                  st.tuples(st.sampled_from([GET, CANCEL, "*"]), st.sampled_from(sorted({*FAULTS} - {*KEPT})))),
        st.integers(0, 3),
        st.integers(1, 3),
    ),
    max_size=5,
)  # fmt: skip


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    SCHEDULES,
    st.lists(st.integers(0, 8), max_size=5),
    st.sampled_from(CHOICES),
    st.integers(0, 3),
    st.sampled_from(["draft", "scheduled"]),
    st.sampled_from([-1, 1]),
    st.sampled_from(["draft", "removed", "failed", "cancelled"]),
)
def test_any_faults_and_deaths_in_any_order(
    service: Emulator,
    client: Driver,
    schedule: list[Any],
    deaths: list[int],
    choice: Any,
    hidden: int,
    kept: Any,
    scheduled: Any,
    cancelled: Any,
) -> None:
    """Who is told of success has one campaign that goes out, and a whole one unless it was told otherwise."""
    service.settings.visible_after_looks = hidden
    service.settings.kept_task_state = kept
    service.settings.scheduled_status = scheduled
    service.settings.state_after_cancel = cancelled
    service.faults.clear()
    for (operation, fault), skip, count in schedule:
        params = {"retry_after": 0} if fault == "too_many_requests" else {}
        service.faults.add(fault, operation, skip=skip, count=count, **params)
    request = REQUEST.model_copy(update={"mail_name": f"campaign {next(NUMBERS)}"})
    state = CreationState()
    for attempt in range(8):
        if attempt == 7:
            service.faults.clear()
        flow = create_campaign(request, on_incomplete=choice, memory=state, patience=0.0)
        try:
            creation = client.run(until_it_dies(flow, deaths[attempt] if attempt < len(deaths) else 1000))
        except (MailError, Died):
            creation = None
        campaigns = service.campaigns(request.mail_name)
        live = [each for each in campaigns if not each["removed"] and not each["cancelled"]]
        assert len(live) <= 1
        if creation is None or (creation.found is not None and creation.found.mail_status == MailStatus.FAILED):
            continue
        (campaign,) = live
        assert campaign["guid"] == creation.guid
        assert campaign["state"] == "scheduled"
        if creation.incomplete:
            assert choice == "keep"
        else:
            assert campaign["keptBecause"] is None
        break
