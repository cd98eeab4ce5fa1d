"""One client, in both colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import KINDS, QUICK, Driver, driver


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Driver]]:
    """Make a client for an address; run with the client for threads and with the one for an event loop."""
    made: list[Driver] = []

    def make(base_url: str, **settings: Any) -> Driver:
        settings = {"api_key": "emulator-api-key", "retry": QUICK, "timeout": 10, **settings}
        made.append(driver(request.param, ClientConfig(base_url=base_url, **settings)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def client(connect: Callable[..., Driver], emulator: Emulator) -> Driver:
    """A client of the emulator that repeats at once, three times in all."""
    return connect(emulator.base_url)
