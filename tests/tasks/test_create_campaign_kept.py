"""`MailCreateCampaignOperator` when the service keeps a campaign although creating it failed (code 500).

What becomes of it is in `tests/api/test_kept_campaigns.py`: here is what the task records, reports and waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from mail_emulator import Emulator
from tests.support.creation import RECORD_KEY, StateStore, creation_record
from tests.support.dags import AIRFLOW_VERSION
from tests.support.tries import MortalStore
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import AT_ONCE, campaign, clears_faults, remembers

SENDS, GETS, CANCELS = "campaign/mail/sends", "campaign/mail/get", "campaign/mail/cancel"


@pytest.fixture(autouse=True)
def _ready(emulator: Emulator) -> None:
    emulator.add_list("newsletter", count=10)
    emulator.settings.kept_task_state = "scheduled"
    emulator.faults.add("attachment_failed", SENDS)


def create(**arguments: Any) -> MailCreateCampaignOperator:
    return campaign(**{"attachment": {"file_name": "a.pdf", "file_data": "JVBERg=="}} | AT_ONCE | arguments)


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_continued_with(run: Run, emulator: Emulator, deferrable: bool, outcome: Any) -> None:
    emulator.settings.campaign_outcome = outcome

    done = run(lambda: create(on_incomplete="keep", wait_for_completion=True, deferrable=deferrable))

    assert (done.state, done.tries) == ("success" if outcome == "done" else "failed", 1)
    assert "Continuing with incomplete campaign 'spring'" in done.log
    assert len(emulator.campaigns()) == 1
    assert done.result.xcom(TASK, "incomplete") is True
    if outcome == "done":
        assert (done.returned["incomplete"], done.returned["adopted"]) == (True, True)
        assert done.returned["mail_stats"]["sent_count"] == 10


@pytest.mark.parametrize("choice", ["fail", "cancel", "keep"])
def test_a_try_that_ends_behind_code_500(run: Run, emulator: Emulator, choice: Any) -> None:
    """The next try knows of the code, or there is no next try."""
    emulator.faults.add("http_error_before", GETS, count=None, skip=1)
    given = {"on_incomplete": choice, "wait_for_completion": choice == "keep", "deferrable": False}

    done = run(lambda: create(pre_execute=clears_faults(emulator), **given))

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


@remembers
def test_clearing_does_not_adopt_an_incomplete_campaign(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG]
) -> None:
    with new_dag() as dag:
        create(on_incomplete="cancel", retries=0, send_date="2030-01-01T00:00:00Z")
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


RECORD = {"version": 3, "mail_name": "spring", "incomplete": False, "attempted_at": None, "seen": False,
          "sends_at": None, "max_tries": 2}  # fmt: skip


@pytest.mark.parametrize(("record", "own", "incomplete", "sent", "cleared"), [
    (None, False, False, False, False),
    (RECORD, False, False, False, False),
    (RECORD | {"max_tries": 1}, False, False, False, True),
    (RECORD | {"incomplete": True}, True, True, False, False),
    (RECORD | {"attempted_at": 1.5}, True, False, False, False),
    (RECORD | {"seen": True, "sends_at": 1.5}, True, False, True, False),
    # What is not understood may mean anything.
    ({"version": 4, "what": "a later version wrote"}, True, True, True, True),
    ({"version": 3, "mail_name": "spring", "incomplete": False}, True, True, True, True),
    ("spring", True, True, True, True),
])  # fmt: skip
def test_what_is_stored(record: Any, own: bool, incomplete: bool, sent: bool, cleared: bool) -> None:
    store = StateStore()
    if record is not None:
        store.set(RECORD_KEY, record)
    state = creation_record(store, try_number=2, max_tries=2)
    known = (state.is_own, state.incomplete, state.was_sent(time.time()), state.cleared)
    assert known == (own, incomplete, sent, cleared)


@remembers
@pytest.mark.parametrize("choice", ["fail", "cancel"])
def test_a_store_that_cannot_be_written_prevents_nothing(
    run: Run, emulator: Emulator, caplog: pytest.LogCaptureFixture, choice: Any
) -> None:
    store = MortalStore(None)
    store.unavailable = range(100)

    def break_store(context: Any) -> None:
        context["task_state_store"] = store

    done = run(lambda: create(on_incomplete=choice, pre_execute=break_store, send_date="2030-01-01T00:00:00Z"))

    assert (done.state, done.tries, done.returned) == ("failed", 1, None)
    assert "the next try will take campaign 'spring' for complete" in caplog.text
    assert "the service kept the campaign 'spring'" in done.log
    assert emulator.campaigns()[0]["cancelled"] == (choice == "cancel")
