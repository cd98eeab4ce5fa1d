"""Transactional sends where the task state store is absent, cannot be written, or holds what is not understood."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail._task import state
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.transactional import TASK_STATE_KEY, MailSendBatchOperator
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import (
    AT_ONCE,
    HELLO,
    MINUTE,
    SENDS,
    change_retries,
    everybody,
    letters,
    mailed,
    records,
    remembers,
    told,
)
from tests.tasks.waiting import timed_out_when, under_way


class Meddled(MailSendBatchOperator):
    """Finds its store as `meddle` has left it."""

    def __init__(self, *, meddle: Callable[[Any], None], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.meddle = meddle

    def execute(self, context: Any) -> dict[str, Any]:
        self.meddle(context)
        return super().execute(context)


def meddled(meddle: Callable[[Any], None], **arguments: Any) -> Meddled:
    return Meddled(
        **{"task_id": TASK, "versions_per_request": 10, "messages": letters(25), "meddle": meddle}
        | {**HELLO, **AT_ONCE, **arguments}
    )


GOOD = {"version": 1, "requests": 1, "recipients": 10, "unknown_requests": 0, "unknown_recipients": 0}


@remembers
@pytest.mark.parametrize(
    "value",
    [
        {"version": 0, "done": 2},
        {"version": 2, "requests": 1, "recipients": 10, "pages": []},
        {"version": 1, "requests": 1},
        GOOD | {"requests": "1", "digest": "", "under_way": None},
        GOOD | {"requests": -1, "digest": "", "under_way": None},
        GOOD | {"requests": 1.5, "digest": "", "under_way": None},
        GOOD | {"digest": None, "under_way": None},
        GOOD | {"digest": "", "under_way": None, "surprise": 1},
        {},
        [1],
        "sent",
        7,
    ],
    ids=str,
)
def test_a_record_of_another_version_is_not_guessed_at(run: Run, emulator: Emulator, value: Any) -> None:
    done = run(lambda: meddled(lambda context: context["task_state_store"].set(TASK_STATE_KEY, value)))

    assert (done.state, done.tries) == ("failed", 1)
    assert "task state: the record of what an earlier try has sent" in done.log
    assert emulator.journal.count() == 0
    assert [json.loads(record) for record, _ in records(done.result)] == [value]


@remembers
@pytest.mark.parametrize(
    "value",
    [
        GOOD | {"digest": "", "under_way": None},
        GOOD | {"digest": "0" * 32, "under_way": None},
        GOOD | {"requests": 0, "recipients": 0, "digest": "", "under_way": "0" * 32},
        GOOD | {"requests": 99, "digest": "0" * 32, "under_way": None},
        GOOD | {"requests": 10**30, "unknown_requests": 10**30, "digest": "", "under_way": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("choice", ["fail", "resend", "skip"])
def test_a_record_that_tells_of_other_requests_is_not_believed(
    run: Run, emulator: Emulator, value: Any, choice: str
) -> None:
    done = run(
        lambda: meddled(lambda context: context["task_state_store"].set(TASK_STATE_KEY, value), on_ambiguous=choice)
    )

    assert (done.state, done.tries) == ("failed", 1)
    assert "messages: these differ from what an earlier try began to send" in done.log
    assert emulator.journal.count() == 0


def test_without_a_state_store_a_first_try_sends_and_says_what_it_cannot_know(run: Run, emulator: Emulator) -> None:
    done = run(lambda: meddled(lambda context: context.pop("task_state_store", None)))

    assert (done.state, done.tries) == ("success", 1)
    assert mailed(emulator) == everybody(range(25))
    assert done.returned == told(3, 25)
    assert "this Airflow has no task state store" in done.log


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_without_a_state_store_nothing_is_sent_in_a_second_try(run: Run, emulator: Emulator, choice: str) -> None:
    emulator.faults.add("delay", SENDS, skip=1, seconds=60)

    with timed_out_when(under_way(emulator, SENDS, 1)):
        done = run(
            lambda: meddled(
                lambda context: context.pop("task_state_store", None), on_ambiguous=choice, execution_timeout=MINUTE
            )
        )

    assert (done.state, done.tries) == ("failed", 2)
    assert "this is try 2, and nothing was sent in it" in done.log
    assert emulator.journal.count(SENDS) == 2


def test_without_a_state_store_a_failure_is_final(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_retries(monkeypatch, total_seconds=0.0)
    emulator.faults.add("too_many_requests", SENDS, skip=1, retry_after=1)

    done = run(lambda: meddled(lambda context: context.pop("task_state_store", None)))

    assert (done.state, done.tries) == ("failed", 1)
    assert "too many requests" in done.log
    assert "10 recipients in 1 requests were accepted" in done.log
    assert mailed(emulator) == everybody(range(10))


def test_without_a_state_store_resend_sends_everything(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("close_before", SENDS, skip=1)

    done = run(lambda: meddled(lambda context: context.pop("task_state_store", None), on_ambiguous="resend"))

    assert (done.state, done.tries) == ("success", 2)
    assert mailed(emulator) == everybody(range(25), range(10))


def test_without_a_state_store_resend_goes_on_behind_what_the_service_has(run: Run, emulator: Emulator) -> None:
    emulator.change_settings(duplicate_unique_msg_id_code=400)
    emulator.faults.add("close_after", SENDS, skip=1)

    done = run(lambda: meddled(lambda context: context.pop("task_state_store", None), on_ambiguous="resend"))

    assert (done.state, done.tries) == ("success", 2)
    assert mailed(emulator) == everybody(range(25))
    assert done.returned == told(3, 25)
    assert "The next try sends everything again" in done.log


def away() -> Exception:
    """What the task gets when the API server does not answer it."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"message": "away"}))


class Failing:
    """A task state store that cannot be read or written for a while.

    :param failures: one for each use to come: whether it fails.
    """

    def __init__(
        self,
        store: Any,
        *,
        gets: list[bool] | None = None,
        sets: list[bool] | None = None,
        error: Callable[[], Exception] = away,
    ) -> None:
        self._store = store
        self._gets = [] if gets is None else gets
        self._sets = [] if sets is None else sets
        self._error = error

    def get(self, *arguments: Any) -> Any:
        if self._gets and self._gets.pop(0):
            raise self._error()
        return self._store.get(*arguments)

    def set(self, *arguments: Any, **options: Any) -> None:
        if self._sets and self._sets.pop(0):
            raise self._error()
        self._store.set(*arguments, **options)


def failing(**failures: Any) -> Callable[[Any], None]:
    def meddle(context: Any) -> None:
        context["task_state_store"] = Failing(context["task_state_store"], **failures)

    return meddle


@remembers
def test_a_short_absence_of_the_state_store_is_waited_for(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "PAUSES", (0.01, 0.01))
    failures = [False, True, True, False, True]

    done = run(lambda: meddled(failing(sets=failures)))

    assert (done.state, done.tries) == ("success", 1)
    assert failures == []
    assert mailed(emulator) == everybody(range(25))


@remembers
@pytest.mark.parametrize("times", [1, 99])
def test_nothing_is_sent_by_who_cannot_read_what_was_sent(run: Run, emulator: Emulator, times: int) -> None:
    done = run(lambda: meddled(failing(gets=[True] * times)))

    assert (done.state, done.tries) == (("success", 2) if times == 1 else ("failed", 3))
    assert mailed(emulator) == (everybody(range(25)) if times == 1 else everybody())


@remembers
@pytest.mark.parametrize("error", [ValueError("too large"), TypeError("not JSON"), RuntimeError("disk full")], ids=repr)
def test_a_store_that_takes_nothing_more(run: Run, emulator: Emulator, error: Exception) -> None:
    """Whatever it says: what was accepted is known, what was under way is in doubt, and nobody is mailed twice."""
    done = run(lambda: meddled(failing(sets=[False, True] + [False] * 9, error=lambda: error)))

    assert str(error) in done.log
    assert "Ended early: 10 recipients in 1 requests were accepted" in done.log
    assert (done.state, done.tries) == ("failed", 2)
    assert "request 0 (10 recipients" in done.log
    assert mailed(emulator) == everybody(range(10))


@remembers
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_nothing_is_sent_that_cannot_be_written_down(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(state, "PAUSES", ())

    done = run(lambda: meddled(failing(sets=[False] * before + [True] * 10)))

    assert done.state == "failed"
    assert emulator.journal.count(SENDS) == before
    assert mailed(emulator) == everybody(range(min(25, 10 * before)))
    assert done.tries == (3 if before == 0 else 2)
