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


class Service:
    """Accepts what is sent, unless it has something else to say."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answers: list[BaseException | None] = []

    def send(self, request: Any) -> None:
        self.sent.append(request.unique_msg_id)
        if self.answers and (answer := self.answers.pop(0)) is not None:
            raise answer


class Store:
    """Keeps the last record as JSON."""

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable
        self.records: list[str] = []

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


class Run:
    """The tries of a task."""

    def __init__(self, durable: bool = True) -> None:
        self.service, self.store = Service(), Store(durable)

    def attempt(
        self, *answers: BaseException | None, on_ambiguous: str = "fail", these: Any = None, **options: Any
    ) -> MailingState:
        """Make a try; the service says these things in turn."""
        self.service.sent, self.service.answers = [], list(answers)
        mailing = Mailing(self.service, self.store, on_ambiguous, **options)  # type: ignore[arg-type]
        return mailing.send(chunks() if these is None else these)


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
    assert run.service.sent == ALL
    assert counts(state) == (4, 1111, 0, 0)
    assert (state.under_way, state.done) == (None, 4)
    records = [json.loads(record) for record in run.store.records]
    assert [(record["requests"], record["recipients"]) for record in records] == [
        (0, 0),
        (1, 1),
        (2, 11),
        (3, 111),
        (4, 1111),
    ]
    assert len({record["under_way"] for record in records}) == 5
    assert [record["digest"] for record in records[1:]] == [record["under_way"] for record in records[:-1]]
    assert {record["version"] for record in records} == {1}
    assert str(state) == "1111 recipients in 4 requests were accepted"


def test_a_try_after_the_last_sends_nothing() -> None:
    run = Run()
    run.attempt()
    assert counts(run.attempt()) == (4, 1111, 0, 0)
    assert run.service.sent == []


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("error", [Killed(), lost()], ids=["killed", "lost"])
def test_a_request_in_doubt_is_sent_again_only_if_the_user_says_so(at: int, error: BaseException) -> None:
    for choice, sent in (("fail", []), ("skip", ALL[at + 1 :]), ("resend", ALL[at:])):
        run = Run()
        with pytest.raises((Killed, MailAmbiguousSendError)):
            run.attempt(*[None] * at, error)
        assert run.service.sent == ALL[: at + 1]
        if choice == "fail":
            with pytest.raises(
                MailAmbiguousSendError, match=rf"request {at} \({10**at} recipients, uniqueMsgID id-{at}\)"
            ):
                run.attempt()
        else:
            state = run.attempt(on_ambiguous=choice)
            unknown = (1, 10**at) if choice == "skip" else (0, 0)
            assert counts(state) == (4 - unknown[0], 1111 - unknown[1], *unknown)
            assert state.under_way is None
        assert run.service.sent == sent


def test_a_lost_response_is_skipped_counted_and_not_sent_later() -> None:
    run = Run()
    state = run.attempt(None, lost(), lost(), None, on_ambiguous="skip")
    assert counts(state) == (2, 1001, 2, 110)
    assert state.done == 4
    assert str(state) == (
        "1001 recipients in 2 requests were accepted, and of 110 in 2 requests the outcome is unknown"
    )
    assert counts(run.attempt(on_ambiguous="fail")) == (2, 1001, 2, 110)
    assert run.service.sent == []


@pytest.mark.parametrize(("durable", "again"), [(True, "it"), (False, "everything")])
def test_a_lost_response_leaves_resending_to_the_next_try(durable: bool, again: str) -> None:
    run = Run(durable)
    with pytest.raises(MailAnswerLostError, match=f"may have been sent; .* The next try sends {again} again") as raised:
        run.attempt(None, lost(), on_ambiguous="resend")
    assert raised.value.temporary
    assert "It is not sent again" not in str(raised.value)
    assert run.service.sent == ALL[:2]


def test_a_rejected_request_is_sent_by_the_next_try() -> None:
    run = Run()
    with pytest.raises(MailRejectedError):
        run.attempt(None, rejected())
    assert counts(run.attempt()) == (4, 1111, 0, 0)
    assert run.service.sent == ALL[1:]


def test_a_rejection_does_not_settle_the_attempt_before() -> None:
    """The first was perhaps accepted, the second for certain not: the user still has to decide."""
    run = Run()
    with pytest.raises(MailAmbiguousSendError):
        run.attempt(None, lost())
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(), on_ambiguous="resend")
    with pytest.raises(MailAmbiguousSendError, match="was in flight when an earlier try ended"):
        run.attempt()
    assert run.service.sent == []


KNOWN = ["uniqueMsgID id-1 was used before", "unique_msg_id already exists", "id-1: duplicate", "Unique Msg ID in use"]
UNRELATED = ["uniqueMsgID id-1 is malformed", "the list was used before", "id-used is wrong", ""]


@pytest.mark.parametrize("message", KNOWN)
def test_a_known_id_says_that_the_attempt_before_was_accepted(message: str) -> None:
    run = Run()
    with pytest.raises(Killed):
        run.attempt(None, Killed())
    assert counts(run.attempt(rejected(message), on_ambiguous="resend")) == (4, 1111, 0, 0)
    assert run.service.sent == ALL[1:]
    assert counts(run.attempt()) == (4, 1111, 0, 0)


@pytest.mark.parametrize("message", UNRELATED)
def test_other_rejections_say_nothing_of_it(message: str) -> None:
    run = Run()
    with pytest.raises(Killed):
        run.attempt(None, Killed())
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(message), on_ambiguous="resend")


def test_an_id_that_reads_like_a_reason_is_none() -> None:
    run, these = Run(), [Chunk.of(0, letter("used before"), 1)]
    with pytest.raises(Killed):
        run.attempt(Killed(), these=these)
    with pytest.raises(MailRejectedError):
        run.attempt(rejected("uniqueMsgID used before: malformed"), these=these, on_ambiguous="resend")


def test_a_known_id_proves_nothing_of_a_request_that_was_not_in_doubt() -> None:
    run = Run()
    with pytest.raises(MailRejectedError):
        run.attempt(None, rejected(KNOWN[0]))
    with pytest.raises(MailRejectedError):
        run.attempt(rejected(KNOWN[0]))
    assert counts(MailingState.parse(run.store.read())) == (1, 1, 0, 0)


def test_a_known_id_of_another_send_proves_nothing() -> None:
    run = Run()
    with pytest.raises(Killed):
        run.attempt(Killed())
    with pytest.raises(MailRejectedError):
        run.attempt(rejected("uniqueMsgID id-0 was used before"), on_ambiguous="resend", own_ids=False)


def test_a_known_id_proves_the_send_where_the_state_was_lost() -> None:
    run = Run(durable=False)
    state = run.attempt(rejected("uniqueMsgID id-0 was used before"), state_lost=True)
    assert counts(state) == (4, 1111, 0, 0)
    assert run.service.sent == ALL


@pytest.mark.parametrize(
    "these",
    [chunks([0, 1]), chunks([0]), chunks([]), chunks([1, 0, 2, 3]), chunks([0, 1, 3, 2]), chunks([3, 1, 2, 0])],
    ids=["without the open one", "fewer than sent", "none", "others sent", "another open", "another first"],
)
@pytest.mark.parametrize("choice", ["fail", "skip", "resend"])
def test_other_requests_than_before_are_not_sent(these: list[Chunk], choice: str) -> None:
    run = Run()
    with pytest.raises(Killed):
        run.attempt(None, None, Killed())
    with pytest.raises(
        MailConflictError, match=r"letters: .* \(11 recipients in 2 requests were accepted\).*same things"
    ):
        run.attempt(these=these, on_ambiguous=choice, argument="letters", things="things")
    assert run.service.sent == []


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"requests": -1}, {"requests": "1"}, {"more": 1}, {"digest": None}], ids=str
)
def test_a_record_that_is_not_understood_sends_nothing(change: dict[str, Any]) -> None:
    run = Run()
    run.store.write({**MailingState.parse(None).model_dump(), **change})
    with pytest.raises(MailConflictError, match="nothing was sent"):
        run.attempt()
    assert run.service.sent == []
