"""Clients and hooks in other processes: after a fork, in a fresh interpreter, and as Airflow's own commands see us."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from typing import Any

import pytest

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.lists import GetLists
from benchmarks.parse_time import measure
from mail_emulator import Emulator
from tests.api.driving import KINDS, driver
from tests.support.processes import PATIENCE

FORK = multiprocessing.get_context("fork")


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_shares_no_connection(kind: str, emulator: Emulator) -> None:
    """Parent and child use the same client at once; each connection is used by one of them alone."""
    client = driver(kind, ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key))
    client.send(GetLists())
    process = FORK.Process(target=read_in_child, args=(client.client, kind), daemon=True)
    process.start()
    for number in range(50):
        client.send(GetLists(search=f"parent-{number}"))
    process.join(PATIENCE)
    assert process.exitcode == 0
    used: dict[Any, set[str]] = {}
    for entry in emulator.journal.entries():
        used.setdefault(entry["connection"], set()).add(str(entry["body"].get("search", "parent-")).partition("-")[0])
    assert sorted(map(sorted, used.values())) == [["child"], ["parent"]]
    client.close()


def read_in_child(client: Any, kind: str) -> None:
    async def send_all() -> None:
        for number in range(50):
            result = client.send(GetLists(search=f"child-{number}"))
            if kind == "async":
                await result

    asyncio.run(send_all())


def test_a_fork_while_another_thread_holds_the_throttle(emulator: Emulator) -> None:
    client = driver("sync", ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key))
    with client.client._exchange.throttle._lock:
        process = FORK.Process(target=client.send, args=(GetLists(),), daemon=True)
        process.start()
        process.join(PATIENCE)
    assert process.exitcode == 0
    client.close()


def test_importing_the_package_loads_nothing_else() -> None:
    loaded = measure(["airflow_provider_mail.api"], after="json", env=os.environ).modules
    others = ("airflow_provider_mail.", "httpx", "pydantic")
    assert [name for name in loaded if name.startswith(others)] == ["airflow_provider_mail.api"]
