"""Loads of a list, with its history, that are killed with SIGKILL at forty lines, while others read the tables."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.killer import traced
from tests.warehouse.conftest import DIALECTS, Warehouse
from tests.warehouse.lists import at, read

KILLS = 40
TRACED = ("airflow_provider_mail/warehouse/",)
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
        line = number * lines // (KILLS + 1) or None
        child, ran = traced(lambda turn=turn: load(warehouse.another(), turn), TRACED, line)  # type: ignore[misc]
        states = expected(turn - 1, readings), expected(turn, readings + 1)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if kind != "duckdb":  # one process at a time opens its file
                assert look() in states
                looks += 1
        with ran:
            lines = lines if line else pickle.load(ran)[0]
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
