"""From the inbox to the warehouse: every acknowledged push is there once, whatever happens."""

from __future__ import annotations

import datetime
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.webhook import dead_letters
from airflow_provider_mail.webhook import drain as drains
from airflow_provider_mail.webhook.conflicts import CONFLICT
from airflow_provider_mail.webhook.dead_letters import replay
from airflow_provider_mail.webhook.drain import Drained, EventTables, UnreadableEventError, drain
from airflow_provider_mail.webhook.erasure import Erased, Person, erase
from airflow_provider_mail.webhook.events import DeadLetter, Origin, UnreadableError
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.warehouse.conftest import ALL, Warehouse
from tests.webhook.pushes import EARLIER, NOON, body, event, push, receive, sqlite_inbox

LATER = NOON + datetime.timedelta(hours=1)


class Drains:
    """An inbox, and a warehouse that its pushes are drained into."""

    def __init__(self, inbox: Inbox, warehouse: Warehouse) -> None:
        self.inbox = inbox
        self.warehouse = warehouse
        self.tables = EventTables(warehouse.hook, "mail_events", "mail_dead_letters")

    def receive(self, *pushes: Push) -> None:
        receive(self.inbox, pushes)

    def drain(self, **options: Any) -> Drained:
        return drain(self.inbox, self.tables, **{"batch_size": 100, **options})

    def events(self) -> list[dict[str, Any]]:
        rows = self.warehouse.rows(EVENTS, "mail_events")
        events = [dict(zip(EVENTS.names, row, strict=True)) for row in rows]
        return sorted(events, key=lambda row: (row["push_id"], row["push_index"]))

    def letters(self) -> list[dict[str, Any]]:
        rows = self.warehouse.rows(DEAD_LETTERS, "mail_dead_letters")
        return [dict(zip(DEAD_LETTERS.names, row, strict=True)) for row in rows]


@pytest.fixture
def embedded(make_warehouse: Callable[..., Warehouse]) -> Drains:
    """Inbox and warehouse in one SQLite file."""
    warehouse = make_warehouse("sqlite")
    inbox = Inbox(warehouse.hook)
    inbox.create()
    made = Drains(inbox, warehouse)
    made.tables.create()
    return made


@pytest.fixture
def shared(make_warehouse: Callable[..., Warehouse]) -> Drains:
    """Inbox and warehouse in one Postgres database."""
    warehouse = make_warehouse("psycopg3")
    inbox = Inbox(warehouse.hook)
    inbox.create()
    made = Drains(inbox, warehouse)
    made.tables.create()
    return made


@pytest.fixture(params=ALL)
def drained(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse], tmp_path: Any) -> Drains:
    """An inbox in SQLite, and every warehouse."""
    made = Drains(sqlite_inbox(tmp_path / "inbox.db"), make_warehouse(request.param))
    made.tables.create()
    return made


def test_events_arrive_as_they_were_pushed_in_every_database(drained: Drains) -> None:
    odd = event(3, "Forwarded", Guid=5, Extra={"a": [1, None, "ü \U0001f600\t\n\\"]}, TriggeredDateTimeV2="2026-03-01")
    drained.receive(push(event(1), event(2, "Opened"), odd), push(event(4), conn_id="other", at=LATER))
    assert drained.drain() == Drained(2, 4, Counter(Delivered=2, Opened=1, other=1))
    found = drained.events()
    assert [row["mail_conn_id"] for row in found] == ["mail_default"] * 3 + ["other"]
    assert [row["raw"] for row in found] == [event(1), event(2, "Opened"), odd, event(4)]
    assert (found[0]["triggered_time"], found[0]["submit_time"]) == (NOON, EARLIER)
    assert found[2]["triggered_time"] == NOON.replace(hour=0)
    assert [row["received_at"] for row in found] == [NOON] * 3 + [LATER]
    assert (found[2]["event_code"], found[2]["guid"]) == ("Forwarded", "5")
    assert drained.letters() == []


def test_duplicates_are_stored_once_however_often_and_in_whatever_order(drained: Drains) -> None:
    # As a service pushes that was never sure of an answer: up to 46 times, in other pushes, in another order.
    dice = random.Random(46)
    codes = ("Dropped", "Bounced", "Delivered", "Opened", "Clicked", "Unsubscribed", "SpamReport", "TaskStatus")
    once = [event(number, codes[number % len(codes)]) for number in range(24)]
    again = [event(3, "Opened", TriggeredDateTimeV2="2026-03-01T12:00:01Z"), event(12, "TaskStatus", Status="Done")]
    sent = [each for each in (*once, *again) for _ in range(dice.choice((1, 2, 46)))]
    dice.shuffle(sent)
    while sent:
        size = dice.randint(1, 40)
        drained.receive(push(*sent[:size]))
        sent = sent[size:]
    total = drained.drain(batch_size=3)
    assert total.stored.total() == len(once) + len(again) == total.events - total.duplicates
    stored = [json.dumps(row["raw"], sort_keys=True) for row in drained.events()]
    assert sorted(stored) == sorted(json.dumps(each, sort_keys=True) for each in (*once, *again))
    assert not drained.inbox.waiting()


def test_opened_twice_is_two_rows(embedded: Drains) -> None:
    second = event(1, "Opened", TriggeredDateTimeV2="2026-03-01T12:00:01Z")
    embedded.receive(push(event(1, "Opened"), second, event(1, "Opened")))
    assert embedded.drain().stored == Counter(Opened=2)


def test_the_first_one_stays(drained: Drains) -> None:
    late = event(1, Platform="late", TriggeredDateTimeV2="2026-03-02T00:00:00Z")
    drained.receive(push(event(1)), push(late, at=LATER))
    drained.drain()
    drained.receive(push(late, at=LATER))
    drained.drain()
    assert [(row["raw"], row["received_at"]) for row in drained.events()] == [(event(1), NOON)]


def test_the_later_one_of_two_that_differ_is_kept_as_a_conflict(drained: Drains) -> None:
    later = [event(number, Extra={"a": [1, 2.5, "ü"]}, Platform="later") for number in range(1, 4)]
    drained.receive(push(event(1), event(2), event(5)), push(event(1), later[0], conn_id="other"))
    assert drained.drain() == Drained(2, 5, Counter(Delivered=4), conflicts=1)
    drained.receive(push(event(1), later[1], event(2), later[2], later[2], event(5)))
    assert drained.drain() == Drained(1, 6, Counter(Delivered=1), conflicts=1)
    drained.receive(push(event(2), later[2], event(5)), push(later[0], conn_id="other"))
    assert drained.drain() == Drained(2, 4, Counter()), "what differs is known"
    kept = {(each["mail_conn_id"], json.loads(each["raw"])["UniqueMsgID"]) for each in drained.letters()}
    assert kept == {("other", "m1"), ("mail_default", "m2")}
    assert {each["reason"] for each in drained.letters()} == {CONFLICT}
    for _ in range(2):
        again = replay(drained.warehouse.hook, "mail_events", "mail_dead_letters")
        assert (again.letters, again.left) == (0, 2)


def test_what_cannot_be_read_goes_to_the_dead_letters_once(drained: Drains) -> None:
    hostile = event(2, Extra="a\x00b")
    cut = Push(body(event(3))[:-5], NOON, "mail_default", False)
    for _ in range(2):
        drained.receive(push(event(1), hostile, "no event"), cut, Push(b"\xff\x00", NOON, "mail_default", False))
    total = drained.drain(batch_size=1)
    assert total == Drained(6, 2, Counter(Delivered=1), dead_letters=4)
    assert total.reasons == {
        "field holds the character NUL, which the database cannot keep": 1,
        "it is not an object": 1,
        "the push is not a JSON array": 2,
    }
    found = {(letter["push_index"], letter["reason"], letter["push_id"]) for letter in drained.letters()}
    assert found == {
        (1, "field 'Extra' holds the character NUL, which the database cannot keep", 1),
        (2, "it is not an object", 1),
        (None, "the push is not a JSON array", 2),
        (None, "the push is not a JSON array", 3),
    }


def test_dead_letters_are_read_again_after_a_fix(drained: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    drained.receive(push(event(1), event(2), {}, conn_id="other"), push(event(1), event(3, Extra="\x00")))
    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider_mail.webhook.events._CODE", "Code")  # a version that did not know it
        assert drained.drain() == Drained(2, 0, Counter(), dead_letters=5)
    for read, left in ((3, 2), (0, 2)):
        result = replay(drained.warehouse.hook, "mail_events", "mail_dead_letters")
        assert (result.letters, result.left, result.drained.events) == (read, left, read)
    assert [(row["mail_conn_id"], row["raw"]) for row in drained.events()] == [
        ("other", event(1)),
        ("other", event(2)),
        ("mail_default", event(1)),
    ]
    assert [row["received_at"] for row in drained.events()] == [NOON] * 3
    assert len(drained.letters()) == 2


def refuse(*_: Any) -> Any:
    raise UnreadableError("a version that could not read it")


def test_a_whole_push_is_read_again_in_parts(embedded: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.receive(push(event(1), {"bad": 1}, {"bad": 2}, event(2)))
    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider_mail.webhook.events._decode_flat", lambda body: None)
        patch.setattr("airflow_provider_mail.webhook.events._parse", refuse)
        assert embedded.drain().dead_letters == 1
    result = replay(embedded.warehouse.hook, "mail_events", "mail_dead_letters")
    assert (result.letters, result.left, result.drained.stored) == (1, 2, Counter(Delivered=2))
    assert sorted(letter["push_index"] for letter in embedded.letters()) == [1, 2]


def test_more_dead_letters_than_fit_a_page_are_read_again(embedded: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.receive(*(push(event(number), {"bad": number}) for number in range(60)))
    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider_mail.webhook.events._CODE", "Code")
        assert embedded.drain().dead_letters == 120
    monkeypatch.setattr("airflow_provider_mail.webhook.dead_letters._PAGE", 7)
    result = replay(embedded.warehouse.hook, "mail_events", "mail_dead_letters")
    assert (result.letters, result.left, len(embedded.events()), len(embedded.letters())) == (60, 60, 60, 60)


def test_without_dead_letters_an_unreadable_event_fails_the_drain_and_stays(embedded: Drains) -> None:
    embedded.receive(push(event(1)), push(event(2), {"EventCode": "ada@example.com\x00"}))
    with pytest.raises(UnreadableEventError) as failure:
        embedded.drain(dead_letters=False, batch_size=1)
    assert str(failure.value).startswith("push 2, event 1: field 'EventCode' holds the character NUL")
    assert "ada" not in str(failure.value)
    assert [row["email"] for row in embedded.events()] == ["user1@example.com"]
    assert embedded.drain() == Drained(1, 1, Counter(Delivered=1), dead_letters=1)


def test_a_drain_stops_at_its_limit_and_tells_its_progress(embedded: Drains) -> None:
    embedded.receive(*(push(event(number)) for number in range(10)))
    told: list[int] = []
    total = embedded.drain(batch_size=3, max_pushes=7, on_batch=lambda so_far: told.append(so_far.pushes))
    assert (total.pushes, told) == (7, [3, 6, 7])
    assert embedded.drain().pushes == 3
    assert embedded.drain() == Drained()


def test_a_failure_between_load_and_finish_repeats_the_batch_without_a_trace(
    embedded: Drains, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.receive(push(event(1), {}), push(event(2)))
    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "finish", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            embedded.drain()
    assert embedded.inbox.waiting()
    assert embedded.drain() == Drained(2, 2, Counter(), dead_letters=0)
    assert (len(embedded.events()), len(embedded.letters())) == (2, 1)


def test_a_warehouse_that_fails_leaves_the_pushes_in_the_inbox(embedded: Drains) -> None:
    embedded.receive(push(event(1)))
    embedded.warehouse.execute("DROP TABLE mail_events", "CREATE TABLE mail_events (mail_conn_id text)")
    with pytest.raises(WarehouseError, match="mail_events") as failure:
        embedded.drain()
    assert "user1" not in repr(failure.value.__context__) + str(failure.value)
    assert embedded.inbox.waiting()


@pytest.mark.parametrize("name", ["shared", "embedded"])
def test_four_drains_at_once_store_every_event_once(name: str, request: pytest.FixtureRequest) -> None:
    place: Drains = request.getfixturevalue(name)
    # Each event in three pushes that different drains take at the same time, in different orders.
    dice = random.Random(4)
    numbers = list(range(300))
    for _ in range(3):
        dice.shuffle(numbers)
        place.receive(*(push(*map(event, numbers[start : start + 20])) for start in range(0, 300, 20)))
    results: list[Drained] = []
    threads = [threading.Thread(target=lambda: results.append(place.drain(batch_size=4))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert sum(result.stored.total() for result in results) == 300
    assert len({row["email"] for row in place.events()}) == len(place.events()) == 300
    if name == "shared":  # SQLite has no locks of rows: two drains may do the same
        assert sum(result.pushes for result in results) == 45
    assert not place.inbox.waiting()


def test_the_same_text_of_two_accounts_is_two_dead_letters(embedded: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.receive(*(push("unreadable", conn_id=conn_id) for conn_id in ("one", "other", "one")))
    assert embedded.drain().dead_letters == 2
    monkeypatch.setattr(dead_letters, "_PAGE", 1)
    result = replay(embedded.warehouse.hook, "mail_events", "mail_dead_letters")
    assert (result.letters, result.left) == (0, 2), "pages go by the identifier alone"


def test_a_person_is_erased_everywhere(drained: Drains) -> None:
    ada = {"Email": "Ada@Example.com"}
    unreadable = [
        event(5, **ada, Extra="\x00"),
        event(6, Extra="\x00"),
        {"Email": "ida@example.com"},
    ]
    kept = [
        event(1),
        event(2, Email="bada@example.com"),
        event(3, Email="ada@example.com.au"),
        event(4, MailName="ada"),
    ]
    drained.receive(
        push(event(7, **ada), *kept),
        push(event(8, Email="ada@EXAMPLE.com"), *unreadable),
        Push(b'{"Email": "ada@example.com"', NOON, "mail_default", False),
    )
    drained.drain()
    drained.receive(push(event(9, **ada), event(10), event(11, "Opened", Email="ada\u0040example.com")))
    erased = erase_in(drained, " ADA@example.com")
    assert (erased.pushes, erased.dead_letters, erased.events) == (4, 2, 2)
    drained.drain()
    assert [row["raw"] for row in drained.events()] == [*kept, event(10)]
    assert {json.loads(letter["raw"])["Email"] for letter in drained.letters()} == {
        "user6@example.com",
        "ida@example.com",
    }
    assert not [
        body for body in bodies(drained.inbox) if re.search(rb"(?<![a-z])ada@example.com(?![.]au)", body.lower())
    ]
    again = erase_in(drained, "ada@example.com")
    assert (again.pushes, again.dead_letters, again.events) == (0, 0, 0)


ABOUT_ADA = (
    event(1, Email=" Ada@Example.com\n"),
    event(2, Email={"address": "ada@example.com", "name": "Ada"}),
    event(3, Email=["bob@example.com", "ADA@example.com"]),
    event(4, Email="Ada <ada@example.com>, bob@example.com"),
    event(5, Email=None, Note="To:\nada@example.com."),
    event(6, Email="", Links=[{"mailto:ada@example.com": 1}]),
    event(7, Email={"name": "Ada"}, SenderEmail="ada@example.com"),
    event(8, Email="'ada@example.com'"),
    event(9, Email=None, Url="https://shop.example/?for=ada@example.com"),
)
NOT_ABOUT_ADA = (
    event(11, SenderEmail="ada@example.com"),
    event(12, Email=None, Note="bada@example.com, x-ada@example.com, ada@example.com.au, ada@example.co"),
    event(13, Email=["bob@example.com"], Note="ada@example.com"),
    *(event(14, Email=f"{start}ada@example.com") for start in ("o'", "a/", "a=", " #")),
)


def test_one_rule_says_what_is_about_a_person(drained: Drains) -> None:
    drained.receive(push(*ABOUT_ADA, *NOT_ABOUT_ADA))
    drained.drain()
    drained.receive(push(*NOT_ABOUT_ADA, *ABOUT_ADA))
    assert erase_in(drained, "ada@example.com") == Erased(2, 0, len(ABOUT_ADA))
    assert [row["raw"] for row in drained.events()] == list(NOT_ABOUT_ADA)
    assert [json.loads(body) for body in bodies(drained.inbox)] == [list(NOT_ABOUT_ADA)] * 2


@pytest.mark.parametrize("email", ["Jo\u0308rg@münchen.example", "jörg@xn--mnchen-3ya.example"])
def test_every_spelling_of_an_address_is_erased(embedded: Drains, email: str) -> None:
    spellings = ("JÖRG@münchen.example", "jo\u0308rg@MÜNCHEN.example", "jörg@XN--mnchen-3ya.example")
    about = [event(number, Email=spelling) for number, spelling in enumerate(spellings)]
    embedded.receive(push(*about, event(5, Email="jorg@münchen.example")))
    embedded.drain()
    assert erase_in(embedded, email) == Erased(1, 0, 3)
    assert [row["raw"]["UniqueMsgID"] for row in embedded.events()] == ["m5"]


ADA, BOB = b'{"Email": "\\u0061da@example.com", "x": ["\\"]},{"]}', b'{"Email": "bob@example.com", "y": {"z": [1, 2]}}'


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b"\xef\xbb\xbf[%b, %b]", b"\xef\xbb\xbf[ %b]"),
        (b'[%b, %b, {"Email": "\\ud83d"}]', b'[ %b, {"Email": "\\ud83d"}]'),
        (b'[null, %b, 5, %b, "x"] ', b'[null, 5, %b, "x"] '),
        (b'[{"N": "\xe4"}, %b,%b]', b'[{"N": "\xe4"},%b]'),
        (b"[%b, " + b"[" * 1100 + b"]" * 1100 + b", %b]", b"[ " + b"[" * 1100 + b"]" * 1100 + b", %b]"),
        (b'[%b, %b, {"Ema', b'[ %b, {"Ema'),
        (b'[%b, %b, {"Note": "ada@example.com', b"[ %b"),
        (b"[%b} , %b]]", b"[ %b]]"),
    ],
    ids=["mark", "surrogate", "others", "latin-1", "nested", "cut off", "cut off in hers", "brackets"],
)
def test_an_erasure_leaves_the_other_events_of_a_damaged_push(body: bytes, left: bytes) -> None:
    ada = Person("ada@example.com")
    assert ada.without(body % (ADA, BOB)) == left % BOB
    assert ada.without(left % BOB) is None


@pytest.mark.parametrize("body", [ADA, b"ada@example.com [1]", b"[%b]" % ADA, b'["ada@example.com", %b' % ADA])
def test_an_erasure_empties_a_push_without_other_events(body: bytes) -> None:
    assert Person("ada@example.com").without(body) == b"[]"


def test_an_erasure_leaves_the_other_events_of_dead_letters(drained: Drains) -> None:
    damaged = b"[%b, %b, {" % (ADA, BOB)
    drained.receive(Push(damaged, NOON, "mail_default", False), Push(b"[ %b, {" % BOB, NOON, "mail_default", False))
    drained.drain()
    assert erase_in(drained, "ada@example.com") == Erased(1, 1, 0)
    assert [letter["raw"] for letter in drained.letters()] == [(b"[ %b, {" % BOB).decode()]
    drained.receive(Push(b"[ %b, {" % BOB, NOON, "mail_default", False))
    assert drained.drain().dead_letters == 0, "its identifier is that of the text"


@pytest.mark.parametrize("name", ["embedded", "shared"])
def test_two_erasures_at_once_do_not_undo_each_other(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Drains = request.getfixturevalue(name)
    place.receive(push(event(1, Email="ada@example.com"), event(2, Email="bob@example.com"), event(3)))
    others = while_the_first_has_read(monkeypatch, lambda: erase_in(place, "bob@example.com"))
    erase_in(place, "ada@example.com")
    assert not others
    assert [json.loads(body) for body in bodies(place.inbox)] == [[event(3)]]


def test_two_erasures_at_once_do_not_undo_each_other_in_dead_letters(
    drained: Drains, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the other erasure leaves must precede its letter: the first one has passed it already.
    rest = next(rest for rest in map("{{{}".format, range(100)) if letter_id(rest, ADA) < letter_id(rest, ADA, BOB))
    drained.receive(Push(b"[%b, %b, %b" % (ADA, BOB, rest.encode()), NOON, "mail_default", False))
    drained.drain()
    hook = drained.warehouse.hook
    others = while_the_first_has_read(
        monkeypatch, lambda: erase("bob@example.com", None, hook, "mail_events", "mail_dead_letters")
    )
    erased = erase("ada@example.com", None, hook, "mail_events", "mail_dead_letters")
    assert (others, erased.dead_letters) == ([], 1)
    assert [letter["raw"] for letter in drained.letters()] == [f"[ {rest}"]


def letter_id(rest: str, *events: bytes) -> str:
    text = f"[{', '.join([*map(bytes.decode, events), rest])}"
    return DeadLetter(Origin("mail_default", NOON, 1), None, "", text).letter_id


def while_the_first_has_read(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> list[Any]:
    """Run another erasure between the first one's reading and its writing; the list is empty when it has run."""
    without, others = Person.without, [other]

    def slow(person: Person, body: bytes) -> bytes | None:
        result = without(person, body)
        if others:
            others.pop()()
        return result

    monkeypatch.setattr(Person, "without", slow)
    return others


def erase_in(drained: Drains, email: str) -> Erased:
    return erase(email, drained.inbox, drained.warehouse.hook, "mail_events", "mail_dead_letters")


def bodies(inbox: Inbox) -> list[bytes]:
    with closing(inbox.open()) as connection:
        return [one.body for one in inbox.scan(connection, after=0, max_pushes=100)]


SAME = ["rené@münchen.de", "rene\u0301@münchen.de", "René@xn--mnchen-3ya.de"]
OTHERS = ["rene@münchen.de", "straße@example.com", "strasse@example.com.au"]


@pytest.mark.parametrize("email", SAME, ids=ascii)
def test_every_spelling_of_a_person_is_erased_and_nobody_else(drained: Drains, email: str) -> None:
    """A database may take other letters for equal: é for e, ß for ss."""
    drained.receive(push(*(event(number, Email=each) for number, each in enumerate([*SAME, *OTHERS]))))
    drained.receive(Push("{no JSON of rené@xn--mnchen-3ya.de".encode(), NOON, "mail_default", False))
    drained.drain()
    erased = erase(email, drained.inbox, drained.warehouse.hook, "mail_events", "mail_dead_letters")
    assert (erased.pushes, erased.dead_letters, erased.events) == (2, 1, len(SAME))
    assert sorted(row["email"] for row in drained.events()) == sorted(OTHERS)
    erase("strasse@example.com", drained.inbox, drained.warehouse.hook, "mail_events", "mail_dead_letters")
    assert sorted(row["email"] for row in drained.events()) == sorted(OTHERS)


def test_an_erasure_needs_an_address(embedded: Drains) -> None:
    with pytest.raises(ValueError, match="email"):
        erase_in(embedded, " ")


def test_a_batch_is_bounded_by_bytes(embedded: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "BATCH_BYTES", 1000)
    embedded.receive(*(push(event(number)) for number in range(8)))
    told: list[int] = []
    embedded.drain(on_batch=lambda so_far: told.append(so_far.pushes))
    assert told == [4, 8]
