"""Transactional sends over several tries in Airflow: with and without a task state store.

What holds however the tries end is in `tests/machines/test_sending.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.api.transactional import SendMail
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.transactional import MailSendOperator
from mail_emulator import Emulator
from tests.support.changes import at_request, time_out_task
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import (
    AT_ONCE,
    DAY,
    HELLO,
    SENDS,
    SINGLE_RESULT,
    batch,
    batch_result,
    bodies,
    everybody,
    letters,
    mailed,
    records,
    remembers,
)


@remembers
def test_a_cleared_task_continues_after_a_rejection(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    emulator.settings.email_credits = 25
    with new_dag() as dag:
        batch(messages=letters(55), **AT_ONCE)
        MailSendOperator(task_id="single", to="ada@example.com", **HELLO | {"content": "<p>Hello</p>"})
    done = run(dag)
    assert (done.state, done.tries) == ("failed", 1)
    assert "insufficient email credits" in done.log
    assert "20 recipients in 2 requests were accepted" in done.log
    ((record, expires),) = records(done.result)
    assert (json.loads(record)["recipients"], expires, "@" in record) == (20, None, False)

    emulator.settings.email_credits = None
    for _ in range(2):  # a task that has succeeded sends nothing more
        for task_id in (TASK, "single"):
            assert done.result.clear_and_run(task_id).state == "success"

    assert mailed(emulator) == everybody(range(55)) + Counter(["ada@example.com"])
    ids = [body["uniqueMsgID"] for body in bodies(emulator) if "messageVersions" in body]
    assert (len(ids), len(set(ids)), ids[2] == ids[3]) == (7, 6, True)
    assert done.result.xcom(TASK) == batch_result(6, 55)
    assert done.result.xcom("single") == SINGLE_RESULT


@remembers
def test_an_id_that_the_user_gave_proves_nothing(run: Run, emulator: Emulator) -> None:
    emulator.change_settings(duplicate_unique_msg_id_code=400)
    emulator.faults.add("close_before", SENDS, skip=1)
    taken = {"subject": "x", "content": "x", "to": {"email": "x@example.com"}, "unique_msg_id": "mine"}
    MailHook().send(SendMail(sender_mail="news@example.com", **taken))
    single = {**HELLO, "content": "<p>Hello</p>", "to": "ada@example.com", "unique_msg_id": "mine"}

    done = run(lambda: MailSendOperator(task_id=TASK, **single, on_ambiguous="resend", **AT_ONCE))

    assert done.state == "failed"
    assert "was used before" in done.log
    assert mailed(emulator) == Counter(["x@example.com"])


# --- without a task state store, as below Airflow 3.3 ---


def without_store(**arguments: Any) -> Any:
    """A task for 25 people, in requests of ten."""
    remove = {"pre_execute": lambda context: context.pop("task_state_store", None)}
    return batch(**{"messages": letters(25)} | remove | AT_ONCE | arguments)


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_without_a_store_a_second_try_sends_nothing(run: Run, emulator: Emulator, choice: str) -> None:
    with at_request(emulator, SENDS, 2, time_out_task):
        done = run(lambda: without_store(on_ambiguous=choice, execution_timeout=DAY))

    assert (done.state, done.tries) == ("failed", 2)
    assert "this Airflow has no task state store" in done.log
    assert "this is try 2, and nothing was sent in it" in done.log
    assert emulator.journal.count(SENDS) == 2


def test_without_a_store_a_temporary_failure_is_final(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("too_many_requests", SENDS, skip=1, count=None, retry_after=100)

    done = run(without_store)

    assert (done.state, done.tries) == ("failed", 1)
    assert "too many requests" in done.log
    assert "10 recipients in 1 requests were accepted" in done.log
    assert mailed(emulator) == everybody(range(10))


@pytest.mark.parametrize(("code", "twice"), [(None, [range(20)]), (400, [])], ids=["any id", "known ids rejected"])
def test_without_a_store_resend_sends_everything(
    run: Run, emulator: Emulator, code: int | None, twice: list[range]
) -> None:
    emulator.change_settings(duplicate_unique_msg_id_code=code)
    emulator.faults.add("close_after", SENDS, skip=1)

    done = run(lambda: without_store(on_ambiguous="resend"))

    assert (done.state, done.tries) == ("success", 2)
    assert mailed(emulator) == everybody(range(25), *twice)
    assert done.returned == batch_result(3, 25)
    assert "The next try sends everything again" in done.log
