"""The two clients as carriers: connections, how many at once, threads and tasks, and how they end."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_mail.api.client import AsyncMailClient, MailClient
from airflow_provider_mail.api.config import ClientConfig, RetryRule
from airflow_provider_mail.api.contacts import DeleteContact, UpsertContact
from airflow_provider_mail.api.errors import MailConnectError
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import KINDS, Driver
from tests.support.processes import free_port

REQUESTS = [UpsertContact(email=f"contact-{number}@example.com", name=str(number)) for number in range(60)]


def send_all(kind: str, config: ClientConfig) -> None:
    """All at once over one client."""

    async def tasks() -> None:
        async with AsyncMailClient(config) as client:
            await asyncio.gather(*map(client.send, REQUESTS))

    if kind == "async":
        asyncio.run(tasks())
        return
    with MailClient(config) as client, ThreadPoolExecutor(30) as pool:
        list(pool.map(client.send, REQUESTS))


@pytest.mark.not_unit
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 4])
def test_no_more_requests_in_flight_than_allowed(kind: str, most: int, emulator: Emulator) -> None:
    emulator.settings.latency_seconds = 0.004
    send_all(kind, ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, max_in_flight=most))
    assert emulator.contact_count() == 60
    assert emulator.journal.most_in_flight() == most
    assert len({entry["connection"] for entry in emulator.journal.entries()}) == 60, "a change has one of its own"


@pytest.mark.parametrize("kind", KINDS)
def test_each_answer_goes_to_who_asked(kind: str, emulator: Emulator) -> None:
    send_all(kind, ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key))
    assert {contact["email"]: contact["name"] for contact in emulator.contacts()} == {
        request.email: request.name for request in REQUESTS
    }


def test_connections_are_kept(emulator: Emulator, client: Driver) -> None:
    for _ in range(5):
        client.send(GetLists())
    assert len({entry["connection"] for entry in emulator.journal.entries()}) == 1


def test_a_flow_may_hold_requests_whose_steps_hold_requests(emulator: Emulator, client: Driver) -> None:
    """A deletion inside a flow, refused after a lost answer, looks for itself."""
    emulator.add_contact("ada@example.com")
    emulator.faults.add("close_after", "contacts/delete")

    def flow():  # type: ignore[no-untyped-def]
        yield DeleteContact(email="ada@example.com")
        return (yield GetLists())

    assert client.run(flow()).records == []
    assert emulator.journal.counts() == {"/v5/contacts/delete": 2, "/v5/contacts/get": 1, "/v5/lists/get": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_ends_with_its_block(kind: str, emulator: Emulator) -> None:
    config = ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)

    async def block() -> AsyncMailClient:
        async with AsyncMailClient(config) as client:
            await client.send(GetLists())
        with pytest.raises(RuntimeError, match="closed"):
            await client.send(GetLists())
        return client

    if kind == "async":
        asyncio.run(block())
        return
    with MailClient(config) as client:
        client.send(GetLists())
    with pytest.raises(RuntimeError, match="closed"):
        client.send(GetLists())


def test_a_cancelled_task_gives_its_connection_back(emulator: Emulator) -> None:
    config = ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, max_in_flight=1)

    async def cancel_and_go_on() -> None:
        async with AsyncMailClient(config) as client:
            emulator.faults.add("delay", "lists/get", seconds=0.3)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.send(GetLists())
            await asyncio.wait_for(client.send(GetLists()), 60)

    asyncio.run(cancel_and_go_on())


@pytest.mark.not_unit
def test_the_loop_goes_on_while_a_request_waits(emulator: Emulator) -> None:
    """Back-off and the throttle sleep; they do not block."""
    config = ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key, requests_per_second=2)

    async def count_ticks() -> int:
        ticks = 0
        async with AsyncMailClient(config) as client:
            sending = asyncio.gather(*(client.send(GetLists()) for _ in range(3)))
            while not sending.done():
                await asyncio.sleep(0.01)
                ticks += 1
            await sending
        return ticks

    assert asyncio.run(count_ticks()) > 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_both_clients_say_why_nothing_was_reached(kind: str, host: str) -> None:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        pytest.skip(f"{host} has no address on this machine")
    url = f"http://{host}:{free_port()}"
    config = ClientConfig(base_url=url, api_key="key", retry=RetryRule(attempts=1, total_seconds=0))
    with pytest.raises(MailConnectError) as raised:
        send_all(kind, config)
    assert f"{url} cannot be reached: nothing listens there; check host (base URL) and port." in str(raised.value)
