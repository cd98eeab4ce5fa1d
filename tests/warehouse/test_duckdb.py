"""What DuckDB does its own way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail.warehouse import connection
from airflow_provider_mail.warehouse.dialects.duckdb import DuckDb, one_process
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.load import LoadResult, load
from tests.support.clock import Clock
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, THINGS, thing

pytestmark = pytest.mark.not_unit


@pytest.fixture
def duck(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    """As in a task: each connection opens the file, and the last one closes it."""
    return make_warehouse("duckdb", stays_open=False)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE things SET size = 1 WHERE number = 2",
        "INSERT INTO things (account, number, observed_at) VALUES ('a', 3, '2026-03-01')",
    ],
)
def test_a_conflict_with_another_transaction_is_tried_again(
    duck: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: Clock, statement: str
) -> None:
    caplog.set_level("INFO")
    duck.load(THINGS, [thing(THINGS, 2, name="old")])
    merge, merges = DuckDb.merge, 0

    def merge_behind_another(dialect: DuckDb, cursor: Any) -> LoadResult:
        nonlocal merges
        merges += 1
        if merges == 1:  # this transaction has begun, so it does not see what is committed now
            duck.execute(statement)
        return merge(dialect, cursor)

    monkeypatch.setattr(DuckDb, "merge", merge_behind_another)
    duck.load(THINGS, [thing(THINGS, number, name="new", at=LATER) for number in (2, 3)])
    assert merges == 2
    assert "conflict with another transaction (attempt 1 of 8)" in caplog.text
    assert [row[2] for row in duck.rows(THINGS)] == ["new", "new"]


def test_a_file_that_another_process_is_making_is_waited_for(duck: Warehouse, clock: Clock) -> None:
    file = Path(duck.hook.get_connection("warehouse").host)
    made = file.with_name("made.duckdb")
    duckdb.connect(str(made)).close()
    file.write_bytes(b"half made")
    clock.after(1, lambda: made.replace(file))
    assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    file.write_bytes(b"something else")
    with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': .*not a valid DuckDB database file"):
        duck.load(THINGS, [thing(THINGS, 2)])
    assert file.read_bytes() == b"something else"


def test_a_file_that_this_process_is_closing_is_waited_for(duck: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.load(THINGS, [])
    waits: list[object] = []
    with duckdb.connect() as other:
        other.execute(f"ATTACH '{duck.hook.get_connection('warehouse').host}' AS closing")
        monkeypatch.setattr(connection, "pause", lambda: waits.append(other.execute("DETACH closing")))
        assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    assert len(waits) == 1


def test_a_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = json.dumps({"conn_type": "duckdb", "host": str(tmp_path / "nowhere" / "x.duckdb")})
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", nowhere)
    with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': .*No such file or directory"):
        load(DuckDBHook("warehouse"), THINGS, "things", [])


def test_where_no_lock_is_possible_it_goes_on(tmp_path: Path) -> None:
    with one_process(str(tmp_path / "no such folder" / "warehouse.duckdb"), 60):
        pass
    assert list(tmp_path.iterdir()) == []
