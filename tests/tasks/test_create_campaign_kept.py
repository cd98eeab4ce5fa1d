"""`MailCreateCampaignOperator` when the service keeps a campaign although creating it failed (code 500)."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail._task import state
from airflow_provider_mail._task.creation_state import TASK_STATE_KEY
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import change_retries, clears_faults, remembers

SENDS, GETS, CANCELS = "campaign/mail/sends", "campaign/mail/get", "campaign/mail/cancel"
IN_AN_HOUR = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(hours=1)
both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["sync", "deferrable"])


@pytest.fixture(autouse=True)
def _ready(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poller, "SETTLE_SECONDS", 0.1)
    emulator.add_list("newsletter", count=10)
    emulator.settings.kept_task_state = "scheduled"


def create(**arguments: Any) -> MailCreateCampaignOperator:
    given = {
        "task_id": TASK,
        "mail_name": "spring",
        "sender_mail": "news@example.com",
        "subject": "Hi",
        "content": "<p>Hi</p>",
        "send_date": IN_AN_HOUR,
        "send_list_names": ["newsletter"],
        "attachment": {"file_name": "a.pdf", "file_data": base64.b64encode(b"%PDF").decode()},
        "poke_interval": 0.3,
        "retries": 2,
        "retry_delay": datetime.timedelta(0),
    }
    return MailCreateCampaignOperator(**given | arguments)


def test_left_and_named_by_default(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("attachment_failed", SENDS)

    done = run(create)

    assert (done.state, done.tries) == ("failed", 1)
    assert "the service kept the campaign 'spring' (mailStatus 1) although its creation failed" in done.log
    assert "adding the attachment failed" in done.log
    assert "cancel or delete it at the service before that time" in done.log
    assert (emulator.journal.count(SENDS), emulator.journal.count(CANCELS)) == (1, 0)


@both_ways
def test_cancelled(run: Run, emulator: Emulator, deferrable: bool) -> None:
    emulator.faults.add("attachment_failed", SENDS)

    done = run(lambda: create(on_incomplete="cancel", wait_for_completion=True, deferrable=deferrable))

    assert (done.state, done.tries) == ("failed", 1)
    assert "It was cancelled: it is not sent." in done.log
    (campaign,) = emulator.campaigns()
    assert campaign["cancelled"]
    assert done.returned is None


def test_that_cancelling_did_not_work_is_said(run: Run, emulator: Emulator) -> None:
    emulator.settings.sending_seconds = 1000
    emulator.faults.add("attachment_failed", SENDS)

    done = run(lambda: create(on_incomplete="cancel", send_date=None))

    assert (done.state, done.tries) == ("failed", 1)
    assert "It could not be cancelled: " in done.log
    assert "; it shows mailStatus 1. It is being sent: running again" in done.log


@both_ways
def test_gone_on_with_and_gone_out(run: Run, emulator: Emulator, deferrable: bool) -> None:
    emulator.settings.sending_seconds = 0.0
    emulator.faults.add("attachment_failed", SENDS)

    done = run(lambda: create(on_incomplete="keep", wait_for_completion=True, deferrable=deferrable, send_date=None))

    assert done.state == "success", done.log
    assert "Continuing with incomplete campaign 'spring'" in done.log
    assert (done.returned["incomplete"], done.returned["adopted"]) == (True, True)
    assert done.returned["mail_stats"]["sent_count"] == 10
    assert done.result.xcom(TASK, "incomplete") is True
    assert len(emulator.campaigns()) == 1


@both_ways
@pytest.mark.parametrize("kept", ["draft", "scheduled"])
def test_gone_on_with_and_not_gone_out(run: Run, emulator: Emulator, kept: Any, deferrable: bool) -> None:
    emulator.settings.kept_task_state = kept
    emulator.settings.campaign_outcome = "failed"
    emulator.settings.sending_seconds = 0.5
    emulator.faults.add("task_check_failed", SENDS)

    done = run(lambda: create(on_incomplete="keep", wait_for_completion=True, deferrable=deferrable, send_date=None))

    assert (done.state, done.tries) == ("failed", 1)
    words = "It is a draft and will not be sent" if kept == "draft" else "reports that sending failed"
    assert words in done.log


def test_a_campaign_that_failed_is_adopted_and_no_success(run: Run, emulator: Emulator) -> None:
    """Cancelled ones may show like this, too."""
    run(create)
    emulator.set_campaign_state("spring", "failed")

    done = run(create)

    assert (done.state, done.tries) == ("failed", 1)
    assert "campaign 'spring' exists, and the service reports that it failed (mailStatus 4)" in done.log
    assert emulator.journal.count(SENDS) == 1


@pytest.mark.parametrize("scheduled", [-1, 1])
def test_a_cancelled_campaign_is_not_adopted(run: Run, emulator: Emulator, scheduled: Any) -> None:
    emulator.settings.scheduled_status = scheduled
    run(create)
    assert run(lambda: create(adopt_older=True)).returned["adopted"] is True
    emulator.set_campaign_state("spring", "draft")

    done = run(lambda: create(adopt_older=True))

    assert (done.state, done.tries) == ("failed", 1)
    assert "is not scheduled: it was cancelled, or only saved" in done.log
    assert emulator.journal.count(SENDS) == 1


# --- over several tries ---


def dies_behind_code_500(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """The first try is told code 500 and can look no more; the next one can. What makes the tries differ."""
    change_retries(monkeypatch, attempts=1)
    emulator.faults.add("attachment_failed", SENDS)
    emulator.faults.add("http_error_before", GETS, count=None, skip=1)

    return clears_faults(emulator)


@pytest.mark.parametrize("choice", ["fail", "cancel", "keep"])
def test_a_try_that_ends_behind_code_500(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, choice: Any
) -> None:
    """The next try knows what the first one was told, or there is no next try."""
    calm = dies_behind_code_500(emulator, monkeypatch)
    if AIRFLOW_VERSION >= (3, 3) and choice == "keep":
        emulator.plan_campaign("spring", seconds=0)

    done = run(
        lambda: create(
            on_incomplete=choice, pre_execute=calm, wait_for_completion=choice == "keep", timeout=1, send_date=None
        )
    )

    (campaign,) = emulator.campaigns()
    assert emulator.journal.count(SENDS) == 1
    if AIRFLOW_VERSION < (3, 3):
        assert (done.state, done.tries) == ("failed", 1)
        assert "It may have been kept incomplete: look at the service" in done.log
        assert "the next try cannot know" in done.log
    elif choice == "keep":
        assert (done.state, done.tries) == ("success", 2)
        assert done.returned["incomplete"] is True
    else:
        assert (done.state, done.tries) == ("failed", 2)
        assert "an earlier try was answered with code 500" in done.log
        cancellations = [entry["body"].get("sandboxMode", False) for entry in emulator.journal.entries(CANCELS)]
        # After the rejection, the service is asked in sandbox mode whether the campaign will be sent.
        assert cancellations == ([False, True] if choice == "cancel" else [])
    assert not campaign["cancelled"]  # there was no send time to be ahead


@remembers
def test_clearing_does_not_adopt_an_incomplete_campaign(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG]
) -> None:
    emulator.faults.add("attachment_failed", SENDS)
    with new_dag() as dag:
        create(on_incomplete="cancel", retries=0)
    done = run(dag)
    assert emulator.campaigns()[0]["cancelled"]

    assert done.result.clear_and_run(TASK).state == "failed"
    assert len(emulator.campaigns()) == emulator.journal.count(SENDS) == 1

    emulator.set_campaign_state("spring", "removed")
    for adopted in (False, True):
        assert done.result.clear_and_run(TASK).state == "success"
        assert done.result.xcom(TASK)["adopted"] is adopted
        assert done.result.xcom(TASK)["incomplete"] is False
    assert emulator.journal.count(SENDS) == 2


RECORD = {
    "version": 3,
    "mail_name": "spring",
    "incomplete": False,
    "attempted_at": None,
    "seen": False,
    "sends_at": None,
    "max_tries": 2,
}


@remembers
@pytest.mark.parametrize(
    ("record", "state"),
    [
        ({"version": 4, "what": "a later version wrote"}, "failed"),
        (RECORD | {"incomplete": True, "attempted_at": 1.5}, "failed"),
        ({"version": 3, "mail_name": "spring", "incomplete": False}, "failed"),
        (RECORD, "success"),
        (RECORD | {"mail_name": "autumn"}, "success"),
        ("spring", "failed"),
    ],
    ids=["later", "this", "partly", "whole", "other", "odd"],
)
def test_what_is_remembered_and_what_is_not_understood(run: Run, emulator: Emulator, record: Any, state: str) -> None:
    run(create)

    def plant(context: Any) -> None:
        context["task_state_store"].set(TASK_STATE_KEY, record)

    done = run(lambda: create(pre_execute=plant, adopt_older=True))

    assert done.state == state
    assert ("an earlier try was answered with code 500" in done.log) == (state == "failed")
    assert emulator.journal.count(SENDS) == 1


@remembers
@pytest.mark.parametrize("choice", ["fail", "cancel"])
def test_a_store_that_cannot_be_written_keeps_nothing_from_being_done(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, choice: Any
) -> None:
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    class Full:
        def get(self, *arguments: Any) -> None:
            return None

        def set(self, *arguments: Any, **options: Any) -> None:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    def break_store(context: Any) -> None:
        context["task_state_store"] = Full()

    monkeypatch.setattr(state, "PAUSES", (0.0, 0.0))
    emulator.faults.add("attachment_failed", SENDS)

    done = run(lambda: create(on_incomplete=choice, pre_execute=break_store))

    assert (done.state, done.tries) == ("failed", 1)
    assert "the next try will take campaign 'spring' for complete" in caplog.text
    assert "the service kept the campaign 'spring'" in done.log
    assert emulator.campaigns()[0]["cancelled"] == (choice == "cancel")


def test_the_sandbox_remembers_nothing(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("task_check_failed", SENDS)

    done = run(lambda: create(sandbox_mode=True, retries=0))

    assert done.state == "success"
    assert emulator.campaigns() == []
    assert "was answered with code 500" not in done.log
