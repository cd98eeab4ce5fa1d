"""Values on their way into a database."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.rows import (
    Encoder,
    Source,
    each,
    json_text,
    utc_text,
    utc_texts,
)
from tests.warehouse.tables import THINGS, thing

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.text(), st.none() | st.text() | NUMBERS))
def test_json_has_one_spelling(value: dict[str, Any]) -> None:
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    assert json_text(value) == json_text(dict(reversed(value.items()))) == plain


CONVERTS: dict[str, Callable[[Any], Any]] = {"boolean": int, "timestamp": utc_text, "json": json_text}


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
