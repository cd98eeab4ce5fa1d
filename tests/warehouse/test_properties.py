"""Any sequence of loads leaves what a dictionary would hold."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_mail.warehouse.load import Between, LoadResult
from airflow_provider_mail.warehouse.table import Table
from tests.support.sampling import examples
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import NOON, thing

Rows = dict[int, tuple[Any, ...]]

KEYS = st.integers(0, 7)
ROWS = st.lists(st.tuples(KEYS, st.sampled_from(["x", "y", None]), st.integers(0, 3)), max_size=12)
WINDOWS = st.one_of(st.none(), st.tuples(KEYS, KEYS))
LOADS = st.lists(st.tuples(ROWS, WINDOWS, st.booleans()), max_size=6)


class Lost(Exception):
    """The service went away in the middle of the rows."""


# Each load opens a DuckDB file, which takes its time.
EXAMPLES = {"sqlite": 15, "portable_sqlite": 8, "duckdb": 2}


def test_any_sequence_of_loads(warehouse: Warehouse, table: Table) -> None:
    @given(loads=LOADS)
    @settings(max_examples=examples(EXAMPLES.get(warehouse.kind, 5)))
    def check(loads: list[Any]) -> None:
        leaves_what_a_dictionary_would(warehouse, table, loads)

    check()


def leaves_what_a_dictionary_would(warehouse: Warehouse, table: Table, loads: list[Any]) -> None:
    warehouse.execute("DROP TABLE IF EXISTS things")
    warehouse.load(table, [])
    model: Rows = {}
    for rows, window, lost in loads:
        given_rows = [thing(table, key, name=name, at=NOON + datetime.timedelta(hours=at)) for key, name, at in rows]
        where = {"number": Between(*window), "account": "a"} if window else None
        if lost:
            try:
                warehouse.load(table, interrupted(given_rows), replace_where=where)
            except Lost:
                continue
            raise AssertionError("the error of the rows was swallowed")
        result = warehouse.load(table, given_rows, replace_where=where)
        expected = expect(model, {row[1]: row for row in given_rows}, window, table, warehouse.is_portable)
        assert result.rows == len(rows)
        if not warehouse.is_portable:
            assert result == LoadResult(len(rows), **expected)
    assert warehouse.rows(table) == [row for _, row in sorted(model.items())]


def interrupted(rows: list[tuple[Any, ...]]) -> Any:
    yield from rows
    raise Lost


def expect(model: Rows, new: Rows, window: tuple[int, int] | None, table: Table, portable: bool) -> dict[str, int]:
    """Load `new` into the dictionary; what that did."""
    timed = bool(table.observed)
    # The portable way is more careful with what may be stale; in real loads all rows are of one time.
    newest = (min if portable else max)((row[-1] for row in new.values()), default=None) if timed else None
    counts = dict.fromkeys(("inserted", "changed", "unchanged", "outdated", "deleted"), 0)
    for key, row in list(model.items()):
        stale = window and window[0] <= key <= window[1] and key not in new
        if stale and not (newest is not None and row[-1] > newest):
            del model[key]
            counts["deleted"] += 1
    for key, row in new.items():
        old = model.get(key)
        if old is None:
            counts["inserted"] += 1
        elif timed and row[-1] < old[-1]:
            counts["outdated"] += 1
            continue
        else:
            counts["unchanged" if row[2] == old[2] else "changed"] += 1
        model[key] = row
    return counts
