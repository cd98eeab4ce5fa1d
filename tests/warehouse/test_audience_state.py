"""The state of an audience beside its source, in every database that has a dialect."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_mail._audience.store import FileStateStore, Header, SqlStateStore, StateChangedError, StoredPart
from tests.warehouse.conftest import Warehouse

RUNS = 4


def test_of_several_runs_at_once_one_has_the_audience(native: Warehouse) -> None:
    header = Header.new("dag/load")
    stores = [SqlStateStore(native.another().hook, "audiences", header.audience_id) for _ in range(RUNS)]
    for store in stores:
        store.create(header)
    start = threading.Barrier(RUNS)

    def claim(number: int) -> bool:
        read = stores[number].read()
        assert read == header
        start.wait(60)
        try:
            return bool(stores[number].update(header, claimed_by=f"run {number}"))
        except StateChangedError:
            return False

    with ThreadPoolExecutor(RUNS) as pool:
        claimed = list(pool.map(claim, range(RUNS)))
    assert sorted(claimed) == [False] * (RUNS - 1) + [True]
    stored = stores[0].read()
    assert stored is not None
    assert [stored.version, stored.claimed_by] == [1, f"run {claimed.index(True)}"]


def _failing() -> Iterator[StoredPart]:
    yield 2, "left", 1, "{}", "s"
    raise RuntimeError("the process ends")


def test_members_are_written_whole_and_deleted(native: Warehouse) -> None:
    header = replace(Header.new("dag/load"), generation="a")
    store = SqlStateStore(native.hook, "audiences", header.audience_id)
    store.create(header)

    parts: list[StoredPart] = [(0, "member", 2, "{}", "s"), (1, "left", 1, '{"0": [1]}', "t")]
    store.write("b", parts[:1])
    for part in parts:
        store.write("a", [part])
    with pytest.raises(RuntimeError):
        store.write("a", _failing())
    assert list(map(tuple, store.parts("a"))) == parts
    store.delete(header)
    assert [store.read(), list(store.parts("a")), len(list(store.parts("b")))] == [None, [], 1]


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    store = FileStateStore(str(tmp_path), "dag-load")
    with pytest.raises(RuntimeError):
        store.write("a", _failing())
    assert [list(store.parts("a")), [path for path in tmp_path.rglob("*") if path.is_file()]] == [[], []]
