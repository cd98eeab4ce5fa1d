"""The state of an audience beside its source, in every database that has a dialect."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_mail._audience.store import Header, StateChangedError, StateStore, StoredPart
from tests.warehouse.conftest import Warehouse

RUNS = 4


def test_of_several_runs_at_once_one_has_the_audience(native: Warehouse) -> None:
    header = Header.new("dag/load")
    stores = [StateStore(native.another().hook, "audiences") for _ in range(RUNS)]
    for store in stores:
        store.create(header)
    start = threading.Barrier(RUNS)

    def claim(number: int) -> bool:
        read = stores[number].read(header.audience_id)
        assert read == header
        start.wait(60)
        try:
            return bool(stores[number].change(header, claimed_by=f"run {number}"))
        except StateChangedError:
            return False

    with ThreadPoolExecutor(RUNS) as pool:
        claimed = list(pool.map(claim, range(RUNS)))
    assert sorted(claimed) == [False] * (RUNS - 1) + [True]
    stored = stores[0].read(header.audience_id)
    assert stored is not None
    assert [stored.version, stored.claimed_by] == [1, f"run {claimed.index(True)}"]


def _failing() -> Iterator[StoredPart]:
    yield 2, 0, "s"
    raise RuntimeError("the process ends")


def test_a_change_is_whole(native: Warehouse) -> None:
    """The row of the audience and its parts change together, or neither does."""
    store = StateStore(native.hook, "audiences")
    header = Header.new("dag/load")
    store.create(header)
    header = store.change(header, generation="a", parts=[(1, 0, "s"), (1, 1, "t"), (3, 0, "u")])
    with pytest.raises(Exception, match="RuntimeError"):
        store.change(header, generation="b", parts=_failing())
    with pytest.raises(StateChangedError):
        store.change(Header.new("dag/load"), generation="b", parts=[(9, 0, "x")])
    assert [*store.buckets("a")] == [(1, [(1, 0, "s"), (1, 1, "t")]), (3, [(3, 0, "u")])]
    header = store.change(header, replaced=[1], parts=[(1, 2, "v")], size=4)
    assert [*store.buckets("a")] == [(1, [(1, 2, "v")]), (3, [(3, 0, "u")])]
    assert store.read(header.audience_id) == header
    header = store.change(header, generation="b", parts=[(0, 0, "w")])
    assert [[*store.buckets(generation)] for generation in "ab"] == [[], [(0, [(0, 0, "w")])]]
    store.delete(header)
    assert [store.all(), [*store.buckets("b")]] == [[], []]
