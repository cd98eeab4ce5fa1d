"""Memory does not grow with the number of rows."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from airflow_provider_mail.warehouse.read import stream_rows
from tests.warehouse.conftest import Warehouse
from tests.warehouse.tables import THINGS, numbers, thing

pytestmark = [pytest.mark.not_unit, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

ROWS = 200_000
WORDS = "x" * 300
MOST_MB = 24  # of 60 MB of words alone


def status_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(field)


class Peak:
    """The most memory that this process took in the `with`, over what it had."""

    def __enter__(self) -> Peak:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # else what an earlier test gave back would be used without being seen
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        self._before = status_mb("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.grown_mb = status_mb("VmHWM") - self._before


def test_reading(native: Warehouse) -> None:
    joined = f"concat('{WORDS}', i)" if native.is_mysql else f"'{WORDS}' || i"
    # DuckDB has threads that read ahead, the further the busier the machine is: more rows, of which it may hold more.
    rows, most_mb = (ROWS * 4, MOST_MB * 4) if native.is_duckdb else (ROWS, MOST_MB)
    sql = numbers(native.kind, rows, "i", joined)
    count = 0
    with Peak() as peak, stream_rows(native.hook, sql) as (_, batches):
        for batch in batches:
            count += len(batch)
    assert count == rows
    assert peak.grown_mb < most_mb


def test_loading(warehouse: Warehouse) -> None:
    if warehouse.is_duckdb:
        pytest.skip("DuckDB takes for itself what its own memory_limit allows")
    rows, words = (20_000, WORDS * 10) if warehouse.is_portable else (60_000, WORDS * 3)

    def many() -> Iterator[tuple[Any, ...]]:
        for number in range(rows):
            yield thing(THINGS, number, name=f"{words}{number}")

    warehouse.load(THINGS, [])
    with Peak() as peak:
        warehouse.load(THINGS, many())
    assert peak.grown_mb < MOST_MB
    assert warehouse.query("SELECT count(*) FROM things") == [(rows,)]


@pytest.mark.parametrize("kind", ["psycopg3", "psycopg2"])
def test_a_slow_server_is_waited_for(make_warehouse: Callable[[str], Warehouse], kind: str) -> None:
    """Rows are read no faster than the server takes them: here it takes none for a while."""
    warehouse = make_warehouse(kind)
    rows, read, stopped = 60_000, 0, Queue[int]()

    def many() -> Iterator[tuple[Any, ...]]:
        nonlocal read
        for read in range(rows):
            if read == 1000:
                ((server,),) = warehouse.query(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY%'"
                )
                os.kill(server, signal.SIGSTOP)
                stopped.put(server)
            yield thing(THINGS, read, name=f"{WORDS * 3}{read}")

    def let_go_on() -> int:
        """When no more is read, or all; return how much was."""
        server, seen = stopped.get(timeout=60), -1
        try:
            while seen < read < rows - 1:
                seen = read
                time.sleep(1)
            return read
        finally:
            os.kill(server, signal.SIGCONT)

    warehouse.load(THINGS, [])
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(let_go_on)
        warehouse.load(THINGS, many())
    assert 1000 <= ahead.result() < rows / 4
    assert warehouse.query("SELECT count(*) FROM things") == [(rows,)]


def test_the_peak_is_seen(make_warehouse: Any) -> None:
    """The measuring above is worth something.

    One block: small ones could take memory that earlier tests gave back to Python and that never left the process.
    """
    size = 3 * MOST_MB * 2**20
    with Peak() as peak:
        held = b"x" * size
    assert len(held) == size
    assert peak.grown_mb > 2 * MOST_MB
