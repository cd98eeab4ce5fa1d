"""Transactional mail over several tries: nobody gets a message twice unless the user chose it, and nobody is left out.

The service is the emulator, with faults at any request; a process may end at any request and at any write of its
record; the store may be away for a while; messages may change between tries.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from airflow_provider_mail.api.errors import MailAuthError, MailError
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.transactional import TASK_STATE_KEY, MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException
from mail_emulator import Emulator
from mail_emulator.responses import Response
from tests.machines import AT_ANY_REQUEST, REJECTED_KEY, UNCLEAR, happening, start
from tests.support.changes import around_requests
from tests.support.clock import Clock
from tests.support.sampling import run_machine
from tests.support.tries import HAS_STORE, Kill, Killed, Tries

SENDS, CREATES = "transactional/mail/sends_customised", "campaign/mail/sends"
IN_ONE = 2

CLEAR: list[tuple[str, dict[str, Any]]] = [
    ("code_before", {"code": 403, "message": "insufficient email credits"}),
    ("code_before", {"code": 400, "message": "uniqueMsgID is malformed"}),
    REJECTED_KEY,
    ("too_many_requests", {"retry_after": 60}),
    ("html_before", {"status": 403}),
]
faults = st.none() | st.tuples(st.sampled_from(UNCLEAR + CLEAR), st.integers(0, 4), st.sampled_from([1, 2, None]))
kills = st.none() | st.builds(Kill, st.sampled_from(["before", "after", "request"]), st.integers(0, 5))
absences = st.sampled_from([range(0), range(0), range(1, 3), range(2, 6), range(0, 4)])


class Sending(RuleBasedStateMachine):
    """The model: the messages, how often each person may be mailed, and the requests that were begun."""

    def __init__(self, emulator: Emulator, clock: Clock) -> None:
        super().__init__()
        self.emulator, self.clock = emulator, clock
        start(emulator)
        self.tries = Tries(emulator)
        self.numbers = itertools.count()
        self.allowed: Counter[str] = Counter()
        self.begun: dict[int, list[dict[str, Any]]] = {}
        self.skipped = False
        self.sound = True

    @initialize(count=st.integers(1, 7), ids_count=st.booleans())
    def begin(self, count: int, ids_count: bool) -> None:
        self.messages = [self._message() for _ in range(count)]
        self.ids_count = ids_count
        self.emulator.change_settings(duplicate_unique_msg_id_code=400 if ids_count else None)

    @rule(how=st.sampled_from(["other", "more", "fewer"]), place=st.integers(0, 6))
    def change_messages(self, how: str, place: int) -> None:
        messages = list(self.messages)
        if how == "other":
            messages[min(place, len(messages) - 1)] = self._message()
        elif how == "more":
            messages.append(self._message())
        elif len(messages) > 1:
            messages.pop()
        self.previous, self.messages = self.messages, messages

    @rule()
    def return_to_the_messages_before(self) -> None:
        self.messages = getattr(self, "previous", self.messages)

    @rule(
        choice=st.sampled_from(["fail", "resend", "skip"]),
        in_flight=st.sampled_from([1, 3]),
        fault=faults,
        kill=kills,
        away=absences,
        unreadable=st.sampled_from([False, False, False, True]),
        largest=st.sampled_from([IN_ONE, IN_ONE, 1]),
        event=AT_ANY_REQUEST,
    )
    def run_a_try(
        self,
        choice: str,
        fault: Any = None,
        in_flight: int = 1,
        kill: Kill | None = None,
        away: range = range(0),
        unreadable: bool = False,
        largest: int = IN_ONE,
        event: tuple[str, int] | None = None,
    ) -> None:
        """A try; a proxy passes on requests of at most ``largest`` messages."""
        self.sound, self.largest = False, largest
        self.emulator.faults.clear()
        self.emulator.journal.clear()
        if fault is not None:
            (kind, params), skip, count = fault
            self.emulator.faults.add(kind, SENDS, skip=skip, count=count, **params)
        self.tries.store.unavailable, self.tries.store.unreadable = away, unreadable
        doubts, conflict = self._recorded()[1], self._conflict()
        if choice == "resend" and not conflict and not self.ids_count:
            self.allowed.update(message["to"] for index in doubts for message in self.begun[index])
        self.skipped |= choice == "skip"
        messages = self.messages
        operator = MailSendBatchOperator(
            task_id="task",
            sender_mail="news@example.com",
            subject="Hello",
            content="<p>{{name}}</p>",
            messages=lambda: messages,
            versions_per_request=IN_ONE,
            max_in_flight=in_flight,
            on_ambiguous=choice,
        )
        unrecorded: list[Any] = []

        numbers = itertools.count()

        def around(perform: Any) -> Any:
            body = perform.args[0].body
            index = body["uniqueMsgID"].rpartition("-")[2].partition(".")[0]
            record = self.tries.store.record(TASK_STATE_KEY)
            if not (record and index in record["under_way"]):
                unrecorded.append((index, record))
            too_large = len(body["messageVersions"]) > largest
            response = Response(status=413, text="<html>", content_type="text/html") if too_large else perform()
            self.tries.store.requested(next(numbers))
            return response

        error: BaseException | None = None
        result: dict[str, Any] = {}
        try:
            with happening(event, self.emulator, self.clock), around_requests(self.emulator, SENDS, around):
                result = self.tries.run(operator, kill)
        except (MailError, AirflowException, AirflowRuntimeError, RuntimeError, Killed) as raised:
            error = raised
        assert not unrecorded
        if event and event[0] == "renewal" and fault is kill is None and largest == IN_ONE and not (unreadable or away):
            assert not isinstance(error, MailAuthError | AirflowFailException) or conflict or doubts, error
        self._note_begun()
        self._check_mails()
        # A doubt ends only when the request is done with: a rejection says nothing about the attempt before.
        assert doubts <= self.begun.keys()
        if unreadable:
            assert error is not None
            assert self.emulator.journal.count(SENDS) == 0
        elif conflict:
            assert "these differ from what an earlier try began to send" in str(error)
            assert self.emulator.journal.count(SENDS) == 0
        elif error is None:
            self._check_success(result)
        else:
            assert "these differ" not in str(error)
            if not isinstance(error, Killed | AirflowRuntimeError):
                self._check_doubt(str(error), choice, doubts, in_flight)
        self.sound = True

    def _check_mails(self) -> None:
        """Nobody was mailed more often than allowed, each got their own message, and the record claims no more."""
        mails = self._mails()
        assert all(count <= 1 + self.allowed[email] for email, count in mails.items())
        for message in self.emulator.messages():
            assert message["content"] == f"<p>{message['recipients'][0]['email']}</p>"
        record = self.tries.store.record(TASK_STATE_KEY)
        assert record is None or record["recipients"] <= len(mails)

    def _check_success(self, result: dict[str, Any]) -> None:
        missing = {message["to"] for message in self.messages} - self._mails().keys()
        assert result["recipients"] + result["unknown_recipients"] == len(self.messages)
        assert len(missing) <= result["unknown_recipients"]
        assert self.skipped or not result["unknown_recipients"]
        assert self._recorded() == (set(range(len(self._chunks()))), set())

    def _check_doubt(self, said: str, choice: str, doubts: set[int], in_flight: int) -> None:
        """Who has to decide is told which request is in doubt; nothing is sent before."""
        entries = self.emulator.journal.entries(SENDS)
        # The proxy's answer to one that is too large comes before any fault.
        passed = [entry for entry in entries if len(entry["body"]["messageVersions"]) <= self.largest]
        unclear = [entry for entry in passed if entry["fault"] in {kind for kind, _ in UNCLEAR}]
        if choice == "fail" and doubts:
            assert entries == []
            assert (
                f"w{'as' if len(doubts) == 1 else 'ere'} in flight when an earlier try ended and may have been sent"
                in said
            )
            assert all(re.search(rf"-{index}[.)]", said) for index in doubts)
        elif unclear and choice != "skip":
            assert entries[-1] == unclear[-1] or in_flight > 1, "nothing is sent after it"
            assert len(unclear) <= in_flight
            assert "got no clear response" in said
            assert all(entry["body"]["uniqueMsgID"] in said for entry in unclear)
            assert len(self._recorded()[1]) >= len(unclear)

    def teardown(self) -> None:
        """What was begun is finished, whatever happened, once the user has decided and the messages are the same."""
        if self.sound and not self._conflict():
            self.run_a_try("resend")
            assert self._recorded() == (set(range(len(self._chunks()))), set())

    # --- the model ---

    def _recorded(self) -> tuple[set[int], set[int]]:
        """Which requests are done with, and which are in doubt."""
        record = self.tries.store.record(TASK_STATE_KEY)
        if record is None:
            return set(), set()
        first = record["requests"] + record["unknown_requests"] - len(record["ahead"])
        return {*range(first), *map(int, record["ahead"])}, set(map(int, record["under_way"]))

    def _note_begun(self) -> None:
        done, doubts = self._recorded()
        halved = (self.tries.store.record(TASK_STATE_KEY) or {}).get("halved", {})
        begun = done | doubts | set(map(int, halved))
        self.begun = {index: self.begun.get(index) or self._chunks()[index] for index in begun}

    def _conflict(self) -> bool:
        """Whether the messages differ from those that were begun with."""
        chunks = dict(enumerate(self._chunks()))
        return any(chunks.get(index) != chunk for index, chunk in self.begun.items())

    def _chunks(self) -> list[list[dict[str, Any]]]:
        return [self.messages[place : place + IN_ONE] for place in range(0, len(self.messages), IN_ONE)]

    def _mails(self) -> Counter[str]:
        return Counter(person["email"] for message in self.emulator.messages() for person in message["recipients"])

    def _message(self) -> dict[str, Any]:
        email = f"p{next(self.numbers)}@example.com"
        return {"to": email, "params": {"name": email}}


pytestmark = pytest.mark.skipif(not HAS_STORE, reason="needs the task state store of Airflow 3.3")


def test_nobody_is_mailed_twice_or_left_out(emulator: Emulator, clock: Clock) -> None:
    run_machine(lambda: Sending(emulator, clock), 40, 10)


def test_a_request_in_doubt_is_not_cut(emulator: Emulator, clock: Clock) -> None:
    """Its parts would have other ids than the one that the service knows."""
    machine = Sending(emulator, clock)
    machine.begin(2, True)
    machine.run_a_try("fail", away=range(2, 6))
    machine.run_a_try("resend", largest=1)
    machine.teardown()


PEOPLE = "abcde!"
"""The last one has no valid address."""
HELLO: dict[str, Any] = {"task_id": "task", "sender_mail": "news@example.com", "subject": "Hello", "content": "Hello"}
KINDS: dict[str, Callable[[str], Any]] = {
    "message": lambda person: MailSendOperator(**HELLO, to=_address(person)),
    "batch": lambda person: MailSendBatchOperator(**HELLO, messages=[{"to": _address(person)}]),
    "campaign": lambda person: MailCreateCampaignOperator(**HELLO, send_list_names=[person]),
    "campaign with a name": lambda person: MailCreateCampaignOperator(
        **HELLO, mail_name=f"To {person}", send_list_names=[person]
    ),
}


def _address(person: str) -> str:
    return "nobody" if person == "!" else f"{person}@example.com"


class Mapped(RuleBasedStateMachine):
    """A mapped task whose list gains, loses and reorders people when the run is cleared."""

    def __init__(self, emulator: Emulator, clock: Clock) -> None:
        super().__init__()
        self.emulator, self.clock = emulator, clock
        start(emulator)
        for person in PEOPLE[:-1]:
            emulator.add_list(person, [_address(person)])
        self.instances = [Tries(emulator, map_index=index) for index in range(len(PEOPLE))]
        for tries in self.instances[1:]:
            tries.others = self.instances[0].pushed

    @initialize(people=st.lists(st.sampled_from(PEOPLE), min_size=1, unique=True), kind=st.sampled_from([*KINDS]))
    def begin(self, people: list[str], kind: str) -> None:
        self.people, self.kind = people, kind
        self.is_campaign = kind.startswith("campaign")
        self.known = True
        """Whether a task knows that no other one has sent what it sends."""

    @rule(people=st.lists(st.sampled_from(PEOPLE), min_size=1, unique=True))
    def clear_and_move(self, people: list[str]) -> None:
        self.clear()
        self.known &= people == self.people
        self.people = people

    @rule(order=st.permutations(range(len(PEOPLE))), fault=faults, most=st.integers(1, 2), event=AT_ANY_REQUEST)
    def run_tasks(
        self,
        order: Sequence[int] = range(len(PEOPLE)),
        fault: Any = None,
        most: int = 1,
        event: tuple[str, int] | None = None,
    ) -> None:
        """Those that have not succeeded, in any order."""
        self.emulator.faults.clear()
        if fault is not None:
            (kind, params), skip, count = fault
            operation = CREATES if self.is_campaign else SENDS
            self.emulator.faults.add(kind, operation, skip=skip, count=count, **params)
        # In a cleared run, the first one tells the others, unless its arguments are wrong.
        self.known &= (order[0] == 0 and self.people[0] != "!") or not self.instances[0].clear_number
        with happening(event, self.emulator, self.clock):
            for index in order:
                tries = self.instances[index]
                if index < len(self.people) and tries.state != "success":
                    tries.run_all(lambda person=self.people[index]: KINDS[self.kind](person), most)

    @rule()
    def clear(self) -> None:
        for tries in self.instances:
            tries.clear()
            tries.clear_number += 1
            tries.state = "none"

    @invariant()
    def nobody_is_mailed_twice(self) -> None:
        sent = Counter(person["email"] for message in self.emulator.messages() for person in message["recipients"])
        for found in self.emulator.campaigns():
            sent.update(self.emulator.campaign_recipients(found["mailName"]))
        assert set(sent.values()) <= {1}
        self.sent = sent.keys()

    def teardown(self) -> None:
        """A campaign is known by its list; and a message that is not, and is not in doubt, is sent at last."""
        self.clear()
        self.run_tasks(most=3)
        self.nobody_is_mailed_twice()
        for index, person in enumerate(self.people):
            if person != "!" and (self.is_campaign or self.known):
                doubt = re.search("may have been sent|cannot be found now", str(self.instances[index].error))
                assert _address(person) in self.sent or doubt


def test_a_mapped_list_that_moves(emulator: Emulator, clock: Clock) -> None:
    run_machine(lambda: Mapped(emulator, clock), 15, 8)


# What the machine meets only now and then: tries, each with a choice and a fault at one request.

STORIES: dict[str, list[tuple[Any, ...]]] = {
    "a rejection does not settle a doubt": [("fail", UNCLEAR[1], 1), ("resend", CLEAR[0], 0), ("fail",)],
    "nor does one that only names the id": [("fail", UNCLEAR[0], 1), ("resend", CLEAR[1], 0), ("fail",)],
    "a proxy's page does not end a mailing": [("fail", CLEAR[4], 1, 2), ("fail",)],
    "what was skipped is not sent later": [("skip", UNCLEAR[1], 1), ("resend",)],
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
@pytest.mark.parametrize("ids_count", [False, True])
def test_stories(story: list[tuple[Any, ...]], ids_count: bool, emulator: Emulator, clock: Clock) -> None:
    machine = Sending(emulator, clock)
    machine.begin(5, ids_count)
    for choice, *fault in story:
        machine.run_a_try(choice, (*fault, 1)[:3] if fault else None)
    machine.teardown()
