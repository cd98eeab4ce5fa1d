"""The comparison of a source with the lines of a state: whatever the order, each line is either found or reported."""

from __future__ import annotations

import json
from array import array
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines.audience_parts import Matcher, Members, Part, parts_of

BLOCKS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 1500)), max_size=5)
"""Blocks of consecutive people: the first one, and how many."""


def text(people: list[int]) -> bytes:
    return b"".join(b'["p%d@example.com","%s"]\n' % (person, b"x" * (person % 50)) for person in people)


def found(state: list[int], void: set[int], source: list[int], size: int) -> tuple[Counter[bytes], int]:
    """Compare; return the lines of the source that were found, and how many lines of the state were reported.

    :param void: the positions of lines of the state that no longer count.
    """
    members = Members()
    for part in parts_of("member", text(state), array("I", [0] * len(state))):
        members.add(part)
    places = [(number, place) for number in range(len(members)) for place in range(members.rows(number))]
    voids: dict[int, list[int]] = {}
    for number, place in (places[position] for position in sorted(void) if position < len(places)):
        voids.setdefault(number, []).append(place)
    if voids:
        members.add(Part("member", 0, json.dumps(voids), b""))
    reported, matched = Counter[bytes](), Counter[bytes]()
    matcher = Matcher(members, lambda number, place, line: reported.update([line]))
    for start in range(0, len(source), size):
        lines = text(source[start : start + size]).splitlines(keepends=True)
        missed = set(matcher.unmatched(lines))
        matched.update(line for place, line in enumerate(lines) if place not in missed)
    matcher.rest()
    members.close()
    counted = [person for position, person in enumerate(state) if position not in void]
    assert matched + reported == Counter(text(counted).splitlines(keepends=True))
    return matched, reported.total()


@settings(max_examples=40, deadline=None)
@given(state=BLOCKS, source=BLOCKS, void=st.sets(st.integers(0, 4000), max_size=30), size=st.sampled_from([1, 7, 500]))
def test_every_line_is_found_or_reported(
    state: list[tuple[int, int]], source: list[tuple[int, int]], void: set[int], size: int
) -> None:
    before, now = ([n for first, count in blocks for n in range(first, first + count)] for blocks in (state, source))
    found(before, void, now, size)


@pytest.mark.parametrize(("source", "most"), [
    ([*range(4500, 9000), *range(4500)], 300),
    ([*range(20000, 22000), *range(9000)], 0),
    ([person for person in range(9000) if person % 100], 90),
    ([*range(6000, 9000), *range(3000, 6000), *range(3000)], 800),
])  # fmt: skip
def test_blocks_are_found(source: list[int], most: int) -> None:
    """Otherwise the comparison would be right, but slow."""
    assert found(list(range(9000)), set(), source, 500)[1] <= most
