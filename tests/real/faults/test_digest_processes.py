"""Digests of alerts from several processes, some of which are killed with SIGKILL: one mail and one summary."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.sqlite.hooks.sqlite import SqliteHook

from airflow_provider_mail.notifications.mail import send_digests
from mail_emulator import Emulator
from tests.machines.conftest import _mail_default, _quiet  # noqa: F401 - fixtures
from tests.notifications.conftest import _settings  # noqa: F401 - a fixture
from tests.notifications.test_digest import fail, memory, pass_window, stored  # noqa: F401 - a fixture
from tests.support.changes import around_requests
from tests.tasks.sending import SENDS

PROCESSES, TASKS = 8, 200


def started(action: Callable[[], Any]) -> int:
    """The id of a process that runs an action."""
    if child := os.fork():
        return child
    try:
        action()
    finally:
        os._exit(0)


def test_200_tasks_of_several_processes_that_fail_at_once(emulator: Emulator, memory: SqliteHook) -> None:  # noqa: F811
    def report(process: int) -> None:
        for task in range(process, TASKS, PROCESSES):
            fail(f"load_{task}")

    for child in [started(lambda number=process: report(number)) for process in range(PROCESSES)]:  # type: ignore[misc]
        assert os.waitpid(child, 0)[1] == 0
    assert len(emulator.messages()) == 1
    pass_window(memory)
    for child in [started(send_digests) for _ in range(PROCESSES)]:
        os.waitpid(child, 0)
    first, summary = emulator.messages()
    assert first["subject"].startswith("Failed: orders.load_")
    assert summary["subject"].startswith("199 alerts: Failed: orders.load_")
    assert "and 149 more" in summary["content"]
    assert stored(memory) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_no_alert_of_a_process_that_is_killed_is_lost(emulator: Emulator, memory: SqliteHook, when: str) -> None:  # noqa: F811
    """Before its request reaches the service, or after; the summary says that they may have been in a mail."""

    def run_and_kill(action: Callable[[], Any]) -> None:
        read, write = os.pipe()
        child = started(lambda: (os.read(read, 1), action()))

        def around(perform: Any) -> Any:
            response = perform() if when == "after" else None
            os.kill(child, signal.SIGKILL)
            return response or perform()

        with around_requests(emulator, SENDS, around):
            os.write(write, b"x")
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1])

    run_and_kill(fail)
    assert stored(memory) == ["intended"]
    fail("report")
    pass_window(memory)
    run_and_kill(send_digests)
    assert stored(memory) == ["in doubt", "intended"]
    assert send_digests() == 0, "another process may be sending it"
    pass_window(memory)
    assert send_digests() == 1
    summary = emulator.messages()[-1]["content"]
    assert summary.count("1 of them may have been in an earlier mail") == 2
    assert stored(memory) == []
