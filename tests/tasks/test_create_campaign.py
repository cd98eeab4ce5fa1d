"""Tasks that create a campaign, once, and not everyone; and tasks that cancel and delete one."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.flows.create_once import Creation
from airflow_provider_mail.operators.campaigns import (
    MailCancelCampaignOperator,
    MailCreateCampaignOperator,
    MailDeleteCampaignOperator,
)
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.seed_test import MailSendTestOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.clock import Clock
from tests.support.creation import RECORD_KEY, StateStore, creation_record
from tests.support.dags import AIRFLOW_VERSION
from tests.support.tries import MortalStore, Tries
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.loading import executed
from tests.tasks.sending import AT_ONCE, CAMPAIGN, campaign, remembers

SENDS, GETS = "campaign/mail/sends", "campaign/mail/get"
DAY = 86_400


@pytest.fixture(autouse=True)
def _lists(emulator: Emulator) -> None:
    emulator.add_list("newsletter", count=30)
    for name in ("staff", "vip"):
        emulator.add_list(name, [f"{name}@example.com"])


def create(**arguments: Any) -> MailCreateCampaignOperator:
    return campaign(**{"mail_name": None} | arguments)


def sends(emulator: Emulator) -> list[dict[str, Any]]:
    return [entry["body"] for entry in emulator.journal.entries(SENDS)]


def test_a_draft_needs_no_list_and_is_not_waited_for(emulator: Emulator) -> None:
    empty = {"subject": None, "content": None, "send_list_names": None}
    later = {"mail_name": "draft", "only_save": True, "send_date": "2030-01-01T00:00:00Z"}
    for adopted in (False, True):  # by another run, since it mails nobody
        returned = Tries().run(create(**later, wait_for_completion=True, **empty))
        assert (returned["adopted"], "mail_stats" in returned) == (adopted, False)
    assert [(campaign["state"], campaign["removed"]) for campaign in emulator.campaigns()] == [("draft", False)]


def default_name(dag_id: str = "d", task_id: str = "t", run_id: str = "r", map_index: int = -1) -> str:
    ti = SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index)
    lists = [f"list {map_index}"]
    name: str = create(send_list_names=lists).request({"ti": ti}).mail_name  # type: ignore[typeddict-item]
    return name


@pytest.mark.parametrize("dag_id", ["d" * 250, "д" * 125, "x" + "朝" * 80, "ad" + "🙂" * 60, "🙂"])
def test_names_are_cut_between_characters_and_stay_different(dag_id: str) -> None:
    names = {default_name(dag_id, run_id=run_id, map_index=index) for run_id in "ab" for index in (-1, 0, 1)}
    assert len(names) == 6
    assert all(len(name.encode()) <= 200 and name.startswith(dag_id[:45]) for name in names)


def test_no_two_task_instances_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ids: list[dict[str, Any]] = [
        *({}, {"map_index": 1}, {"dag_id": "d.t"}, {"task_id": "t.t"}),
        *({"run_id": "r/1"}, {"run_id": "r%2F1"}, {"run_id": "r/1", "map_index": 1}),
    ]
    names = [default_name(**each) for each in ids]
    assert [*names[:1], *names[2:4]] == ["d/t/r", "d.t/t/r", "d/t.t/r"]
    assert len(set(names)) == len(ids)
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", "production")
    assert [default_name(**each) for each in ids] == [f"production:{name}" for name in names]


@pytest.mark.parametrize("mail_name", [None, "to {}"])
def test_a_mapped_list_that_moves(emulator: Emulator, mail_name: str | None) -> None:
    """Each list gets one campaign, whatever its position is when the run is cleared."""
    for name in "abz":
        emulator.add_list(name, [f"{name}@example.com"])
    indexes = [Tries(map_index=index) for index in range(3)]
    for number, lists in enumerate(("ab", "zab", "ba")):
        for tries, name in zip(indexes, lists, strict=False):
            tries.clear()
            tries.clear_number = number
            given: dict[str, Any] = {"mail_name": mail_name and mail_name.format(name), "send_list_names": [name]}
            assert tries.run_all(lambda given=given: create(**given)) == "success", str(tries)
    assert sorted(entry["sendListNames"] for entry in sends(emulator)) == [["a"], ["b"], ["z"]]


@pytest.mark.parametrize(("days", "words"), [(0, "was sent"), (1, "is to be sent")])
def test_of_runs_with_one_name_only_the_first_is_green(run: Run, emulator: Emulator, days: int, words: str) -> None:
    """Three runs made one campaign, and three of them were green.

    Clearing sets the run's start anew, and the service's clock is behind: the task knows its own all the same.
    """
    emulator.clock.advance(-3 * DAY)
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    send_date = emulator.clock.now() + datetime.timedelta(days=days) if days else None

    first, other = [run(lambda: create(mail_name="weekly", send_date=send_date), logical_date=began) for _ in range(2)]

    assert [first.state, other.state] == ["success", "failed"]
    assert f"exists and is equal, but was not created by this task: it {words}" in other.log
    assert first.result.clear_and_run(TASK).state == "success"
    assert first.result.xcom(TASK)["adopted"] is True
    assert len(sends(emulator)) == 1


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_name_that_the_service_rewrites(run: Run, emulator: Emulator, deferrable: bool) -> None:
    """What is pushed is the service's name, so that what follows finds the campaign; cleared, it is adopted."""
    emulator.change_settings(stored_mail_name="all", sending_seconds=600, scheduled_status=-1)
    later = emulator.clock.now() + datetime.timedelta(hours=1)
    arguments: dict[str, Any] = {"mail_name": "Spring 2030", "wait_for_completion": True, "deferrable": deferrable}
    done = run(lambda: create(**arguments, send_date=later))
    assert (done.state, done.returned["mail_name"], done.returned["adopted"]) == ("success", "spring 2030", False)
    assert done.returned["mail_stats"]["sent_count"] == 30
    assert done.result.clear_and_run(TASK).state == "success"
    assert done.result.xcom(TASK)["guid"] == done.returned["guid"]
    assert len(sends(emulator)) == 1


@remembers
def test_a_cleared_task_does_not_repeat_what_was_sent(emulator: Emulator) -> None:
    """The service has removed the campaign; an argument lets a cleared task create it again."""
    tries = Tries()
    waits = {"mail_name": "spring", "wait_for_completion": True}
    assert tries.run(create(**waits))["mail_stats"]
    emulator.set_campaign_state("spring", "removed")
    tries.clear()
    assert tries.run_all(lambda: create(**waits), most=1) == "failed"
    for adopted in (False, True):
        tries.clear()
        assert tries.run(create(**waits, send_again=True))["adopted"] is adopted
    assert len(sends(emulator)) == 2


DAY_1 = datetime.datetime(2030, 1, 31, 9, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(("run_type", "run_after", "start_date", "clear_number", "began"), [
    # As Airflow has it: a run on time, by hand, one that catches up, a backfill; cleared ones start anew.
    ("scheduled", DAY_1, DAY_1 + HOUR, 0, DAY_1 + HOUR),
    ("scheduled", DAY_1, DAY_1 + 9 * HOUR, 1, DAY_1),
    ("manual", DAY_1 + HOUR, DAY_1, 2, DAY_1),
    ("scheduled", DAY_1, None, 0, DAY_1),
    ("backfill", DAY_1, DAY_1 + 99 * HOUR, 1, DAY_1 + 99 * HOUR),
])  # fmt: skip
def test_when_a_run_began(
    run_type: str, run_after: Any, start_date: Any, clear_number: int | None, began: datetime.datetime
) -> None:
    dag_run = SimpleNamespace(run_type=run_type, run_after=run_after, start_date=start_date, clear_number=clear_number)
    context: Any = {"dag_run": dag_run}
    assert create(mail_name="given").not_older_than(context) == began
    assert create().not_older_than(context) is None
    assert create(mail_name="given", adopt_older=True).not_older_than(context) is None


def test_differences_and_past_send_dates_may_be_accepted(emulator: Emulator) -> None:
    past = {"mail_name": "late", "send_date": "2024-03-01T09:00:00Z", "allow_past_send_date": True}
    assert Tries().run(create(**past))["adopted"] is False
    new: dict[str, Any] = {"mail_name": "late", "subject": "New", "send_list_names": ["vip"], "reply_to": "a@b.cc"}
    tries = Tries()
    assert tries.run_all(lambda: create(**new, ignore_differences=["reply_to"])) == "failed"
    assert (tries.number, "differs in subject, send_list_names:" in str(tries.error)) == (1, True)
    ignored = ["subject", "send_list_names", "reply_to"]
    assert Tries().run(create(**new, ignore_differences=ignored, adopt_older=True))["adopted"]
    assert len(sends(emulator)) == 1


# --- what is stored of a campaign, and what the next try reads of it ---


def stored(max_tries: int = 2, **fields: Any) -> dict[str, Any]:
    return {"max_tries": max_tries, "creation": Creation(requested="spring", **fields).model_dump()}


@pytest.mark.parametrize(("record", "own", "incomplete", "sent", "cleared"), [
    (None, False, False, False, False),
    (stored(), False, False, False, False),
    (stored(1), False, False, False, True),
    (stored(incomplete=True), True, True, False, False),
    (stored(attempted_at=1.5), True, False, False, False),
    (stored(seen=True, sends_at=1.5), True, False, True, False),
    # What is not understood may mean anything.
    (stored() | {"creation": {"version": 7, "what": "a later version wrote"}}, True, True, True, True),
    (stored() | {"creation": {"version": 6, "requested": "spring", "incomplete": False}}, True, True, True, True),
    (stored() | {"creation": stored()["creation"] | {"seen": "no"}}, True, True, True, True),
    (stored()["creation"], True, True, True, True),
    ("spring", True, True, True, True),
])  # fmt: skip
def test_what_is_stored(record: Any, own: bool, incomplete: bool, sent: bool, cleared: bool) -> None:
    store = StateStore()
    if record is not None:
        store.set(RECORD_KEY, record)
    state = creation_record(store, try_number=2, max_tries=2)
    known = (state.is_own, state.creation.incomplete, state.creation.was_sent(time.time()), state.cleared)
    assert known == (own, incomplete, sent, cleared)


@remembers
def test_the_next_try_knows_what_this_one_noted() -> None:
    store = StateStore()
    state = creation_record(store, try_number=1)
    fields: dict[str, Any] = {
        "requested": "spring", "mail_name": "Spring", "guid": "g-1", "adopted": True, "incomplete": True,
        "mail_status": 4, "attempted_at": 1.5, "seen": True, "sends_at": 2.5, "digests": {"subject": "a"},
    }  # fmt: skip
    assert {*fields, "version"} == {*Creation.model_fields}
    for name, value in fields.items():
        state.note(**{name: value})
        assert creation_record(store, try_number=2).creation == state.creation
        assert getattr(state.creation, name) == value
    state.put(Creation())
    assert creation_record(store, try_number=2).creation == Creation()


@remembers
@pytest.mark.usefixtures("clock")
def test_a_store_that_cannot_be_written_prevents_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = MortalStore(None)
    store.unavailable = range(100)
    state = creation_record(store, try_number=1)
    state.note(requested="spring")
    for incomplete in (False, True):
        state.note(incomplete=incomplete, seen=True)
        assert state.creation.incomplete is incomplete
        assert "the next try will not know what became of campaign 'spring'" in caplog.text
        assert ("it may be incomplete (code 500)" in caplog.text) is incomplete


# --- a campaign that the service keeps although creating it failed, see tests/api/test_kept_campaigns.py ---


def keep(emulator: Emulator, **arguments: Any) -> Callable[[], MailCreateCampaignOperator]:
    """A task that continues with the campaign that the service keeps although creating it failed (code 500)."""
    emulator.settings.kept_task_state = "scheduled"
    emulator.faults.add("attachment_failed", SENDS)
    attachment = {"file_name": "a.pdf", "file_data": "JVBERg=="}
    given = {"attachment": attachment, "on_incomplete": "keep", "wait_for_completion": True}
    return lambda: campaign(**given | AT_ONCE | arguments)


@pytest.mark.parametrize("deferrable", [False, True])
def test_an_incomplete_campaign_is_continued_with(run: Run, emulator: Emulator, deferrable: bool) -> None:
    done = run(keep(emulator, deferrable=deferrable))
    assert (done.state, done.tries, len(emulator.campaigns())) == ("success", 1, 1)
    assert "Continuing with incomplete campaign 'spring'" in done.log
    assert (done.returned["incomplete"], done.returned["adopted"]) == (True, True)
    assert done.returned["mail_stats"]["sent_count"] == 30


def test_a_try_that_ends_behind_code_500(run: Run, emulator: Emulator) -> None:
    """The next try knows of the code, or there is no next try."""
    emulator.faults.add("http_error_before", GETS, count=None, skip=1)

    def recover(context: Any) -> None:
        if context["ti"].try_number == 2:
            emulator.faults.clear()

    done = run(keep(emulator, pre_execute=recover))
    assert emulator.journal.count(SENDS) == 1
    if AIRFLOW_VERSION < (3, 3):
        assert (done.state, done.tries) == ("failed", 1)
        assert "It may have been kept incomplete: look at the service" in done.log
        assert "the next try cannot know" in done.log
    else:
        assert (done.state, done.tries, done.returned["incomplete"]) == ("success", 2, True)


@remembers
def test_clearing_does_not_adopt_an_incomplete_campaign(emulator: Emulator) -> None:
    later = {"send_date": "2030-01-01T00:00:00Z", "wait_for_completion": False}
    tries, make = Tries(), keep(emulator, on_incomplete="cancel", **later)
    for _ in range(2):
        assert tries.run_all(make) == "failed"
        assert (emulator.campaigns()[0]["cancelled"], len(sends(emulator))) == (True, 1)
        tries.clear()
    emulator.set_campaign_state("spring", "removed")
    for adopted in (False, True):
        returned = tries.run(make())
        assert (returned["adopted"], returned["incomplete"]) == (adopted, False)
        tries.clear()
    assert len(sends(emulator)) == 2


# --- the same campaign to a few people ---


def seed_test(**arguments: Any) -> MailSendTestOperator:
    content = {name: value for name, value in CAMPAIGN.items() if name != "send_list_names"}
    return MailSendTestOperator(**{"task_id": TASK, "seed_list_names": "staff"} | content | arguments)


@pytest.mark.parametrize(("arguments", "problem"), [
    ({"seed_list_names": ["many", "staff"]}, "51 contacts, max_seeds is 50"),
    ({"seed_list_names": "nobody"}, "seed_list_names: nobody: "),
    ({"mail_name": "a" * 195}, "mail_name: "),
])  # fmt: skip
def test_seed_tests_that_are_not_sent(emulator: Emulator, arguments: dict[str, Any], problem: str) -> None:
    emulator.add_list("many", count=50)
    tries = Tries()
    assert tries.run_all(lambda: seed_test(**arguments), most=1) == "failed"
    assert problem in str(tries.error)
    assert sends(emulator) == []


# --- at most so many of a day, counted at the service with those that others created ---

TOMORROW = "2026-11-27T09:00:00Z"


@pytest.fixture
def _campaigns(emulator: Emulator, clock: Clock) -> None:
    noon = datetime.datetime(2026, 11, 26, 12, tzinfo=datetime.UTC)
    clock.set_wall_clock((noon - datetime.datetime.now(datetime.UTC)).total_seconds())
    emulator.add_campaign("yesterday", send_date="2026-11-25T23:59:00Z", sent=900)
    emulator.add_campaign("today", send_date="2026-11-26T00:00:00Z", sent=100)
    emulator.add_campaign("sending", send_date="2026-11-26T11:59:00Z", state="sending", sent=0)
    emulator.add_campaign("draft", state="draft")
    emulator.add_campaign("tomorrow", send_date=TOMORROW, state="scheduled")


@pytest.mark.usefixtures("_campaigns")
@pytest.mark.parametrize(("caps", "arguments", "problem"), [
    ({"max_campaigns_per_day": 3}, {}, None),
    ({"max_campaigns_per_day": 2}, {}, "2 campaigns of 2026-11-26 exist, 2 may be sent"),
    # The day is that of the send time in UTC.
    ({"max_campaigns_per_day": 2}, {"send_date": "2026-11-27T01:00:00+02:00"}, "2 campaigns of 2026-11-26 exist"),
    ({"max_campaigns_per_day": 2}, {"send_date": TOMORROW}, None),
    ({"max_campaigns_per_day": 1}, {"send_date": TOMORROW}, "1 campaigns of 2026-11-27 exist, 1 may be sent"),
    ({"max_campaigns_per_day": 0}, {"only_save": True}, None),
    ({"max_campaigns_per_day": 0}, {"sandbox_mode": True}, None),
    ({"max_recipients_per_day": 130}, {}, None),
    ({"max_recipients_per_day": "129"}, {}, "2026-11-26 would have 130 recipients, 129 may be"),
    ({"max_recipients_per_day": 10}, {"send_date": TOMORROW}, "2026-11-27 would have 30 recipients, 10 may be"),
    ({"max_recipients_per_day": "many"}, {}, "max_recipients_per_day: must be a whole number"),
])  # fmt: skip
def test_what_may_be_created_with_a_cap(
    emulator: Emulator, connect: Connect, caps: dict[str, Any], arguments: dict[str, Any], problem: str | None
) -> None:
    connect(**caps)
    tries = Tries()
    assert tries.run_all(lambda: campaign(**arguments), most=1) == ("failed" if problem else "success")
    assert (problem or "") in str(tries.error)
    assert len(sends(emulator)) == (not problem)


@pytest.mark.usefixtures("_campaigns")
def test_preflight_and_adoption_with_a_cap(emulator: Emulator, connect: Connect) -> None:
    connect(max_campaigns_per_day=3)
    for adopted in (False, True):
        assert Tries().run(campaign(adopt_older=True))["adopted"] is adopted
    emulator.set_campaign_state("spring", "removed")
    connect(max_campaigns_per_day=2, max_recipients_per_day=100)
    look = MailPreflightOperator(task_id=TASK, unsubscribe_pattern=None, fail_on="never", **CAMPAIGN)
    assert [finding["text"] for finding in Tries().run(look)["findings"] if finding["check"] == "caps"] == [
        "max_campaigns_per_day: 2 campaigns of 2026-11-26 exist, 2 may be sent",
        "max_recipients_per_day: 2026-11-26 would have 130 recipients, 100 may be",
    ]


CANCEL, DELETE = "campaign/mail/cancel", "campaign/mail/delete"


def cancel(**options: Any) -> dict[str, Any]:
    return executed(MailCancelCampaignOperator(task_id=TASK, mail_name="spring", **options))


def schedule(emulator: Emulator, *names: str) -> None:
    for name in names:
        emulator.add_campaign(name, state="scheduled", send_date=emulator.clock.now() + HOUR)


@pytest.mark.parametrize("shows_as", ["draft", "removed", "failed"])
def test_cancelled_once(emulator: Emulator, shows_as: Any) -> None:
    emulator.settings.state_after_cancel = shows_as
    schedule(emulator, "spring", "spring sale")
    emulator.faults.add("close_after", CANCEL)
    for cancelled in (True, False):
        found = cancel(ignore_draft=shows_as == "draft" and not cancelled)
        assert found == {"mail_name": "spring", "cancelled": cancelled, "sandbox": False}
    assert emulator.campaigns("spring sale")[0]["state"] == "scheduled"


@pytest.mark.parametrize("state", ["sending", "done", "failed"])
def test_too_late_to_cancel(emulator: Emulator, state: Any) -> None:
    emulator.add_campaign("spring", state=state)
    with pytest.raises(AirflowFailException, match="campaign 'spring' cannot be cancelled, it shows mailStatus"):
        cancel()


@pytest.mark.parametrize("fault", [None, "close_before"])
@pytest.mark.parametrize(("status", "hours"), [(-1, 9), (1, -9)])
def test_a_rejected_cancellation_is_never_green(emulator: Emulator, hours: int, status: Any, fault: Any) -> None:
    """Whatever it shows as and the worker's clock says, while the service would still cancel it."""
    emulator.clock.advance(hours=hours)
    emulator.settings.scheduled_status = status
    schedule(emulator, "spring")
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
        schedule(emulator, "spring")
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


LATER = {"mail_name": None, "send_date": "2030-01-01T00:00:00Z"}
FILE = {"file_name": "a.txt", "file_data": "YQ=="}
CORRECTIONS: list[tuple[str, Any, Any]] = [
    ("attachment", FILE, FILE | {"file_data": "Yg=="}), ("attachment", FILE, None), ("editor_type", None, "CLASSIC"),
    ("content", "<p>Old</p>", "<p>New</p>"), ("send_date", None, "2030-01-02T00:00:00Z"),
]  # fmt: skip


@remembers
@pytest.mark.parametrize(("field", "old", "new"), CORRECTIONS)
def test_a_correction_of_a_scheduled_campaign(emulator: Emulator, field: str, old: Any, new: Any) -> None:
    tries = Tries()
    before, after = LATER | ({field: old} if old else {}), LATER | {field: new}
    tries.run(create(**before))
    tries.clear()
    with pytest.raises(AirflowFailException, match=f"differs in {field}: nobody was mailed yet: cancel and delete"):
        tries.run(create(**after))
    assert tries.run(create(**after, replace_scheduled=True))["adopted"] is False
    assert tries.run(create(**after, replace_scheduled=True))["adopted"] is True
    assert [found["state"] for found in emulator.campaigns()].count("scheduled") == 1
    assert len(sends(emulator)) == 2
    assert sends(emulator)[-1].get(api_name(field)) == (new if field != "attachment" or not new else api_file(new))


def api_name(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(map(str.capitalize, others))


def api_file(file: dict[str, str]) -> dict[str, str]:
    return {api_name(name): value for name, value in file.items()}
