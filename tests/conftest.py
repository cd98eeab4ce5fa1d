"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator

TESTS = Path(__file__).parent
AIRFLOW = ("e2e", "browser")
"""The folders whose tests share one running Airflow, and so one worker process."""
LONGEST_FIRST = (*AIRFLOW, "faults", "tasks", "test_site.py", "test_quickstart.py", "warehouse", "hooks")
"""With what the workers begin, so that none of them has a long file left when the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by `LONGEST_FIRST`."""

    def turn(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parts[0]
        return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker whole files, and one of them all tests that need the running Airflow."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            _, folder, *_ = nodeid.partition("::")[0].split("/")
            return "airflow" if folder in AIRFLOW else nodeid.partition("::")[0]

    return ByFile(config, log)


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
