"""`MailCreateCampaignOperator`: what the service is asked to do, and that it is asked once."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators._campaign import default_mail_name, run_began
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import clears_faults, remembers

DOCUMENT = base64.b64encode(b"%PDF").decode()


@pytest.fixture(autouse=True)
def _lists(emulator: Emulator) -> None:
    for name in ("newsletter", "staff", "vip"):
        emulator.add_list(name, [f"{name}@example.com"])
    emulator.add_subscription("weekly")


def create(**arguments: Any) -> MailCreateCampaignOperator:
    given = {"task_id": TASK, "sender_mail": "news@example.com", "send_list_names": ["newsletter"]}
    given |= {"subject": "Hi", "content": "<p>Hi</p>"}
    return MailCreateCampaignOperator(**given | arguments)


def sends(emulator: Emulator) -> list[dict[str, Any]]:
    return [entry["body"] for entry in emulator.journal.entries("campaign/mail/sends")]


def test_every_field_of_the_document_arrives(run: Run, emulator: Emulator) -> None:
    done = run(
        lambda: create(
            mail_name="spring",
            sender_name="Example News",
            subject="Spring",
            content="<p>It is here.</p>",
            send_date=datetime.datetime(2030, 3, 1, 9, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            send_list_names=["newsletter", "vip"],
            repel_list_names=["staff"],
            reply_to="answers@example.com",
            attachment={"file_name": "menu.html", "file_data": DOCUMENT},
            language_code="pt-br",
            market_name="spring sale",
            subscript_name="weekly",
            project_code="P-1",
            editor_type="CLASSIC",
        )
    )

    assert done.state == "success", done.log
    # Written down from the table of "/v5/campaign/mail/sends".
    assert sends(emulator) == [
        {
            "mailName": "spring",
            "senderMail": "news@example.com",
            "senderName": "Example News",
            "subject": "Spring",
            "content": "<p>It is here.</p>",
            "sendDate": "2030-03-01T07:30:00Z",
            "sendListNames": ["newsletter", "vip"],
            "repelListNames": ["staff"],
            "replyTo": "answers@example.com",
            "attachment": {"fileName": "menu.html", "fileData": DOCUMENT},
            "languageCode": "pt-br",
            "marketName": "spring sale",
            "subscriptName": "weekly",
            "projectCode": "P-1",
            "editorType": "CLASSIC",
        }
    ]


def test_what_was_not_given_is_not_sent(run: Run, emulator: Emulator) -> None:
    done = run(lambda: create(mail_name="plain", subject=None, content=None, allow_blank=True))

    assert sends(emulator) == [{"mailName": "plain", "senderMail": "news@example.com", "sendListNames": ["newsletter"]}]
    (campaign,) = emulator.campaigns()
    assert done.returned == {
        "mail_name": "plain",
        "id": campaign["id"],
        "guid": campaign["guid"],
        "adopted": False,
        "incomplete": False,
        "sandbox": False,
    }
    assert [done.result.xcom(TASK, key) for key in ("mail_name", "id", "guid", "adopted")] == [
        "plain",
        campaign["id"],
        campaign["guid"],
        False,
    ]


def test_a_draft_needs_no_list(run: Run, emulator: Emulator) -> None:
    empty = {"subject": None, "content": None, "send_list_names": None}
    done = run(lambda: create(mail_name="draft", only_save=True, wait_for_completion=True, **empty))

    assert done.state == "success"
    assert "mail_stats" not in done.returned
    assert sends(emulator) == [{"mailName": "draft", "senderMail": "news@example.com", "onlySave": True}]
    assert emulator.campaigns()[0]["state"] == "draft"


def test_templates(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    with new_dag(params={"day": "2030-01-02"}) as dag:

        @task
        def lists() -> list[str]:
            return ["newsletter", "vip"]

        create(
            mail_name="day {{ params.day }}",
            subject="News of {{ params.day }}",
            send_date="{{ params.day }}T00:00:00+01:00",
            send_list_names=lists(),
            repel_list_names=["{{ 'staff' }}"],
            attachment={"file_name": "{{ params.day }}.html", "file_data": DOCUMENT},
            editor_type="{{ 'DRAG' }}",
        )

    assert run(dag).state == "success"

    (body,) = sends(emulator)
    assert body == {
        "mailName": "day 2030-01-02",
        "senderMail": "news@example.com",
        "subject": "News of 2030-01-02",
        "content": "<p>Hi</p>",
        "sendDate": "2030-01-01T23:00:00Z",
        "sendListNames": ["newsletter", "vip"],
        "repelListNames": ["staff"],
        "attachment": {"fileName": "2030-01-02.html", "fileData": DOCUMENT},
        "editorType": "DRAG",
    }


def test_nothing_from_another_task_is_nothing(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    with new_dag() as dag:

        @task
        def nobody() -> list[str]:
            return []

        @task
        def nothing() -> str:
            return ""

        create(mail_name="plain", repel_list_names=nobody(), subject=nothing(), allow_blank=True)

    done = run(dag)

    assert done.state == "success", done.log
    (body,) = sends(emulator)
    assert (body["repelListNames"], body["subject"]) == ([], "")


# --- the name ---


def test_the_default_name_is_the_task_instance_s(run: Run, emulator: Emulator) -> None:
    done = run(create)

    assert done.returned["mail_name"] == f"{done.result.dag_id}/{TASK}/{done.result.run_id}"[:200]
    assert emulator.campaigns()[0]["mailName"] == done.returned["mail_name"]


def test_each_mapped_task_has_a_name_of_its_own(run_in_airflow: Run, emulator: Emulator) -> None:
    done = run_in_airflow(
        lambda: MailCreateCampaignOperator.partial(
            task_id=TASK, sender_mail="news@example.com", subject="Hi", content="<p>Hi</p>"
        ).expand(send_list_names=[["newsletter"], ["vip"]])
    )

    assert done.state == "success"
    names = [done.result.xcom(TASK, map_index=index)["mail_name"] for index in (0, 1)]
    assert [name.rpartition("/")[2] for name in names] == ["0", "1"]
    assert {campaign["mailName"]: campaign["request"]["sendListNames"] for campaign in emulator.campaigns()} == {
        names[0]: ["newsletter"],
        names[1]: ["vip"],
    }


def test_long_names_are_cut_and_stay_different(run_dag: Callable[..., Any], emulator: Emulator) -> None:
    with DAG("d" * 250, schedule=None) as dag:
        create(task_id="one")
        create(task_id="other")
    done = run_dag(dag)
    names = {done.xcom(task_id)["mail_name"] for task_id in ("one", "other")}

    assert {campaign["mailName"] for campaign in emulator.campaigns()} == names
    assert [len(name) for name in names] == [200, 200]


@pytest.mark.parametrize("dag_id", ["д" * 125, "x" + "朝" * 80, "ad" + "🙂" * 60, "🙂"])
def test_names_are_cut_between_characters(dag_id: str) -> None:
    # `dag.test()` cannot push the XComs of such a DAG, a real Airflow can.
    names = {
        default_mail_name({"ti": SimpleNamespace(dag_id=dag_id, task_id="t", run_id=run_id, map_index=index)})
        for run_id in ("one", "other")
        for index in (-1, 0, 1)
    }

    assert len(names) == 6
    assert all(len(name.encode()) <= 200 for name in names)
    assert all(name.startswith(dag_id[:45]) for name in names)


def test_dots_in_ids_do_not_make_names_alike() -> None:
    ids = [("sales.news", "send"), ("sales", "news.send")]
    names = {
        default_mail_name({"ti": SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id="run", map_index=-1)})
        for dag_id, task_id in ids
    }

    assert names == {"sales.news/send/run", "sales/news.send/run"}


def test_no_two_task_instances_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [("r", -1), ("r", 1), ("r/1", -1), ("r%2F1", -1), ("r/1", 1)]
    tis: list[Any] = [SimpleNamespace(dag_id="d", task_id="t", run_id=run_id, map_index=index) for run_id, index in ids]
    names = [default_mail_name({"ti": ti}) for ti in tis]

    assert names[:2] == ["d/t/r", "d/t/r/1"]
    assert len(set(names)) == len(ids)

    monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", "production")
    assert [default_mail_name({"ti": ti}) for ti in tis] == [f"production:{name}" for name in names]


# --- once ---


def test_a_second_try_adopts_what_the_first_created(run: Run, emulator: Emulator) -> None:
    # The answer is lost, and so are all answers after it until the task is tried again.
    emulator.faults.add("close_after", "campaign/mail/sends")
    emulator.faults.add("http_error_before", "campaign/mail/get", count=None, skip=1)

    done = run(lambda: create(subject="Once", retries=1, retry_delay=0, pre_execute=clears_faults(emulator)))

    assert (done.state, done.tries) == ("success", 2)
    assert len(sends(emulator)) == 1
    (campaign,) = emulator.campaigns()
    assert (done.returned["adopted"], done.returned["id"], done.returned["guid"]) == (True, None, campaign["guid"])
    assert "exists and is equal: adopted" in done.log


def test_a_constant_name_in_a_weekly_dag_is_noticed(run: Run, emulator: Emulator) -> None:
    """It would be green from the second week on, and nobody would be mailed."""
    emulator.settings.sending_seconds = 0.0
    assert run(lambda: create(mail_name="weekly")).returned["adopted"] is False
    emulator.clock.advance(7 * 86_400)

    done = run(lambda: create(mail_name="weekly", retries=2))

    assert (done.state, done.tries) == ("failed", 1)
    assert "a campaign named 'weekly' exists and is equal, but is older than this run" in done.log
    assert 'such as mail_name="news {{ ds }}", or leave mail_name out' in done.log
    assert "set adopt_older=True" in done.log
    assert run(lambda: create(mail_name="weekly", adopt_older=True)).returned["adopted"] is True
    # Each run has a name of its own:
    assert run(lambda: create(mail_name="weekly {{ run_id }}")).returned["adopted"] is False
    assert run(create).returned["adopted"] is False
    assert len(sends(emulator)) == 3


@pytest.mark.parametrize("status", [-1, 1])
@pytest.mark.parametrize("hours", [-9, 0, 9])
def test_a_constant_name_with_a_future_send_time_is_noticed(
    run: Run, emulator: Emulator, hours: int, status: Any
) -> None:
    """Three runs made one campaign, and three of them were green."""
    emulator.clock.advance(hours=hours)
    emulator.settings.scheduled_status = status
    later = {"mail_name": "spring", "send_date": emulator.clock.now() + datetime.timedelta(days=1), "retries": 2}
    assert run(lambda: create(**later)).returned["adopted"] is False

    done = run(lambda: create(**later))

    assert (done.state, done.tries) == ("failed", 1)
    assert "is equal, but was not created by this task: it is to be sent at " in done.log
    assert "set adopt_older=True" in done.log
    assert run(lambda: create(**later, adopt_older=True)).returned["adopted"] is True
    assert len(sends(emulator)) == 1


@pytest.mark.parametrize("send_date", [None, "2030-01-01T00:00:00Z"])
def test_an_equal_draft_is_adopted(run: Run, emulator: Emulator, send_date: str | None) -> None:
    """It mails nobody, whoever saved it."""
    for adopted in (False, True):
        done = run(lambda: create(mail_name="spring", send_date=send_date, only_save=True))
        assert done.returned["adopted"] is adopted
    assert len(sends(emulator)) == 1


@pytest.mark.parametrize("days", [-3, 0, 3])
def test_a_cleared_task_adopts_what_it_has_sent(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG], days: int
) -> None:
    """Clearing sets the run's start anew. Whatever the service's clock says."""
    emulator.settings.sending_seconds = 0.0
    emulator.clock.advance(days * 86_400)
    with new_dag() as dag:
        create(mail_name="once")
    done = run(dag)

    assert done.result.clear_and_run(TASK).state == "success"
    assert done.result.xcom(TASK)["adopted"] is True
    assert len(sends(emulator)) == 1


NOW: dict[str, Any] = {"retries": 2, "retry_delay": datetime.timedelta(0)}
WAIT: dict[str, Any] = {**NOW, "mail_name": "spring", "wait_for_completion": True, "poke_interval": 0.2}
both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["sync", "deferrable"])


@remembers
@both_ways
def test_a_name_with_the_present_time_mails_once(run: Run, emulator: Emulator, deferrable: bool) -> None:
    """Every try renders another name."""
    emulator.settings.sending_seconds = 10_000

    done = run(
        lambda: create(**WAIT | {"mail_name": "News {{ ti.try_number }}", "timeout": 0, "deferrable": deferrable})
    )

    assert (done.state, done.tries) == ("failed", 2)
    assert "created campaign 'News 1', which exists (mailStatus 1); this try asks for 'News 2'" in done.log
    assert len(sends(emulator)) == 1


@remembers
@both_ways
@pytest.mark.parametrize("send_date", [None, "2030-01-01T00:00:00Z"], ids=["sending", "scheduled"])
def test_a_retry_does_not_create_what_people_removed(
    run: Run, emulator: Emulator, send_date: str | None, deferrable: bool
) -> None:
    """The wait times out before it believes that the campaign is gone."""
    emulator.settings.sending_seconds = 10_000

    def remove(context: Any) -> None:
        if context["ti"].try_number == 2:
            emulator.set_campaign_state("spring", "removed")

    with_poll = {"timeout": 0, "send_date": send_date, "deferrable": deferrable, "pre_execute": remove}
    if send_date:  # the timeout counts from there
        with_poll |= {"wait_for_completion": False, "deferrable": False, "post_execute": fails_once}
    done = run(lambda: create(**WAIT | with_poll))

    assert (done.state, done.tries) == ("failed", 2)
    assert "campaign 'spring' was created by this task and is gone: deleted or cancelled" in done.log
    assert len(sends(emulator)) == 1


def fails_once(context: Any, result: Any = None) -> None:
    if context["ti"].try_number == 1:
        raise RuntimeError("after the campaign was created")


@remembers
@both_ways
def test_a_cleared_task_does_not_repeat_what_was_sent(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG], deferrable: bool
) -> None:
    """The service has removed the campaign; an argument lets a cleared task create it again."""
    emulator.settings.sending_seconds = 0.0
    with new_dag() as dag:
        operator = create(**WAIT | {"deferrable": deferrable, "retries": 0})
    done = run(dag)
    assert done.returned["mail_stats"]
    emulator.set_campaign_state("spring", "removed")

    assert done.result.clear_and_run(TASK).state == "failed"
    operator.send_again = True
    assert done.result.clear_and_run(TASK).state == "success"
    assert done.result.clear_and_run(TASK).state == "success"
    assert done.result.xcom(TASK)["adopted"] is True
    assert len(sends(emulator)) == 2


@remembers
def test_a_cleared_task_creates_what_was_cancelled(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    emulator.settings.state_after_cancel = "removed"
    with new_dag() as dag:
        create(mail_name="spring", send_date="2030-01-01T00:00:00Z")
    done = run(dag)
    emulator.set_campaign_state("spring", "removed")

    assert done.result.clear_and_run(TASK).state == "success"
    assert len(sends(emulator)) == 2


def test_only_the_run_that_created_a_campaign_adopts_it(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG]
) -> None:
    """Runs that began together, with one constant name."""
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    dags = []
    for _ in range(3):
        with new_dag() as dag:
            create(mail_name="weekly")
        dags.append(dag)

    first, *others = [run(dag, logical_date=began) for dag in dags]

    assert [done.state for done in (first, *others)] == ["success", "failed", "failed"]
    assert "exists and is equal, but was not created by this task" in others[0].log
    assert first.result.clear_and_run(TASK).state == "success"
    assert len(sends(emulator)) == 1


def test_without_a_store_the_log_says_what_is_not_known(
    run: Run, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    def lose_store(context: Any) -> None:
        context.pop("task_state_store", None)

    done = run(lambda: create(**NOW, mail_name="spring", pre_execute=lose_store, post_execute=fails_once))
    assert (done.state, done.tries) == ("success", 2)
    assert "it is not known whether" not in caplog.text

    def remove(context: Any) -> None:
        lose_store(context)
        if context["ti"].try_number == 2:
            emulator.set_campaign_state("summer", "removed")

    run(lambda: create(**NOW, mail_name="summer", pre_execute=remove, post_execute=fails_once))
    assert "so it is not known whether an earlier try created one under another name" in caplog.text


DAY = datetime.datetime(2030, 1, 31, 9, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("dag_run", "began"),
    [
        # As Airflow has it: a run on time, by hand, one that catches up, a backfill; cleared ones start anew.
        ({"run_type": "scheduled", "run_after": DAY, "start_date": DAY + HOUR, "clear_number": 0}, DAY + HOUR),
        ({"run_type": "scheduled", "run_after": DAY, "start_date": DAY + 9 * HOUR, "clear_number": 1}, DAY),
        ({"run_type": "manual", "run_after": DAY, "start_date": DAY, "clear_number": None}, DAY),
        ({"run_type": "manual", "run_after": DAY + HOUR, "start_date": DAY, "clear_number": 2}, DAY),
        ({"run_type": "scheduled", "run_after": DAY, "start_date": None, "clear_number": 0}, DAY),
        ({"run_type": "backfill", "run_after": DAY, "start_date": DAY + 99 * HOUR, "clear_number": 0}, DAY + 99 * HOUR),
        ({"run_type": "backfill", "run_after": DAY, "start_date": DAY + 99 * HOUR, "clear_number": 1}, DAY + 99 * HOUR),
    ],
)
def test_when_a_run_began(dag_run: dict[str, Any], began: datetime.datetime) -> None:
    context: Any = {"dag_run": SimpleNamespace(**dag_run)}
    assert run_began(context) == began
    assert create(mail_name="given").not_older_than(context) == began
    assert create().not_older_than(context) is None
    assert create(mail_name="given", adopt_older=True).not_older_than(context) is None


def test_a_second_run_with_the_same_name_adopts_when_that_is_wanted(run: Run, emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 0.0
    given: dict[str, Any] = {"mail_name": "once", "subject": "Same", "adopt_older": True}
    first = run(lambda: create(send_list_names=["newsletter", "vip"], **given))
    second = run(lambda: create(send_list_names=["vip", "newsletter"], **given))

    assert [first.returned["adopted"], second.returned["adopted"]] == [False, True]
    assert len(emulator.campaigns()) == len(sends(emulator)) == 1
    assert emulator.campaign_recipients("once") == ["newsletter@example.com", "vip@example.com"]


def test_a_different_campaign_of_that_name_is_a_conflict_that_names_the_fields(run: Run, emulator: Emulator) -> None:
    run(lambda: create(mail_name="taken", subject="Old", content="<p>Same</p>"))

    done = run(
        lambda: create(
            mail_name="taken",
            subject="New",
            content="<p>Same</p>",
            send_list_names=["vip"],
            reply_to="answers@example.com",
            language_code="de",
            retries=2,
        )
    )

    assert (done.state, done.tries) == ("failed", 1)
    assert "differs in subject, send_list_names, reply_to, language_code" in done.log
    assert len(sends(emulator)) == 1


def test_differences_can_be_let_pass(run: Run, emulator: Emulator) -> None:
    run(lambda: create(mail_name="taken", subject="Old"))

    done = run(lambda: create(mail_name="taken", subject="New", ignore_differences=["subject"], adopt_older=True))

    assert done.returned["adopted"] is True
    assert len(emulator.campaigns()) == 1


def test_a_name_within_a_longer_name_is_another(run: Run, emulator: Emulator) -> None:
    emulator.add_campaign("spring sale", state="done")

    done = run(lambda: create(mail_name="spring"))

    assert done.returned["adopted"] is False
    assert [campaign["mailName"] for campaign in emulator.campaigns()] == ["spring sale", "spring"]


def test_a_campaign_that_was_kept_although_creating_it_failed(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("attachment_failed", "campaign/mail/sends")

    done = run(lambda: create(mail_name="half", attachment={"file_name": "a.pdf", "file_data": DOCUMENT}, retries=2))

    assert (done.state, done.tries) == ("failed", 1)
    assert "the service kept the campaign 'half'" in done.log
    assert "adding the attachment failed" in done.log
    assert len(sends(emulator)) == 1


def test_a_refused_key_fails_at_once(run: Run, emulator: Emulator, connect: Callable[..., None]) -> None:
    connect("mail_team", password="wrong")

    done = run(lambda: create(mail_conn_id="mail_team", retries=3))

    assert (done.state, done.tries) == ("failed", 1)
    assert "connection 'mail_team'" in done.log
    assert sends(emulator) == []


def test_a_send_date_in_the_past_sends_nothing(run: Run, emulator: Emulator) -> None:
    done = run(lambda: create(mail_name="late", send_date="2024-03-01T09:00:00Z", retries=2))

    assert (done.state, done.tries) == ("failed", 1)
    assert "send_date: 2024-03-01T09:00:00Z lies" in done.log
    assert "set allow_past_send_date=True to send at once" in done.log
    assert sends(emulator) == []

    done = run(lambda: create(mail_name="late", send_date="2024-03-01T09:00:00Z", allow_past_send_date=True))

    assert done.returned["adopted"] is False
    assert emulator.campaign_recipients("late") == ["newsletter@example.com"]


# --- sandbox ---


@pytest.mark.parametrize("where", ["task", "connection"])
def test_sandbox_creates_nothing_and_waits_for_nothing(
    run: Run, emulator: Emulator, connect: Callable[..., None], where: str
) -> None:
    if where == "connection":
        connect(sandbox=True)

    done = run(lambda: create(mail_name="try", sandbox_mode=where == "task", wait_for_completion=True))

    assert done.state == "success"
    assert (done.returned["sandbox"], done.returned["adopted"]) == (True, False)
    assert "nothing was created" in done.log
    assert [body["sandboxMode"] for body in sends(emulator)] == [True]
    assert emulator.campaigns() == []


def test_sandbox_finds_what_the_service_would_refuse(run: Run, emulator: Emulator) -> None:
    done = run(lambda: create(send_list_names=["nowhere"], sandbox_mode=True, retries=2))

    assert (done.state, done.tries) == ("failed", 1)
    assert "list nowhere does not exist" in done.log
