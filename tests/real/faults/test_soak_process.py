"""A process that works for long: it does not grow, and nothing stays open.

A few seconds unless MAIL_SOAK_PROCESS_SECONDS says otherwise; `make soak-process` takes fifteen minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from mail_emulator.client import EmulatorProcess

SECONDS = float(os.environ.get("MAIL_SOAK_PROCESS_SECONDS", "5"))
WARM_UP_SECONDS = 60
MOST_GROWTH = 10.0
"""MiB, after the first minute."""

FAULTS = ("http_error_before", "http_error_after", "close_before", "close_after", "reset_after", "html_after")
SHARE = 0.1


@pytest.mark.timeout(SECONDS + 300)
def test_a_process_that_works_for_long(tmp_path: Path) -> None:
    with EmulatorProcess() as emulator:
        emulator.add_sender("news@example.com")
        emulator.add_list("everybody", count=2000)
        log, found = tmp_path / "log", tmp_path / "found.json"
        command = [sys.executable, "-m", "tests.real.faults.soak_process"]
        command += [emulator.base_url, str(tmp_path), str(SECONDS), str(found)]
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as soak:
            try:
                fail_some(emulator, soak)
            finally:
                soak.kill()
        assert soak.returncode == 0, log.read_text()[-5000:]
    result = json.loads(found.read_text())
    print(result["done"])
    assert result["foreign"] == []
    assert result["left"] == {"threads": [], "files": 0, "sockets": 0, "tasks": 0}
    warm = result["memory"][WARM_UP_SECONDS:]
    if len(warm) >= WARM_UP_SECONDS:
        first, last = (statistics.median(part) for part in (warm[:30], warm[-30:]))
        assert last - first < MOST_GROWTH, result["memory"]


def fail_some(emulator: EmulatorProcess, soak: subprocess.Popen[bytes]) -> None:
    """Until the process ends, let one request in ten go wrong."""
    dice, owed = random.Random(1), 0.0
    while soak.poll() is None:
        owed += emulator.journal.count() * SHARE
        emulator.journal.clear()
        while owed >= 1:
            owed -= 1
            emulator.faults.add(dice.choice(FAULTS), skip=dice.randrange(20))
        with contextlib.suppress(subprocess.TimeoutExpired):
            soak.wait(0.2)
