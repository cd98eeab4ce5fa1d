"""Values on their way into a database; of those that it cannot keep, row, column and cause are named alone."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import MarkGone
from airflow_provider_mail.warehouse.rows import (
    Encoder,
    RowsFailed,
    Source,
    each,
    json_text,
    utc_text,
    utc_texts,
)
from airflow_provider_mail.warehouse.table import BIGINT, Column, Table
from airflow_provider_mail.warehouse.tables.stats import CAMPAIGN_SNAPSHOTS, CAMPAIGN_STATS, TRANSACTIONAL_STATS
from tests.support.sampling import examples
from tests.warehouse.conftest import ALL, Warehouse, in_each_dialect
from tests.warehouse.tables import LATER, MARKED, NOON, THINGS, thing
from tests.warehouse.test_privacy import all_texts

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.text(), st.none() | st.text() | NUMBERS))
def test_json_has_one_spelling(value: dict[str, Any]) -> None:
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    assert json_text(value) == json_text(dict(reversed(value.items()))) == plain


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
        ({"extra": {"a": {1, 2}}}, "column extra: needs a json value"),
        ({"extra": [float("nan")]}, "column extra: item 0 holds NaN or infinity"),
        ({"extra": {"\ud800": "x"}}, "column extra: the name of a field holds half a surrogate pair"),
        ({"account": None}, "column account: needs text, got nothing"),
        ({"good": 1}, "column good: needs boolean, got int"),
        ({"day": datetime.datetime(2026, 3, 1)}, "column day: needs date, got datetime"),
        ({"number": 2**63}, "column number: is too large for bigint"),
        ({"size": -(2**31) - 1}, "column size: is too large for integer"),
        ({"size": 2**31}, "column size: is too large for integer"),
        ({"account": "a "}, "column account: ends with a space, which the collation pads of this key column ignores"),
        ({"account": "\ud800"}, "column account: holds half a surrogate pair"),
        ({"account": "a\0"}, "column account: holds the character NUL"),
        ({"extra": ["\0"]}, "column extra: item 0 holds the character NUL"),
        ({"extra": [[[[1]]]]}, "column extra: is nested more than 3 deep"),
    ],
)
@settings(max_examples=examples(10))
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


# The same of real databases

COUNTED = Table((Column("id", BIGINT, ""), Column("count", BIGINT, "", nullable=True, least=0)), ("id",), "")
HALF = "planted \ud800"


def rejected(warehouse: Warehouse, table: Table, rows: list[Any]) -> str:
    with pytest.raises(WarehouseError) as caught:
        warehouse.load(table, rows)
    assert "planted" not in all_texts(caught.value)
    assert warehouse.rows(table) == []
    return str(caught.value)


CAUSES: list[tuple[dict[str, Any], str]] = [
    ({"name": HALF}, "name: holds half a surrogate pair, which is no character"),
    ({"extra": {"a": ["x", {"b": HALF}]}}, "extra: field 'a' item 1 field 'b' holds half a surrogate pair"),
    ({"extra": {"a": float("nan")}}, "extra: field 'a' holds NaN or infinity"),
    ({"size": "planted"}, "size: needs integer, got str"),
    ({"number": None}, "number: needs bigint, got nothing"),
    ({"number": 2**63}, "number: is too large for bigint"),
    ({"day": datetime.datetime(2026, 3, 1)}, "day: needs date, got datetime"),
]
"""Values, and what is said of them."""


@in_each_dialect
def test_row_column_and_cause_are_named(warehouse: Warehouse) -> None:
    warehouse.load(THINGS, [])
    for values, words in CAUSES:
        rows = [thing(THINGS, number, name="näme", extra={"a": "ä"}) for number in range(270)]
        rows[260] = tuple((dict(zip(THINGS.names, rows[260], strict=True)) | values).values())
        assert f"row 261, column {words}" in rejected(warehouse, THINGS, rows)


def test_postgres_keeps_no_nul(native: Warehouse) -> None:
    """A backslash with zeros is none."""
    native.load(THINGS, [])
    nuls = [thing(THINGS, 2, name="planted \0"), thing(THINGS, 3, extra={"a": "planted \0"})]
    kept = [thing(THINGS, 1, name=r"\u0000", extra={"a": r"\u0000"}), *([] if native.is_postgres else nuls)]
    if native.is_postgres:
        for row, column in zip(nuls, ("name: ", "extra: field 'a' "), strict=True):
            words = f"row 2, column {column}holds the character NUL, which the database cannot keep"
            assert words in rejected(native, THINGS, [*kept, row])
    native.load(THINGS, kept)
    assert native.rows(THINGS) == kept


def test_a_negative_count_is_the_service_s_error(sqlite: Warehouse) -> None:
    sqlite.load(COUNTED, [])
    words = "row 2, column count: is less than 0, which cannot be true: the service's error"
    assert words in rejected(sqlite, COUNTED, [(1, 0), (2, -1)])
    sqlite.load(COUNTED, [(1, 0), (2, None)])


def test_no_count_of_the_service_can_be_negative() -> None:
    for table in (CAMPAIGN_STATS, CAMPAIGN_SNAPSHOTS, TRANSACTIONAL_STATS):
        counts = [column for column in table.columns if column.type == BIGINT]
        assert counts
        assert {column.least for column in counts} == {0}


@pytest.mark.parametrize("kind", ALL)
def test_rows_that_cannot_be_stored_are_set_aside(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    """Also so many of them that nothing is left of some hundreds of rows."""
    warehouse, bad = make_warehouse(kind), {7, *range(240, 760)}
    given: list[tuple[int, str]] = []
    rows = [thing(THINGS, number, name=HALF if number in bad else "x") for number in range(800)]
    result = warehouse.load(THINGS, rows, on_unstorable=lambda _, error: given.append((error.row, error.column)))
    assert result.rows == 800
    assert given == [(number + 1, "name") for number in sorted(bad)]
    assert [row[1] for row in warehouse.rows(THINGS)] == [number for number in range(800) if number not in bad]


def test_then_nothing_is_deleted_or_marked(sqlite: Warehouse) -> None:
    def load(at: Any, last: str, **options: Any) -> None:
        rows = [thing(MARKED, 1, at=at), thing(MARKED, 2, name=last, at=at)]
        sqlite.load(MARKED, rows, on_unstorable=lambda *_: None, **options)

    load(NOON, "old")
    load(LATER, HALF, mark_gone=MarkGone(LATER, lambda: [{"account": "a"}]))
    load(LATER, HALF, replace_where={"account": "a"})
    assert [(row[2], row[-1]) for row in sqlite.rows(MARKED)] == [(None, None), ("old", None)]


def test_too_many_fail_the_load(sqlite: Warehouse) -> None:
    sqlite.load(THINGS, [])
    unstorable = [thing(THINGS, number, name=HALF) for number in range(1001)]
    with pytest.raises(WarehouseError, match="more than 1000 rows cannot be stored; row 1001, column name: "):
        sqlite.load(THINGS, unstorable, on_unstorable=lambda *_: None)
    assert sqlite.rows(THINGS) == []


def test_decimals_are_stored_with_all_their_digits(native: Warehouse) -> None:
    row = thing(THINGS, 1, extra={"n": [Decimal("0.1234567890123456789"), Decimal("12345678901234567.25"), 0.5]})
    native.load(THINGS, [row])
    assert native.load(THINGS, [row]).unchanged == 1
    ((text,),) = native.query(f"SELECT CAST(extra AS {'CHAR' if native.is_mysql else 'VARCHAR'}) FROM things")
    assert "[0.1234567890123456789,12345678901234567.25,0.5]" in text.replace(" ", "")


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_a_value_that_is_nested_deep(native: Warehouse, brackets: str) -> None:
    """MariaDB accepts 31 levels. One more must not end the load of the other rows."""

    def nested(depth: int) -> Any:
        value: Any = "x"
        for _ in range(depth):
            value = [value] if brackets == "[]" else {"a": value}
        return value

    rejected: list[tuple[int, str]] = []
    rows = [thing(THINGS, number, extra=nested(depth)) for number, depth in enumerate((0, 31, 32, 40))]
    native.load(THINGS, rows, on_unstorable=lambda _, error: rejected.append((error.row, error.column)))
    assert rejected == ([(3, "extra"), (4, "extra")] if native.is_mysql else [])
    assert native.rows(THINGS) == rows[: 2 if native.is_mysql else 4]
    if native.is_mysql:
        with pytest.raises(WarehouseError, match="row 4, column extra: is nested more than 31 deep"):
            native.load(THINGS, rows[:2] + rows[:1] + rows[3:])
