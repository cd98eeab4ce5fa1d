"""A file of DuckDB that several processes use: one at a time has the lock beside it, whose threads share that."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_provider_mail.warehouse.dialects.duckdb import _locks, one_process
from tests.support.memory_parts import AudienceKey, Memory
from tests.support.processes import FORK, PATIENCE, fork
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import THINGS, thing


@pytest.fixture
def duck(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    return make_warehouse("duckdb")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse.duckdb")


def hold(database: str, held: Any, leave: Any, begun: Any = None) -> None:
    if begun:
        begun.set()
    with one_process(database, PATIENCE):
        held.set()
        leave.wait(PATIENCE)


def is_free(database: str) -> bool:
    """Whether another process would get the lock now; it belongs to a file descriptor, so this process can try."""
    with Path(f"{database}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("killed", [False, True])
def test_another_process_waits_for_its_turn(database: str, killed: bool) -> None:
    """Also for one that is killed."""
    mine, begun, theirs, leave, end = (FORK.Event() for _ in range(5))  # who sets one waits for those who wait for it
    first = fork(hold, database, mine, leave)
    assert mine.wait(PATIENCE)
    second = fork(hold, database, theirs, end, begun)
    assert begun.wait(PATIENCE)
    assert not is_free(database)
    first.kill() if killed else leave.set()
    assert theirs.wait(PATIENCE)
    end.set()
    for process in (first, second):
        process.join(PATIENCE)
    assert second.exitcode == 0


def test_threads_share_it_until_the_last_has_left(database: str) -> None:
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(database, entered, leave))
    with one_process(database, 0):
        thread.start()
        assert entered.wait(PATIENCE)
    assert not is_free(database)
    leave.set()
    thread.join(PATIENCE)
    assert is_free(database)


def test_a_forked_child_has_a_merge_lock_of_its_own(duck: Warehouse) -> None:
    with _locks.merging:
        child = fork(duck.load, THINGS, [thing(THINGS, 1)])
        child.join(PATIENCE)
    try:
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join(PATIENCE)
    assert len(duck.rows(THINGS)) == 1


def keep_open(path: str, held: Any, leave: Any) -> None:
    with duckdb.connect(path):
        held.set()
        leave.wait(PATIENCE)


def test_a_file_that_another_process_has_open_is_waited_for(duck: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.load(THINGS, [])
    held, leave = FORK.Event(), FORK.Event()
    process = fork(keep_open, duck.hook.get_connection("warehouse").host, held, leave)
    assert held.wait(PATIENCE)
    monkeypatch.setattr("airflow_provider_mail.warehouse.database.pause", leave.set)
    assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    assert leave.is_set()
    process.join(PATIENCE)


def change(path: str) -> None:
    while True:
        try:
            with duckdb.connect(path) as connection:
                connection.execute("UPDATE memory SET request = request")
            return
        except duckdb.IOException:
            time.sleep(0.02)


def test_another_process_can_use_the_file_while_a_task_sends(duck: Warehouse) -> None:
    memory = Memory(duck.hook, "memory", AudienceKey(["a secret"]))
    memory.create()
    with memory.kept_open():
        for person in ("a", "b"):
            assert memory.reserve([[(person, "k")]], task="t")[0][1][0][0] == "new"
            process = fork(change, duck.hook.get_connection("warehouse").host)
            process.join(PATIENCE)
            assert process.exitcode == 0
