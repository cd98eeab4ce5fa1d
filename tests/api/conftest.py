"""Clients of the emulator, and of a service that answers whatever a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from mail_emulator import Emulator
from tests.api.driving import QUICK
from tests.api.wire import Wire


@pytest.fixture
def connect() -> Iterator[Callable[..., MailClient]]:
    """Make a client for an address."""
    with ExitStack() as clients:

        def make(base_url: str, **settings: Any) -> MailClient:
            settings = {"api_key": "emulator-api-key", "retry": QUICK, "timeout": 60, **settings}
            return clients.enter_context(MailClient(ClientConfig(base_url=base_url, **settings)))

        yield make


@pytest.fixture
def client(connect: Callable[..., MailClient], emulator: Emulator) -> MailClient:
    """A client of the emulator that repeats at once, three times in all."""
    return connect(emulator.base_url)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as running:
        yield running
