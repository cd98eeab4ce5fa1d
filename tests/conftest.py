"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_mail.emulator import Emulator

TESTS = Path(__file__).parent
AIRFLOW = ("e2e", "browser")
"""The folders whose tests share one running Airflow, and so one worker process."""
LONGEST_FIRST = (*AIRFLOW, "faults", "tasks", "warehouse", "hooks", "notifications")
"""The folders with which the workers begin, so that none of them has a long file left when the others are done."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell pytest-xdist which tests belong together: those of a file, and all that need the running Airflow."""

    def turn(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parts[0]
        return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=turn)
    for item in items:
        path = item.path.relative_to(TESTS)
        item.add_marker(pytest.mark.xdist_group("airflow" if path.parts[0] in AIRFLOW else path.as_posix()))


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
