"""Memory does not grow with the number of rows: of reading and loading, as Python counts it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider_mail.warehouse.read import stream_rows
from tests.warehouse.conftest import PORTABLE, Warehouse
from tests.warehouse.tables import THINGS, numbers, thing

pytestmark = pytest.mark.not_unit

ROWS, WORDS = 60_000, "x" * 1000
MOST = 20_000_000
"""Bytes, of 60 MB of words alone."""


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def test_reading_takes_little_memory(native: Warehouse) -> None:
    """What the driver holds beside Python's objects is not counted."""
    joined = f"concat('{WORDS}', i)" if native.is_mysql else f"'{WORDS}' || i"
    sql = numbers(native.kind, ROWS, "i", joined)
    with stream_rows(native.hook, "SELECT 1") as (_, batches):  # what is imported for the first reading is not counted
        assert [*batches] == [[(1,)]]
    with little_memory(), stream_rows(native.hook, sql) as (_, batches):
        assert sum(map(len, batches)) == ROWS


@pytest.mark.parametrize("kind", ["sqlite", PORTABLE[0], "psycopg3", "psycopg2", "mysql"])
def test_loading_takes_little_memory(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse, rows = make_warehouse(kind), ROWS // 6

    def many() -> Iterator[tuple[Any, ...]]:
        for number in range(rows):
            yield thing(THINGS, number, name=f"{WORDS * 6}{number}")

    warehouse.load(THINGS, [])
    with little_memory():
        warehouse.load(THINGS, many())
    assert warehouse.query("SELECT count(*) FROM things") == [(rows,)]


def test_too_much_memory_is_seen() -> None:
    """The bounds above are worth something."""
    with pytest.raises(AssertionError), little_memory():
        assert len([f"{WORDS}{number}" for number in range(ROWS)]) == ROWS
