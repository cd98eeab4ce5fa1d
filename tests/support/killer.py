"""Processes that work, and are killed at a line that they execute."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, BinaryIO


class Killer:
    """Counts the lines that a process executes in some modules, and kills it at one of them.

    :param traced: parts of the modules' file names.
    :param at: the line, counted from 1. Default: none, the process is not killed.
    """

    def __init__(self, traced: tuple[str, ...], at: int | None = None) -> None:
        self._traced = traced
        self.count = 0
        self._at = at

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not any(part in frame.f_code.co_filename for part in self._traced):
            return None
        if event == "line":
            self.count += 1
            if self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def started(work: Callable[[], object]) -> int:
    """Return the id of a process that works and ends."""
    if child := os.fork():
        return child
    try:
        work()
    finally:
        os._exit(0)


def traced(
    work: Callable[[], object], names: tuple[str, ...], at: int | None = None, *, threads: bool = False
) -> tuple[int, BinaryIO]:
    """Start a process that works, and is killed at a line: see `Killer`.

    :param threads: whether the lines of its other threads count, too.
    :return: its id, and a pickle of the number of lines and of what the work returned; empty if it did not return.
    """

    def count() -> None:
        killer = Killer(names, at)
        if threads:
            threading.settrace(killer.trace)
        sys.settrace(killer.trace)
        result = work()
        sys.settrace(None)
        os.write(write, pickle.dumps((killer.count, result)))

    read, write = os.pipe()
    child = started(count)
    os.close(write)
    return child, os.fdopen(read, "rb")
