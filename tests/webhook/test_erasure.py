"""What was pushed about a person is erased everywhere, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mail.webhook.erasure import Erased, Person
from airflow_provider_mail.webhook.events import DeadLetter, Origin
from airflow_provider_mail.webhook.inbox import Push
from tests.webhook.draining import Drains
from tests.webhook.pushes import NOON, event, push
from tests.webhook.receiving import stored

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
    assert drained.erase(" ADA@example.com") == Erased(5, 2, len(ABOUT_ADA))
    drained.drain()
    assert [row["raw"] for row in drained.events()] == list(NOT_ABOUT_ADA)
    emails = {json.loads(letter["raw"])["Email"] for letter in drained.letters()}
    assert emails == {"user6@example.com", "ida@example.com"}
    assert bodies(drained) == [list(NOT_ABOUT_ADA), UNREADABLE[1:], [], list(NOT_ABOUT_ADA), []]
    assert drained.erase("ada@example.com") == Erased(0, 0, 0)
    with pytest.raises(ValueError, match="email"):
        drained.erase(" ")


def test_every_spelling_of_a_person_is_erased_but_no_other(drained: Drains) -> None:
    """A database may take other letters for equal: é for e, ß for ss."""
    drained.receive(push(*(event(number, Email=each) for number, each in enumerate([*RENE, *NOT_RENE]))))
    drained.receive(Push("{no JSON of rené@xn--mnchen-3ya.de".encode(), NOON, "mail_default", False))
    drained.drain()
    assert drained.erase(RENE[0]) == Erased(2, 1, len(RENE))
    assert sorted(row["email"] for row in drained.events()) == sorted(NOT_RENE)
    assert drained.erase("strasse@example.com") == Erased(0, 0, 0)
    for email in RENE:
        person = Person(email)
        assert all(map(person.is_named_in, RENE))
        assert not any(map(person.is_named_in, NOT_RENE))


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
def test_an_erasure_leaves_the_others_of_a_damaged_push(body: bytes, left: bytes) -> None:
    ada = Person("ada@example.com")
    assert ada.without(body % (ADA, BOB)) == left % BOB
    assert ada.without(left % BOB) is None


@pytest.mark.parametrize("body", [ADA, b"ada@example.com [1]", b"[%b]" % ADA, b'["ada@example.com", %b' % ADA])
def test_an_erasure_empties_a_push_without_other_events(body: bytes) -> None:
    assert Person("ada@example.com").without(body) == b"[]"


def test_an_erasure_leaves_the_others_of_dead_letters(drained: Drains) -> None:
    damaged = b"[%b, %b, {" % (ADA, BOB)
    drained.receive(Push(damaged, NOON, "mail_default", False), Push(b"[ %b, {" % BOB, NOON, "mail_default", False))
    drained.drain()
    assert drained.erase("ada@example.com") == Erased(1, 1, 0)
    assert [letter["raw"] for letter in drained.letters()] == [(b"[ %b, {" % BOB).decode()]
    drained.receive(Push(b"[ %b, {" % BOB, NOON, "mail_default", False))
    assert drained.drain().dead_letters == 0, "its identifier is that of the text"


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


def test_two_erasures_at_once_both_change_a_dead_letter(drained: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    def letter_id(rest: str, *events: bytes) -> str:
        text = f"[{', '.join([*map(bytes.decode, events), rest])}"
        return DeadLetter(Origin("mail_default", NOON, 1), None, "", text).letter_id

    # What the other erasure leaves must precede its letter: the first one has passed it already.
    rest = next(rest for rest in map("{{{}".format, range(100)) if letter_id(rest, ADA) < letter_id(rest, ADA, BOB))
    drained.receive(Push(b"[%b, %b, %b" % (ADA, BOB, rest.encode()), NOON, "mail_default", False))
    drained.drain()
    others = while_the_first_has_read(monkeypatch, lambda: drained.erase("bob@example.com", without_inbox=True))
    erased = drained.erase("ada@example.com", without_inbox=True)
    assert (others, erased.dead_letters) == ([], 1)
    assert [letter["raw"] for letter in drained.letters()] == [f"[ {rest}"]
