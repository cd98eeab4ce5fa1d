"""Every limit of the document at its edge (accepted) and one beyond (refused, naming the field)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.document.asserting import assert_accepted, assert_refused, fields, quick
from tests.document.fact_resources import RESOURCES
from tests.document.fact_rows import LIMITS
from tests.document.fact_types import Fact, Operation
from tests.document.facts import OPERATIONS
from tests.document.models import Steps, smallest, walk
from tests.document.strategies import IN_A_LINE, LETTERS_AND_DIGITS, text_of_bytes

# Lengths -------------------------------------------------------------------------------------------------------------


def _alphabet(fact: Fact) -> st.SearchStrategy[str]:
    return LETTERS_AND_DIGITS if fact.format == "alphanumeric" else IN_A_LINE


@fields(lambda fact: fact.max_bytes)
@quick
@given(data=st.data())
def test_bytes(data: st.DataObject, operation: Operation, steps: Steps, fact: Fact):
    assert fact.max_bytes
    assert_accepted(operation, steps, data.draw(text_of_bytes(fact.max_bytes, _alphabet(fact))))
    message = assert_refused(operation, steps, data.draw(text_of_bytes(fact.max_bytes + 1, _alphabet(fact))))
    assert str(fact.max_bytes) in message


@fields(lambda fact: fact.max_bytes)
def test_characters_do_not_count_where_bytes_do(operation: Operation, steps: Steps, fact: Fact):
    assert fact.max_bytes
    for character in ("é", "名", "\U0001d49c" if fact.format == "alphanumeric" else "📬"):
        size = len(character.encode())
        most = character * (fact.max_bytes // size)
        assert_accepted(operation, steps, most)
        assert len(most) < fact.max_bytes
        assert_refused(operation, steps, most + character)


@fields(lambda fact: fact.max_length)
def test_length(operation: Operation, steps: Steps, fact: Fact):
    # "250 (bytes/characters)": which of the two is not said, so only text where they agree is an edge for certain.
    assert fact.max_length
    assert_accepted(operation, steps, "a" * fact.max_length)
    assert_refused(operation, steps, "a" * (fact.max_length + 1))
    assert_refused(operation, steps, "é" * (fact.max_length + 1))


@fields(lambda fact: fact.type == "string" and not fact.enum)
def test_half_a_character_is_refused_and_not_a_crash(operation: Operation, steps: Steps, fact: Fact):
    assert_refused(operation, steps, "\ud83d")


@fields(
    lambda fact: (
        fact.type == "string"
        and fact.wire not in ("propertyName", "listDescription")  # bound to other fields
        and not (fact.enum or fact.format or fact.max_bytes or fact.max_length)
    )
)
def test_no_limit_is_invented(operation: Operation, steps: Steps, fact: Fact):
    long = {"phoneNumber": "1" * 5_000}.get(fact.wire, "é" * 5_000)
    long = smallest(fact) if "@" in smallest(fact) else long
    if fact.limited_elsewhere:
        assert_refused(operation, steps, long)
    else:
        assert_accepted(operation, steps, long)


# Counts and numbers --------------------------------------------------------------------------------------------------


@fields(lambda fact: fact.max_items)
def test_most_items(operation: Operation, steps: Steps, fact: Fact):
    assert fact.max_items
    (item,) = smallest(fact)
    if fact.wire == "messageVersions":
        item = operation.minimal["messageVersions"][0]
    assert_accepted(operation, steps, [item] * fact.max_items)
    assert_refused(operation, steps, [item] * (fact.max_items + 1))


@fields(lambda fact: fact.min_items)
def test_fewest_items(operation: Operation, steps: Steps, fact: Fact):
    assert_refused(operation, steps, [])


@fields(lambda fact: fact.maximum or fact.minimum is not None)
def test_numbers(operation: Operation, steps: Steps, fact: Fact):
    if fact.minimum is not None:
        assert_refused(operation, steps, fact.minimum - 1)
        if fact.wire != "columnNum":  # its rows have to be as wide
            assert_accepted(operation, steps, fact.minimum)
    if fact.maximum is not None:
        assert_accepted(operation, steps, fact.maximum)
        assert_refused(operation, steps, fact.maximum + 1)


@fields(lambda fact: fact.wire == "pageSize" and fact.maximum is None)
def test_page_sizes_without_a_documented_maximum_are_free(operation: Operation, steps: Steps, fact: Fact):
    assert_accepted(operation, steps, 1_000_000)


@fields(lambda fact: fact.type == "integer" and not fact.enum)
@pytest.mark.parametrize("wrong", ["many", 1.5, [1], {}])
def test_a_number_is_a_whole_number(operation: Operation, steps: Steps, fact: Fact, wrong: Any):
    assert_refused(operation, steps, wrong)


@fields(lambda fact: fact.wire == "attachment")
def test_one_file_and_not_a_list_of_them(operation: Operation, steps: Steps, fact: Fact):
    one = smallest(fact)
    assert_accepted(operation, steps, one)
    for several in ([one], [one, one], []):
        assert_refused(operation, steps, several)


# Enumerations --------------------------------------------------------------------------------------------------------


@fields(lambda fact: fact.enum)
@quick
@given(data=st.data())
def test_enumerations(data: st.DataObject, operation: Operation, steps: Steps, fact: Fact):
    several = fact.type.startswith("array")
    for value in fact.enum:
        assert_accepted(operation, steps, [value] if several else value)
    others = st.integers() if isinstance(fact.enum[0], int) else st.text()
    wrong = data.draw(others.filter(lambda value: value not in fact.enum))
    assert_refused(operation, steps, [wrong] if several else wrong)


@fields(lambda fact: fact.enum and isinstance(fact.enum[0], str))
def test_enumerations_know_upper_and_lower_case(operation: Operation, steps: Steps, fact: Fact):
    for value in fact.enum:
        if value.swapcase() != value:
            assert_refused(operation, steps, value.swapcase())


# The table "Limits" --------------------------------------------------------------------------------------------------


def _facts(wire: str, key: str = "") -> list[Fact]:
    return [
        fact
        for operation in OPERATIONS
        for _, fact in walk(operation.request)
        if fact.wire == wire and operation.key.startswith(key)
    ]


def test_the_rows_of_the_table_say_the_same_as_the_fields():
    rows = {row.item: row.value for row in LIMITS}
    recipients = [
        fact
        for operation in OPERATIONS
        for steps, fact in walk(operation.request)
        if steps[-1] == "name" and len(steps) > 1
    ]
    assert len(recipients) == 4  # the single form's to; to, cc and bcc of the batch form
    assert {(fact.max_bytes,) for fact in recipients} == {rows["Recipient, cc, bcc `name`"]}
    assert {(fact.max_bytes,) for fact in _facts("mailName", "campaigns.sends")} == {rows["mailName (campaign)"]}
    assert {(fact.max_length,) for fact in _facts("templateName", "templates.add")} == {rows["templateName"]}
    assert {(fact.max_bytes,) for fact in _facts("senderName", "transactional.sends_customised.batch")} == {
        rows["senderName (batch)"]
    }
    for name in ("category", "campaign"):
        assert {(fact.max_bytes,) for fact in _facts(name)} == {rows["category, campaign (transactional)"]}
    assert {(fact.max_bytes,) for fact in _facts("uniqueMsgID")} == {rows["uniqueMsgID"]}
    assert {(fact.max_items,) for fact in _facts("messageVersions")} == {rows["messageVersions per request"]}
    versions = [fact for name in ("to", "cc", "bcc") for fact in _facts(name) if fact.type.startswith("array")]
    assert len(versions) == 3
    assert {(fact.max_items,) for fact in versions} == {rows["to, cc, bcc per version"]}
    assert {(fact.default, fact.maximum) for fact in _facts("pageSize", "contacts")} == {
        rows["contacts/list/get pageSize"]
    }
    for key in ("campaigns.get", "templates.get", "lists.get"):
        assert {(fact.default,) for fact in _facts("pageSize", key)} == {
            rows["pageSize default, campaign get, templates get, lists get"]
        }
    assert {(fact.default,) for fact in _facts("pageIndex")} == {rows["pageIndex default"]}
    assert {(fact.max_bytes,) for fact in RESOURCES["OAuth token"] if fact.wire == "accessToken"} == {
        rows["accessToken length"]
    }
    assert {fact.type for fact in _facts("attachment")} == {"object"}  # one file, not a list of them
