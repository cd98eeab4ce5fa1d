"""Every limit of the specification at its edge (accepted) and one beyond (rejected, naming the field)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.document.asserting import IN_A_LINE, assert_accepted, assert_rejected, fields, quick, text_of_bytes
from tests.document.fact_types import Fact, Operation
from tests.document.models import Steps, smallest

LETTERS_AND_DIGITS = st.characters(categories=["L", "Nd"])


@fields(lambda fact: fact.max_bytes)
@quick
@given(data=st.data())
def test_bytes(data: st.DataObject, operation: Operation, steps: Steps, fact: Fact):
    """Bytes count, not characters."""
    alphabet = LETTERS_AND_DIGITS if fact.format == "alphanumeric" else IN_A_LINE
    assert_accepted(operation, steps, data.draw(text_of_bytes(fact.max_bytes, alphabet)))
    message = assert_rejected(operation, steps, data.draw(text_of_bytes(fact.max_bytes + 1, alphabet)))
    assert str(fact.max_bytes) in message
    for character in ("é", "名", "\U0001d49c" if fact.format == "alphanumeric" else "📬"):
        most = character * (fact.max_bytes // len(character.encode()))
        assert_accepted(operation, steps, most)
        assert_rejected(operation, steps, most + character)


@fields(lambda fact: fact.max_length)
def test_length(operation: Operation, steps: Steps, fact: Fact):
    # "250 (bytes/characters)": which of the two is not said, so only text where they agree is an edge for certain.
    assert_accepted(operation, steps, "a" * fact.max_length)
    assert_rejected(operation, steps, "a" * (fact.max_length + 1), "é" * (fact.max_length + 1))


@fields(lambda fact: fact.type == "string" and not (fact.enum or fact.format or fact.max_bytes or fact.max_length))
def test_no_limit_is_invented(operation: Operation, steps: Steps, fact: Fact):
    long = smallest(fact) if "@" in smallest(fact) else ("1" if fact.wire == "phoneNumber" else "é") * 5_000
    if fact.limited_elsewhere:
        assert_rejected(operation, steps, long)
    elif fact.wire not in ("propertyName", "listDescription"):  # bound to other fields
        assert_accepted(operation, steps, long)


@fields(lambda fact: fact.max_items or fact.min_items)
def test_most_items(operation: Operation, steps: Steps, fact: Fact):
    """And the fewest."""
    (item,) = operation.minimal["messageVersions"] if fact.wire == "messageVersions" else smallest(fact)
    if fact.max_items:
        assert_accepted(operation, steps, [item] * fact.max_items)
        assert_rejected(operation, steps, [item] * (fact.max_items + 1))
    if fact.min_items:
        assert_rejected(operation, steps, [])


@fields(lambda fact: fact.maximum or fact.minimum is not None or fact.wire == "pageSize")
def test_numbers(operation: Operation, steps: Steps, fact: Fact):
    if fact.minimum is not None:
        assert_rejected(operation, steps, fact.minimum - 1)
        if fact.wire != "columnNum":  # its rows have to be as wide
            assert_accepted(operation, steps, fact.minimum)
    if fact.wire == "pageSize":  # those without a documented maximum have none
        assert_accepted(operation, steps, fact.maximum or 1_000_000)
    if fact.maximum is not None:
        assert_rejected(operation, steps, fact.maximum + 1)


@fields(lambda fact: fact.type in ("integer", "string") and not fact.enum)
def test_values_of_another_type(operation: Operation, steps: Steps, fact: Fact):
    """Also half a character, which has no form in UTF-8."""
    assert_rejected(operation, steps, *(["many", 1.5, [1], {}] if fact.type == "integer" else ["\ud83d", ["x"], {}]))


@fields(lambda fact: fact.wire == "attachment")
def test_one_file_and_not_a_list_of_them(operation: Operation, steps: Steps, fact: Fact):
    one = smallest(fact)
    assert_accepted(operation, steps, one)
    assert_rejected(operation, steps, [one], [one, one], [])


@fields(lambda fact: fact.enum)
@quick
@given(data=st.data())
def test_enumerations(data: st.DataObject, operation: Operation, steps: Steps, fact: Fact):
    others = st.integers() if isinstance(fact.enum[0], int) else st.text()
    wrong = [data.draw(others.filter(lambda value: value not in fact.enum))]
    if isinstance(fact.enum[0], str):  # they know upper and lower case
        wrong += [value.swapcase() for value in fact.enum if value.swapcase() != value]
    several = fact.type.startswith("array")
    for value in fact.enum:
        assert_accepted(operation, steps, [value] if several else value)
    assert_rejected(operation, steps, *([[value] for value in wrong] if several else wrong))
