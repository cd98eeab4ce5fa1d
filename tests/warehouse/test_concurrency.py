"""Loads at the same time, and loads that die."""

from __future__ import annotations

import datetime
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from airflow_provider_mail.warehouse.dialects.staged import Staged
from airflow_provider_mail.warehouse.load import LoadResult
from airflow_provider_mail.warehouse.table import TEXT, Column, Table
from tests.support.postgres import Database
from tests.support.processes import FORK, PATIENCE, fork
from tests.warehouse.conftest import PORTABLE, Warehouse
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, thing

pytestmark = pytest.mark.not_unit

WORKERS, ROUNDS, KEYS = 3, 6, 400


def loads_of(worker: int) -> list[list[tuple[Any, ...]]]:
    """Overlapping keys in an order that no other worker has; no two loads observed at the same time."""
    chance = random.Random(worker)
    return [
        [
            thing(
                THINGS,
                number,
                name=f"{worker}/{turn}",
                at=NOON + datetime.timedelta(minutes=turn * WORKERS + worker),
            )
            for number in chance.sample(range(KEYS), KEYS // 2)
        ]
        for turn in range(ROUNDS)
    ]


def latest() -> list[tuple[Any, ...]]:
    """What must come of them in whatever order they are loaded: of each key what was observed last."""
    found: dict[int, tuple[Any, ...]] = {}
    for row in (row for worker in range(WORKERS) for rows in loads_of(worker) for row in rows):
        if row[1] not in found or found[row[1]][-1] < row[-1]:
            found[row[1]] = row
    return [row for _, row in sorted(found.items())]


def work(warehouse: Warehouse, worker: int, start: Any) -> None:
    mine = warehouse.another()
    start.wait(PATIENCE)
    for rows in loads_of(worker):
        mine.load(THINGS, rows)


def test_threads_load_overlapping_keys_at_once(native: Warehouse) -> None:
    start = threading.Barrier(WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda worker: work(native, worker, start), range(WORKERS)))
    assert native.rows(THINGS) == latest()


@pytest.mark.parametrize("kind", PORTABLE)
def test_so_do_those_of_a_database_that_nobody_has_heard_of(
    make_warehouse: Callable[..., Warehouse], kind: str
) -> None:
    portable, start = make_warehouse(kind), threading.Barrier(WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda worker: work(portable, worker, start), range(WORKERS)))
    assert portable.rows(THINGS) == latest()


def test_processes_load_overlapping_keys_at_once(native: Warehouse) -> None:
    start = FORK.Barrier(WORKERS)
    workers = [fork(work, native, worker, start) for worker in range(WORKERS)]
    for process in workers:
        process.join(60)
    assert [process.exitcode for process in workers] == [0] * WORKERS
    assert native.rows(THINGS) == latest()


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_a_stricter_isolation_level_of_the_database(make_warehouse: Callable[..., Warehouse], level: str) -> None:
    escaped = level.replace(" ", "\\ ")
    postgres = make_warehouse("psycopg3", options=f"-c default_transaction_isolation={escaped}")
    assert postgres.query("SHOW default_transaction_isolation") == [(level,)]
    start = threading.Barrier(WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda worker: work(postgres, worker, start), range(WORKERS)))
    assert postgres.rows(THINGS) == latest()


def test_the_table_is_made_and_widened_by_many_at_once(native: Warehouse) -> None:
    narrow = Table(PLAIN.columns[:3], PLAIN.key, "")
    start = threading.Barrier(6)

    def make(number: int) -> None:
        table = narrow if number % 2 else PLAIN
        mine = native.another()
        start.wait(PATIENCE)
        mine.load(table, [thing(table, number, name="x")])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(make, range(6)))
    assert [(row[1], row[2]) for row in native.rows(narrow)] == [(number, "x") for number in range(6)]


def test_rows_that_come_slowly_hold_up_nobody(native: Warehouse) -> None:
    native.load(THINGS, [thing(THINGS, 1, name="old")])
    waiting, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[tuple[Any, ...]]:
        yield thing(THINGS, 1, name="slow", at=NOON + datetime.timedelta(minutes=1))
        yield thing(THINGS, 2, name="slow", at=NOON + datetime.timedelta(minutes=1))
        waiting.set()
        assert go_on.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(native.another().load, THINGS, slow())
        assert waiting.wait(PATIENCE)
        assert [row[2] for row in native.rows(THINGS)] == ["old"]
        wider = Table((*THINGS.columns, Column("more", TEXT, "", nullable=True)), THINGS.key, "")
        assert native.load(wider, [(*thing(THINGS, 1, name="quick", at=LATER), "x")]).changed == 1
        go_on.set()
        assert pending.result(60) == LoadResult(2, inserted=1, changed=0, unchanged=0, outdated=1, deleted=0)
    assert [row[2] for row in native.rows(THINGS)] == ["quick", "slow"]


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2", "portable_postgres"])
def test_a_deadlock_is_tried_again(
    make_warehouse: Callable[..., Warehouse], warehouse_database: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    postgres = make_warehouse(kind)
    mine = Warehouse(kind, type(postgres.hook)("warehouse"))
    for turn in range(5):
        before, at = (LATER + datetime.timedelta(minutes=2 * turn + more) for more in (0, 1))
        postgres.load(THINGS, [thing(THINGS, number, name="old", at=before) for number in (1, 2)])
        with psycopg.connect(warehouse_database.dsn) as other, ThreadPoolExecutor(1) as pool:
            other.execute("SET deadlock_timeout = '20s'")  # so that it is ours that finds out, and is given up
            other.execute("UPDATE things SET size = 1 WHERE number = 2")
            ours = pool.submit(mine.load, THINGS, [thing(THINGS, n, name="new", at=at) for n in (1, 2)])
            while not postgres.query("SELECT 1 FROM pg_locks WHERE NOT granted"):
                time.sleep(0.05)
            try:
                other.execute("UPDATE things SET size = 1 WHERE number = 1")
            except psycopg.errors.DeadlockDetected:
                # Ours looks once, a second after it began to wait: on a slow machine that was before the deadlock.
                other.rollback()
                ours.result(60)
                continue
            other.commit()
            ours.result(60)
            break
    assert "conflict with another transaction (attempt 1 of 8)" in caplog.text
    assert [row[2] for row in postgres.rows(THINGS)] == ["new", "new"]


# SIGKILL


def die_in_rows(warehouse: Warehouse, reached: Any) -> None:
    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(2000):
            yield thing(THINGS, number, name="new", at=LATER)
        reached.set()
        time.sleep(60)

    warehouse.load(THINGS, rows(), replace_where={"account": "a"})


def die_before_commit(warehouse: Warehouse, reached: Any) -> None:
    merge = Staged.merge

    def merge_and_wait(self: Staged, cursor: Any) -> LoadResult:
        merge(self, cursor)
        reached.set()
        time.sleep(60)
        raise AssertionError

    Staged.merge = merge_and_wait  # type: ignore[method-assign]  # in a process that will be killed
    warehouse.load(THINGS, [thing(THINGS, 1, name="new", at=LATER)], replace_where={"account": "a"})


def kill_in(death: Callable[[Warehouse, Any], None], warehouse: Warehouse) -> None:
    """Load in another process, and kill that at the point where `death` waits for it."""
    warehouse.load(THINGS, [thing(THINGS, number, name="old") for number in range(10)])
    reached = FORK.Event()
    process = fork(death, warehouse, reached)
    try:
        assert reached.wait(PATIENCE)
    finally:
        assert process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL
    assert [row[2] for row in warehouse.rows(THINGS)] == ["old"] * 10
    # Nothing is left locked either.
    warehouse.load(THINGS, [thing(THINGS, 1, name="newest", at=LATER)])
    assert warehouse.rows(THINGS)[1][2] == "newest"


def test_killed_among_the_rows(warehouse: Warehouse) -> None:
    kill_in(die_in_rows, warehouse)


def test_killed_before_the_commit(native: Warehouse) -> None:
    kill_in(die_before_commit, native)
