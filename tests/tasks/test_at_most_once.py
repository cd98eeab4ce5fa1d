"""What a task stores of a mailing and of a campaign, without a task: what the next try reads, sends and does not send.

Tries that die, fail and are repeated in any order are in `tests/machines/test_sending.py` and `test_creating.py`.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from airflow_provider_mail.api.errors import (
    MailAnswerLostError,
    MailConflictError,
    MailRejectedError,
)
from airflow_provider_mail.api.flows.batches import Chunk
from airflow_provider_mail.api.transactional import Recipient, SendMail
from tests.support.creation import RECORD_KEY, Killed, StateStore, creation_record
from tests.support.task_parts import Mailing, MailingState
from tests.support.tries import MortalStore
from tests.tasks.sending import remembers

ALL = ["id-0", "id-1", "id-2", "id-3"]


class Run:
    """The tries of a task; the service accepts what is sent unless it has another response."""

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable
        self.records: list[str] = []
        self.sent: list[str] = []

    def attempt(
        self, *responses: BaseException | None, on_ambiguous: str = "resend", these: Any = None, **options: Any
    ) -> tuple[int, int, int, int]:
        """Make a try; the service gives these responses in turn. Return what the state counts."""
        self.sent, self.responses = [], list(responses)
        mailing = Mailing(self, self, on_ambiguous, **options)  # type: ignore[arg-type]
        state = mailing.send(chunks() if these is None else these)
        return state.requests, state.recipients, state.unknown_requests, state.unknown_recipients

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


def letter(own_id: str, subject: str = "s") -> SendMail:
    to = Recipient(email="ada@example.com")
    return SendMail(subject=subject, content="c", sender_mail="news@example.com", to=to, unique_msg_id=own_id)


def rejected(message: str) -> MailRejectedError:
    return MailRejectedError("no", operation="/v5/x", code=400, service_message=message)


@pytest.mark.parametrize("choice", ["skip", "resend"])
def test_other_requests_than_an_earlier_try_began_with_are_not_sent(choice: str) -> None:
    run, other = Run(), Chunk.of(9, letter("other", "other"), 1)
    run.killed(None)
    for these in ([], chunks()[:1], [other, *chunks()[1:]], [chunks()[0], other, *chunks()[2:]]):
        with pytest.raises(MailConflictError, match="these differ from what an earlier try began to send"):
            run.attempt(on_ambiguous=choice, these=these)
        assert run.sent == []


@pytest.mark.parametrize(("durable", "again"), [(True, "it"), (False, "everything")])
def test_a_lost_response_leaves_resending_to_the_next_try(durable: bool, again: str) -> None:
    run = Run(durable)
    lost = MailAnswerLostError("the response was lost. It is not sent again, because it may have been carried out.")
    with pytest.raises(MailAnswerLostError, match=f"may have been sent; .* The next try sends {again} again") as raised:
        run.attempt(None, lost)
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
        assert run.attempt(rejected(message)) == run.attempt() == (4, 1111, 0, 0)
        return
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(message), own_ids=own_ids)


def test_an_id_may_read_like_a_reason() -> None:
    run, these = Run(), [Chunk.of(0, letter("used before"), 1)]
    run.killed(these=these)
    with pytest.raises(MailRejectedError):
        run.attempt(rejected("uniqueMsgID used before: malformed"), these=these)


def test_a_record_that_is_not_understood_sends_nothing() -> None:
    for change in ({"version": 2}, {"requests": -1}, {"requests": "1"}, {"more": 1}, {"digest": None}):
        run = Run()
        run.write({**MailingState.parse(None).model_dump(), **change})
        with pytest.raises(MailConflictError, match="nothing was sent"):
            run.attempt()
        assert run.sent == []


# --- of a campaign ---

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
def test_the_next_try_knows_what_this_one_marked() -> None:
    store = StateStore()
    state = creation_record(store, try_number=1)
    state.start("spring")
    for mark, *values in [
        (state.mark_attempted, 1.5), (state.mark_incomplete,), (state.mark_sends_at, 4.5), (state.mark_complete,),
        (state.mark_seen, 2.5), (state.mark_seen, None), (state.clear_attempt, 0.5), (state.mark_sent,),
        (state.clear_attempt,),
    ]:  # fmt: skip
        mark(*values)
        read = creation_record(store, try_number=2)
        for name in ("mail_name", "incomplete", "attempted_at", "seen", "sends_at"):
            assert getattr(read, name) == getattr(state, name), (mark.__name__, name)


@remembers
@pytest.mark.usefixtures("clock")
def test_a_store_that_cannot_be_written_prevents_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = MortalStore(None)
    store.unavailable = range(100)
    state = creation_record(store, try_number=1)
    state.start("spring")
    state.mark_incomplete()
    assert state.incomplete
    assert "the next try will take campaign 'spring' for complete" in caplog.text
