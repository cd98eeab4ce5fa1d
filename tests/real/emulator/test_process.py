"""The command, its files, and the emulator as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import airflow_provider_mail
from mail_emulator import EmulatorProcess, EmulatorSettings
from tests.support.processes import wait_until

COMMAND = [sys.executable, "-m", "mail_emulator", "--port", "0"]
HOME = Path(airflow_provider_mail.__file__).parents[1]


def post(ready: dict[str, Any], path: str, **body: Any) -> dict[str, Any]:
    headers = {"ApiKey": ready["api_key"]}
    return httpx.post(f"{ready['base_url']}/{path}", json=body, headers=headers, trust_env=False, timeout=600).json()


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=HOME, text=True, check=False, **{"capture_output": True} | options)


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command, and what it writes once it serves."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    command = [*COMMAND, "--ready-file", str(ready), *arguments]
    process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, what="the emulator", interval=0.01)
        yield process, json.loads(ready.read_text())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_and_stops_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    with started(tmp_path, "--api-key", "secret-key", "--setting", "success_message=null") as (process, ready):
        response = post(ready, "v5/webhook/get")
        assert (response["code"], response["message"]) == (200, None)
        assert (ready["pid"], ready["api_key"]) == (process.pid, "secret-key")
        process.send_signal(how)
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert [text in output for text in (ready["base_url"], "secret-key", "Traceback")] == [True, True, False]


def test_open_connections_do_not_delay_the_end(tmp_path: Path) -> None:
    with started(tmp_path) as (process, ready), httpx.Client(base_url=ready["base_url"], trust_env=False) as client:
        client.post("/_emulator/faults/add", json={"kind": "delay", "seconds": 3600})
        with pytest.raises(httpx.TimeoutException):  # the request waits, unless it did not even leave
            client.post("/v5/webhook/get", json={}, timeout=1)
        process.terminate()
        assert process.wait() == 0  # and not after the hour


def test_a_reader_of_the_settings_that_leaves_early() -> None:
    """As `head` does."""
    read, write = os.pipe()
    os.close(read)
    done = run(*COMMAND, "--list-settings", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_is_controlled_like_one_here() -> None:
    with pytest.raises(RuntimeError, match="unable to open"), EmulatorProcess(file=Path("/proc/nowhere/x.db")):
        pass
    with EmulatorProcess(EmulatorSettings(sending_looks=1, refused_addresses=("x@example.com",))) as emulator:
        ready = {"base_url": emulator.base_url, "api_key": emulator.api_key}
        assert emulator.read_settings()["sending_looks"] == 1
        emulator.add_sender("news@example.com")
        emulator.add_list("L", count=3)
        emulator.faults.add("code_before", "campaign/mail/sends")
        campaign = {"mailName": "m", "senderMail": "news@example.com", "sendListNames": ["L"]}
        assert [post(ready, "v5/campaign/mail/sends", **campaign)["code"] for _ in range(2)] == [500, 200]
        assert emulator.campaign_recipients("m") == [f"l-{number}@example.com" for number in range(3)]
        assert emulator.journal.count("campaign/mail/sends") == 2
        assert emulator.stop() == 0
        emulator.start()
        assert emulator.lists() == []  # without a file
        pid = emulator.pid
    assert not psutil.pid_exists(pid)


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with EmulatorProcess(file=tmp_path / "state.db") as emulator:
        ready = {"base_url": emulator.base_url, "api_key": emulator.api_key}
        emulator.add_sender("news@example.com")
        emulator.clock.freeze("2026-03-01T12:00:00Z")
        emulator.add_list("L", count=100)
        campaign = {"mailName": "m", "senderMail": "news@example.com", "sendListNames": ["L"]}
        post(ready, "v5/campaign/mail/sends", **campaign, sendDate="2026-03-01T13:00:00Z")
        assert emulator.kill() == -signal.SIGKILL
        with pytest.raises(OSError, match="refused"):
            emulator.lists()
        emulator.start()
        assert emulator.base_url == ready["base_url"]
        assert (emulator.contact_count("L"), emulator.campaigns("m")[0]["state"]) == (100, "scheduled")
        assert emulator.clock.now() == datetime(2026, 3, 1, 12, tzinfo=UTC)
        emulator.clock.advance(hours=2)
        assert emulator.campaigns("m")[0]["state"] == "done"
        assert emulator.journal.count() == 0  # of this process, not of the state


def test_it_ends_with_the_process_that_started_it() -> None:
    script = """
import os
from mail_emulator import EmulatorProcess
emulator = EmulatorProcess()
emulator.start()
print(emulator.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    pid = int(run(sys.executable, "-c", script).stdout)

    def ended() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    wait_until(ended, what=f"the end of the emulator {pid} with its parent")
