"""Triggers in an event loop, as a triggerer runs them."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
import time_machine
from airflow.triggers.base import BaseTrigger

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.api.client import AsyncMailClient
from tests.support.clock import Clock, StillClock, passes

Event = dict[str, Any]
T = TypeVar("T")


class SteadyClock(StillClock):
    """Jumps when something sleeps and stands still in between: what starts together is due together."""

    new_event_loop = Clock.new_event_loop


@pytest.fixture(name="clock")
def steady_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of the modules that import it; the time of day stands still as well, and begins at noon.

    From there, no wait reaches the next day.
    """
    clock = SteadyClock()
    monkeypatch.setattr(time_machine, "travel", functools.partial(time_machine.travel, tick=False))
    with clock.installed():
        now = datetime.now(UTC)
        clock.set_wall_clock((now.replace(hour=12) - now).total_seconds())
        yield clock


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it, and see that no task and no poll outlives it."""

    async def whole() -> T:
        result = await coroutine
        # A connection is read to its end, even if nobody waits for it any longer.
        if reading := [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "SyncToAsync.__call__"]:
            await asyncio.wait(reading)
        assert asyncio.all_tasks() - {asyncio.current_task()} == set()
        assert not shared_poller._pollers.get(asyncio.get_running_loop())
        return result

    return asyncio.run(whole())


async def event(waiting: BaseTrigger) -> Event:
    """The first event, and then the end of the generator."""
    events = [found.payload async for found in waiting.run()]
    assert len(events) == 1
    return dict(events[0])


def events(*waiting: BaseTrigger) -> list[Event]:
    """The events of waits that begin at the same time."""

    async def all_of_them() -> list[Event]:
        return list(await asyncio.gather(*map(event, waiting)))

    return run(all_of_them())


def run_for(seconds: float, *waiting: BaseTrigger) -> None:
    """Let waits run for so long; none of them ends by itself."""

    async def for_a_while() -> None:
        async with running(*waiting) as tasks:
            await passes(seconds)
            assert not any(task.done() for task in tasks)

    run(for_a_while())


@asynccontextmanager
async def running(*waiting: BaseTrigger) -> AsyncIterator[list[asyncio.Task[Event]]]:
    """Waits that are cancelled at the end, as a triggerer that is told to end does."""
    tasks = [asyncio.create_task(event(one)) for one in waiting]
    try:
        yield tasks
    finally:
        await cancelled(*tasks)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def restarted(trigger: T) -> T:
    """The trigger as another triggerer makes it from what is stored."""
    path, arguments = trigger.serialize()  # type: ignore[attr-defined]
    module, _, name = path.rpartition(".")
    again: T = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))
    return again


def note_closed(monkeypatch: pytest.MonkeyPatch) -> list[AsyncMailClient]:
    """The clients that are closed from now on."""
    noted: list[AsyncMailClient] = []
    close = AsyncMailClient.close

    async def note(client: AsyncMailClient) -> None:
        noted.append(client)
        await close(client)

    monkeypatch.setattr(AsyncMailClient, "close", note)
    return noted
