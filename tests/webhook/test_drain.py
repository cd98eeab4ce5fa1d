"""From the inbox to the warehouse: every accepted push is there once, whatever happens; a person is erased."""

from __future__ import annotations

import datetime
import json
import random
import unicodedata
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.rows import json_text
from airflow_provider_mail.webhook.drain import Drained, EventTables, UnreadableEventError, count_by_reason
from airflow_provider_mail.webhook.erasure import Person
from airflow_provider_mail.webhook.events import DeadLetter, Origin, Reason
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.webhook.conftest import Drains
from tests.webhook.pushes import EARLIER, NOON, body, event, push
from tests.webhook.receiving import execute, stored

LATER = NOON + datetime.timedelta(hours=1)


def test_events_arrive_as_they_were_pushed(drained: Drains) -> None:
    odd = event(3, "Forwarded", Guid=5, Extra={"a": [1, None, "ü \U0001f600\t\n\\"]}, TriggeredDateTimeV2="2026-03-01")
    drained.receive(push(event(1), event(2, "Opened"), odd), push(event(4), conn_id="other", at=LATER))
    assert drained.drain() == Drained(2, 4, Counter(Delivered=2, Opened=1, other=1))
    names = ("mail_conn_id", "raw", "received_at", "event_code", "guid", "triggered_time", "submit_time")
    assert [tuple(row[name] for name in names) for row in drained.events()] == [
        ("mail_default", event(1), NOON, "Delivered", None, NOON, EARLIER),
        ("mail_default", event(2, "Opened"), NOON, "Opened", None, NOON, EARLIER),
        ("mail_default", odd, NOON, "Forwarded", "5", NOON.replace(hour=0), EARLIER),
        ("other", event(4), LATER, "Delivered", None, NOON, EARLIER),
    ]
    assert drained.letters() == []


def test_duplicates_are_stored_once_in_whatever_order(drained: Drains) -> None:
    # As a service pushes that was never sure of a response: several times, in other pushes, in another order.
    dice = random.Random(46)
    codes = ("Dropped", "Bounced", "Delivered", "Opened", "Clicked", "Unsubscribed", "SpamReport", "TaskStatus")
    once = [event(number, codes[number % len(codes)]) for number in range(24)]
    once += [event(3, "Opened", TriggeredDateTimeV2="2026-03-01T12:00:01Z"), event(12, "TaskStatus", Status="Done")]
    sent = [each for each in once for _ in range(dice.choice((1, 2, 9)))]
    dice.shuffle(sent)
    while sent:
        size = dice.randint(1, 40)
        drained.receive(push(*sent[:size]))
        sent = sent[size:]
    total = drained.drain(batch_size=3)
    assert total.stored.total() == len(once) == total.events - total.duplicates
    stored = [json.dumps(row["raw"], sort_keys=True) for row in drained.events()]
    assert sorted(stored) == sorted(json.dumps(each, sort_keys=True) for each in once)
    assert not drained.inbox.waiting()


def test_the_first_of_two_that_differ_stays_the_other_is_kept(drained: Drains) -> None:
    later = [event(number, Extra={"a": [1, 2.5, "ü"]}, Platform="later") for number in range(1, 4)]
    drained.receive(push(event(1), event(2), event(5)), push(event(1), later[0], conn_id="other", at=LATER))
    assert drained.drain() == Drained(2, 5, Counter(Delivered=4), Counter({Reason.CONFLICT: 1}))
    third = push(event(1, Platform="third"), conn_id="other")
    drained.receive(push(event(1), later[1], event(2), later[2], later[2], event(5), at=LATER), third)
    assert drained.drain() == Drained(2, 7, Counter(Delivered=1), Counter({Reason.CONFLICT: 2}))
    drained.receive(push(event(2), later[2], event(5)), push(later[0], conn_id="other"))
    assert drained.drain() == Drained(2, 4, Counter()), "what differs is known"
    first = [(event(1), NOON), (event(2), NOON), (event(5), NOON), (event(1), LATER), (later[2], LATER)]
    assert [(row["raw"], row["received_at"]) for row in drained.events()] == first
    kept = {(each["mail_conn_id"], json.loads(each["raw"])["UniqueMsgID"]) for each in drained.letters()}
    assert kept == {("other", "m1"), ("mail_default", "m2")}
    assert {each["reason"] for each in drained.letters()} == {Reason.CONFLICT}
    for _ in range(2):
        assert drained.replay() == (0, 0, 3)


def test_every_conflict_of_a_large_push_is_kept(embedded: Drains) -> None:
    for platform in ("first", "later"):
        embedded.receive(push(*(event(number, Platform=platform) for number in range(999)), platform))
    assert embedded.drain(batch_size=1).reasons == {Reason.CONFLICT: 999, Reason.NOT_AN_OBJECT: 2}
    assert len(embedded.letters()) == 1001


def test_numbers_keep_their_value_and_are_no_conflict(drained: Drains) -> None:
    """Postgres writes floats with all digits, which are other integers to Python."""
    numbers: list[Any] = [10**25, -(10**298), 10**299, 2**64 - 1, 1e22, 1.2345678901234567e19, 1e300, 5e-324, 0.1 + 0.2]
    for _ in range(2):
        drained.receive(push(*(event(number, Extra=extra) for number, extra in enumerate([*numbers, 10**300]))))
    assert drained.drain(batch_size=1) == Drained(2, 18, Counter(Delivered=9), Counter({Reason.TEXT: 1}))
    stored = [Decimal(str(row["raw"]["Extra"])) for row in drained.events()]
    assert stored == [Decimal(str(number)) for number in numbers]


def test_what_cannot_be_read_goes_to_the_dead_letters_once(drained: Drains) -> None:
    hostile = event(2, Extra="a\x00b")
    cut = Push(body(event(3))[:-5], NOON, "mail_default", False)
    for _ in range(2):
        drained.receive(push(event(1), hostile, "no event"), cut, Push(b"\xff\x00", NOON, "mail_default", False))
    total = drained.drain(batch_size=1)
    reasons = Counter({Reason.TEXT: 1, Reason.NOT_AN_OBJECT: 1, Reason.NOT_JSON: 2})
    assert total == Drained(6, 2, Counter(Delivered=1), reasons)
    assert (total.dead_letters, total.conflicts) == (4, 0)
    found = {(letter["push_index"], letter["reason"], letter["push_id"]) for letter in drained.letters()}
    assert found == {
        (1, Reason.TEXT, 1),
        (2, Reason.NOT_AN_OBJECT, 1),
        (0, Reason.NOT_JSON, 2),
        (0, Reason.NOT_JSON, 3),
    }


def test_what_a_sender_chooses_is_no_reason(embedded: Drains) -> None:
    """Names of fields may hold addresses, and there may be any number of them; reasons become metrics and columns."""
    names = [*(f"field {number}" for number in range(300)), "it's ada@example.com", "x\" 'y", "\x00", "\ud800", "a\nb"]
    embedded.receive(push(*({"EventCode": "Opened", name: "\x00"} for name in names)))
    assert embedded.drain().reasons == {Reason.TEXT: len(names)}
    assert {letter["reason"] for letter in embedded.letters()} == {Reason.TEXT}
    embedded.warehouse.execute("UPDATE mail_dead_letters SET reason = 'ada@example.com'")
    assert count_by_reason(embedded.warehouse.hook, "mail_dead_letters") == {Reason.OTHER: len(names)}
    embedded.receive(push({"EventCode": "Opened", "it's ada@example.com": "\x00"}))
    with pytest.raises(UnreadableEventError) as failure:
        embedded.drain(dead_letters=False)
    assert "ada" not in str(failure.value)


def test_dead_letters_are_read_again_after_a_fix(drained: Drains) -> None:
    other, mine = Origin("other", NOON, 1), Origin("mail_default", NOON, 2)
    given = [(other, event(1)), (other, event(2)), (other, {}), (mine, event(1)), (mine, event(3, Extra="\x00"))]
    letters = [DeadLetter(origin, n, Reason.OTHER, json.dumps(each)) for n, (origin, each) in enumerate(given)]
    drained.tables.store_letters(letters)
    for read, left in ((3, 2), (0, 2)):
        assert drained.replay() == (read, read, left)
    stored = [(row["mail_conn_id"], row["raw"], row["received_at"]) for row in drained.events()]
    assert stored == [("other", event(1), NOON), ("other", event(2), NOON), ("mail_default", event(1), NOON)]
    assert sorted(letter["push_index"] for letter in drained.letters()) == [2, 4]


def test_a_dead_letter_that_is_a_conflict_stays(drained: Drains) -> None:
    drained.receive(push(event(1)))
    drained.drain()
    other = DeadLetter(Origin("mail_default", NOON, 9), 0, Reason.OTHER, json_text(event(1, Platform="other")))
    drained.tables.store_letters([other])
    for _ in range(2):
        assert drained.replay() == (0, 0, 1)
    assert [letter["raw"] for letter in drained.letters()] == [other.raw]
    assert [row["raw"] for row in drained.events()] == [event(1)]


def test_more_dead_letters_than_fit_a_page_are_read_again(embedded: Drains) -> None:
    """Accounts may have the same text."""
    origins = [Origin(f"conn{number}", NOON, number) for number in range(1100)]
    texts = [json.dumps(event(1)) if number % 2 else '"unreadable"' for number in range(1100)]
    letters = [DeadLetter(origin, 0, Reason.OTHER, text) for origin, text in zip(origins, texts, strict=True)]
    assert embedded.tables.store_letters(letters).total() == 1100
    assert embedded.replay() == (550, 550, 550)
    assert (len(embedded.events()), len(embedded.letters())) == (550, 550)


def test_an_unreadable_event_may_fail_the_drain_and_stays(embedded: Drains) -> None:
    embedded.receive(push(event(1)), push(event(2), {"EventCode": "ada@example.com\x00"}))
    with pytest.raises(UnreadableEventError) as failure:
        embedded.drain(dead_letters=False, batch_size=1)
    assert str(failure.value).startswith(f"push 2, event 1: {Reason.TEXT}")
    assert "ada" not in str(failure.value)
    assert [row["email"] for row in embedded.events()] == ["user1@example.com"]
    assert embedded.drain() == Drained(1, 1, Counter(Delivered=1), Counter({Reason.TEXT: 1}))


def test_an_older_push_that_is_stored_meanwhile_is_drained(embedded: Drains) -> None:
    """Numbers are not in the order of commits: one before the last that was taken may appear later."""

    def set_drained(value: str) -> None:
        with embedded.inbox.connected() as cursor:
            cursor.execute(f"UPDATE {embedded.inbox.table} SET drained_at = {value} WHERE id = 1")
            cursor.connection.commit()

    embedded.receive(*(push(event(number)) for number in range(3)))
    set_drained("'2026-01-01 00:00:00+00:00'")
    drained = embedded.drain(batch_size=1, on_batch=lambda total: set_drained("NULL") if total.pushes == 1 else None)
    assert drained.pushes == len(embedded.events()) == 3


def test_a_drain_stops_at_its_limit_and_reports_its_progress(embedded: Drains) -> None:
    embedded.receive(*(push(event(number)) for number in range(10)))
    reported: list[int] = []
    total = embedded.drain(batch_size=3, max_pushes=7, on_batch=lambda so_far: reported.append(so_far.pushes))
    assert (total.pushes, reported) == (7, [3, 6, 7])
    assert embedded.drain().pushes == 3
    assert embedded.drain() == Drained()
    # A batch has at most 4 MiB.
    embedded.receive(*(Push(b"[" + b" " * 3 * 2**19 + b"]", NOON, "mail_default", False) for _ in range(3)))
    reported.clear()
    embedded.drain(on_batch=lambda so_far: reported.append(so_far.pushes))
    assert reported == [2, 3]


def test_a_drain_that_leaves_nothing_makes_the_counter_exact(embedded: Drains) -> None:
    """It may be wrong after a change by hand. With a limit, more may be left, which would be counted each time."""

    def counted_after_a_change(**options: Any) -> int:
        execute(embedded.inbox, "UPDATE mail_inbox_counts SET bytes = bytes + 1000 WHERE shard = 0")
        embedded.drain(**options)
        return embedded.inbox.state().waiting_bytes // 1000

    embedded.receive(*(push(event(number)) for number in range(3)))
    counted = [counted_after_a_change(max_pushes=limit) for limit in (1, 1, 2, None)]
    assert counted == [1, 2, 0, 0]


def test_the_next_pushes_are_taken_before_these_are_drained(together: Drains) -> None:
    """Where a drain can lock them; another one skips those."""
    together.receive(*(push(event(number)) for number in range(4)))
    others: list[int] = []

    def drain_too(drained: Drained) -> None:
        if not others:
            others.append(together.drain().pushes)

    total = together.drain(batch_size=1, on_batch=drain_too)
    locked = 1 if together.warehouse.is_postgres else 0
    assert (total.pushes, others) == (1 + locked, [3 - locked])
    assert len(together.events()) == 4


def test_a_failure_after_the_load_repeats_the_batch_without_a_trace(
    embedded: Drains, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.receive(push(event(1), {}), push(event(2)))
    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "finish", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            embedded.drain()
    assert embedded.inbox.waiting()
    assert embedded.drain() == Drained(2, 2)
    assert (len(embedded.events()), len(embedded.letters())) == (2, 1)


def test_a_warehouse_that_fails_leaves_the_pushes_in_the_inbox(embedded: Drains) -> None:
    embedded.receive(push(event(1)))
    embedded.warehouse.execute("DROP TABLE mail_events", "CREATE TABLE mail_events (mail_conn_id text)")
    with pytest.raises(WarehouseError, match="mail_events") as failure:
        embedded.drain()
    assert "user1" not in repr(failure.value.__context__) + str(failure.value)
    assert embedded.inbox.waiting()
    letter = DeadLetter(Origin("mail_default", NOON, 1), 0, Reason.OTHER, json.dumps(event(2)))
    embedded.tables.store_letters([letter])
    with pytest.raises(WarehouseError, match="mail_events"):
        embedded.replay()
    assert [each["raw"] for each in embedded.letters()] == [letter.raw]


def test_drains_at_once_store_every_event_once(together: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins when the one before it has taken its pushes, with the same events in another order."""
    dice, numbers = random.Random(4), list(range(300))
    for _ in range(3):
        dice.shuffle(numbers)
        together.receive(*(push(*map(event, numbers[start : start + 20])) for start in range(0, 300, 20)))
    store, results, left = EventTables.store, list[Drained](), [1, 2, 3]

    def store_later(tables: EventTables, *arguments: Any) -> None:
        if left:
            left.pop()
            results.append(together.drain(batch_size=4))
        store(tables, *arguments)

    monkeypatch.setattr(EventTables, "store", store_later)
    results.append(together.drain(batch_size=4))
    assert sum(result.stored.total() for result in results) == 300
    assert len({row["email"] for row in together.events()}) == len(together.events()) == 300
    # SQLite has no locks of rows: what the first three have taken, the fourth one drains, too.
    assert (
        [result.pushes for result in results] == [45, 4, 4, 4]
        if together.inbox.hook.conn_type == "sqlite"
        else [33, 4, 4, 4]
    )
    assert not together.inbox.waiting()


# What was pushed about a person is erased everywhere, and nothing else

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
    event(15, Email="ada@example.com.au"),
    event(16, MailName="ada"),
)
UNREADABLE = [event(5, Email="Ada@Example.com", Extra="\x00"), event(6, Extra="\x00"), {"Email": "ida@example.com"}]
RENE = ["rené@münchen.de", "rene\u0301@MÜNCHEN.de", "René@xn--mnchen-3ya.de", "RENÉ@XN--mnchen-3ya.de"]
NOT_RENE = ["rene@münchen.de", "straße@example.com", "strasse@example.com.au"]


def bodies(drained: Drains) -> list[Any]:
    return [json.loads(push.body) for push in stored(drained.inbox)]


def test_a_person_is_erased_everywhere(drained: Drains) -> None:
    """From the events, the dead letters, and pushes that were drained or wait."""
    drained.receive(
        push(*ABOUT_ADA, *NOT_ABOUT_ADA),
        push(*UNREADABLE),
        Push(b'{"Email": "ada@example.com"', NOON, "mail_default", False),
    )
    drained.drain()
    drained.receive(push(*NOT_ABOUT_ADA, *ABOUT_ADA), push(event(21, "Opened", Email="ada\u0040example.com")))
    assert drained.erase(" ADA@example.com") == (5, 2, len(ABOUT_ADA))
    drained.drain()
    assert [row["raw"] for row in drained.events()] == list(NOT_ABOUT_ADA)
    emails = {json.loads(letter["raw"])["Email"] for letter in drained.letters()}
    assert emails == {"user6@example.com", "ida@example.com"}
    assert bodies(drained) == [list(NOT_ABOUT_ADA), UNREADABLE[1:], [], list(NOT_ABOUT_ADA), []]
    assert drained.erase("ada@example.com") == (0, 0, 0)
    with pytest.raises(ValueError, match="email"):
        drained.erase(" ")


def test_more_than_fits_a_page_is_erased(embedded: Drains) -> None:
    ada = {"Email": "ada@example.com"}
    embedded.receive(*(push(event(number, **ada), {"Number": number, **ada}) for number in range(50)))
    embedded.drain()
    assert embedded.erase("ada@example.com") == (50, 50, 50)


def test_the_same_event_of_another_account_stays(drained: Drains) -> None:
    other = event(1, Email=None, Note="bob@example.com")
    drained.receive(push(event(1, Email=None, Note="ada@example.com")), push(other, conn_id="other"))
    drained.drain()
    assert drained.erase("ada@example.com") == (1, 0, 1)
    assert [row["raw"] for row in drained.events()] == [other]


def test_every_spelling_of_a_person_is_erased_but_no_other(drained: Drains) -> None:
    """A database may take other letters for equal: é for e, ß for ss."""
    drained.receive(push(*(event(number, Email=each) for number, each in enumerate([*RENE, *NOT_RENE]))))
    drained.receive(Push("{no JSON of rené@xn--mnchen-3ya.de".encode(), NOON, "mail_default", False))
    drained.drain()
    assert drained.erase(RENE[0]) == (2, 1, len(RENE))
    assert sorted(row["email"] for row in drained.events()) == sorted(NOT_RENE)
    assert drained.erase("strasse@example.com") == (0, 0, 0)
    for email in RENE:
        person = Person(email)
        assert all(map(person.is_named_in, RENE))
        assert not any(map(person.is_named_in, NOT_RENE))


def test_combining_marks_without_end_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """To bring them into their order takes a time that grows with the square of their number."""
    marks, normalized = "\u0315\u0300" * 600, list[str]()
    assert address_key(f"A{marks}") == f"a{marks}"
    monkeypatch.setattr(unicodedata, "normalize", lambda _, text: normalized.append(text) or text)
    assert Person("ada@example.com").is_named_in(f"{marks}ada@example.com{marks}")
    assert normalized
    assert max(map(len, normalized)) < 100


ADA, BOB = b'{"Email": "\\u0061da@example.com", "x": ["\\"]},{"]}', b'{"Email": "bob@example.com", "y": {"z": [1, 2]}}'


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b"\xef\xbb\xbf[%b, %b]", b"[%b]"),
        (b'[%b, %b, {"Email": "\\ud83d"}]', b'[%b,{"Email": "\\ud83d"}]'),
        (b'[null, %b, 5, %b, "x"] ', b'[null,5,%b,"x"]'),
        (b'[{"N": "\xe4"}, %b,%b]', b'[{"N": "\xe4"},%b]'),
        (b"[%b, " + b"[" * 1100 + b"]" * 1100 + b", %b]", b"[" + b"[" * 1100 + b"]" * 1100 + b",%b]"),
        (b'[%b, %b, {"Ema', b'[%b,{"Ema]'),
        (b'[%b, %b, {"Note": "ada@example.com', b"[%b]"),
        (b"[%b} , %b]]", b"[},%b,]]]"),
        (b"[%b, %b] ada@example.com", b"[%b]"),
    ],
    ids=["mark", "surrogate", "others", "latin-1", "nested", "cut off", "cut off in hers", "brackets", "trailing"],
)
def test_an_erasure_leaves_the_others_of_a_damaged_push(body: bytes, left: bytes) -> None:
    ada = Person("ada@example.com")
    left = left % BOB if b"%b" in left else left
    assert ada.without(body % (ADA, BOB)) == left
    assert ada.without(left) is None


@pytest.mark.parametrize("body", [ADA, b"ada@example.com [1]", b"[%b]" % ADA, b'["ada@example.com", %b' % ADA])
def test_an_erasure_empties_a_push_without_other_events(body: bytes) -> None:
    assert Person("ada@example.com").without(body) == b"[]"


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


def test_two_erasures_at_once_both_change_a_push(together: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    together.receive(push(event(1, Email="ada@example.com"), event(2, Email="bob@example.com"), event(3)))
    others = while_the_first_has_read(monkeypatch, lambda: together.erase("bob@example.com"))
    together.erase("ada@example.com")
    assert not others
    assert bodies(together) == [[event(3)]]


def test_what_a_drain_stores_meanwhile_is_erased(together: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    together.receive(push(event(1, Email="ada@example.com"), {"Email": "ada@example.com"}))
    others = while_the_first_has_read(monkeypatch, together.drain)
    together.erase("ada@example.com")
    assert not others
    assert (together.events(), together.letters(), bodies(together)) == ([], [], [[]])
