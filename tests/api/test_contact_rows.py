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
from pydantic import AfterValidator, StringConstraints, TypeAdapter, ValidationError

from airflow_provider_mail.api.flows.validate_rows import CheckedRows, RowChecker
from tests.api.parts import ADDRESS_PATTERN, address_key, address_problem, check_lengths


class Color(StrEnum):
    RED = "red"


class NoTime(datetime):
    """As pandas has it: a datetime that is none, and unlike itself."""

    __hash__ = datetime.__hash__

    def __eq__(self, other: object) -> bool:
        return False


def good_rows(checked: CheckedRows) -> dict[int, list[str | None]]:
    return dict(zip(checked.numbers, json.loads(checked.encoded), strict=True))


ADA = "ada@example.com"


def unchanged(*rows: list[str | None]) -> list[tuple[Any, list[str | None]]]:
    return [(row, row) for row in rows]


# Rows, and what is sent of each.
SENT: dict[tuple[str, ...], list[tuple[Any, list[str | None]]]] = {
    ("email",): [(ADA, [ADA]), *unchanged(["čeněk+x@příklad.cz"], ["o'neil@x.co"], ["用户@例子.公司"])],
    ("phoneNumber",): [
        *unchanged(["+49 30 1"], ["(555) 123-4567 x89"], [" 4930 1 "]), ([4930], ["4930"]), ([0], ["0"]),
    ],
    ("email", "name"): [
        *(([ADA, value], [ADA, text]) for value, text in (
            (None, None), ("", ""), (" Ada ", " Ada "), (7, "7"), (-2.5, "-2.5"), (True, "true"), (False, "false"),
            (Decimal("12.30"), "12.30"), (uuid.UUID(int=1), str(uuid.UUID(int=1))), (time(9, 30), "09:30:00"),
            (date(2026, 1, 31), "2026-01-31"), (datetime(2026, 1, 31, 9, 30, tzinfo=UTC), "2026-01-31T09:30:00+00:00"),
            (Color.RED, "red"),
        )),
        ((ADA, "Ada"), [ADA, "Ada"]), (deque([ADA, 7]), [ADA, "7"]),
    ],
    ("email", "phoneNumber"): [
        *unchanged([ADA, "112"], [ADA, None], [ADA, ""], [None, "112"]),
        (["", "112"], [None, "112"]), (["", 112], [None, "112"]),
    ],
    ("name", "phoneNumber", "email"): [
        *unchanged([None, None, ADA], ["Ada", "112", None]), ([1, 112, ""], ["1", "112", None]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("names", SENT)
def test_every_row_is_sent_as_text_in_order(names: tuple[str, ...]) -> None:
    """Whatever was in the chunk before, and beside text that has no form in UTF-8."""
    rows, expected = [row for row, _ in SENT[names]], [sent for _, sent in SENT[names]]
    checker = RowChecker(names)
    for more in ([], [], ["\ud800"] * len(names)):
        checked = checker.check([*rows, *([more] * bool(more))], 1001)
        assert good_rows(checked) == dict(enumerate(expected, 1001))
        assert [reject.row_number for reject in checked.rejects] == [1001 + len(rows)] * bool(more)


@pytest.mark.parametrize(
    ("names", "row", "field", "reason"),
    [
        (["email"], (None,), "email", "is empty"),
        (["email"], ("",), "email", "is not an email address"),
        (["email"], (b"a@b.de",), "email", "is of type bytes: cast it to text"),
        (["email"], ("a\u200bb@b.de",), "email", "is not an email address: it contains ZERO WIDTH SPACE (U+200B)"),
        (["email"], ("a@b.de ",), "email", "is not an email address: it ends with a space"),
        (["email"], ("a@b.c\ud800",), "email", "holds half a surrogate pair, which is not text"),
        (["phoneNumber"], (4.9e12,), "phoneNumber", "is of type float: cast it to text"),
        (["phoneNumber"], (10**5000,), "phoneNumber", "is a whole number with thousands of digits"),
        (["phoneNumber"], ("hello",), "phoneNumber", "is not a phone number"),
        (["phoneNumber"], (-5,), "phoneNumber", "is not a phone number"),
        (["phoneNumber"], (True,), "phoneNumber", "is of type bool: cast it to text"),
        (["phoneNumber"], ("",), "phoneNumber", "is empty"),
        (["email", "phoneNumber"], ("", ""), "email", "neither email nor phoneNumber is given"),
        (["email", "phoneNumber"], ("nobody", "112"), "email", "is not an email address"),
        (["email", "phoneNumber"], (None, "hello"), "phoneNumber", "is not a phone number"),
        (["email", "phoneNumber"], (None, None), "email", "neither email nor phoneNumber is given"),
        (["email", "name"], ("a@b.de", float("nan")), "name", "is NaN or infinite: give None where there is no value"),
        (["email", "name"], ("a@b.de", NoTime(2026, 1, 1)), "name", "is of type NoTime: cast it to text"),
        (["email", "name"], ("a@b.de", "\ud800"), "name", "holds half a surrogate pair, which is not text"),
        (["email", "name"], ("a@b.de", {"a": 1}), "name", "is of type dict: cast it to text"),
        (
            ["email", "name"],
            ("a@b.de", Decimal("sNaN")),
            "name",
            "is NaN or infinite: give None where there is no value",
        ),
        (["email", "name"], ("a@b.de", 10**5000), "name", "is a whole number with thousands of digits"),
        (["email", "name"], ("a@b.de",), "", "has 1 values instead of 2"),
        (["email", "name"], (), "", "has 0 values instead of 2"),
        (["email", "name"], {"email": "a@b.de", "name": "Ada"}, "", "has 1 values instead of 2"),
        (["email", "name"], deque(["a@b.de", b"Ada"]), "name", "is of type bytes: cast it to text"),
    ],
)
def test_a_rejected_row_has_a_field_and_a_reason(names: list[str], row: Any, field: str, reason: str) -> None:
    good = tuple("x@example.com" if name == "email" else "1" for name in names)
    checked = RowChecker(names).check([good, row, row, good], 41)
    reject, again = checked.rejects
    assert (reject.row_number, reject.field, reject.reason, again.row_number) == (42, field, reason, 43)
    assert list(reject.row) == (list(row) if isinstance(row, tuple | deque) else [row])
    assert "row=" not in repr(reject)
    assert good_rows(checked) == {41: list(good), 44: list(good)}


@pytest.mark.parametrize("step", [1, 7, 60])
def test_the_result_for_a_row_does_not_depend_on_others(step: int) -> None:
    """However many of them are unusual, in a chunk or in the one before."""
    odd: list[Any] = [
        ("Ann@X.com", "Ann", "1"), ("ann@x.com.", None, None), ("zoë@exämple.example", "Zoë", ""), (None, "Bob", 112),
        ("nobody", "Bob", "112"), ("ann@x.com\nbob@x.com", "", "1"), ("ann@x.com", "", "1\n2"),
        ("ann@x.com", 7, "hello"), (f"{'l' * 65}@x.com", "", ""), ("ann@xn--a.com", "", ""),
        ("ann@x.com", "\ud800", "1"), ("ann@x.com", "Ann"),
    ]  # fmt: skip
    names = ("email", "name", "phoneNumber")

    def small(rows: Sequence[Any]) -> Sequence[Any]:
        return [(row[0].lower().rstrip("."), *row[1:]) if isinstance(row[0], str) else row for row in rows]

    usual = [(f"ann{number}@x.com", "Ann", f"+49{number}") for number in range(240)]
    rows = [odd[n // step % len(odd)] if n % step == 0 else row for n, row in enumerate(usual)]
    alone = [RowChecker(names, spell=small).check([row], number) for number, row in enumerate(rows, 1)]
    checker = RowChecker(names, spell=small)
    for _ in range(3):
        checked = checker.check(rows, 1)
        assert good_rows(checked) == {number: row for each in alone for number, row in good_rows(each).items()}
        assert checked.rejects == [reject for each in alone for reject in each.rejects]


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


POSSIBLE = [
    "ann@x.com", "o'brien@x.com", "ann+tag@a-b.co.uk", "x_y=z/1@sub.x.com", '"ann b.c"'.replace(" ", "") + "@x.com",
    "zoë@exämple.example", "ann@xn--mnchen-3ya.de", "陈@例子.中国", "ann@1and1.com", "ann@x.xn--p1ai", "a@3com.c2",
    f"{'l' * 64}@x.com", f"ann@{'d' * 63}.com", f"ann@{'.'.join(['d' * 60] * 4)}.com"[:254],
]  # fmt: skip
IMPOSSIBLE = [
    "'ann@x.com'", '"ann@x.com"', "mailto:ann@x.com", "ann@http://x.com", "ann@x.com/", "ann@x.com/news", "ann@-x.com",
    "ann@x-.com", "ann@x.-com", "ann@x.com-", "ann..b@x.com", ".ann@x.com", "ann.@x.com", "ann@x..com", "ann@.x.com",
    "ann@x.com.", "ann@x_y.com", "ann@x.com?subject=hi", "ann@x.com:25", "ann@192.0.2.1", "ann@[192.0.2.1]", "ann@x",
    "ann@x.c!", "(ann)ann@x.com", "ann@x.com(ann)", "ann\\@x.com", "ann:b@x.com", "[ann]@x.com", "ann@x.1",
    "ann@x.com'",
    "ann@💌.com", f"{'l' * 65}@x.com", f"ann@{'d' * 64}.com", f"ann@{'ü' * 60}.com",
    f"ann@{'.'.join(['d' * 62] * 4)}.com",
    f"{'é' * 33}@x.com", "ann@x.com\u2026", "ann%x.com", "ann@x,com", "ann@x.com#top", "ann@@x.com", "ann@x.com*",
    "ann@xn--a.com", "ann@XN--99999.de", "ann\ufffd@x.com", "ann\ue000@x.com",
]  # fmt: skip


def test_addresses_that_no_server_can_have() -> None:
    address = TypeAdapter(Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN), AfterValidator(check_lengths)])
    for text in POSSIBLE:
        assert address.validate_python(text) == text
    for text in IMPOSSIBLE:
        with pytest.raises(ValidationError):
            address.validate_python(text)
    assert address_problem("'ann@x.com'").endswith("it is in quotation marks")
    assert address_problem("mailto:ann@x.com").endswith("leave out mailto:")
    assert address_problem("ann@http://x.com").endswith("its domain contains a slash")
    assert address_problem("ann@-x.com").endswith("a part of the domain begins or ends with a hyphen")
    assert address_problem("ann..b@x.com").endswith("a dot stands alone before the @")
