"""Transactional sends over several tries: what the task remembers, and what it does where it cannot know."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.api.transactional import SendMail
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.operators.transactional import MailSendOperator
from tests.support.processes import free_port
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import (
    AT_ONCE,
    HELLO,
    MINUTE,
    SENDS,
    address,
    batch,
    bodies,
    change_retries,
    everybody,
    letters,
    mailed,
    records,
    remembers,
    told,
    told_of_one,
)
from tests.tasks.waiting import timed_out_when, under_way

LOST = ["close_before", "close_after", "http_error_before", "http_error_after", "html_after", "cut_json"]


@remembers
@pytest.mark.slow
def test_twenty_thousand_recipients_take_one_small_record(run: Run, emulator: Emulator) -> None:
    people = [[address(20 * number + place) for place in range(20)] for number in range(1000)]

    done = run(lambda: batch(messages=lambda: [{"to": to} for to in people], versions_per_request=100))

    assert done.state == "success"
    assert emulator.journal.count(SENDS) == 10
    assert done.returned == told(10, 20_000)
    ((record, expires),) = records(done.result)
    assert len(record) < 500
    assert json.loads(record)["recipients"] == 20_000
    assert expires is None


@remembers
def test_what_was_refused_in_the_middle_goes_on_there(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG]
) -> None:
    emulator.settings.email_credits = 25
    with new_dag() as dag:
        batch(messages=letters(55), **AT_ONCE)
    done = run(dag)
    assert (done.state, done.tries) == ("failed", 1)
    assert "insufficient email credits" in done.log
    assert "20 recipients in 2 requests were accepted" in done.log
    assert mailed(emulator) == everybody(range(20))

    emulator.settings.email_credits = None
    cleared = done.result.clear_and_run(TASK)

    assert (cleared.state, cleared.try_number) == ("success", 2)
    assert mailed(emulator) == everybody(range(55))
    ids = [body["uniqueMsgID"] for body in bodies(emulator)]
    assert len(ids) == 7
    assert len(set(ids)) == 6
    assert ids[2] == ids[3]
    assert done.result.xcom(TASK) == told(6, 55)


@remembers
def test_a_finished_mailing_is_not_sent_again(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    with new_dag() as dag:
        batch(messages=letters(15))
        MailSendOperator(task_id="single", to="ada@example.com", **HELLO | {"content": "<p>Hello</p>"})
    done = run(dag)
    assert emulator.journal.count(SENDS) == 3

    for task_id in (TASK, "single"):
        assert done.result.clear_and_run(task_id).state == "success"

    assert emulator.journal.count(SENDS) == 3
    assert done.result.xcom(TASK) == told(2, 15)
    assert done.result.xcom("single") == told_of_one()
    assert mailed(emulator) == everybody(range(15)) + Counter(["ada@example.com"])


@pytest.mark.parametrize("kind", LOST)
def test_an_unknown_outcome_stops_the_task_at_once(run: Run, emulator: Emulator, kind: str) -> None:
    emulator.faults.add(kind, SENDS, skip=1)

    done = run(lambda: batch(messages=letters(35), **AT_ONCE))

    assert (done.state, done.tries) == ("failed", 1)
    assert emulator.journal.count(SENDS) == 2
    lost = bodies(emulator)[1]["uniqueMsgID"]
    assert f"request 1 (10 recipients, uniqueMsgID {lost}) got no clear response" in done.log
    assert "10 recipients in 1 requests were accepted" in done.log
    assert "on_ambiguous='resend'" in done.log
    processed = len(emulator.journal.processed(SENDS))
    assert processed == (1 if kind.endswith("before") else 2)
    assert mailed(emulator) == everybody(range(10 * processed))


@remembers
@pytest.mark.parametrize("kind", ["close_before", "close_after"])
@pytest.mark.parametrize("choice", ["resend", "skip"])
def test_after_an_unknown_outcome_the_user_decides(
    run: Run,
    emulator: Emulator,
    new_dag: Callable[..., DAG],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    choice: str,
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_ON_AMBIGUOUS", "fail")
    emulator.faults.add(kind, SENDS, skip=1)
    with new_dag() as dag:
        batch(messages=letters(35), on_ambiguous="{{ var.value.on_ambiguous }}")
    done = run(dag)
    assert done.state == "failed"
    again = done.result.clear_and_run(TASK)
    assert again.state == "failed"
    assert emulator.journal.count(SENDS) == 2

    monkeypatch.setenv("AIRFLOW_VAR_ON_AMBIGUOUS", choice)
    assert done.result.clear_and_run(TASK).state == "success"

    sent = kind == "close_after"
    if choice == "resend":
        assert mailed(emulator) == everybody(range(35), *([range(10, 20)] if sent else []))
        assert done.result.xcom(TASK) == told(4, 35)
    else:
        assert mailed(emulator) == everybody(range(10), *([range(10, 20)] if sent else []), range(20, 35))
        assert done.result.xcom(TASK) == told(3, 25, 1, 10)


@remembers
def test_what_is_in_doubt_stays_so_when_sending_it_again_is_refused(
    run: Run, emulator: Emulator, new_dag: Callable[..., DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_ON_AMBIGUOUS", "resend")
    emulator.faults.add("close_after", SENDS, skip=1)
    emulator.faults.add("code_before", SENDS, skip=1, code=403, message="no credits")
    with new_dag() as dag:
        batch(messages=letters(35), on_ambiguous="{{ var.value.on_ambiguous }}", **AT_ONCE)
    done = run(dag)
    assert (done.state, done.tries) == ("failed", 2)
    assert "no credits" in done.log

    monkeypatch.setenv("AIRFLOW_VAR_ON_AMBIGUOUS", "skip")
    assert done.result.clear_and_run(TASK).state == "success"

    assert mailed(emulator) == everybody(range(35))
    assert done.result.xcom(TASK) == told(3, 25, 1, 10)


@remembers
@pytest.mark.parametrize("choice", ["fail", "resend", "skip"])
def test_a_request_that_was_under_way_when_the_task_was_ended(run: Run, emulator: Emulator, choice: str) -> None:
    emulator.faults.add("delay_answer", SENDS, skip=2, seconds=60)

    with timed_out_when(lambda: len(emulator.journal.processed(SENDS)) == 3):
        done = run(lambda: batch(messages=letters(35), on_ambiguous=choice, execution_timeout=MINUTE, **AT_ONCE))

    assert "AirflowTaskTimeout" in done.log
    under_way = bodies(emulator)[2]["uniqueMsgID"]
    if choice == "fail":
        assert (done.state, done.tries) == ("failed", 2)
        assert f"request 2 (10 recipients, uniqueMsgID {under_way}) was in flight when an earlier try ended" in done.log
        assert mailed(emulator) == everybody(range(30))
    else:
        assert (done.state, done.tries) == ("success", 2)
        twice = [range(20, 30)] if choice == "resend" else []
        assert mailed(emulator) == everybody(range(35), *twice)
        assert done.returned == (told(4, 35) if choice == "resend" else told(3, 25, 1, 10))


@remembers
@pytest.mark.parametrize("code", [400, 409])
def test_a_refusal_that_proves_the_delivery_lets_the_rest_go_on(
    run: Run, emulator: Emulator, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    emulator.change_settings(duplicate_unique_msg_id_code=code)
    emulator.faults.add("close_after", SENDS, skip=1)

    done = run(lambda: batch(messages=letters(35), on_ambiguous="resend", **AT_ONCE))

    assert (done.state, done.tries) == ("success", 2)
    assert mailed(emulator) == everybody(range(35))
    assert done.returned == told(4, 35)
    assert "is known: it was accepted in an earlier try" in caplog.text


@remembers
def test_an_id_of_somebody_else_s_proves_nothing(run: Run, emulator: Emulator) -> None:
    emulator.change_settings(duplicate_unique_msg_id_code=400)
    emulator.faults.add("close_before", SENDS, skip=1)
    taken = {"subject": "x", "content": "x", "to": {"email": "x@example.com"}, "unique_msg_id": "mine"}
    MailHook().send(SendMail(sender_mail="news@example.com", **taken))
    given = {**HELLO, "to": "ada@example.com", "unique_msg_id": "mine", "on_ambiguous": "resend"}

    done = run(lambda: MailSendOperator(task_id=TASK, **given, **AT_ONCE))

    assert done.state == "failed"
    assert "was used before" in done.log
    assert mailed(emulator) == Counter(["x@example.com"])


@remembers
@pytest.mark.parametrize("words", ["uniqueMsgID is malformed", "recipient exists already", ""])
def test_another_refusal_proves_nothing(run: Run, emulator: Emulator, words: str) -> None:
    emulator.faults.add("close_before", SENDS, skip=1)
    emulator.faults.add("code_before", SENDS, skip=1, code=400, message=words)

    done = run(lambda: batch(messages=letters(35), on_ambiguous="resend", **AT_ONCE))

    assert (done.state, done.tries) == ("failed", 2)
    assert mailed(emulator) == everybody(range(10))


@remembers
def test_what_is_going_to_be_sent_again_is_not_said_not_to_be(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("close_after", SENDS)

    done = run(lambda: batch(messages=letters(5), on_ambiguous="resend", **AT_ONCE))

    assert "The next try sends it again" in done.log
    assert "not sent again" not in done.log


@remembers
def test_resend_sends_only_that_request_again(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("close_after", SENDS, skip=1, count=2)

    done = run(lambda: batch(messages=letters(35), on_ambiguous="resend", **AT_ONCE))

    assert (done.state, done.tries) == ("success", 3)
    assert mailed(emulator) == everybody(range(35), range(10, 20), range(10, 20))
    assert len({body["uniqueMsgID"] for body in bodies(emulator)}) == 4


def test_too_many_requests_are_waited_for(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("too_many_requests", SENDS, skip=1, count=2, retry_after=1)

    done = run(lambda: batch(messages=letters(35), **AT_ONCE))

    assert (done.state, done.tries) == ("success", 1)
    assert [entry["code"] for entry in emulator.journal.entries(SENDS)] == [200, 429, 429, 200, 200, 200]
    first, second = (entry["real_ms"] for entry in emulator.journal.entries(SENDS)[1:3])
    assert second - first >= 1000
    assert mailed(emulator) == everybody(range(35))


@remembers
def test_a_service_that_is_not_reached_costs_nobody_a_mail(
    run: Run, emulator: Emulator, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_retries(monkeypatch, attempts=1)
    nobody = json.dumps({"conn_type": "mail", "host": f"http://127.0.0.1:{free_port()}", "password": "key"})
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", nobody)
    tries = []

    def messages() -> Any:
        if tries:
            connect()
        tries.append(1)
        return letters(25)

    done = run(lambda: batch(messages=messages, **AT_ONCE))

    assert (done.state, done.tries) == ("success", 2)
    assert "cannot be reached: nothing listens there" in done.log
    assert mailed(emulator) == everybody(range(25))


class Changing:
    """Messages that are others in the second try."""

    def __init__(self, *tries: list[dict[str, Any]]) -> None:
        self._tries = iter(tries)

    def __call__(self) -> list[dict[str, Any]]:
        return next(self._tries)


@remembers
@pytest.mark.parametrize(
    "second",
    [
        letters(35, start=1),
        [*letters(5), *letters(1, start=99), *letters(29, start=6)],
        letters(9),
        letters(10),
        letters(15),
        letters(35)[::-1],
    ],
    ids=["moved", "one other", "fewer than sent", "the open one gone", "the open one shorter", "reversed"],
)
@pytest.mark.parametrize("choice", ["resend", "skip"])
def test_other_messages_than_those_of_an_earlier_try_are_refused(
    run: Run, emulator: Emulator, second: list[dict[str, Any]], choice: str
) -> None:
    emulator.faults.add("delay", SENDS, skip=1, seconds=60)
    changing = Changing(letters(35), second)

    with timed_out_when(under_way(emulator, SENDS, 1)):
        done = run(lambda: batch(messages=changing, on_ambiguous=choice, execution_timeout=MINUTE, **AT_ONCE))

    assert (done.state, done.tries) == ("failed", 2)
    assert "messages: these differ from what an earlier try began to send (10 recipients in 1 requests" in done.log
    assert emulator.journal.count(SENDS) == 2


@remembers
def test_what_was_not_sent_yet_may_be_mended(run: Run, emulator: Emulator, new_dag: Callable[..., DAG]) -> None:
    emulator.faults.add("code_before", SENDS, skip=2, code=400, message="recipient 20 is not welcome")
    changing = Changing(letters(35), [*letters(20), *letters(14, start=21), *letters(2, start=50)])
    with new_dag() as dag:
        batch(messages=changing)
    done = run(dag)
    assert done.state == "failed"

    assert done.result.clear_and_run(TASK).state == "success"

    assert mailed(emulator) == everybody(range(20), range(21, 35), range(50, 52))
