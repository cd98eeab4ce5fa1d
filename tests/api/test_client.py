"""The two clients: connections, concurrency, threads and tasks, and how they end."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_mail import api
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import KINDS, Driver
from tests.api.wire import Gate
from tests.support.changes import at_request

REQUESTS = [api.UpsertContact(email=f"contact-{number}@example.com", name=str(number)) for number in range(60)]
both_kinds = pytest.mark.parametrize("kind", KINDS)


def config(base_url: str, **settings: object) -> api.ClientConfig:
    return api.ClientConfig(base_url=base_url, api_key="emulator-api-key", **settings)


def send_all(kind: str, config: api.ClientConfig) -> None:
    """All at once over one client, which is closed afterwards."""

    async def tasks() -> api.AsyncMailClient:
        async with api.AsyncMailClient(config) as client:
            await asyncio.gather(*map(client.send, REQUESTS))
        with pytest.raises(RuntimeError, match="closed"):
            await client.send(api.GetLists())
        return client

    if kind == "async":
        asyncio.run(tasks())
        return
    with api.MailClient(config) as client, ThreadPoolExecutor(30) as pool:
        list(pool.map(client.send, REQUESTS))
    with pytest.raises(RuntimeError, match="closed"):
        client.send(api.GetLists())


@both_kinds
@pytest.mark.parametrize("most", [1, 4])
def test_no_more_requests_in_flight_than_allowed(kind: str, most: int) -> None:
    with Gate(most) as gate:
        send_all(kind, config(gate.base_url, max_in_flight=most))
    assert gate.most == most
    assert len(gate.bodies) == 60


@both_kinds
def test_each_request_arrives_once_on_its_own_connection(kind: str, emulator: Emulator) -> None:
    send_all(kind, config(emulator.base_url))
    expected = {request.email: request.name for request in REQUESTS}
    assert {contact["email"]: contact["name"] for contact in emulator.contacts()} == expected
    assert len({entry["connection"] for entry in emulator.journal.entries()}) == 60


@pytest.mark.both_clients
def test_another_process_shares_no_connection_and_no_lock(
    emulator: Emulator, client: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a fork, of which `tests/real/api` has real ones."""
    client.send(api.GetLists())
    throttle = client.client._exchange.throttle
    monkeypatch.setattr(os, "getpid", lambda: -1)
    client.send(api.GetLists())
    assert len({entry["connection"] for entry in emulator.journal.entries()}) == 2
    assert client.client._exchange.throttle is not throttle


def test_a_cancelled_task_returns_its_connection(emulator: Emulator) -> None:
    async def cancel_and_continue() -> None:
        async with api.AsyncMailClient(config(emulator.base_url, max_in_flight=1)) as client:
            task, loop = asyncio.create_task(client.send(api.GetLists())), asyncio.get_running_loop()
            cancel = at_request(emulator, "lists/get", 1, lambda: loop.call_soon_threadsafe(task.cancel))
            with cancel, pytest.raises(asyncio.CancelledError):
                await task
            await client.send(api.GetLists())

    asyncio.run(cancel_and_continue())
