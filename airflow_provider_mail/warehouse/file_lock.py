"""Locks for DuckDB: one process at a time uses a database file, and one of its threads at a time merges.

DuckDB locks its file itself, but not at every moment: when several processes open, write and close a file at once,
version 2.0.0 sometimes loses a committed transaction. It has no table locks either: of two transactions that
write the same row, the second one fails.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class _Locks:
    """The locks of this process: for each lock file, its descriptor and the number of connections that share it.

    A forked child starts with new locks.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.merging = threading.Lock()
        self.held: dict[str, tuple[int, int]] = {}

    def acquire(self, file: str) -> bool:
        """Lock the file, or share this process's lock; return whether that worked.

        :raises OSError: when the lock's file cannot be written.
        """
        with self.guard:
            if file in self.held:
                descriptor, users = self.held[file]
            else:
                descriptor, users = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), 0
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    os.close(descriptor)
                    if isinstance(error, BlockingIOError):
                        return False
                    raise
            self.held[file] = descriptor, users + 1
            return True

    def release(self, file: str) -> None:
        with self.guard:
            descriptor, users = self.held.pop(file, (-1, 0))
            if users > 1:
                self.held[file] = descriptor, users - 1
            elif users:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that was forked meanwhile
                os.close(descriptor)


def pause() -> None:
    """Sleep between two attempts at a file that another process uses."""
    time.sleep(random.uniform(0.05, 0.1))


_locks = _Locks()
os.register_at_fork(after_in_child=_locks.__init__)  # type: ignore[misc]


@contextmanager
def one_process(database: str, seconds: float) -> Iterator[None]:
    """Lock a database file against other processes that call this; threads of this process share the lock.

    :param database: the path of the database. The lock is a file beside it, whose name ends with ``.lock``.
    :param seconds: how long to wait. After that, or if no lock is possible, continue: DuckDB's own lock decides.
    """
    file, end, locked = f"{os.path.realpath(database)}.lock", time.monotonic() + seconds, False
    with suppress(OSError):
        while not (locked := _locks.acquire(file)) and time.monotonic() < end:
            pause()
    try:
        yield
    finally:
        if locked:
            _locks.release(file)


def merge_lock() -> threading.Lock:
    """Return the lock that a thread of this process holds while it merges into DuckDB."""
    return _locks.merging
