"""`MailRetryPolicy` in tasks of any kind: what is repeated, when, and what never."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable
from contextlib import suppress
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
from airflow_provider_mail.api.transactional import SendMail
from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator
from tests.support.dags import AIRFLOW_VERSION
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import SENDS, change_retries

has_policies = pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="Airflow 3.3 brought retry policies")
LISTS = "lists/get"
LETTER = {"sender_mail": "news@example.com", "to": {"email": "ada@example.com"}, "subject": "Hi", "content": "Hi"}


def send() -> None:
    MailHook().send(SendMail(**LETTER))


def policed(work: Callable[[], Any], delay: datetime.timedelta = datetime.timedelta(seconds=50)) -> Callable[[], Any]:
    """A task of the user's own with the policy."""
    from airflow_provider_mail.retry_policy import MailRetryPolicy

    return lambda: task(task_id=TASK, retries=2, retry_delay=delay, retry_policy=MailRetryPolicy())(work)()


@has_policies
def test_a_send_with_an_unknown_outcome_is_not_repeated(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("http_error_after", SENDS)
    done = run(policed(send))
    assert (done.state, done.tries, emulator.journal.count(SENDS)) == ("failed", 1, 1)


@has_policies
def test_the_next_try_waits_as_long_as_the_service_asks(
    run: Run, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_retries(monkeypatch, retry_after_cap_seconds=1)
    emulator.faults.add("too_many_requests", SENDS, retry_after=45)
    done = run(policed(send, datetime.timedelta(days=1)))
    assert (done.state, done.tries) == ("success", 2)
    first, second = emulator.journal.entries(SENDS)
    assert 45_000 <= second["real_ms"] - first["real_ms"] < 3_600_000
    assert [mail["kind"] for mail in emulator.mails_to("ada@example.com")] == ["transactional"]


def raised_with(error: Exception, link: str) -> Exception:
    """An error of a job, which another one caused, or during whose handling it was raised."""
    other = RuntimeError("the job failed")
    with suppress(RuntimeError):
        try:
            raise error
        except Exception as inner:
            if link == "context":
                raise other  # noqa: B904
            raise other from (inner if link == "cause" else None)
    return other


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
        (raised_with(MailAuthError("401"), "cause"), "fail", None),
        (raised_with(MailAuthError("401"), "context"), "fail", None),
        (raised_with(MailAuthError("401"), "suppressed"), "default", None),
        (ValueError("other"), "default", None),
    ],
    ids=repr,
)
def test_the_decision_about_each_error(error: Exception, action: str, seconds: float | None) -> None:
    from airflow_provider_mail.retry_policy import MailRetryPolicy

    policy = MailRetryPolicy.deserialize(MailRetryPolicy().serialize())  # as it travels with the DAG
    assert isinstance(policy, MailRetryPolicy)
    decision = policy.evaluate(error, try_number=1, max_tries=3)
    assert decision.action.value == action
    assert decision.retry_delay == (None if seconds is None else datetime.timedelta(seconds=seconds))


@pytest.mark.skipif(AIRFLOW_VERSION >= (3, 3), reason="has retry policies")
def test_older_versions_say_what_is_missing() -> None:
    with pytest.raises(ImportError, match=r"MailRetryPolicy needs Airflow 3\.3 or later"):
        importlib.import_module("airflow_provider_mail.retry_policy")
