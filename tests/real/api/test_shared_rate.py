"""One rate for all processes, on a real Redis: what arrives at the service in each second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.api._core.shared_rate import SOCKET_SECONDS
from airflow_provider_mail.api.client import AsyncMailClient, MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailAuthError, MailConnectError
from airflow_provider_mail.api.lists import GetLists
from mail_emulator import Emulator
from tests.support.processes import FORK, PATIENCE

pytest.importorskip("redis")
from tests.support.redis_server import SERVER, RedisServer, redis

pytestmark = pytest.mark.skipif(not SERVER, reason="there is no redis-server")

RATE, SECONDS, PROCESSES = 100, 10, 8


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def config(emulator: Emulator, server: RedisServer, **settings: Any) -> ClientConfig:
    shared = {"requests_per_second": RATE, "rate_limit_url": server.url}
    return ClientConfig(**{"base_url": emulator.base_url, "api_key": emulator.api_key} | shared | settings)


def arrivals(emulator: Emulator) -> list[float]:
    return sorted(entry["real_ms"] / 1000 for entry in emulator.journal.entries())


def work(settings: ClientConfig, until: float) -> None:
    with MailClient(settings) as client:
        while time.time() < until:
            client.send(GetLists(page_size=1))


async def work_async(settings: ClientConfig, until: float) -> None:
    async with AsyncMailClient(settings) as client:
        while time.time() < until:
            await client.send(GetLists(page_size=1))


def test_processes_and_an_event_loop_share_one_rate(emulator: Emulator, server: RedisServer) -> None:
    settings = config(emulator, server)
    until = time.time() + SECONDS
    workers = [FORK.Process(target=work, args=(settings, until), daemon=True) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    asyncio.run(work_async(settings, until))
    for worker in workers:
        worker.join(PATIENCE)
        assert worker.exitcode == 0
    times = arrivals(emulator)
    # What delays requests on their way may bring two neighboring seconds into one. All seconds together show the rate.
    assert len(times) <= RATE * (times[-1] - times[0] + 1)
    # How much of the rate is used depends on the machine; what it must not do is to stand still.
    assert len(times) > RATE


def test_429_pauses_the_others(emulator: Emulator, server: RedisServer) -> None:
    emulator.faults.add("too_many_requests", count=1, retry_after=3)
    with MailClient(config(emulator, server)) as one, MailClient(config(emulator, server)) as other:
        one.send(GetLists())
        other.send(GetLists())
        first, second, third = arrivals(emulator)
    assert min(second, third) >= first + 3


def test_without_redis_each_keeps_the_rate(emulator: Emulator, server: RedisServer) -> None:
    server.stop()
    with MailClient(config(emulator, server)) as client:
        assert client.send(GetLists()).code == 200


def test_a_frozen_redis_delays_each_client_once(emulator: Emulator, server: RedisServer) -> None:
    with MailClient(config(emulator, server)) as client:
        client.send(GetLists())
        server.freeze()
        began = time.monotonic()
        for _ in range(20):
            client.send(GetLists())
        assert time.monotonic() - began < 2 * SOCKET_SECONDS


@pytest.mark.parametrize("stored", [f"{(time.time() + 3600) * 1e6:.0f}", "soon", "nan"])
def test_what_is_no_slot(emulator: Emulator, server: RedisServer, stored: str) -> None:
    """After Redis' clock was set back by an hour, or a person wrote something."""
    with MailClient(config(emulator, server)) as one, MailClient(config(emulator, server)) as other:
        one.send(GetLists())
        store = redis.Redis.from_url(server.url)
        (key,) = store.keys("mail:rate:*")
        store.set(key, stored)
        began = time.monotonic()
        for client in (one, other):
            client.send(GetLists())
        assert time.monotonic() - began < SOCKET_SECONDS
        store.delete(key)
        store.lpush(key, "no text")
        one.send(GetLists())
        assert float(store.get(key)) > 0


def test_the_rate_is_one_across_a_renewal(emulator: Emulator, server: RedisServer) -> None:
    for access_token in ("one", "another"):
        settings = config(emulator, server, auth_type="oauth", access_token=access_token, rate_limit_account="client")
        with MailClient(settings) as client, suppress(MailAuthError):
            client.send(GetLists())
    assert len(redis.Redis.from_url(server.url).keys("mail:rate:*")) == 1


def test_waiting_for_redis(emulator: Emulator, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_mail.api._core.shared_rate.MAX_AWAY", 2.0)
    with MailClient(config(emulator, server, rate_limit_when_away="wait")) as client:
        client.send(GetLists())
        server.stop()
        with pytest.raises(MailConnectError, match="rate_limit_conn_id: Redis could not be used for 2 s"):
            client.send(GetLists())
        server.start()  # without the script that it had
        client.send(GetLists())
    assert len(arrivals(emulator)) == 2
