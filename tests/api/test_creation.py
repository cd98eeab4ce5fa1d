"""A campaign goes out exactly once: whatever happens on the way, the service holds one campaign of the name, or none.

The emulator remembers every campaign that was ever created, also removed ones, so a second one cannot hide. What tries
that fail, die and are repeated may do in any order is in `tests/machines/test_creating.py`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_mail.api.campaigns import Campaign, CancelCampaign, CreateCampaign, DeleteCampaign
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailPendingCampaignError,
    MailRejectedError,
    MailResponseLostError,
    MailValidationError,
)
from airflow_provider_mail.api.flows.campaign_checks import COMPARED, check_equal, differences, is_older, is_unsent
from airflow_provider_mail.api.flows.create_campaign import create_campaign
from airflow_provider_mail.api.flows.create_once import Creation, CreationState
from mail_emulator import Emulator
from tests.api.driving import Rehearsal
from tests.api.parts import ServiceClock
from tests.support.changes import by_others

pytestmark = pytest.mark.usefixtures("clock")

SENDS, GET = "/v5/campaign/mail/sends", "/v5/campaign/mail/get"
DAY = 86_400
REQUEST = CreateCampaign(
    mail_name="news 2026-01", sender_mail="news@example.com", sender_name="News", subject="News",
    content="<p>News</p>", send_list_names=["customers", "friends"], repel_list_names=["opted out"],
    reply_to="reply@example.com", language_code="en", market_name="spring", project_code="p-1",
)  # fmt: skip


@pytest.fixture
def service(emulator: Emulator) -> Emulator:
    for name in ("customers", "friends", "opted out"):
        emulator.add_list(name)
    return emulator


def create(client: MailClient, request: CreateCampaign = REQUEST, **options: Any) -> Creation:
    return create_campaign(client, request, **options)


def conflict(client: MailClient, words: str, request: CreateCampaign = REQUEST, **options: Any) -> str:
    """What the error says, which no further try changes."""
    with pytest.raises(MailConflictError, match=words) as raised:
        create(client, request, **options)
    assert not raised.value.temporary
    return str(raised.value)


def changed(**fields: Any) -> CreateCampaign:
    return REQUEST.model_copy(update=fields)


def held(service: Emulator) -> dict[str, Any]:
    """The only campaign of the name that there ever was."""
    (campaign,) = service.campaigns(REQUEST.mail_name)
    return campaign


def exists(service: Emulator) -> bool:
    """Whether there is a campaign of the name; never more than one."""
    campaigns = service.campaigns(REQUEST.mail_name)
    assert len(campaigns) <= 1
    return bool(campaigns)


def test_created_once_and_adopted_ever_after(service: Emulator, client: MailClient) -> None:
    for name in (f"{REQUEST.mail_name}-2", f"old {REQUEST.mail_name}", REQUEST.mail_name.upper()):
        service.add_campaign(name)  # found by the name, and another one
    first = create(client)
    assert (first.mail_name, first.adopted, first.mail_status) == (REQUEST.mail_name, False, None)
    assert first.guid == held(service)["guid"]
    for state in ("scheduled", "sending", "done", "failed"):
        service.set_campaign_state(REQUEST.mail_name, state)
        again = create(client)
        assert (again.adopted, again.guid) == (True, held(service)["guid"])
        assert again.mail_status is not None
    assert service.journal.count(SENDS) == 1


# Differences.

SOON, LATER, PAST = (datetime(year, 3, 1, 9, tzinfo=UTC) for year in (2126, 2127, 2026))
OTHER: dict[str, Any] = {
    "subject": "Other", "content": "<p>Other</p>", "sender_mail": "else@example.com", "sender_name": "Other",
    "reply_to": "else@example.com", "send_list_names": ["customers"], "repel_list_names": [], "language_code": "de",
    "market_name": "summer", "subscript_name": "weekly", "project_code": "p-2", "send_date": LATER,
}  # fmt: skip


def test_every_field_that_differs_is_named(service: Emulator, client: MailClient) -> None:
    assert {*OTHER, "only_save", "attachment", "editor_type"} == COMPARED
    request = changed(send_date=SOON)
    create(client, request)
    for field, value in OTHER.items():
        other = request.model_copy(update={field: value})
        assert REQUEST.mail_name in conflict(client, rf"differs in {field}: choose another mail_name", other)
        assert create(client, other, ignore=[field]).adopted
    several = request.model_copy(update={"subject": "a", "content": "b", "sender_name": "c"})
    conflict(client, "differs in sender_name, subject, content:", several)
    assert held(service)["state"] == "scheduled"
    draft = changed(only_save=True, mail_name="draft")
    create(client, draft)
    assert create(client, draft.model_copy(update={"only_save": None}), ignore=["only_save"]).adopted
    assert [entry["body"].get("sandboxMode") for entry in service.journal.entries(SENDS)].count(None) == 2
    with pytest.raises(MailValidationError, match=r"ignore: sender: not among .*subject"):
        create(client, ignore=["subject", "sender", "attachment"])


def found(**fields: Any) -> Campaign:
    return Campaign.model_validate({"mailName": "n", "mailStatus": 2, **fields})


def wanted(**fields: Any) -> CreateCampaign:
    return CreateCampaign(**{"mail_name": "n", "sender_mail": "a@example.com", "send_list_names": ["l"], **fields})


def at(moment: datetime, status: int = 2) -> dict[str, Any]:
    return {"mailStatus": status, "sendByDateTime": int(moment.timestamp() * 1000)}


HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
MINUTE_S_END = SOON.replace(second=59, microsecond=0)


@pytest.mark.parametrize(
    ("asked", "shown", "different"),
    [
        ({}, {}, []),
        ({"subject": "s"}, {}, []),  # not returned, so nothing is known
        ({"subject": "s"}, {"subject": None}, ["subject"]),
        ({}, {"subject": "s"}, []),  # not asked for
        ({"subject": ""}, {"subject": None}, []),
        ({"subject": "S"}, {"subject": "s"}, ["subject"]),
        ({"repel_list_names": []}, {"repelListNames": None}, []),
        ({"repel_list_names": []}, {"repelListNames": ["x"]}, ["repel_list_names"]),
        ({"send_list_names": ["b", "a", "a"]}, {"rcptListNames": ["a", "b"]}, []),
        ({"send_list_names": ["b", "a"]}, {"rcptListNames": None}, ["send_list_names"]),
        ({}, {"senderMail": "A@Example.COM", "rcptListNames": ["l"]}, []),
        ({"reply_to": "r@example.com"}, {"replyTo": None}, ["reply_to"]),
        # Send times: what waits must wait for the same minute; what has gone may have gone later, but not earlier.
        ({"send_date": MINUTE_S_END}, at(MINUTE_S_END.replace(second=0), 1), []),
        ({"send_date": SOON}, at(SOON + MINUTE, 1), ["send_date"]),
        ({"send_date": PAST}, at(SOON, 1), ["send_date"]),
        ({"send_date": PAST}, at(PAST + HOUR), []),
        ({"send_date": PAST}, at(PAST - MINUTE), ["send_date"]),
        ({}, at(SOON, 1), []),
        ({"send_date": SOON}, {"mailStatus": 1}, []),
        # Drafts: an idle one will never go out; one with its send time ahead may be what a scheduled one looks like.
        ({}, {"mailStatus": -1}, ["only_save"]),
        ({}, at(PAST, -1), ["only_save"]),
        ({"send_date": SOON}, at(SOON, -1), []),
        ({"only_save": True}, {"mailStatus": -1}, []),
    ],
)
def test_what_makes_a_campaign_another_one(asked: Any, shown: Any, different: list[str]) -> None:
    request, campaign = wanted(**asked), found(**shown)
    assert differences(request, campaign) == different
    if different:
        with pytest.raises(MailConflictError):
            check_equal(request, campaign)
    check_equal(request, campaign, ignore=different)


def test_the_service_s_clock_decides_to_a_second_what_is_ahead() -> None:
    """What was sent ten minutes late is not ahead where the local clock is slow."""
    request, campaign = wanted(send_date=SOON), found(**at(SOON + 10 * MINUTE))
    assert [differences(request, campaign, now) for now in (SOON, LATER)] == [["send_date"], []]
    clock = ClockAt(SOON, SOON)
    for milliseconds, unsent in ((900, False), (1100, True)):
        assert is_unsent(found(**at(SOON + timedelta(milliseconds=milliseconds), 1)), clock) is unsent


# Campaigns of earlier runs.


@pytest.mark.parametrize("state", ["scheduled", "sending", "done", "failed"])
def test_an_older_campaign_is_not_adopted(state: str, service: Emulator, client: MailClient) -> None:
    """Whatever the service's clock says. One that waits for its send time will mail everybody, so it is adopted; and
    of one that failed its task says that.
    """
    service.clock.advance(-5 * DAY)
    later = service.clock.now().replace(microsecond=0) + timedelta(days=30) if state == "scheduled" else None
    # Some minutes ago: the offset of the clocks is as exact as the requests are quick.
    request, week_1 = changed(send_date=later), datetime.now(UTC) - 5 * MINUTE
    create(client, request, not_older_than=week_1)
    if state != "scheduled":
        service.set_campaign_state(REQUEST.mail_name, state)
    # A retry in the same run, whose process remembers nothing, adopts it.
    assert create(client, request, not_older_than=week_1).adopted
    service.clock.advance(7 * DAY)
    if state in ("scheduled", "failed"):
        assert create(client, request, not_older_than=week_1).adopted
    else:
        conflict(client, r"is older than this run.*set adopt_older=True", request, not_older_than=week_1)
        assert create(client, request).adopted
        other = wanted(mail_name=REQUEST.mail_name, subject="Else")
        conflict(client, "differs in sender_mail, subject", other, not_older_than=week_1)
    assert (exists(service), service.journal.count(SENDS)) == (True, 1)


class ClockAt(ServiceClock):
    """A clock of the service that shows a time, while the worker's shows another one."""

    def __init__(self, service: datetime, worker: datetime) -> None:
        super().__init__()
        self._offset = (service - worker).total_seconds()
        self.time = service.timestamp  # type: ignore[method-assign]


def test_what_is_older() -> None:
    for shown, older in [
        (at(PAST), True),
        (at(PAST, 1), True),
        (at(PAST, -1), False),  # a draft has mailed nobody
        (at(PAST, 4), False),
        (at(SOON, 1), False),
        (at(datetime.now(UTC)), False),
        ({}, True),  # that nobody is mailed would go unnoticed
        ({"mailStatus": -1}, False),
    ]:
        assert is_older(found(**shown), datetime.now(UTC) - HOUR, ServiceClock()) is older, shown
    # A time in whole minutes is not older than its minute.
    began = datetime(2030, 1, 31, 9, 0, 20, tzinfo=UTC)
    clock = ClockAt(began + 5 * MINUTE, began + 5 * MINUTE)
    assert [is_older(found(**at(began.replace(second=second))), began, clock) for second in (0, 1)] == [False, True]
    # A service whose clock is days ahead of that of worker and scheduler.
    clock = ClockAt(began + 120 * HOUR, began)
    sent = [began + 120 * HOUR + passed for passed in (MINUTE, -HOUR)]
    assert [is_older(found(**at(moment)), began, clock) for moment in sent] == [False, True]


@pytest.mark.parametrize(
    ("knows", "draft", "adopts"),
    [
        ("first_try", False, False),
        ("first_try", True, True),  # a draft mails nobody
        ("knows_all", False, False),
        ("nothing", False, True),  # a later try below Airflow 3.3: its own would be lost else
        ("seen", False, True),
        ("own_name", False, True),
        ("adopt_older", False, True),
    ],
)
def test_a_scheduled_campaign_that_exists_already(
    knows: str, draft: bool, adopts: bool, service: Emulator, client: MailClient
) -> None:
    """Whatever the clocks of scheduler and service say, and whatever it shows as."""
    service.clock.advance(hours=-9)
    service.settings.scheduled_status = -1
    later = (service.clock.now() + timedelta(days=1)).replace(microsecond=0)
    request = changed(send_date=later, only_save=draft)
    client.send(request)
    state = CreationState(**{} if knows in ("nothing", "seen", "adopt_older") else {knows: True})
    state.note(seen=knows == "seen")
    options = {"state": state, "not_older_than": None if knows == "adopt_older" else datetime.now(UTC)}
    if adopts:
        assert create(client, request, **options).adopted
    else:
        conflict(client, "was not created by this task: it is to be sent", request, **options)
    assert exists(service)


# What the task has recorded, what people did meanwhile, and whether a user has cleared it: see docs/campaigns.md.


@pytest.mark.parametrize(
    ("what", "name", "cleared", "again", "made"),
    [
        ("scheduled", REQUEST.mail_name, False, False, False),
        ("scheduled", REQUEST.mail_name, True, False, True),
        ("sent", REQUEST.mail_name, True, False, False),
        ("sent", REQUEST.mail_name, True, True, True),
        # A name with the present time would mail everybody in every try.
        ("sent", "news 0", False, False, False),
        ("sent", "news 0", True, False, True),
        ("lost", "news 0", True, False, False),  # it may show late
        ("lost", "news 0", True, True, True),
        ("lost", REQUEST.mail_name, False, False, True),
    ],
)
def test_what_was_removed(
    what: str, name: str, cleared: bool, again: bool, made: bool, service: Emulator, client: MailClient
) -> None:
    """Whether the next try creates a campaign."""
    request = changed(send_date=SOON if what == "scheduled" else None)
    state = lost(service, client) if what == "lost" else CreationState()
    if what != "lost":
        create(client, request, state=state)
    service.set_campaign_state(REQUEST.mail_name, "removed")
    state.cleared, state.send_again = cleared, again
    asked = request.model_copy(update={"mail_name": name})
    if made:
        assert not create(client, asked, state=state).adopted
    else:
        conflict(client, REQUEST.mail_name, asked, state=state)
    assert service.journal.count(SENDS) == 1 + made


def lost(service: Emulator, client: MailClient) -> CreationState:
    """Make a try whose response and lookups are lost, and return what it leaves behind."""
    state = CreationState()
    service.faults.add("close_after", SENDS)
    service.faults.add("http_error_before", GET, skip=1, count=None)
    with pytest.raises(MailError):
        create(client, state=state)
    service.faults.clear()
    return state


@pytest.mark.parametrize("minutes", [1, 60])
def test_a_rejection_does_not_erase_an_earlier_doubt(minutes: int, service: Emulator, client: MailClient) -> None:
    """The lost one shows after the rejection, however old it is by then."""
    service.settings.visible_after_seconds = 2 * 3600
    state = lost(service, client)
    service.clock.advance(60 * minutes)
    wrong = changed(send_list_names=["none"])
    with pytest.raises(MailPendingCampaignError if minutes == 1 else MailRejectedError, match="none"):
        create(client, wrong, state=state)
    assert state.creation.attempted_at is not None
    service.clock.advance(2 * 3600 + DAY)
    assert create(client, state=state, not_older_than=datetime.now(UTC) + timedelta(days=1)).adopted
    assert exists(service)


@pytest.mark.parametrize("lost", [True, False])
def test_after_an_own_attempt_no_advice_mails_again(lost: bool, service: Emulator, client: MailClient) -> None:
    service.settings.added_content = "<img src='p.gif'>"
    state = CreationState()
    state.knows_all = True
    if lost:
        service.faults.add("close_after", SENDS)
    else:
        client.send(REQUEST)
    text = conflict(client, "differs in content: ", state=state)
    own = "this task probably created it; if the service rewrites what it is sent, set ignore_differences=['content']; "
    assert (own + "another mail_name, or deleting it, mails everybody again" in text) is lost
    assert ("choose another" in text) is not lost
    assert create(client, state=state, ignore=["content"]).adopted
    assert exists(service)


# Rejections.


def test_a_name_that_is_taken_after_an_own_lost_response(service: Emulator, client: MailClient) -> None:
    """The campaign shows later than this try is patient, and another attempt is rejected because of its name."""
    service.settings.visible_after_seconds = 600
    service.faults.add("close_after", SENDS)
    state = CreationState()
    with pytest.raises(MailPendingCampaignError, match=r"exists.* The next try looks it up again") as raised:
        create(client, state=state)
    assert (raised.value.temporary, raised.value.may_have_taken_effect) == (True, True)
    service.clock.advance(600)
    assert create(client, state=state).adopted
    assert (exists(service), service.journal.count(SENDS)) == (True, 2)


@pytest.mark.parametrize("scheduled", [-1, 1])
def test_a_cancelled_one_that_shows_as_scheduled(scheduled: Any, service: Emulator, client: MailClient) -> None:
    """What cancelling makes of a campaign is not shown in the document, so the service is asked."""
    service.settings.scheduled_status = scheduled
    service.settings.state_after_cancel = "cancelled"
    request = changed(send_date=SOON)
    create(client, request)
    assert create(client, request).adopted
    client.send(CancelCampaign(mail_name=REQUEST.mail_name))
    service.clock.advance(minutes=20)  # it is not new any more
    conflict(client, r"is not scheduled: it was cancelled, or only saved\. Choose", request)
    assert held(service)["state"] == "cancelled"
    state = CreationState()
    state.own_name = True
    conflict(client, r"To send it after all, delete that campaign and clear this task", request, state=state)
    assert (state.creation.seen, state.creation.sends_at) == (True, None)
    service.set_campaign_state(REQUEST.mail_name, "removed")
    state.cleared = True
    assert not create(client, request, state=state).adopted


@pytest.mark.parametrize("lost", [True, False])
def test_a_new_campaign_that_shows_as_a_draft(lost: bool, service: Emulator, client: MailClient) -> None:
    """No message says to delete it, or to choose another name, while it may be on its way."""
    service.settings.draft_at_first_seconds = 12 * 60
    service.settings.sending_seconds = 10_000
    if lost:
        service.faults.add("close_after", SENDS)
    else:
        client.send(REQUEST)  # by a try that died
    for minutes in (10, 12):
        with pytest.raises(MailPendingCampaignError) as raised:
            create(client)
        assert not re.search("delete|choose", str(raised.value), re.IGNORECASE)
        service.clock.advance(60 * minutes)
    assert create(client).adopted
    assert (exists(service), service.journal.count(SENDS)) == (True, 1)


@pytest.mark.parametrize(
    ("error", "attempts", "pauses"),
    [
        (MailResponseLostError("lost", operation=SENDS), 3, [1.0, 2.0, 4.0, 8.0, 8.0, 7.0]),
        # Nothing leads up to a rejection, so it is most likely meant; the name may be taken all the same.
        (MailRejectedError("no such list", operation=SENDS), 1, [1.0, 2.0, 4.0]),
    ],
)
def test_the_lookups_are_patient_and_bounded(error: MailError, attempts: int, pauses: list[float]) -> None:
    """Without a network."""
    rehearsal = Rehearsal(lambda step: error if step.path == SENDS else step.response(mail_list=[], total_records=0))
    with pytest.raises(type(error)):
        create_campaign(rehearsal, REQUEST)
    # After a lost response, all campaigns are read at last: the service may have rewritten the name.
    looks = [GET] * (1 + len(pauses) + (attempts > 1))
    assert [step.path for step in rehearsal.asked] == [GET, *[SENDS, *looks] * attempts]
    assert rehearsal.pauses == pauses * attempts


# A service that rewrites names.


@pytest.fixture(params=["lower", "all"])
def rewriting(request: pytest.FixtureRequest, service: Emulator) -> Emulator:
    service.change_settings(stored_mail_name=request.param, enforce_unique_mail_name=False)
    service.add_campaign("News 2026")  # another one
    return service


NEWS = changed(mail_name="News 2026 Mai")


@pytest.mark.parametrize("send_date", [None, SOON])
def test_once_there_is_a_guid_it_identifies_the_campaign(
    rewriting: Emulator, client: MailClient, send_date: datetime | None
) -> None:
    request = NEWS.model_copy(update={"send_date": send_date})
    state = CreationState()
    first = create(client, request, state=state)
    assert (first.mail_name, first.adopted, first.guid) == ("news 2026 mai", False, state.creation.guid)
    for _ in range(2):
        again = create(client, request, state=state)
        assert (again.mail_name, again.adopted, again.guid) == ("news 2026 mai", True, first.guid)
    assert rewriting.journal.count(SENDS) == 1
    if send_date is not None:
        other = request.model_copy(update={"subject": "Corrected"})
        replaced = create(client, other, state=state, replace_scheduled=True)
        assert (replaced.adopted, replaced.guid == first.guid) == (False, False)
        assert [item["removed"] for item in rewriting.campaigns("news 2026 mai")] == [True, False]


@pytest.mark.parametrize("fault", ["close_after", "html_after", "http_error_after"])
def test_without_a_response_a_rewritten_name_is_found(rewriting: Emulator, client: MailClient, fault: str) -> None:
    rewriting.faults.add(fault, SENDS.removeprefix("/v5/"), count=1)
    state = CreationState()
    for _ in range(2):
        creation = create(client, NEWS, state=state)
        assert (creation.mail_name, creation.adopted, creation.guid) == ("news 2026 mai", True, state.creation.guid)
    assert rewriting.journal.count(SENDS) == 1


def test_a_lookup_that_fails_after_the_creation_fails_nothing(rewriting: Emulator, client: MailClient) -> None:
    rewriting.faults.add("http_error_before", GET.removeprefix("/v5/"), skip=1, count=100, status=500)
    creation = create(client, NEWS)
    assert (creation.mail_name, creation.adopted) == (NEWS.mail_name, False)


def test_another_campaign_that_has_its_name_now_is_not_it(service: Emulator, client: MailClient) -> None:
    state = CreationState()
    create(client, state=state)
    service.set_campaign_state(REQUEST.mail_name, "removed")
    by_others(service, REQUEST)
    conflict(client, "was created by this task and is gone", state=state)
    state.cleared = state.send_again = True
    # It is adopted as any other one would be.
    assert create(client, state=state).guid == state.creation.guid == service.campaigns(REQUEST.mail_name)[-1]["guid"]
    assert len(service.campaigns(REQUEST.mail_name)) == 2


@pytest.mark.parametrize("name", [" news", "news ", "the  news", "the\u00a0news", "cafe\u0301", "\u1100\u1161 news"])
def test_a_name_that_may_not_survive_is_refused(name: str) -> None:
    with pytest.raises(MailValidationError, match=r"mail_name: .*the service may rewrite: write '[^ ].*'"):
        CreateCampaign(**REQUEST.model_dump() | {"mail_name": name})
    CancelCampaign(mail_name=name)  # what exists may have it


@pytest.mark.parametrize("who", ["this task", "another one"])
@pytest.mark.parametrize("code", [200, 404])
def test_a_deleted_draft_that_is_still_listed_is_not_adopted(
    service: Emulator, client: MailClient, who: str, code: int
) -> None:
    service.change_settings(removed_shown_seconds=600, not_found_code=code)
    draft, state = changed(only_save=True), CreationState()
    create(client, draft, state=state)
    assert create(client, draft, state=state).adopted
    by_others(service, DeleteCampaign(mail_name=REQUEST.mail_name))
    state = state if who == "this task" else CreationState()
    with pytest.raises(MailPendingCampaignError, match=r"lists the draft .* would not delete it"):
        create(client, draft, state=state)
    service.clock.advance(601)
    state.cleared = True
    assert create(client, draft, state=state).adopted is False
    assert len(service.campaigns(REQUEST.mail_name)) == 2
