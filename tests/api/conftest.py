"""The client for threads; where both differ, and with MAIL_ALL_CASES everywhere, also the one for an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail.api.config import ClientConfig
from mail_emulator import Emulator
from tests.api.driving import KINDS, QUICK, Driver, driver
from tests.api.wire import Wire
from tests.support.sampling import EVERYTHING


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the client, where the test does not by itself: both share all but transport, pauses and concurrency."""
    chosen = any("connect" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "connect" in metafunc.fixturenames and not chosen:
        both = EVERYTHING or metafunc.definition.get_closest_marker("both_clients")
        metafunc.parametrize("connect", KINDS if both else KINDS[:1], indirect=True)


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Driver]]:
    """Make a client for an address: the kind is the fixture's parameter."""
    clients: list[Driver] = []

    def make(base_url: str, **settings: Any) -> Driver:
        settings = {"api_key": "emulator-api-key", "retry": QUICK, "timeout": 60, **settings}
        clients.append(driver(request.param, ClientConfig(base_url=base_url, **settings)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Driver], emulator: Emulator) -> Driver:
    """A client of the emulator that repeats at once, three times in all."""
    return connect(emulator.base_url)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as running:
        yield running
