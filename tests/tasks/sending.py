"""What the tests of mail share: tasks that send, what the service was sent, and a task that runs once more."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider_mail.api.config import RetrySettings
from airflow_provider_mail.hooks.connection import client_config
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.transactional import TASK_STATE_KEY, MailSendBatchOperator
from mail_emulator import Emulator
from mail_emulator.responses import Response
from tests.support.changes import around_requests
from tests.support.dags import AIRFLOW_VERSION, RunResult
from tests.tasks.conftest import TASK

SENDS = "transactional/mail/sends_customised"
DAY = datetime.timedelta(days=1)
AT_ONCE = {"retries": 2, "retry_delay": datetime.timedelta(0)}

remembers = pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="needs the task state store of Airflow 3.3")

CAMPAIGN: dict[str, Any] = {
    "mail_name": "spring",
    "sender_mail": "news@example.com",
    "subject": "Hi",
    "content": "<p>Hi</p>",
    "send_list_names": ["newsletter"],
}
HELLO = {"sender_mail": "news@example.com", "subject": "Hello", "content": "{% raw %}<p>Hello {{name}}</p>{% endraw %}"}


def batch_result(
    requests: int, recipients: int, unknown_requests: int = 0, unknown_recipients: int = 0, **batch: int
) -> dict[str, Any]:
    """What a task returns that sends a batch."""
    accepted = {"requests": requests, "recipients": recipients, "sandbox": False, "duplicate_recipients": 0}
    return {**accepted, "unknown_requests": unknown_requests, "unknown_recipients": unknown_recipients, **batch}


SINGLE_RESULT = {name: value for name, value in batch_result(1, 1).items() if name != "duplicate_recipients"}
"""What a task returns that sends one message."""


def campaign(**arguments: Any) -> MailCreateCampaignOperator:
    """A task that creates a campaign."""
    return MailCreateCampaignOperator(**{"task_id": TASK} | CAMPAIGN | arguments)


def address(number: int) -> str:
    return f"user{number}@example.com"


def letters(count: int, start: int = 0) -> list[dict[str, Any]]:
    """One message for each of so many people."""
    return [{"to": address(number), "params": {"name": f"N{number}"}} for number in range(start, start + count)]


def batch(**arguments: Any) -> MailSendBatchOperator:
    """A task that sends; in requests of ten by default."""
    return MailSendBatchOperator(**{"task_id": TASK, "versions_per_request": 10} | HELLO | arguments)


def bodies(emulator: Emulator) -> list[Any]:
    """What was sent, request by request, whatever became of it."""
    return [entry["body"] for entry in emulator.journal.entries(SENDS)]


def mailed(emulator: Emulator) -> Counter[str]:
    """How many mails each address got."""
    return Counter(person["email"] for message in emulator.messages() for person in message["recipients"])


def everybody(*numbers: range) -> Counter[str]:
    """One mail for each of these."""
    return Counter(address(number) for some in numbers for number in some)


def change_retries(monkeypatch: pytest.MonkeyPatch, **rule: Any) -> None:
    """Let the clients of hooks made from now on have another patience."""

    def impatient(connection: Any) -> Any:
        return client_config(connection).model_copy(update={"retry": RetrySettings(**rule)})

    monkeypatch.setattr("airflow_provider_mail.hooks.mail.client_config", impatient)


@contextmanager
def proxy(emulator: Emulator, status: int, most: int = 0) -> Iterator[None]:
    """What stands before the service answers itself, unless a request has at most so many messages."""

    def around(perform: Any) -> Response:
        if len(perform.args[0].body.get("messageVersions", [{}])) <= most:
            return perform()
        return Response(status=status, text="<html>no</html>", content_type="text/html")

    with around_requests(emulator, SENDS, around):
        yield


def records(result: RunResult, task_id: str = TASK) -> list[tuple[str, Any]]:
    """What a task has written down of its sends, and when that expires."""
    return [stored for key, stored in result.state_store(task_id).items() if key == TASK_STATE_KEY]
