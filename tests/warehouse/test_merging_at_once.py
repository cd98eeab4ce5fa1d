"""Loads of one table at the same time, on every stand-in and in both ways: the last observation wins, and no row is
doubled. Readers meanwhile see all of one load.

Real databases are in `test_concurrency`.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_mail.warehouse.coverage import LOADS, Coverage
from airflow_provider_mail.warehouse.errors import WarehouseError
from tests.support.processes import PATIENCE
from tests.support.sampling import EVERYTHING
from tests.warehouse.conftest import Warehouse
from tests.warehouse.standins import SAMPLE, loads_of
from tests.warehouse.tables import NOON, THINGS, thing

pytestmark = pytest.mark.not_unit

KEYS, TURN = 40, 10
TRIES = 10
"""Of a task, as Airflow repeats it: a load itself repeats what was rejected seven times."""


EMPTY = -1
"""The number of a load without rows, before the others: two loads that only insert have no row in common."""


def observed(number: int) -> datetime.datetime:
    return NOON + datetime.timedelta(minutes=number)


def rows_of(number: int) -> list[tuple[Any, ...]]:
    """What the service says at one time: other keys in each turn, and another one of them missing each time."""
    turn, missing = divmod(number, TURN)
    keys = range(turn * KEYS, (turn + 1) * KEYS) if number != EMPTY else ()
    return [thing(THINGS, key, name=str(number), at=observed(number)) for key in keys if key % KEYS != missing]


def load(warehouse: Warehouse, number: int) -> int:
    """Load what the service says at one time; return how many tries that took."""
    where = {"account": "a"}
    covers = Coverage.one("a", where, mail_conn_id="m", observed_at=observed(number))
    for tries in range(1, TRIES + 1):
        try:
            warehouse.another().load(THINGS, rows_of(number), replace_where=where, covers=covers)
        except WarehouseError as error:
            assert "onflict" in str(error) or "oncurrent" in str(error)  # noqa: PT017
        else:
            return tries
    raise AssertionError("never loaded")


def run(warehouse: Warehouse, numbers: Sequence[int]) -> list[int]:
    """Load all of them at once; return the tries of each."""
    start = threading.Barrier(len(numbers))

    def work(number: int) -> int:
        start.wait(PATIENCE)
        return load(warehouse, number)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return [*pool.map(work, numbers)]


class Reader(threading.Thread):
    """Reads the table until it is stopped; notes what is not one load whole."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__()
        self._warehouse = warehouse
        self._stopped = threading.Event()
        self.reads = 0
        self._has_read = threading.Event()
        self.wrong: list[Any] = []

    def run(self) -> None:
        begun = False
        while not self._stopped.is_set():
            found = self._warehouse.another().query("SELECT name, COUNT(*) FROM things GROUP BY name")
            self.reads += 1
            self._has_read.set()
            begun = begun or bool(found)
            if begun and [count for _, count in found] != [KEYS - 1]:
                self.wrong.append(found)

    def __enter__(self) -> None:
        self.start()
        assert self._has_read.wait(PATIENCE), "it reads before the first load begins"

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()


@pytest.mark.parametrize("at_once", [2, 4, 8] if EVERYTHING else [4])
@pytest.mark.parametrize("way", SAMPLE)
def test_loads_at_once_and_readers(make_warehouse: Callable[..., Warehouse], way: str, at_once: int) -> None:
    warehouse, tries = make_warehouse(way), 0
    load(warehouse, EMPTY)
    reader = Reader(warehouse)
    # DuckDB cannot open a file while its last connection in the same process is closed.
    with closing(warehouse.hook.get_conn()), reader:
        for turn in range(6 if EVERYTHING else 2):
            numbers = range(turn * TURN, turn * TURN + at_once)
            # All of one second, so that each of them writes, or the latest first, so that the others come late.
            tries += sum(run(warehouse, [numbers[-1]] * at_once if turn % 2 == 0 else numbers[::-1]))
            assert warehouse.rows(THINGS) == rows_of(numbers[-1])
            for loads in loads_of(warehouse):
                assert warehouse.rows(LOADS, loads) == [("things", "m", "a", observed(numbers[-1]))]
    assert not reader.wrong
    print(f"{way}, {at_once} at once: {tries} tries of tasks, {reader.reads} reads")
