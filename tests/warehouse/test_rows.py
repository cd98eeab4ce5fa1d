"""Values on their way into a database."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.rows import (
    Encoder,
    RowsFailed,
    Source,
    each,
    json_text,
    text_problem,
    utc_text,
    utc_texts,
)
from tests.support.sampling import examples
from tests.warehouse.tables import NOON, THINGS, thing

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.text(), st.none() | st.text() | NUMBERS))
def test_json_has_one_spelling(value: dict[str, Any]) -> None:
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    assert json_text(value) == json_text(dict(reversed(value.items()))) == plain


def test_decimals_keep_their_digits_in_json() -> None:
    value = {"b": [Decimal("0.1234567890123456789"), (1, None)], "a": Decimal("2.50")}
    assert json_text(value) == '{"a":2.50,"b":[0.1234567890123456789,[1,null]]}'
    for wrong in ({"a": [Decimal(1), b""]}, {"a": Decimal("NaN"), "b": {1}}, {1: Decimal(1)}):
        with pytest.raises(TypeError):
            json_text(wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": float("nan")}, {"a": b""}, {"a": "\ud800"}])
def test_what_json_cannot_say(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        json_text(value).encode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": [1.0, -2.5], "b": 0.0}, None),
        ({"a": 1.5, "b": "x\0"}, "field 'b' holds the character NUL, which the database cannot keep"),
        ({"a": 1.5, "b": float("nan")}, "field 'b' holds NaN or infinity, which JSON cannot say"),
        ([0.0, 2.5, {"a": "\ud800"}], "item 2 field 'a' holds half a surrogate pair, which is no character"),
        ([{"a\0": 1}], "item 0 the name of a field holds the character NUL, which the database cannot keep"),
    ],
)
def test_the_value_that_cannot_be_stored_is_named(value: Any, reason: str | None) -> None:
    assert text_problem(value, nul=False) == reason


CONVERTS: dict[str, Callable[[Any], Any]] = {"boolean": int, "timestamp": utc_text, "json": json_text}
MANY = 600  # more than are encoded at once


@given(
    st.lists(
        st.builds(
            lambda **values: thing(THINGS, 1, **values),
            name=st.none() | st.sampled_from(["", "a", "b"]),
            good=st.none() | st.booleans(),
            sold_at=st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
            extra=st.none() | st.lists(st.integers(), max_size=2),
        )
    ),
    st.sampled_from([None, "NULL"]),
)
def test_together_is_what_it_is_one_by_one(rows: list[tuple[Any, ...]], null: Any) -> None:
    def one(kind: str, value: Any) -> Any:
        return null if value is None else CONVERTS.get(kind, lambda same: same)(value)

    kinds = [column.type.name for column in THINGS.columns]
    source = Source(iter(rows))
    assert list(source.encoded(Encoder(THINGS, each(CONVERTS), null))) == [tuple(map(one, kinds, row)) for row in rows]
    assert source.read == len(rows)


@given(
    st.lists(st.datetimes(timezones=st.sampled_from([datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))])))
)
def test_times_are_formatted_together_as_one_by_one(times: list[datetime.datetime]) -> None:
    times = [time for time in times if time.year > 1]  # at +02:00, the year 1 begins before it does in UTC
    assert [*utc_texts(times)] == [*map(utc_text, times)]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"number": None}, "column number: needs bigint, got nothing"),
        ({"size": "7"}, "column size: needs integer, got str"),
        ({"size": True}, "column size: needs integer, got bool"),
        ({"sold_at": NOON.replace(tzinfo=None)}, "column sold_at: needs a datetime with a zone"),
        ({"extra": {1, 2}}, "column extra: needs a json value"),
        ({"size": 2**31}, "column size: is too large for integer"),
        ({"account": "a "}, "column account: ends with a space, which the collation pads of this key column ignores"),
        ({"account": "\ud800"}, "column account: holds half a surrogate pair"),
        ({"account": "a\0"}, "column account: holds the character NUL"),
        ({"extra": ["\0"]}, "column extra: item 0 holds the character NUL"),
        ({"extra": [[[[1]]]]}, "column extra: is nested more than 3 deep"),
    ],
)
@settings(max_examples=examples(25))
@given(wrong=st.integers(0, MANY - 1), gaps=st.integers(1, 5))
def test_the_row_that_cannot_be_encoded_is_named(values: dict[str, Any], says: str, wrong: int, gaps: int) -> None:
    rows = [
        thing(THINGS, n, sold_at=None if n % gaps else NOON, extra=None if n % gaps else [[[n]], [n]])
        for n in range(MANY)
    ]
    rows[wrong] = thing(THINGS, **{"number": wrong, **values})
    source = Source(rows)
    with pytest.raises(RowsFailed):
        list(source.encoded(Encoder(THINGS, each(CONVERTS), nul=False, padded={"account": "pads"}, json_depth=3)))
    assert str(source.error).startswith(f"row {wrong + 1}, {says}")


def test_rows_that_cannot_be_encoded_are_set_aside() -> None:
    rejected: list[tuple[Any, ...]] = []
    rows = [thing(THINGS, n, name="a\0", size=2**31 if n in (3, MANY - 1) else n) for n in range(MANY)]
    source = Source(rows, lambda row, error: rejected.append((row, error.row, error.column)))
    assert len([*source.encoded(Encoder(THINGS, each(CONVERTS)))]) == MANY - 2
    assert rejected == [(rows[3], 4, "size"), (rows[-1], MANY, "size")]
    assert (source.read, source.rejected) == (MANY, 2)
