"""Values at the edges of the specification's rules, and just beyond them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import strategies as st

LETTERS_AND_DIGITS = st.characters(categories=["L", "Nd"])
ANY = st.characters(exclude_categories=["Cs"])
"""Every character that has a form in UTF-8."""
IN_A_LINE = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])
"""Those that do not end a line or control a device."""


@st.composite
def text_of_bytes(draw: st.DrawFn, size: int, alphabet: st.SearchStrategy[str] = ANY) -> str:
    """Text of exactly so many bytes in UTF-8, with at least one character of more than one byte."""
    wide = draw(alphabet.filter(lambda character: len(character.encode()) > 1))
    drawn = draw(st.text(alphabet, max_size=size))
    kept, room = [wide], size - len(wide.encode())
    for character in drawn:
        if len(character.encode()) <= room:
            kept.append(character)
            room -= len(character.encode())
    return "".join(kept) + "a" * room


def labels() -> st.SearchStrategy[str]:
    return st.text(LETTERS_AND_DIGITS, min_size=1, max_size=100).filter(lambda text: len(text.encode()) <= 100)


def not_labels() -> st.SearchStrategy[str]:
    """Text with at least one character that is neither letter nor digit, or none at all."""
    other, more = st.characters(exclude_categories=["L", "Nd", "Cs"]), st.text(max_size=10)
    return st.just("") | st.tuples(more, other, more).map("".join).filter(lambda text: len(text.encode()) <= 100)


def offsets() -> st.SearchStrategy[timezone]:
    return st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def aware_times() -> st.SearchStrategy[datetime]:
    """Instants with named zones and with plain offsets, those that only exist twice a year included."""
    # The first and last day of the calendar can lie outside it in UTC.
    return st.datetimes(
        min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.timezones() | offsets()
    )


# What users write.

anything = st.text(ANY, min_size=1, max_size=60)
"""Text in any script, with control characters, quotes and whatever else somebody can paste into a field."""

lines = st.text(IN_A_LINE, min_size=1, max_size=60)
"""The same without line breaks and control characters, for what becomes part of a header."""


def at_most_bytes(size: int, alphabet: st.SearchStrategy[str] = ANY) -> st.SearchStrategy[str]:
    """Text of one up to so many bytes, the edge included."""
    text = st.text(alphabet, min_size=1, max_size=size)
    return text.filter(lambda text: len(text.encode()) <= size) | text_of_bytes(size, alphabet)
