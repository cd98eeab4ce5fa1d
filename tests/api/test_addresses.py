"""Which spellings are one person's address, and which characters an address must not hold."""

from __future__ import annotations

import unicodedata
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import StringConstraints, TypeAdapter, ValidationError

from airflow_provider_mail.api._core.addresses import ADDRESS_PATTERN, address_key, address_problem

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

LETTERS = st.characters(min_codepoint=33) | st.sampled_from("ßİΣς\u0345\u212b\u00ad\u200d.")
ADDRESSES = st.builds("{}@{}.{}".format, *[st.text(LETTERS, min_size=1, max_size=4)] * 3)
pattern = TypeAdapter(Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN)])


def test_which_spellings_are_one_address() -> None:
    for spellings in SAME:
        assert len(set(map(address_key, spellings))) == 1, spellings
    for addresses in OTHERS:
        assert len(set(map(address_key, addresses))) == len(addresses), addresses


@given(ADDRESSES)
def test_the_form_of_unicode_does_not_matter(address: str) -> None:
    key = address_key(address)
    assert address_key(key) == key
    assert address_key(unicodedata.normalize("NFC", address)) == key
    assert address_key(unicodedata.normalize("NFD", address)) == key


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("\u200b", "ZERO WIDTH SPACE (U+200B)"), ("\u00ad", "SOFT HYPHEN (U+00AD)"), ("\n", "a line break"),
        ("\u202e", "RIGHT-TO-LEFT OVERRIDE (U+202E)"), ("\u00a0", "NO-BREAK SPACE (U+00A0)"), (" ", "a space"),
        ("\ufe0f", "VARIATION SELECTOR-16 (U+FE0F)"), ("\u3164", "HANGUL FILLER (U+3164)"),
        ("\u2800", "BRAILLE PATTERN BLANK (U+2800)"), ("\x7f", "a control character (U+007F)"),
    ],
)  # fmt: skip
def test_an_invisible_character_is_named(character: str, name: str) -> None:
    for place in (0, 2, 5, 9):
        odd = "ann@x.com"[:place] + character + "ann@x.com"[place:]
        with pytest.raises(ValidationError):
            pattern.validate_python(odd)
        assert address_problem(odd).startswith("is not an email address: it ")
        assert address_problem(odd).endswith(f" {name}")
    assert "ends with" in address_problem("ann@x.com ")


def test_every_character_of_these_categories_is_rejected() -> None:
    odd = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cf", "Zs")]
    assert len(odd) > 150
    for character in odd:
        with pytest.raises(ValidationError):
            pattern.validate_python(f"a{character}b@x.com")
