"""The stored state of a mailing, without a task: what each try sends, what it records, and where it stops.

Tries that die, fail and are repeated in any order are in `tests/machines/test_sending.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_mail.api.errors import (
    MailAmbiguousSendError,
    MailAnswerLostError,
    MailConflictError,
    MailError,
    MailRejectedError,
)
from airflow_provider_mail.api.flows.batches import Chunk
from airflow_provider_mail.api.transactional import Recipient, SendMail
from tests.support.task_parts import Mailing, MailingState

ALL = ["id-0", "id-1", "id-2", "id-3"]


class Killed(BaseException):
    """The worker dies."""


class Run:
    """The tries of a task; the service accepts what is sent unless it has another response."""

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable
        self.records: list[str] = []
        self.sent: list[str] = []

    def attempt(
        self, *responses: BaseException | None, on_ambiguous: str = "resend", these: Any = None, **options: Any
    ) -> MailingState:
        """Make a try; the service gives these responses in turn."""
        self.sent, self.responses = [], list(responses)
        mailing = Mailing(self, self, on_ambiguous, **options)  # type: ignore[arg-type]
        return mailing.send(chunks() if these is None else these)

    def killed(self, *responses: BaseException | None, these: Any = None) -> None:
        """Make a try that dies after these responses."""
        with pytest.raises(Killed):
            self.attempt(*responses, Killed(), these=these)

    def send(self, request: Any) -> None:
        self.sent.append(request.unique_msg_id)
        if self.responses and (response := self.responses.pop(0)) is not None:
            raise response

    def read(self) -> Any:
        return json.loads(self.records[-1]) if self.records else None

    def write(self, record: dict[str, Any]) -> None:
        self.records.append(json.dumps(record))


def chunks() -> list[Chunk]:
    """Requests with 1, 10, 100, ... recipients."""
    return [Chunk.of(number, letter(f"id-{number}"), 10**number) for number in range(4)]


def letter(own_id: str) -> SendMail:
    to = Recipient(email="ada@example.com")
    return SendMail(subject="s", content="c", sender_mail="news@example.com", to=to, unique_msg_id=own_id)


def counts(state: MailingState) -> tuple[int, int, int, int]:
    return state.requests, state.recipients, state.unknown_requests, state.unknown_recipients


def lost() -> MailError:
    return MailAnswerLostError("the response was lost. It is not sent again, because it may have been carried out.")


def rejected(message: str) -> MailError:
    return MailRejectedError("no", operation="/v5/x", code=400, service_message=message)


@pytest.mark.parametrize(
    ("choice", "sent", "counted"), [("skip", ALL[2:], (3, 1101, 1, 10)), ("resend", ALL[1:], (4, 1111, 0, 0))]
)
def test_a_request_in_doubt_is_sent_again_only_by_choice(choice: str, sent: list[str], counted: Any) -> None:
    run = Run()
    run.killed(None)
    assert counts(run.attempt(on_ambiguous=choice)) == counted
    assert run.sent == sent


def test_a_request_in_doubt_may_stop_the_mailing() -> None:
    run = Run()
    run.killed(None)
    with pytest.raises(MailAmbiguousSendError, match=r"request 1 .* was in flight when an earlier try ended") as raised:
        run.attempt(on_ambiguous="fail")
    assert (raised.value.operation, run.sent) == (SendMail.path, [])


@pytest.mark.parametrize("choice", ["skip", "resend"])
def test_other_requests_than_an_earlier_try_began_with_are_not_sent(choice: str) -> None:
    run, other = Run(), Chunk.of(9, letter("other").model_copy(update={"subject": "other"}), 1)
    run.killed(None)
    for these in ([], chunks()[:1], [other, *chunks()[1:]], [chunks()[0], other, *chunks()[2:]]):
        with pytest.raises(MailConflictError, match="these differ from what an earlier try began to send"):
            run.attempt(on_ambiguous=choice, these=these)
        assert run.sent == []


@pytest.mark.parametrize(("durable", "again"), [(True, "it"), (False, "everything")])
def test_a_lost_response_leaves_resending_to_the_next_try(durable: bool, again: str) -> None:
    run = Run(durable)
    with pytest.raises(MailAnswerLostError, match=f"may have been sent; .* The next try sends {again} again") as raised:
        run.attempt(None, lost())
    assert raised.value.temporary
    assert "It is not sent again" not in str(raised.value)
    assert run.sent == ALL[:2]


@pytest.mark.parametrize(("message", "own_ids", "is_known"), [
    ("uniqueMsgID id-1 was used before", True, True),
    ("unique_msg_id already exists", True, True),
    ("id-1: duplicate", True, True),
    ("Unique Msg ID in use", True, True),
    ("uniqueMsgID id-1 is malformed", True, False),
    ("the list was used before", True, False),
    ("id-used is wrong", True, False),
    ("", True, False),
    ("uniqueMsgID id-1 was used before", False, False),  # another send may have used the user's own id
])  # fmt: skip
def test_a_known_id_proves_that_a_request_in_doubt_was_sent(message: str, own_ids: bool, is_known: bool) -> None:
    run = Run()
    run.killed(None)
    if is_known:
        assert counts(run.attempt(rejected(message))) == counts(run.attempt()) == (4, 1111, 0, 0)
        return
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(message), own_ids=own_ids)


def test_an_id_may_read_like_a_reason() -> None:
    run, these = Run(), [Chunk.of(0, letter("used before"), 1)]
    run.killed(these=these)
    with pytest.raises(MailRejectedError):
        run.attempt(rejected("uniqueMsgID used before: malformed"), these=these)


def test_a_known_id_proves_the_send_where_the_state_was_lost() -> None:
    run = Run(durable=False)
    state = run.attempt(rejected("uniqueMsgID id-0 was used before"), state_lost=True)
    assert (counts(state), run.sent) == ((4, 1111, 0, 0), ALL)


def test_a_record_that_is_not_understood_sends_nothing() -> None:
    for change in ({"version": 2}, {"requests": -1}, {"requests": "1"}, {"more": 1}, {"digest": None}):
        run = Run()
        run.write({**MailingState.parse(None).model_dump(), **change})
        with pytest.raises(MailConflictError, match="nothing was sent"):
            run.attempt()
        assert run.sent == []
