"""Checking rows: every row is sent as text, in order, or rejected with its number, its field and a reason."""

from __future__ import annotations

import json
import unicodedata
import uuid
from collections import deque
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import StringConstraints, TypeAdapter, ValidationError

from airflow_provider_mail.api.flows.validate_rows import CheckedRows, RowChecker
from tests.api.parts import ADDRESS_PATTERN, address_key, address_problem

MARK = "qX7"
"""Stands in all text that comes in, and in no reason."""

GOOD_ADDRESSES = ("ada@example.com", f"{MARK}@sub.example.org", "čeněk+x@příklad.cz", "o'neil@x.co", "用户@例子.公司")
BAD_ADDRESSES = (
    *("nonsense", "a@b", "a@b.de,c@d.de", "@x.de", "a@", "a@b..de", "<a@b.de>", "a@@b.de", "a b@c.de", "a@b.de\n"),
)
PHONES = ("+49 30 1", "(555) 123-4567 x89", "112", " 4930 1 ")


class Color(StrEnum):
    RED = "red"


class NoTime(datetime):
    """As pandas has it: a datetime that is none, and unlike itself."""

    __hash__ = datetime.__hash__

    def __eq__(self, other: object) -> bool:
        return False


texts = st.text(st.characters(exclude_characters="@"), max_size=8).map(MARK.__add__)
half_pairs = st.builds(
    lambda before, half: f"{MARK}{before}{half}",
    st.text(st.characters(exclude_characters="@"), max_size=3),
    st.sampled_from("\ud800\udfff"),
)
scalars = st.one_of(
    *(st.none(), st.just(""), texts, half_pairs, st.booleans(), st.integers(), st.floats(), st.decimals()),
    *(st.dates(), st.times(), st.datetimes(timezones=st.one_of(st.none(), st.just(UTC))), st.uuids(), st.timedeltas()),
    *(st.sampled_from([Color.RED, NoTime(2026, 1, 1)]), st.binary(max_size=4), st.lists(st.integers(), max_size=2)),
)
addresses = st.one_of(st.emails(), st.sampled_from(GOOD_ADDRESSES), st.sampled_from(BAD_ADDRESSES), scalars)
BY_PROPERTY = {
    "email": addresses,
    "phoneNumber": st.one_of(st.integers(), st.sampled_from(PHONES), texts, scalars),
    "name": scalars,
    "born": scalars,
}

MAPPINGS = (
    *(("email",), ("phoneNumber",), ("email", "name"), ("name", "phoneNumber"), ("email", "phoneNumber")),
    ("name", "phoneNumber", "email", "born"),
)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Any]]:
    """Properties, and rows that are mostly of their width."""
    properties = draw(st.sampled_from(MAPPINGS))
    whole = st.tuples(*(BY_PROPERTY[name] for name in properties))
    good = {"email": st.sampled_from(GOOD_ADDRESSES), "phoneNumber": st.sampled_from(PHONES)}
    sometimes_good = st.tuples(*(good.get(name, texts) for name in properties))
    odd = st.one_of(st.lists(scalars, max_size=6), scalars, st.dictionaries(texts, scalars, max_size=2))
    row = st.one_of(sometimes_good, sometimes_good.map(list), whole, whole.map(list), odd)
    return properties, draw(st.lists(row, max_size=8))


def values_of(row: Any) -> list[Any]:
    return list(row) if isinstance(row, list | tuple) else [row]


def text_of(name: str, value: Any, *, needed: bool) -> str | None:
    """What is sent for a value; a `ValueError` where nothing can be."""
    if value is None or (name == "email" and value == "" and not needed):
        if needed:
            raise ValueError
        return None
    if isinstance(value, str):
        value.encode()  # half a surrogate pair is a `ValueError`
        text = str.__str__(value)
        if name == "phoneNumber" and text and text not in PHONES:
            raise ValueError
        if (name == "email" and (text in BAD_ADDRESSES or "@" not in text)) or (needed and not text):
            raise ValueError
        return text
    if name == "email" or (
        name == "phoneNumber" and (isinstance(value, bool) or not isinstance(value, int) or value < 0)
    ):
        raise ValueError
    if isinstance(value, bool):
        return {True: "true", False: "false"}[value]
    if isinstance(value, float | Decimal) and (Decimal(value).is_nan() or Decimal(value).is_infinite()):
        raise ValueError
    if isinstance(value, int | float | Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, date | time) and not isinstance(value, NoTime):
        return value.isoformat()
    raise ValueError


def verdict(properties: Sequence[str], row: Any) -> list[str | None] | str:
    """What a row is sent as, or the field for which it is rejected."""
    values = values_of(row)
    if len(values) != len(properties):
        return ""
    both = {"email", "phoneNumber"} <= set(properties)
    sent: dict[str, str | None] = {}
    for name, value in zip(properties, values, strict=True):
        try:
            sent[name] = text_of(name, value, needed=name in ("email", "phoneNumber") and not both)
        except ValueError:
            return name
    if both and sent["email"] is None and not sent["phoneNumber"]:
        return "email"
    return list(sent.values())


def good_rows(checked: CheckedRows) -> dict[int, list[str | None]]:
    return dict(zip(checked.numbers, json.loads(checked.encoded), strict=True))


MOMENT = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
KNOWN = [(GOOD_ADDRESSES[0], value) for value in (7, True, Decimal("12.30"), time(9, 30), MOMENT, uuid.UUID(int=1))]


@given(chunks())
@example((("email",), []))
@example((("email", "name"), KNOWN))
@example((("email", "name"), [*KNOWN, (GOOD_ADDRESSES[0],)]))
def test_every_row_is_sent_in_order_or_rejected(chunk: tuple[tuple[str, ...], list[Any]]) -> None:
    """A reject keeps the row's values, and its reason shows none of them."""
    properties, rows = chunk
    checker = RowChecker(properties)
    checked = checker.check(rows, 1001)
    again = checker.check(rows, 1001)
    assert (good_rows(again), again.rejects) == (good_rows(checked), checked.rejects)
    expected = {1001 + place: verdict(properties, row) for place, row in enumerate(rows)}
    assert good_rows(checked) == {number: row for number, row in expected.items() if isinstance(row, list)}
    assert list(checked.numbers) == sorted(checked.numbers)
    fields = {reject.row_number: reject.field for reject in checked.rejects}
    assert fields == {number: field for number, field in expected.items() if isinstance(field, str)}
    assert [reject.row_number for reject in checked.rejects] == sorted(fields)
    for reject in checked.rejects:
        given_values = values_of(rows[reject.row_number - 1001])
        assert all(kept is value for kept, value in zip(reject.row, given_values, strict=True))
        assert reject.reason
        assert MARK not in reject.reason + repr(reject)
        assert not any(len(value) >= 6 and value in reject.reason for value in map(str, given_values))


@pytest.mark.parametrize(
    ("names", "row", "field", "reason"),
    [
        (["email"], (None,), "email", "is empty"),
        (["email"], ("",), "email", "is not an email address"),
        (["email"], (b"a@b.de",), "email", "is of type bytes: cast it to text"),
        (["email"], ("nobody",), "email", "is not an email address"),
        (["email"], ("a\u200bb@b.de",), "email", "is not an email address: it contains ZERO WIDTH SPACE (U+200B)"),
        (["email"], ("a@b.de ",), "email", "is not an email address: it ends with a space"),
        (["email"], ("a@b.c\ud800",), "email", "holds half a surrogate pair, which is not text"),
        (["phoneNumber"], (4.9e12,), "phoneNumber", "is of type float: cast it to text"),
        (["phoneNumber"], (10**5000,), "phoneNumber", "is a whole number with thousands of digits"),
        (["phoneNumber"], ("hello",), "phoneNumber", "is not a phone number"),
        (["email", "phoneNumber"], (None, None), "email", "neither email nor phoneNumber is given"),
        (["email", "name"], ("a@b.de", float("nan")), "name", "is NaN or infinite: give None where there is no value"),
        (["email", "name"], ("a@b.de", NoTime(2026, 1, 1)), "name", "is of type NoTime: cast it to text"),
        (["email", "name"], ("a@b.de", {"a": 1}), "name", "is of type dict: cast it to text"),
        (
            ["email", "name"],
            ("a@b.de", Decimal("sNaN")),
            "name",
            "is NaN or infinite: give None where there is no value",
        ),
        (["email", "name"], ("a@b.de", 10**5000), "name", "is a whole number with thousands of digits"),
        (["email", "name"], (), "", "has 0 values instead of 2"),
        (["email", "name"], ("nobody", 1, 2), "", "has 3 values instead of 2"),
        (["email", "name"], {"email": "a@b.de", "name": "Ada"}, "", "has 1 values instead of 2"),
        (["email", "name"], deque(["a@b.de", b"Ada"]), "name", "is of type bytes: cast it to text"),
    ],
)
def test_a_rejected_row_has_a_field_and_a_reason(names: list[str], row: Any, field: str, reason: str) -> None:
    good = tuple("x@example.com" if name == "email" else "1" for name in names)
    checked = RowChecker(names).check([good, row, good], 41)
    (reject,) = checked.rejects
    assert (reject.row_number, reject.field, reject.reason) == (42, field, reason)
    assert good_rows(checked) == {41: list(good), 43: list(good)}


def test_the_text_for_a_missing_value_can_be_chosen() -> None:
    rows = [("ada@example.com", None, "1"), (None, "Bob", 2), (None, None, None)]
    checked = RowChecker(("email", "name", "phoneNumber"), null_value="-").check(rows, 1)
    assert good_rows(checked) == {1: ["ada@example.com", "-", "1"], 2: ["-", "Bob", "2"]}
    assert [reject.row_number for reject in checked.rejects] == [3]


# Which spellings are one person's address, and which characters an address must not hold.

SAME = [
    ("ann@x.com", "Ann@X.COM", " ann@x.com\n", "\u00a0ann@x.com"),
    ("ann@münchen.de", "ann@xn--mnchen-3ya.de", "ANN@MÜNCHEN.DE", "ann@mu\u0308nchen.de", "Ann@XN--MNCHEN-3YA.de"),
    ("ann@straße.de", "ann@xn--strae-oqa.de"),
    ("ann@x.com", "ann@\uff58.com", "ann@x\u3002com"),
    ("émile@x.de", "E\u0301mile@x.de"),
    ("ann@foo_bär.de", "Ann@foo_ba\u0308r.de"),  # no valid name of a host
    ("münchen.de", "xn--mnchen-3ya.de"),  # the entry of a sender
]
OTHERS = [("ann@strasse.de", "ann@straße.de"), ("strasse@x.de", "straße@x.de"), ("ann@x.com", "ann+1@x.com")]

pattern = TypeAdapter(Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN)])


def test_which_spellings_are_one_address() -> None:
    for spellings in SAME:
        assert len(set(map(address_key, spellings))) == 1, spellings
    for addresses in OTHERS:
        assert len(set(map(address_key, addresses))) == len(addresses), addresses


def test_an_invisible_character_is_rejected_and_named() -> None:
    named = {
        "\u200b": "ZERO WIDTH SPACE (U+200B)", "\n": "a line break", " ": "a space",
        "\u00a0": "NO-BREAK SPACE (U+00A0)", "\ufe0f": "VARIATION SELECTOR-16 (U+FE0F)",
        "\u3164": "HANGUL FILLER (U+3164)", "\u2800": "BRAILLE PATTERN BLANK (U+2800)",
        "\x7f": "a control character (U+007F)",
    }  # fmt: skip
    every = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cf", "Zs")]
    assert len(every) > 150
    for character in (*named, *every):
        for place in (0, 2, 5, 9):
            odd = "ann@x.com"[:place] + character + "ann@x.com"[place:]
            with pytest.raises(ValidationError):
                pattern.validate_python(odd)
            assert address_problem(odd).startswith("is not an email address: it ")
            assert address_problem(odd).endswith(f" {named.get(character, '')}") or character not in named
    assert "ends with" in address_problem("ann@x.com ")
