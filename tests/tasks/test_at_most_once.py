"""The record of a mailing, without a task: what it holds, and which rejections prove an earlier attempt.

That nobody is mailed twice or left out, whatever ends the tries, is shown by `tests/machines/test_sending.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailRejectedError,
)
from airflow_provider_mail.api.flows.batches import Chunk
from airflow_provider_mail.api.transactional import Recipient, SendMail
from tests.support.task_parts import Mailing, MailingState


class Killed(BaseException):
    """The worker dies."""


class Run:
    """The tries of a task: its service, which accepts what is sent unless it has an answer, and its stored records."""

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable
        self.sent: list[str] = []
        self.answers: list[BaseException | None] = []
        self.records: list[str] = []

    def send(self, request: Any) -> None:
        self.sent.append(request.unique_msg_id)
        if self.answers and (answer := self.answers.pop(0)) is not None:
            raise answer

    def read(self) -> Any:
        return json.loads(self.records[-1]) if self.records else None

    def write(self, record: dict[str, Any]) -> None:
        self.records.append(json.dumps(record))

    def attempt(
        self, *answers: BaseException | None, on_ambiguous: str = "fail", these: Any = None, **options: Any
    ) -> MailingState:
        """Make a try; the service responds with these in turn."""
        self.sent, self.answers = [], list(answers)
        mailing = Mailing(self, self, on_ambiguous, **options)  # type: ignore[arg-type]
        return mailing.send(chunks() if these is None else these)


def chunks(numbers: Sequence[int] = range(4)) -> list[Chunk]:
    """Requests with 1, 10, 100, ... recipients."""
    return [Chunk.of(number, letter(f"id-{number}"), 10**number) for number in numbers]


def letter(own_id: str) -> SendMail:
    to = Recipient(email="ada@example.com")
    return SendMail(subject="s", content="c", sender_mail="news@example.com", to=to, unique_msg_id=own_id)


def counts(state: MailingState) -> tuple[int, int, int, int]:
    return state.requests, state.recipients, state.unknown_requests, state.unknown_recipients


def rejected(message: str = "insufficient credits") -> MailError:
    return MailRejectedError("no", operation="/v5/x", code=400, service_message=message)


ALL = ["id-0", "id-1", "id-2", "id-3"]


KNOWN = ["uniqueMsgID id-1 was used before", "unique_msg_id already exists", "id-1: duplicate", "Unique Msg ID in use"]


@pytest.mark.parametrize("message", KNOWN)
def test_a_known_id_proves_the_attempt_before(message: str) -> None:
    run = Run()
    with pytest.raises(Killed):
        run.attempt(None, Killed())
    assert counts(run.attempt(rejected(message), on_ambiguous="resend")) == (4, 1111, 0, 0)
    assert run.sent == ALL[1:]
    assert counts(run.attempt()) == (4, 1111, 0, 0)


@pytest.mark.parametrize(
    ("own_id", "message", "own_ids"),
    [
        ("id-0", "uniqueMsgID id-0 is malformed", True),
        ("id-0", "the list was used before", True),
        ("id-0", "id-used is wrong", True),
        ("id-0", "", True),
        ("used before", "uniqueMsgID used before: malformed", True),
        ("id-0", "uniqueMsgID id-0 was used before", False),
    ],
    ids=["malformed", "another thing", "another id", "no words", "an id like a reason", "the user's id"],
)
def test_other_rejections_prove_nothing(own_id: str, message: str, own_ids: bool) -> None:
    run, these = Run(), [Chunk.of(0, letter(own_id), 1)]
    with pytest.raises(Killed):
        run.attempt(Killed(), these=these)
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(message), these=these, on_ambiguous="resend", own_ids=own_ids)


def test_a_known_id_proves_nothing_of_a_request_not_in_doubt() -> None:
    run = Run()
    for answers in ([None, rejected(KNOWN[0])], [rejected(KNOWN[0])]):
        with pytest.raises(MailRejectedError):
            run.attempt(*answers)
    assert counts(MailingState.parse(run.read())) == (1, 1, 0, 0)


EMPTY = MailingState.parse(None).model_dump()


@pytest.mark.parametrize(
    "record",
    [
        *({**EMPTY, **change} for change in ({"version": 2}, {"requests": -1}, {"requests": "1"}, {"requests": 1.5})),
        *({**EMPTY, **change} for change in ({"more": 1}, {"digest": None})),
        *({}, [1], "sent", 7, {"version": 1, "requests": 1}),
    ],
    ids=str,
)
def test_a_record_of_another_version_sends_nothing(record: Any) -> None:
    run = Run()
    run.write(record)
    with pytest.raises(MailConflictError, match="nothing was sent"):
        run.attempt()
    assert run.sent == []
