"""A warehouse that hangs takes nothing but the page's own few threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from starlette.testclient import TestClient

from airflow_provider_mail.plugin.reader import (
    KEEP_SECONDS,
    MAX_THREADS,
    PLACES,
    SECONDS,
    NoAnswer,
    Places,
    Reader,
    TtlCache,
)
from tests.plugin.conftest import token
from tests.support.clock import StillClock
from tests.support.processes import PATIENCE
from tests.warehouse.conftest import Warehouse


def test_a_warehouse_that_hangs_takes_a_few_threads(still_clock: StillClock) -> None:
    started, go = threading.Semaphore(0), threading.Event()

    def read() -> str:
        started.release()
        assert go.wait(PATIENCE)
        return "rows"

    async def run() -> None:
        places = Places()

        def persons() -> list[asyncio.Task[Any]]:
            return [asyncio.create_task(places.read(read)) for _ in range(PLACES)]

        async def all_read() -> None:
            for _ in range(PLACES):
                assert await asyncio.to_thread(started.acquire, True, PATIENCE)

        leaving = persons()
        await all_read()
        others = persons()
        await asyncio.sleep(0)
        assert not started.acquire(blocking=False)
        for person in leaving:
            person.cancel()
        await all_read()
        assert not any(person.done() for person in others)
        for _ in range(2 * PLACES, MAX_THREADS, PLACES):
            still_clock.move(SECONDS)
            assert {type(each) for each in await asyncio.gather(*others, return_exceptions=True)} == {NoAnswer}
            others = persons()
            await all_read()
        still_clock.move(SECONDS)
        await asyncio.gather(*others, return_exceptions=True)
        with pytest.raises(NoAnswer, match="did not answer within 20 seconds"):
            await places.read(read)
        assert not started.acquire(blocking=False)

        go.set()
        for thread in threading.enumerate():
            if thread.name == "mail-database":
                await asyncio.to_thread(thread.join, PATIENCE)
        assert await places.read(read) == "rows"

    asyncio.run(run())


def test_who_leaves_a_page_frees_a_place(
    server: TestClient, empty: Warehouse, monkeypatch: pytest.MonkeyPatch, still_clock: StillClock
) -> None:
    """No one reads the response, but Airflow's middleware gets one."""
    left, reads, go = asyncio.Event(), threading.Event(), threading.Event()

    def of_page(*_: Any) -> Any:
        reads.set()
        assert go.wait(PATIENCE)

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        page = asyncio.create_task(app(scope, receive, send))
        assert await asyncio.to_thread(reads.wait, PATIENCE)
        assert not page.done()
        left.set()
        await page

    from airflow_provider_mail.plugin.app import app

    monkeypatch.setattr(Reader, "of_page", of_page)
    scope = {
        "type": "http", "method": "GET", "path": "/", "root_path": "", "query_string": b"", "path_params": {},
        "headers": [(b"cookie", f"_token={token('viewer')}".encode())], "state": {}, "app": app,
    }  # fmt: skip
    sent: list[Any] = []
    asyncio.run(run())
    go.set()
    assert [message.get("status") for message in sent] == [503, None]


def test_a_result_is_computed_again_after_ten_minutes() -> None:
    now, computed = [0.0], []
    cache: TtlCache[int] = TtlCache(lambda: now[0])

    def compute() -> int:
        computed.append(1)
        return len(computed)

    assert [cache.get("a", compute), cache.get("a", compute), cache.get("b", compute)] == [1, 1, 2]
    now[0] = KEEP_SECONDS
    assert cache.get("a", compute) == 3


def test_of_many_results_only_the_newest_are_kept() -> None:
    cache: TtlCache[int] = TtlCache(lambda: 0.0)
    assert [cache.get(number, lambda number=number: number) for number in range(1000)] == [*range(1000)]
    assert [cache.get(number, lambda: -1) for number in (999, 0)] == [999, -1]
