"""The stored state of a mailing, without a task: what each try sends, what it records, and where it stops."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


class Killed(BaseException):
    """The worker dies."""


class Run:
    """The tries of a task; the service accepts what is sent unless it has something else to say."""

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable
        self.records: list[str] = []
        self.sent: list[str] = []
        self.responses: list[BaseException | None] = []

    def attempt(
        self, *responses: BaseException | None, on_ambiguous: str = "fail", these: Any = None, **options: Any
    ) -> MailingState:
        """Make a try; the service says these things in turn."""
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


def chunks(numbers: Sequence[int] = range(4)) -> list[Chunk]:
    """Requests with 1, 10, 100, ... recipients."""
    return [Chunk.of(number, letter(f"id-{number}"), 10**number) for number in numbers]


def letter(own_id: str) -> SendMail:
    to = Recipient(email="ada@example.com")
    return SendMail(subject="s", content="c", sender_mail="news@example.com", to=to, unique_msg_id=own_id)


def counts(state: MailingState) -> tuple[int, int, int, int]:
    return state.requests, state.recipients, state.unknown_requests, state.unknown_recipients


def lost() -> MailError:
    return MailAnswerLostError("the response was lost. It is not sent again, because it may have been carried out.")


def rejected(message: str = "insufficient credits") -> MailError:
    return MailRejectedError("no", operation="/v5/x", code=400, service_message=message)


ALL = ["id-0", "id-1", "id-2", "id-3"]


def test_each_request_is_recorded_before_it_is_sent() -> None:
    run = Run()
    state = run.attempt()
    assert run.sent == ALL
    assert counts(state) == (4, 1111, 0, 0)
    assert (state.under_way, state.done) == (None, 4)
    records = [json.loads(record) for record in run.records]
    assert [record["recipients"] for record in records] == [0, 1, 11, 111, 1111]
    assert [record["requests"] for record in records] == [0, 1, 2, 3, 4]
    assert len({record["under_way"] for record in records}) == 5
    assert [record["digest"] for record in records[1:]] == [record["under_way"] for record in records[:-1]]
    assert {record["version"] for record in records} == {1}
    assert str(state) == "1111 recipients in 4 requests were accepted"


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("error", [Killed(), lost()], ids=["killed", "lost"])
def test_a_request_in_doubt_is_sent_again_only_if_the_user_says_so(at: int, error: BaseException) -> None:
    for choice, sent in (("fail", []), ("skip", ALL[at + 1 :]), ("resend", ALL[at:])):
        run = Run()
        with pytest.raises((Killed, MailAmbiguousSendError)):
            run.attempt(*[None] * at, error)
        assert run.sent == ALL[: at + 1]
        if choice == "fail":
            which = rf"request {at} \({10**at} recipients, uniqueMsgID id-{at}\)"
            with pytest.raises(MailAmbiguousSendError, match=which):
                run.attempt()
        else:
            unknown = (1, 10**at) if choice == "skip" else (0, 0)
            state = run.attempt(on_ambiguous=choice)
            assert (*counts(state), state.under_way) == (4 - unknown[0], 1111 - unknown[1], *unknown, None)
        assert run.sent == sent


def test_a_lost_response_is_skipped_counted_and_not_sent_later() -> None:
    run = Run()
    state = run.attempt(None, lost(), lost(), None, on_ambiguous="skip")
    assert (*counts(state), state.done) == (2, 1001, 2, 110, 4)
    assert str(state) == "1001 recipients in 2 requests were accepted, and of 110 in 2 requests the outcome is unknown"
    assert counts(run.attempt(on_ambiguous="fail")) == (2, 1001, 2, 110)
    assert run.sent == []


@pytest.mark.parametrize(("durable", "again"), [(True, "it"), (False, "everything")])
def test_a_lost_response_leaves_resending_to_the_next_try(durable: bool, again: str) -> None:
    run = Run(durable)
    with pytest.raises(MailAnswerLostError, match=f"may have been sent; .* The next try sends {again} again") as raised:
        run.attempt(None, lost(), on_ambiguous="resend")
    assert raised.value.temporary
    assert "It is not sent again" not in str(raised.value)
    assert run.sent == ALL[:2]


def test_a_rejected_request_is_sent_by_the_next_try() -> None:
    run = Run()
    with pytest.raises(MailRejectedError):
        run.attempt(None, rejected())
    assert counts(run.attempt()) == (4, 1111, 0, 0)
    assert run.sent == ALL[1:]


def test_after_a_rejection_what_was_accepted_must_be_the_same() -> None:
    run = Run()
    with pytest.raises(MailRejectedError):
        run.attempt(None, rejected())
    with pytest.raises(MailConflictError):
        run.attempt(these=chunks([1, 2, 3]))
    assert run.sent == []


def test_a_rejection_does_not_settle_the_attempt_before() -> None:
    """The first was perhaps accepted, the second for certain not: the user still has to decide."""
    run = Run()
    with pytest.raises(MailAmbiguousSendError):
        run.attempt(None, lost())
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(), on_ambiguous="resend")
    with pytest.raises(MailAmbiguousSendError, match="was in flight when an earlier try ended"):
        run.attempt()
    assert run.sent == []


KNOWN = ["uniqueMsgID id-1 was used before", "unique_msg_id already exists", "id-1: duplicate", "Unique Msg ID in use"]
UNRELATED = ["uniqueMsgID id-1 is malformed", "the list was used before", "id-used is wrong", ""]


@pytest.mark.parametrize("message", KNOWN)
def test_a_known_id_says_that_the_attempt_before_was_accepted(message: str) -> None:
    run = Run()
    run.killed(None)
    assert counts(run.attempt(rejected(message), on_ambiguous="resend")) == (4, 1111, 0, 0)
    assert run.sent == ALL[1:]
    assert counts(run.attempt()) == (4, 1111, 0, 0)


@pytest.mark.parametrize("message", UNRELATED)
def test_other_rejections_say_nothing_of_it(message: str) -> None:
    run = Run()
    run.killed(None)
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(message), on_ambiguous="resend")


def test_what_a_known_id_does_not_prove() -> None:
    """An id may read like a reason; the request was not in doubt; another send may have used the user's own id."""
    run, these = Run(), [Chunk.of(0, letter("used before"), 1)]
    run.killed(these=these)
    with pytest.raises(MailRejectedError):
        run.attempt(rejected("uniqueMsgID used before: malformed"), these=these, on_ambiguous="resend")

    run = Run()
    for responses in ([None, rejected(KNOWN[0])], [rejected(KNOWN[0])]):
        with pytest.raises(MailRejectedError):
            run.attempt(*responses)
    assert counts(MailingState.parse(run.read())) == (1, 1, 0, 0)

    run = Run()
    run.killed()
    with pytest.raises(MailRejectedError):
        run.attempt(rejected("uniqueMsgID id-0 was used before"), on_ambiguous="resend", own_ids=False)


def test_a_known_id_proves_the_send_where_the_state_was_lost() -> None:
    run = Run(durable=False)
    state = run.attempt(rejected("uniqueMsgID id-0 was used before"), state_lost=True)
    assert counts(state) == (4, 1111, 0, 0)
    assert run.sent == ALL


@pytest.mark.parametrize("numbers", ["01", "0", "", "1023", "0132", "3120"])
@pytest.mark.parametrize("choice", ["fail", "skip", "resend"])
def test_other_requests_than_before_are_not_sent(numbers: str, choice: str) -> None:
    run = Run()
    run.killed(None, None)
    these = chunks([int(number) for number in numbers])
    words = r"letters: .* \(11 recipients in 2 requests were accepted\).*same things"
    with pytest.raises(MailConflictError, match=words):
        run.attempt(these=these, on_ambiguous=choice, argument="letters", things="things")
    assert run.sent == []


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"requests": -1}, {"requests": "1"}, {"more": 1}, {"digest": None}], ids=str
)
def test_a_record_that_is_not_understood_sends_nothing(change: dict[str, Any]) -> None:
    run = Run()
    run.write({**MailingState.parse(None).model_dump(), **change})
    with pytest.raises(MailConflictError, match="nothing was sent"):
        run.attempt()
    assert run.sent == []
