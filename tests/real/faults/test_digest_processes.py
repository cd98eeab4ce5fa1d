"""Digests of alerts from several processes, some of which are killed with SIGKILL: one mail and one summary.

With MAIL_ALL_FAULTS=1 they are killed ten times as often.
"""

from __future__ import annotations

import os
import pickle
import random
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
from tests.support.killer import started, traced
from tests.support.sampling import ALL_FAULTS
from tests.tasks.sending import SENDS

PROCESSES, TASKS = 8, 200
KILLS = 50 if ALL_FAULTS else 5
TRACED = (
    "notifications/_digest.py", "notifications/_message.py", "notifications/mail.py", "_audience/alerts.py",
    "warehouse/database.py", "warehouse/dialects/base.py", "warehouse/dialects/sqlite.py", "api/client.py",
    "api/_core/transport.py",
)  # fmt: skip


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


@pytest.mark.parametrize("part", ["first", "second", "summary"])
def test_a_kill_at_any_line_loses_no_stored_alert(emulator: Emulator, memory: SqliteHook, part: str) -> None:  # noqa: F811
    """What was stored is in a mail, and whatever may be in two of them is marked in the later one."""

    def begin() -> Callable[[], Any]:
        emulator.reset()
        emulator.add_sender("news@example.com")
        memory.run("DELETE FROM mail_memory_alerts WHERE digest <> ''")
        if part == "first":
            return lambda: fail("load")
        fail("load")
        if part == "second":
            return lambda: fail("report")
        fail("report")
        pass_window(memory)
        return send_digests

    child, ran = traced(begin(), TRACED, threads=True)
    os.waitpid(child, 0)
    with ran:
        lines, _ = pickle.load(ran)
    choose, kills = random.Random(part), 0
    for _ in range(KILLS):
        action, at = begin(), choose.randint(1, lines)
        child, ran = traced(action, TRACED, at, threads=True)
        _, status = os.waitpid(child, 0)
        ran.close()
        kills += os.WIFSIGNALED(status)
        before, left = emulator.messages(), len(stored(memory))
        while stored(memory):
            pass_window(memory)
            assert send_digests() == 1
        mails = emulator.messages()
        assert len(mails) == len(before) + (left > 0)
        name = "orders.load" if part == "first" else "orders.report"
        having = [mail["content"] for mail in mails if name in mail["content"]]
        assert having or part != "summary"
        assert len(having) >= bool(left), at
        assert len(having) <= 2
        assert len(having) < 2 or "may have been in an earlier mail" in having[-1], at
    assert kills >= KILLS // 2
