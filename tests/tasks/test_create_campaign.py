"""`MailCreateCampaignOperator`: what the service is asked to do, and that it is asked once."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from mail_emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.support.tries import MortalStore
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import AT_ONCE, campaign, clears_faults, remembers

SENDS, GETS, CANCELS = "campaign/mail/sends", "campaign/mail/get", "campaign/mail/cancel"
DAY = 86_400
DOCUMENT = base64.b64encode(b"%PDF").decode()


@pytest.fixture(autouse=True)
def _lists(emulator: Emulator) -> None:
    for name in ("newsletter", "staff", "vip"):
        emulator.add_list(name, [f"{name}@example.com"])


def create(**arguments: Any) -> MailCreateCampaignOperator:
    return campaign(**{"mail_name": None} | arguments)


def sends(emulator: Emulator) -> list[dict[str, Any]]:
    return [entry["body"] for entry in emulator.journal.entries(SENDS)]


def test_what_the_service_is_asked_to_create(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    """Nothing that was not given; what other tasks return; templates in all that may have them."""
    with new_dag(params={"day": "2030-03-01"}) as dag:
        nothing, lists = task(lambda: "", task_id="nothing"), task(lambda: ["newsletter", "vip"], task_id="lists")
        create(
            mail_name="spring {{ params.day }}",
            send_date="{{ params.day }}T09:30:00+02:00",
            send_list_names=lists(),
            repel_list_names=["{{ 'staff' }}"],
            attachment={"file_name": "{{ params.day }}.html", "file_data": DOCUMENT},
            subject=nothing(),
            content=None,
            allow_blank=True,
        )
    done = run(dag)

    (campaign,) = emulator.campaigns()
    name = campaign["mailName"]
    assert sends(emulator) == [{
        "mailName": "spring 2030-03-01", "senderMail": "news@example.com", "subject": "",
        "sendDate": "2030-03-01T07:30:00Z", "sendListNames": ["newsletter", "vip"], "repelListNames": ["staff"],
        "attachment": {"fileName": "2030-03-01.html", "fileData": DOCUMENT},
    }]  # fmt: skip
    created = {"mail_name": name, "id": campaign["id"], "guid": campaign["guid"], "adopted": False}
    assert done.returned == {**created, "incomplete": False, "sandbox": False}
    assert {key: done.result.xcom(TASK, key) for key in created} == created


def test_a_draft_needs_no_list_and_is_not_waited_for(run: Run, emulator: Emulator) -> None:
    empty = {"subject": None, "content": None, "send_list_names": None}
    later = {"mail_name": "draft", "only_save": True, "send_date": "2030-01-01T00:00:00Z"}
    for adopted in (False, True):  # by another run, since it mails nobody
        done = run(lambda: create(**later, wait_for_completion=True, **empty))
        assert done.returned["adopted"] is adopted
        assert "mail_stats" not in done.returned
    assert emulator.campaigns()[0]["state"] == "draft"
    assert len(sends(emulator)) == 1


# --- the name ---


def default_name(dag_id: str = "d", task_id: str = "t", run_id: str = "r", map_index: int = -1) -> str:
    ti = SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index)
    name: str = create().request({"ti": ti}).mail_name  # type: ignore[typeddict-item]
    return name


@pytest.mark.parametrize("dag_id", ["d" * 250, "д" * 125, "x" + "朝" * 80, "ad" + "🙂" * 60, "🙂"])
def test_names_are_cut_between_characters_and_stay_different(dag_id: str) -> None:
    names = {default_name(dag_id, run_id=run_id, map_index=index) for run_id in "ab" for index in (-1, 0, 1)}
    assert len(names) == 6
    assert all(len(name.encode()) <= 200 for name in names)
    assert all(name.startswith(dag_id[:45]) for name in names)


def test_no_two_task_instances_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ids: list[dict[str, Any]] = [
        *({}, {"map_index": 1}, {"dag_id": "d.t"}, {"task_id": "t.t"}),
        *({"run_id": "r/1"}, {"run_id": "r%2F1"}, {"run_id": "r/1", "map_index": 1}),
    ]
    names = [default_name(**each) for each in ids]
    assert names[:4] == ["d/t/r", "d/t/r/1", "d.t/t/r", "d/t.t/r"]
    assert len(set(names)) == len(ids)
    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", "production")
    assert [default_name(**each) for each in ids] == [f"production:{name}" for name in names]


# --- once ---


def test_a_constant_name_in_a_weekly_dag_is_noticed(run: Run, emulator: Emulator) -> None:
    """It would be green from the second week on, and nobody would be mailed."""
    emulator.settings.sending_seconds = 0.0
    assert run(lambda: create(mail_name="weekly", send_list_names=["newsletter", "vip"])).returned["adopted"] is False
    emulator.clock.advance(7 * DAY)
    again = {"mail_name": "weekly", "send_list_names": ["vip", "newsletter"]}

    done = run(lambda: create(**again, retries=2))

    assert (done.state, done.tries) == ("failed", 1)
    assert 'such as mail_name="news {{ ds }}", or leave mail_name out' in done.log
    assert run(lambda: create(**again, adopt_older=True)).returned["adopted"] is True
    assert emulator.campaign_recipients("weekly") == ["newsletter@example.com", "vip@example.com"]
    # Each run has a name of its own:
    assert run(lambda: create(mail_name="weekly {{ run_id }}")).returned["adopted"] is False
    assert run(create).returned["adopted"] is False
    assert len(sends(emulator)) == 3


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


@remembers
@pytest.mark.parametrize("deferrable", [False, True])
def test_a_cleared_task_does_not_repeat_what_was_sent(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG], deferrable: bool
) -> None:
    """The service has removed the campaign; an argument lets a cleared task create it again."""
    with new_dag() as dag:
        operator = create(mail_name="spring", wait_for_completion=True, deferrable=deferrable)
    done = run(dag)
    assert done.returned["mail_stats"]
    emulator.set_campaign_state("spring", "removed")

    assert done.result.clear_and_run(TASK).state == "failed"
    operator.send_again = True
    for adopted in (False, True):
        assert done.result.clear_and_run(TASK).state == "success"
        assert done.result.xcom(TASK)["adopted"] is adopted
    assert len(sends(emulator)) == 2


DAY_1 = datetime.datetime(2030, 1, 31, 9, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("run_type", "run_after", "start_date", "clear_number", "began"),
    [
        # As Airflow has it: a run on time, by hand, one that catches up, a backfill; cleared ones start anew.
        ("scheduled", DAY_1, DAY_1 + HOUR, 0, DAY_1 + HOUR),
        ("scheduled", DAY_1, DAY_1 + 9 * HOUR, 1, DAY_1),
        ("manual", DAY_1, DAY_1, None, DAY_1),
        ("manual", DAY_1 + HOUR, DAY_1, 2, DAY_1),
        ("scheduled", DAY_1, None, 0, DAY_1),
        ("backfill", DAY_1, DAY_1 + 99 * HOUR, 0, DAY_1 + 99 * HOUR),
        ("backfill", DAY_1, DAY_1 + 99 * HOUR, 1, DAY_1 + 99 * HOUR),
    ],
)
def test_when_a_run_began(
    run_type: str, run_after: Any, start_date: Any, clear_number: int | None, began: datetime.datetime
) -> None:
    dag_run = SimpleNamespace(run_type=run_type, run_after=run_after, start_date=start_date, clear_number=clear_number)
    context: Any = {"dag_run": dag_run}
    assert create(mail_name="given").not_older_than(context) == began
    assert create().not_older_than(context) is None
    assert create(mail_name="given", adopt_older=True).not_older_than(context) is None


# --- what ends it at once ---


def test_differences_and_past_send_dates_may_be_accepted(run: Run, emulator: Emulator) -> None:
    past = {"mail_name": "late", "send_date": "2024-03-01T09:00:00Z", "allow_past_send_date": True}
    assert run(lambda: create(**past)).returned["adopted"] is False
    assert emulator.campaign_recipients("late") == ["newsletter@example.com"]

    new: dict[str, Any] = {"subject": "New", "send_list_names": ["vip"], "reply_to": "reply@example.com"}
    done = run(lambda: create(mail_name="late", **new, ignore_differences=["reply_to"], retries=2))
    assert (done.state, done.tries) == ("failed", 1)
    assert "differs in subject, send_list_names:" in done.log
    assert run(lambda: create(mail_name="late", **new, ignore_differences=[*new], adopt_older=True)).returned["adopted"]
    assert len(sends(emulator)) == 1


# --- a campaign that the service keeps although creating it failed, see tests/api/test_kept_campaigns.py ---


@pytest.fixture
def _kept(emulator: Emulator) -> None:
    """The service keeps a campaign although creating it failed (code 500)."""
    emulator.settings.kept_task_state = "scheduled"
    emulator.faults.add("attachment_failed", SENDS)


def create_with_attachment(**arguments: Any) -> MailCreateCampaignOperator:
    return campaign(**{"attachment": {"file_name": "a.pdf", "file_data": "JVBERg=="}} | AT_ONCE | arguments)


@pytest.mark.usefixtures("_kept")
@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_continued_with(run: Run, emulator: Emulator, deferrable: bool, outcome: Any) -> None:
    emulator.settings.campaign_outcome = outcome

    done = run(lambda: create_with_attachment(on_incomplete="keep", wait_for_completion=True, deferrable=deferrable))

    assert (done.state, done.tries) == ("success" if outcome == "done" else "failed", 1)
    assert "Continuing with incomplete campaign 'spring'" in done.log
    assert len(emulator.campaigns()) == 1
    assert done.result.xcom(TASK, "incomplete") is True
    if outcome == "done":
        assert (done.returned["incomplete"], done.returned["adopted"]) == (True, True)
        assert done.returned["mail_stats"]["sent_count"] == 1


@pytest.mark.usefixtures("_kept")
@pytest.mark.parametrize("choice", ["fail", "cancel", "keep"])
def test_a_try_that_ends_behind_code_500(run: Run, emulator: Emulator, choice: Any) -> None:
    """The next try knows of the code, or there is no next try."""
    emulator.faults.add("http_error_before", GETS, count=None, skip=1)
    given = {"on_incomplete": choice, "wait_for_completion": choice == "keep", "deferrable": False}

    done = run(lambda: create_with_attachment(pre_execute=clears_faults(emulator), **given))

    assert emulator.journal.count(SENDS) == 1
    if AIRFLOW_VERSION < (3, 3):
        assert (done.state, done.tries) == ("failed", 1)
        assert "It may have been kept incomplete: look at the service" in done.log
        assert "the next try cannot know" in done.log
    elif choice == "keep":
        assert (done.state, done.tries, done.returned["incomplete"]) == ("success", 2, True)
    else:
        assert (done.state, done.tries) == ("failed", 2)
        assert "an earlier try was answered with code 500" in done.log
        assert (emulator.journal.count(CANCELS) > 0) == (choice == "cancel")
    assert not emulator.campaigns()[0]["cancelled"]  # there was no send time to be ahead


@pytest.mark.usefixtures("_kept")
@remembers
def test_clearing_does_not_adopt_an_incomplete_campaign(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG]
) -> None:
    with new_dag() as dag:
        create_with_attachment(on_incomplete="cancel", retries=0, send_date="2030-01-01T00:00:00Z")
    done = run(dag)
    assert emulator.campaigns()[0]["cancelled"]
    assert done.result.clear_and_run(TASK).state == "failed"
    assert emulator.journal.count(SENDS) == 1

    emulator.set_campaign_state("spring", "removed")
    for adopted in (False, True):
        assert done.result.clear_and_run(TASK).state == "success"
        found = done.result.xcom(TASK)
        assert (found["adopted"], found["incomplete"]) == (adopted, False)
    assert emulator.journal.count(SENDS) == 2


@pytest.mark.usefixtures("_kept")
@remembers
@pytest.mark.parametrize("choice", ["fail", "cancel"])
def test_a_store_that_cannot_be_written_prevents_nothing(
    run: Run, emulator: Emulator, caplog: pytest.LogCaptureFixture, choice: Any
) -> None:
    store = MortalStore(None)
    store.unavailable = range(100)

    def break_store(context: Any) -> None:
        context["task_state_store"] = store

    done = run(
        lambda: create_with_attachment(on_incomplete=choice, pre_execute=break_store, send_date="2030-01-01T00:00:00Z")
    )

    assert (done.state, done.tries, done.returned) == ("failed", 1, None)
    assert "the next try will take campaign 'spring' for complete" in caplog.text
    assert "the service kept the campaign 'spring'" in done.log
    assert emulator.campaigns()[0]["cancelled"] == (choice == "cancel")
