"""Loads at the same time on real databases.

Loads that are killed, and two of which one ends in the middle of the other, are in `tests/machines/test_loading.py`.
"""

from __future__ import annotations

import datetime
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from airflow_provider_mail.warehouse.table import Table
from tests.support.postgres import Database
from tests.support.processes import PATIENCE, wait_until
from tests.warehouse.conftest import ALL, Warehouse
from tests.warehouse.tables import LATER, NOON, PLAIN, THINGS, thing

WORKERS, ROUNDS, KEYS = 3, 6, 400
MINUTE = datetime.timedelta(minutes=1)


def rows_of(worker: int) -> list[list[tuple[Any, ...]]]:
    """Overlapping keys in an order that no other worker has; no two loads observed at the same time."""
    chance = random.Random(worker)
    return [
        [
            thing(THINGS, number, name=f"{worker}/{turn}", at=NOON + (turn * WORKERS + worker) * MINUTE)
            for number in chance.sample(range(KEYS), KEYS // 2)
        ]
        for turn in range(ROUNDS)
    ]


def latest() -> list[tuple[Any, ...]]:
    """What must come of them in whatever order they are loaded: of each key what was observed last."""
    rows = [row for worker in range(WORKERS) for rows in rows_of(worker) for row in rows]
    return sorted({row[1]: row for row in sorted(rows, key=lambda row: row[-1])}.values(), key=lambda row: row[1])


def work(warehouse: Warehouse, worker: int, start: Any) -> None:
    mine = warehouse.another()
    start.wait(PATIENCE)
    for rows in rows_of(worker):
        mine.load(THINGS, rows)


STRICT = ("psycopg3 serializable", "psycopg3 repeatable\\ read")


@pytest.mark.parametrize("kind", [*ALL, *STRICT])
def test_threads_load_overlapping_keys_at_once(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    name, _, level = kind.partition(" ")
    options = {"options": f"-c default_transaction_isolation={level}"} if kind in STRICT else {}
    warehouse, start = make_warehouse(name if options else kind, **options), threading.Barrier(WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda worker: work(warehouse, worker, start), range(WORKERS)))
    assert warehouse.rows(THINGS) == latest()


def test_a_table_is_created_and_widened_by_many_at_once(native: Warehouse) -> None:
    narrow, start = Table(PLAIN.columns[:3], PLAIN.key, ""), threading.Barrier(6)

    def create(number: int) -> None:
        table, mine = narrow if number % 2 else PLAIN, native.another()
        start.wait(PATIENCE)
        mine.load(table, [thing(table, number, name="x")])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(create, range(6)))
    assert [(row[1], row[2]) for row in native.rows(narrow)] == [(number, "x") for number in range(6)]


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2", "mysql"])
def test_a_deadlock_is_tried_again(
    make_warehouse: Callable[..., Warehouse], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    warehouse, turn = make_warehouse(kind), 0
    warehouse.load(THINGS, [thing(THINGS, number, name="old") for number in range(100)])
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted"
    if warehouse.is_mysql:
        waits = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    # Postgres looks for a deadlock once, a second after ours began to wait: on a slow machine there is none yet.
    while "conflict with another transaction (attempt 1 of 8)" not in caplog.text:
        turn += 1
        rows = [thing(THINGS, number, name="new", at=NOON + turn * MINUTE) for number in (1, 60)]
        with ThreadPoolExecutor(1) as pool, closing(warehouse.another().hook.get_conn()) as other:
            cursor = other.cursor()
            if not warehouse.is_mysql:
                cursor.execute("SET deadlock_timeout = '20s'")  # so that ours is given up, unless it missed it
            # The other transaction has done more, so ours is the one that MySQL gives up.
            cursor.execute("UPDATE things SET size = 1 WHERE account = 'a' AND number BETWEEN 50 AND 99")
            ours = pool.submit(warehouse.load, THINGS, rows)
            wait_until(lambda: warehouse.query(waits), what="the wait for the other")
            try:
                cursor.execute("UPDATE things SET size = 1 WHERE account = 'a' AND number = 1")
            except psycopg.errors.DeadlockDetected:
                other.rollback()
            else:
                other.commit()
            ours.result(PATIENCE)
    assert [row[2] for row in warehouse.rows(THINGS) if row[1] in (1, 60)] == ["new", "new"]


def test_a_load_ends_with_the_connection_of_its_server(postgres: Warehouse, warehouse_database: Database) -> None:
    postgres.load(THINGS, [thing(THINGS, 1, name="old")])

    def rows() -> Iterator[tuple[Any, ...]]:
        yield thing(THINGS, 1, name="new", at=LATER)
        with warehouse_database.connect() as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() "
                "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        yield thing(THINGS, 2, at=LATER)

    with pytest.raises(Exception, match="table things on connection"):
        postgres.load(THINGS, rows())
    assert [row[2] for row in postgres.rows(THINGS)] == ["old"]
