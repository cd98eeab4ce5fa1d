"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_mail.emulator import Emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """The email service, fresh and in memory, with "news@example.com" as verified sender of both types.

    The test fails when the emulator itself did.
    """
    with Emulator() as running:
        running.add_sender("news@example.com")
        yield running
        crashes = running.crashes()
    assert not crashes, crashes[0]
