"""A file of DuckDB that another process uses."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from airflow_provider_mail.warehouse.file_lock import merge_lock
from tests.support.processes import FORK, PATIENCE, fork
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import THINGS, thing


@pytest.fixture
def duck(make_warehouse: Any) -> Warehouse:
    return make_warehouse("duckdb")


def test_a_forked_child_has_a_merge_lock_of_its_own(duck: Warehouse) -> None:
    with merge_lock():
        child = fork(duck.load, THINGS, [thing(THINGS, 1)])
        child.join(PATIENCE)
    try:
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join(PATIENCE)
    assert len(duck.rows(THINGS)) == 1


def hold(path: str, held: Any, leave: Any) -> None:
    with duckdb.connect(path):
        held.set()
        leave.wait(PATIENCE)


def test_a_file_that_another_process_has_open_is_waited_for(duck: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.load(THINGS, [])
    held, leave = FORK.Event(), FORK.Event()
    process = fork(hold, duck.hook.get_connection("warehouse").host, held, leave)
    assert held.wait(PATIENCE)
    pauses: list[None] = []

    def pause() -> None:
        pauses.append(leave.set())

    monkeypatch.setattr("airflow_provider_mail.warehouse.connection.pause", pause)
    assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    assert pauses
    process.join(PATIENCE)
