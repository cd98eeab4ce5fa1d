"""`MailRetryPolicy` in tasks of any kind: what is repeated, when, and what never."""

from __future__ import annotations

import datetime
import importlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import task

from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAuthError,
    MailConflictError,
    MailConnectError,
    MailRateLimitError,
    MailServerError,
    MailValidationError,
)
from airflow_provider_mail.emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import SENDS, change_retries

has_policies = pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="Airflow 3.3 brought retry policies")

LONG = datetime.timedelta(hours=1)
AT_ONCE = datetime.timedelta(0)


def sends_one() -> None:
    from airflow_provider_mail.api.transactional import SendMail
    from airflow_provider_mail.hooks.mail import MailHook

    MailHook().send(
        SendMail(sender_mail="news@example.com", to={"email": "ada@example.com"}, subject="Hello", content="Hello")
    )


def reads() -> None:
    from airflow_provider_mail.api.lists import GetLists
    from airflow_provider_mail.hooks.mail import MailHook

    MailHook().send(GetLists())


def policed(work: Callable[[], Any], *, retry_delay: datetime.timedelta) -> Callable[[], Any]:
    """A task of the user's own with the policy."""
    from airflow_provider_mail.retry_policy import MailRetryPolicy

    def make() -> Any:
        return task(task_id=TASK, retries=2, retry_delay=retry_delay, retry_policy=MailRetryPolicy())(work)()

    return make


@has_policies
def test_refused_credentials_fail_at_once(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(password="wrong")

    done = run(policed(reads, retry_delay=AT_ONCE))

    assert (done.state, done.tries) == ("failed", 1)
    assert emulator.journal.count("lists/get") == 1


@has_policies
@pytest.mark.parametrize("kind", ["close_before", "close_after", "http_error_after"])
def test_a_send_with_an_unknown_outcome_is_not_repeated(run: Run, emulator: Emulator, kind: str) -> None:
    emulator.faults.add(kind, SENDS)

    done = run(policed(sends_one, retry_delay=AT_ONCE))

    assert (done.state, done.tries) == ("failed", 1)
    assert emulator.journal.count(SENDS) == 1


@has_policies
def test_what_was_not_carried_out_is_repeated(run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    change_retries(monkeypatch, attempts=1)
    emulator.faults.add("http_error_before", "lists/get", count=2, status=503)

    done = run(policed(reads, retry_delay=AT_ONCE))

    assert (done.state, done.tries) == ("success", 3)
    assert emulator.journal.count("lists/get") == 3


@has_policies
def test_the_service_is_waited_for_as_long_as_it_asks(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_retries(monkeypatch, retry_after_cap_seconds=1)
    emulator.faults.add("too_many_requests", SENDS, retry_after=2)
    begun = time.monotonic()

    done = run(policed(sends_one, retry_delay=LONG))

    assert (done.state, done.tries) == ("success", 2)
    first, second = emulator.journal.entries(SENDS)
    assert 2000 <= second["real_ms"] - first["real_ms"] < 1000 * LONG.total_seconds()
    assert time.monotonic() - begun < LONG.total_seconds()
    assert [mail["kind"] for mail in emulator.mails_to("ada@example.com")] == ["transactional"]


@has_policies
def test_errors_of_others_are_left_to_the_task(run: Run) -> None:
    tries = []

    def fails() -> None:
        tries.append(1)
        raise LookupError("something else")

    done = run(policed(fails, retry_delay=AT_ONCE))

    assert (done.state, done.tries, len(tries)) == ("failed", 3, 3)


def _caused_by(error: Exception) -> Exception:
    try:
        try:
            raise error
        except Exception as inner:
            raise RuntimeError("the job failed") from inner
    except RuntimeError as outer:
        return outer


def _while_handling(error: Exception, *, suppressed: bool) -> Exception:
    try:
        try:
            raise error
        except Exception:
            if suppressed:
                raise RuntimeError("something else") from None
            raise RuntimeError("the job failed")  # noqa: B904
    except RuntimeError as outer:
        return outer


@has_policies
@pytest.mark.parametrize(
    ("error", "action", "seconds"),
    [
        (MailAuthError("401"), "fail", None),
        (MailValidationError("to"), "fail", None),
        (MailConflictError("name"), "fail", None),
        (MailAmbiguousSendError("lost"), "fail", None),
        (MailConnectError("refused"), "default", None),
        (MailServerError("503"), "default", None),
        (MailServerError("503", retry_after=7), "retry", 7),
        (MailRateLimitError("429"), "default", None),
        (MailRateLimitError("429", retry_after=0), "retry", 0),
        (MailRateLimitError("429", retry_after=30.5), "retry", 30.5),
        (MailRateLimitError("429", retry_after=9e8), "retry", 86_400),
        (_caused_by(MailAuthError("401")), "fail", None),
        (_while_handling(MailAuthError("401"), suppressed=False), "fail", None),
        (_while_handling(MailAuthError("401"), suppressed=True), "default", None),
        (ValueError("other"), "default", None),
    ],
    ids=repr,
)
def test_each_error_is_decided_in_one_place(error: Exception, action: str, seconds: float | None) -> None:
    from airflow_provider_mail.retry_policy import MailRetryPolicy

    decision = MailRetryPolicy().evaluate(error, try_number=1, max_tries=3)

    assert decision.action.value == action
    assert decision.retry_delay == (None if seconds is None else datetime.timedelta(seconds=seconds))


@has_policies
def test_it_travels_with_the_dag() -> None:
    from airflow_provider_mail.retry_policy import MailRetryPolicy

    assert isinstance(MailRetryPolicy.deserialize(MailRetryPolicy().serialize()), MailRetryPolicy)


@pytest.mark.skipif(AIRFLOW_VERSION >= (3, 3), reason="has retry policies")
def test_older_versions_say_what_is_missing() -> None:
    with pytest.raises(ImportError, match=r"MailRetryPolicy needs Airflow 3\.3 or later"):
        importlib.import_module("airflow_provider_mail.retry_policy")
