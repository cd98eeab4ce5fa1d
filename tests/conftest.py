"""Fixtures that every test may use."""

from __future__ import annotations

import functools
import gc
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mail_emulator import Emulator

TESTS = Path(__file__).parent
LONGEST_FIRST = ("kills", "airflow", "runs", "machines", "dlt", "plugin", "faults", "tasks", "warehouse", "hooks")
"""With what the workers begin, so that none of them has a long file left when the others are done."""
KILLS = {"test_asset_events.py", "test_cancel_on_kill.py", "test_crashes.py"}
"""End-to-end tests that kill parts of Airflow; they take as long as all the others together."""
ONE_WORKER = ("kills", "airflow", "runs", "dlt", "plugin")
"""Parts whose files share what takes seconds to import or to start: in one worker it is done once."""
RUNS_DAGS = re.compile(r"\b(run_in_airflow|run_dag|airflow_api)\b")
"""The first run of a DAG in a process takes ten times as long as the others, and so does the first request."""


@functools.cache
def _part(file: str) -> str:
    """The name of what a test file needs that takes long to import or to start, or else its folder, or itself."""
    if file.startswith(("real/airflow/", "real/browser/")):
        return "kills" if Path(file).name in KILLS else "airflow"
    if file.startswith("tasks/test_dlt_"):
        return "dlt"
    folder = file.partition("/")[0]
    return "runs" if folder == "tasks" and RUNS_DAGS.search((TESTS / file).read_text()) else folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by `LONGEST_FIRST`."""

    def turn(item: pytest.Item) -> int:
        part = _part(item.path.relative_to(TESTS).as_posix())
        return LONGEST_FIRST.index(part) if part in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker whole files, and to one all files of a part in `ONE_WORKER`."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            part = _part(file.removeprefix("tests/"))
            return part if part in ONE_WORKER else file

    return ByFile(config, log)


def pytest_runtest_setup() -> None:
    """Remove the callbacks of the garbage collector before each test.

    Python discards an exception that a signal handler raises while such a callback runs, for instance the time-out of a
    task. Hypothesis registers a callback, once in each process, to measure how long collections take.
    """
    gc.callbacks.clear()


@pytest.fixture
def no_such_host(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name that no host has; a resolver without a network takes seconds to say so."""
    name, look_up = "no-such-host.invalid", socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        if host in (name, name.encode()):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return name


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
