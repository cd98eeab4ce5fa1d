"""A trigger in an event loop, as a triggerer runs it."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from airflow.triggers.base import BaseTrigger

from airflow_provider_mail._polling import shared_poller
from airflow_provider_mail.api.client import AsyncMailClient

Event = dict[str, Any]
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it, and see that no task and no poll outlives it."""

    async def whole() -> T:
        result = await asyncio.wait_for(coroutine, 240)
        # A connection is read to its end, even if nobody waits for it any longer.
        if reading := [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "SyncToAsync.__call__"]:
            await asyncio.wait(reading, timeout=60)
        assert asyncio.all_tasks() - {asyncio.current_task()} == set()
        assert not shared_poller._pollers.get(asyncio.get_running_loop())
        return result

    return asyncio.run(whole())


async def event(waiting: BaseTrigger) -> Event:
    """The first event, and then the end of the generator."""
    events = [found.payload async for found in waiting.run()]
    assert len(events) == 1
    return dict(events[0])


async def until(look: Callable[[], Any], seconds: float = 120) -> None:
    """Let the loop go on until there is something to see."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def timed_out(make: Callable[[float], BaseTrigger]) -> Event:
    """The event of a wait whose time is up after it has polled, for which a busy machine needs more time.

    :param make: makes the trigger, given its deadline.
    """
    for seconds in (0.5, 10):
        found = run(event(make(time.time() + seconds)))
        if "was not polled" not in found["message"]:
            break
    return found


async def cancelled(*running: asyncio.Task[Any]) -> None:
    """End them, as a triggerer that is told to end does."""
    for task in running:
        task.cancel()
    await asyncio.wait(running)


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


def impatient(method: Any) -> Any:
    """A method of a client that leaves repeating to the polls."""

    async def once(client: AsyncMailClient, *arguments: Any) -> Any:
        rule = client.config.retry
        object.__setattr__(client.config, "retry", type(rule)(attempts=1))
        return await method(client, *arguments)

    return once
