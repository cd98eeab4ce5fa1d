"""Our client at the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig, RetrySettings
from mail_emulator import Emulator

COLLECTED = pytest.StashKey[frozenset[str]]()
"""The names of all tests of this run, also of those that it leaves out."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = frozenset(item.nodeid for item in items)


@pytest.fixture
def config(emulator: Emulator) -> ClientConfig:
    return ClientConfig(
        base_url=emulator.base_url,
        api_key=SecretStr(emulator.api_key),
        timeout=60,
        retry=RetrySettings(attempts=3, base_seconds=0.01),
    )


@pytest.fixture
def client(config: ClientConfig) -> Iterator[MailClient]:
    with MailClient(config) as client:
        yield client
