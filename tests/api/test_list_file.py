"""A list in a file is read as it would be in memory, whatever stands in its texts and wherever it is cut."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pydantic_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.api._core import list_file
from airflow_provider_mail.api._core.list_file import ListFile

KEY = "mailStatsList"

# What looks like the end of something, in texts and in names of fields.
TEXTS = st.text(st.sampled_from('{}[],:"\\ \n}{]né春\U0001f4e7ab') | st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just(KEY), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS | st.just(KEY), VALUES, max_size=4)
LISTS = st.lists(OBJECTS, max_size=12) | st.lists(VALUES, max_size=6)
SPELLINGS = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.none() | st.integers(0, 2),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :\t"), ("\n,\r", ":")]),
    }
)


def decode(array: bytes) -> Any:
    return pydantic_core.from_json(array, allow_inf_nan=False)


def taken_apart(body: bytes, piece: int, window: int = 1 << 17) -> tuple[bytes, list[Any] | None]:
    """The rest, and the list; ``None`` when it is still in there."""
    with closing(ListFile(KEY)) as file, pytest.MonkeyPatch.context() as patch:
        for start in range(0, len(body), 7):
            file.write(body[start : start + 7])
        # An answer that is not small, whose ends are looked for in so many bytes.
        patch.setattr(list_file, "SMALL", min(window, len(body) - 1))
        patch.setattr(list_file, "PIECE", piece)
        rest = file.rest()
        assert file.whole() == body
        if not file.holds_list:
            assert rest == body
            return rest, None
        twice = [[element for elements in file.read(decode) for element in elements] for _ in range(2)]
        assert twice[0] == twice[1]
        return rest, twice[0]


@given(
    st.lists(st.tuples(TEXTS, VALUES), max_size=3),
    LISTS,
    st.lists(st.tuples(TEXTS, VALUES), max_size=3),
    SPELLINGS,
    st.integers(1, 300),
)
@settings(max_examples=200, deadline=None)
def test_any_answer_in_any_pieces(before: Any, elements: Any, behind: Any, spelling: Any, piece: int) -> None:
    fields = {**dict(before), KEY: elements, **{k: v for k, v in behind if k not in dict(before)}}
    body = json.dumps(fields, **spelling).encode()
    rest, found = taken_apart(body, piece)
    if found is None:  # the window is all but one byte
        assert not body.startswith(b'{"mailStatsList":[')
        return
    assert found == elements
    assert decode(rest) == {**fields, KEY: []}


def test_texts_that_look_like_ends() -> None:
    nasty = ["},{", "}]", "},", '\\"},{\\"', '"},{"', '],"totalRecords":0}', '{"mailStatsList":[', "\\", '"']
    elements = [{"mailName": name, name: [{}, {"x": [name]}, []]} for name in nasty] * 20
    body = json.dumps({"message": nasty, KEY: elements, "totalRecords": len(elements), "tags": [1, [2]]}).encode()
    for piece in (1, 10, 100, 1000, 10**6):
        rest, found = taken_apart(body, piece)
        assert found == elements
        assert decode(rest) == {"message": nasty, KEY: [], "totalRecords": len(elements), "tags": [1, [2]]}


@given(LISTS, st.data(), st.integers(1, 100))
@settings(max_examples=200, deadline=None)
def test_what_is_no_json_is_not_taken_for_it(elements: Any, data: Any, piece: int) -> None:
    """Cut off, or with some bytes changed or put in: an error, or exactly what decoding the whole gives."""
    body = json.dumps({"code": 200, KEY: elements, "totalRecords": 3}).encode()
    place = data.draw(st.integers(0, len(body)))
    put_in = data.draw(st.sampled_from([b",", b"}", b"]", b"{", b"[", b'"', b"\\", b" ", b"\xff", b"NaN"]))
    changed = [body[:place], body[:place] + put_in + body[place:], body[:place] + body[place + 1 :]]
    body = data.draw(st.sampled_from(changed))
    try:
        expected = decode(body)
    except ValueError:
        expected = None
    try:
        rest, found = taken_apart(body, piece)
        got = decode(rest) if found is None else {**decode(rest), KEY: found}
    except ValueError:
        got = None
    assert got == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"mailStatsList":[{"a":1}],"mailStatsList":[]}',
        '{"mailStatsList":[{"a":1}],"mail\\u0053tatsList":[{"b":1}]}',
        '{"mailStatsList":[{"a":1}],"mailStatsList":7}',
        '{"x":{"mailStatsList":[{"a":1}]}}',
        '[{"mailStatsList":[{"a":1}]}]',
        '{"mailStatsList":{"a":[1]}}',
        '{"code":200}',
        '<html>"mailStatsList":[ {}</html>',
        '{"mailStatsList":[',
        "",
    ],
)
def test_what_has_no_such_list_is_left_as_it_is(text: str) -> None:
    assert taken_apart(text.encode(), 10)[1] is None


def test_the_last_of_two_lists_counts() -> None:
    assert taken_apart(b'{"mail\\u0053tatsList":[1,2], "mailStatsList" : [{"a":1}] }', 5)[1] == [{"a": 1}]


NO_LISTS = ["[{},]", "[{},,{}]", "[,{}]", "[{} {}]", "[{}},{]", "[{}],[{}]", "[{}]]", '[{"a"}]', "[,]"]


@pytest.mark.parametrize("text", NO_LISTS)
@pytest.mark.parametrize("piece", [1, 3, 100])
def test_a_list_that_is_none(text: str, piece: int) -> None:
    body = f'{{"code":200,"mailStatsList":{text},"totalRecords":1}}'.encode()
    try:
        rest, found = taken_apart(body, piece)
    except ValueError:
        return
    assert found is None
    with pytest.raises(ValueError, match=r"expected|trailing|key must"):
        decode(rest)


def test_an_element_that_never_ends_is_not_read_again_and_again() -> None:
    """As long as all the rest, in texts and brackets that look like ends."""
    for filling in (b'"},', b"[{},", b"{", b'"a},', b'],"mailStatsList":['):
        body = b'{"mailStatsList":[{"a":1},{"b":' + filling * 100_000 + b'],"totalRecords":1}'
        calls = []

        def counted(array: bytes, calls: list[int] = calls) -> Any:
            calls.append(len(array))
            return decode(array)

        with closing(ListFile(KEY)) as file:
            file.write(body)
            rest = file.rest()
            if file.holds_list:
                with pytest.raises(ValueError, match=r"\w"):
                    list(file.read(counted))
            else:
                assert rest == body
        assert sum(calls) < 20 * len(body)


def test_another_attempt_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_file, "SMALL", 40)
    with closing(ListFile(KEY)) as file:
        file.write(b'{"mailStatsList":[1,2,3,4,5,6,7,8,9],"totalRecords":9}')
        file.rest()
        assert file.holds_list
        file.restart()
        file.write(b'{"code":500}')
        assert file.rest() == b'{"code":500}'
        assert not file.holds_list
