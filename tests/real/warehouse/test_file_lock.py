"""The lock beside a file of DuckDB: one process at a time, whose threads share it."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import Any

from airflow_provider_mail.warehouse.file_lock import one_process
from tests.support.processes import FORK, fork


def hold(database: str, held: Any, leave: Any, begun: Any = None) -> None:
    if begun:
        begun.set()
    with one_process(database, 60):
        held.set()
        leave.wait(60)


def is_free(database: str) -> bool:
    """Whether another process would get the lock now; it belongs to a file descriptor, so this process can try."""
    with Path(f"{database}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_another_process_waits_for_its_turn(tmp_path: Path) -> None:
    database = str(tmp_path / "warehouse.duckdb")
    mine, begun, theirs, leave = FORK.Event(), FORK.Event(), FORK.Event(), FORK.Event()
    first = fork(hold, database, mine, leave)
    assert mine.wait(60)
    second = fork(hold, database, theirs, leave, begun)
    assert begun.wait(60)
    assert not is_free(database)
    leave.set()
    assert theirs.wait(60)
    for process in (first, second):
        process.join(60)
        assert process.exitcode == 0


def test_a_process_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    database, held = str(tmp_path / "warehouse.duckdb"), FORK.Event()
    process = fork(hold, database, held, FORK.Event())
    assert held.wait(60)
    process.kill()
    process.join(60)
    with one_process(database, 60):
        pass


def test_threads_share_it_until_the_last_has_left(tmp_path: Path) -> None:
    database = str(tmp_path / "warehouse.duckdb")
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(database, entered, leave))
    with one_process(database, 0):
        thread.start()
        assert entered.wait(60)
        assert not is_free(database)
    assert not is_free(database)
    leave.set()
    thread.join(60)
    assert is_free(database)


def test_where_no_lock_is_possible_it_goes_on(tmp_path: Path) -> None:
    with one_process(str(tmp_path / "no such folder" / "warehouse.duckdb"), 60):
        pass
    assert list(tmp_path.iterdir()) == []
