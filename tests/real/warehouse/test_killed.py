"""Loads of a list, with its history, that are killed with SIGKILL at forty lines, while others read the tables."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.warehouse import database
from tests.warehouse.conftest import DIALECTS, Warehouse
from tests.warehouse.lists import at, read

KILLS = 40
TRACED = str(Path(database.__file__).parent)
LOOK = """
SELECT COUNT(*), MIN(name), MAX(name),
    (SELECT COUNT(*) FROM contacts_history WHERE valid_to IS NULL),
    (SELECT COUNT(*) FROM contacts_history_readings),
    (SELECT MAX(SUBSTR(CAST(observed_at AS CHAR(30)), 1, 16)) FROM mail_loads WHERE part = 'news')
FROM contacts
"""


def contacts(turn: int) -> range:
    """Some leave and some join with each turn, and their number tells the turns apart."""
    return range(3 * turn, 5 * turn + 300)


def load(warehouse: Warehouse, turn: int) -> None:
    read(warehouse, turn, contacts(turn), name=f"{turn:03}")


def ends_at(line: int | None, work: Callable[[], None]) -> tuple[int, int]:
    """Work in a child that is killed at a line of the package; return it, and a file with how many lines it ran."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    numbers = itertools.count()

    def trace(frame: Any, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line" and next(numbers) == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    status = 1
    try:
        sys.settrace(trace)
        work()
        sys.settrace(None)
        os.write(writer, b"%d" % next(numbers))
        status = 0
    finally:
        os._exit(status)


@pytest.mark.parametrize("kind", DIALECTS)
def test_no_reader_sees_half_a_load(make_warehouse: Callable[..., Warehouse], kind: str) -> None:
    warehouse = make_warehouse(kind)

    def look() -> tuple[Any, ...]:
        return warehouse.query(LOOK)[0]

    def expected(turn: int, readings: int) -> tuple[Any, ...]:
        count, name = len(contacts(turn)), f"{turn:03}"
        return count, name, name, count, readings, f"{at(turn):%Y-%m-%d %H:%M}"

    load(warehouse, 0)
    turn, readings, looks, killed, lines = 1, 1, 0, 0, 0
    for number in range(KILLS + 1):
        # The first one is not killed, and counts the lines.
        line = None if not number else number * lines // (KILLS + 1)
        child, reader = ends_at(line, lambda turn=turn: load(warehouse.another(), turn))
        states = expected(turn - 1, readings), expected(turn, readings + 1)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if kind != "duckdb":  # one process at a time opens its file
                assert look() in states
                looks += 1
        with os.fdopen(reader) as ran:
            lines = int(ran.read() or lines)
        is_killed = os.WIFSIGNALED(ended[1])
        assert is_killed or not number, ended
        killed += is_killed
        after = look()
        assert after in states
        if after == states[0]:
            load(warehouse, turn)
            assert look() == states[1]
        turn, readings = turn + 1, readings + 1
    print(f"{kind}: {killed} kills among {lines} lines, {looks} looks")
    assert killed == KILLS
