"""What DuckDB does its own way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_provider.hooks.duckdb_hook import DuckDBHook

from airflow_provider_mail.warehouse import connection
from airflow_provider_mail.warehouse.dialects.duckdb import DuckDb
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.file_lock import merge_lock
from airflow_provider_mail.warehouse.load import LoadResult, load
from tests.support.processes import FORK, PATIENCE, fork
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import LATER, THINGS, thing

pytestmark = pytest.mark.not_unit


@pytest.fixture
def duck(make_warehouse: Callable[..., Warehouse]) -> Warehouse:
    return make_warehouse("duckdb")


def test_created_with_types_key_and_comments(duck: Warehouse) -> None:
    duck.load(THINGS, [])
    columns = duck.query(
        "SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE table_name = 'things' "
        "ORDER BY column_index"
    )
    assert columns == [
        ("account", "VARCHAR", False, "Whose thing it is"),
        ("number", "BIGINT", False, "Its number"),
        ("name", "VARCHAR", True, "What it's called"),
        ("size", "INTEGER", True, "How large"),
        ("ratio", "DOUBLE", True, "In percent"),
        ("good", "BOOLEAN", True, "Or bad"),
        ("day", "DATE", True, "Of its making"),
        ("sold_at", "TIMESTAMP", True, "When it was sold"),
        ("extra", "JSON", True, "All the rest"),
        ("observed_at", "TIMESTAMP", False, "When it was looked at"),
        ("loaded_at", "TIMESTAMP", True, "When the row was last written"),
        ("run_id", "VARCHAR", True, "Airflow run that wrote it; null outside of a task"),
    ]
    assert duck.query(
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'"
    ) == [(["account", "number"],)]
    assert duck.query("SELECT comment FROM duckdb_tables()") == [(THINGS.comment,)]


@pytest.mark.parametrize("name", ["things", "main.things", "crm.things", '"My Schema".things', "warehouse.main.things"])
def test_schemas(duck: Warehouse, name: str) -> None:
    duck.execute("CREATE SCHEMA crm", 'CREATE SCHEMA "My Schema"')
    for _ in range(2):
        duck.load(THINGS, [thing(THINGS, 1)], name)
    assert len(duck.rows(THINGS, name)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE things SET size = 1 WHERE number = 2",
        "INSERT INTO things (account, number, observed_at) VALUES ('a', 3, '2026-03-01')",
    ],
)
def test_a_conflict_with_another_transaction_is_tried_again(
    duck: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, statement: str
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


def test_threads_merge_one_after_another(duck: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    duck.load(THINGS, [])
    start = threading.Barrier(6)

    def work(worker: int) -> None:
        mine = duck.another()
        start.wait(PATIENCE)
        for turn in range(3):
            mine.load(THINGS, [thing(THINGS, number, name=f"{worker}/{turn}") for number in range(200)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert "conflict" not in caplog.text
    assert len(duck.rows(THINGS)) == 200


def test_a_forked_child_has_a_merge_lock_of_its_own(duck: Warehouse) -> None:
    with merge_lock():
        child = fork(duck.load, THINGS, [thing(THINGS, 1)])
        child.join(60)
    try:
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join(60)
    assert len(duck.rows(THINGS)) == 1


def hold(path: str, held: Any, seconds: float) -> None:
    with duckdb.connect(path):
        held.set()
        time.sleep(seconds)


def test_a_file_that_another_process_has_open_is_waited_for(duck: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.load(THINGS, [])
    path = duck.hook.get_connection("warehouse").host
    held = FORK.Event()
    process = fork(hold, path, held, 1.0)
    assert held.wait(PATIENCE)
    assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    process.join(PATIENCE)

    monkeypatch.setitem(connection.BUSY_FILE_WAITS_S, "Could not set lock on file", 0.2)
    held = FORK.Event()
    process = fork(hold, path, held, 60)
    try:
        assert held.wait(PATIENCE)
        with pytest.raises(WarehouseError, match=r"cannot connect to 'warehouse': .*Could not set lock on file"):
            duck.load(THINGS, [thing(THINGS, 2)])
    finally:
        process.kill()
        process.join(PATIENCE)


def test_a_file_that_another_process_is_making_is_waited_for(duck: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.BUSY_FILE_WAITS_S, "not a valid DuckDB database file", PATIENCE)
    file = Path(duck.hook.get_connection("warehouse").host)
    made = file.with_name("made.duckdb")
    duckdb.connect(str(made)).close()
    file.write_bytes(b"half made")
    finished = threading.Timer(0.5, made.replace, [file])
    finished.start()
    assert duck.load(THINGS, [thing(THINGS, 1)]).inserted == 1
    finished.join()

    file.write_bytes(b"something else")
    monkeypatch.setitem(connection.BUSY_FILE_WAITS_S, "not a valid DuckDB database file", 0.2)
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
