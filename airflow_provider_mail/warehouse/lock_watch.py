"""Logs what a load waits for: its own connection is blocked, so another one asks the database."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

FIRST_LOOK_SECONDS = 5.0
"""How long a load waits without a line in the log."""
_MAX_INTERVAL_SECONDS = 60.0

_log = logging.getLogger(__name__)


def pause() -> None:
    """Sleep between two attempts at a database that is busy."""
    time.sleep(random.uniform(0.05, 0.1))


class LockWatch:
    """Checks after some seconds, and then at growing intervals, whether its block still waits, and for what.

    :param prefix: the beginning of the lines.
    :param look: returns what holds the lock; ``None`` if the block waits for none. Called in a thread; errors are
        ignored.
    :param timeout: seconds after which the wait ends; the first check is earlier.
    """

    def __init__(self, prefix: str, look: Callable[[], str | None], timeout: float) -> None:
        self._prefix = prefix
        self._look = look
        self._first = min(FIRST_LOOK_SECONDS, timeout / 2)
        self._done = threading.Event()
        self.holder = ""
        """What held the lock at the last check; empty if nothing did."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="mail-lock-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        start, interval = time.monotonic(), self._first
        while not self._done.wait(interval):
            interval = min(2 * interval, _MAX_INTERVAL_SECONDS)
            holder = None
            with suppress(Exception):
                holder = self._look()
            if holder and not self._done.is_set():
                self.holder = holder
                _log.info("%swaiting for a lock since %.0f s: %s", self._prefix, time.monotonic() - start, holder)
