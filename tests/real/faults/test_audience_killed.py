"""Runs of an audience that are killed with SIGKILL at a hundred points: the next run finds what they have done."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mail_emulator import Emulator
from tests.tasks.test_audience import created, done
from tests.tasks.test_audience_changes import imported

POINTS = 100
TRACED = ("audience_changes.py", "audience_state.py", "import_contacts.py", "load.py")


class Killer:
    """Counts the lines that a process executes in some modules, and kills it at one of them."""

    def __init__(self, at: int | None) -> None:
        self.count = 0
        self._at = at

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(TRACED):
            return None
        if event == "line":
            self.count += 1
            if self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def run_in_child(at: int | None, people: dict[str, str]) -> tuple[bool, int]:
    """Run the import in a process of its own; return whether it was killed, and how many lines it executed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        killer = Killer(at)
        sys.settrace(killer.trace)
        try:
            load(people, "killed")
        finally:
            sys.settrace(None)
            os.write(write, str(killer.count).encode())
            os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as counted:
        lines = int(counted.read() or 0)
    return os.WIFSIGNALED(status), lines


def load(people: dict[str, str], run_id: str) -> dict[str, Any]:
    rows = [{"email": f"{name}@example.com", "name": value} for name, value in people.items()]
    return done(imported(contacts=rows, state_conn_id="state", chunk_size=2, max_in_flight=1), run_id)


BEFORE = dict.fromkeys(("ada", "bob", "cem", "dora", "eva"), "before")
AWAY = {name: value for name, value in BEFORE.items() if name != "eva"}
KILLED = {"ada": "changed", "bob": "before", "cem": "before", "eva": "before", "max": "new"}
"""In the run that is killed, somebody changes, leaves, comes back and joins."""
AFTER = (KILLED, BEFORE, {**AWAY, "max": "new"})


@pytest.fixture(autouse=True)
def _connected(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(service))
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "state.db")}))
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")
    monkeypatch.setattr("airflow_provider_mail._task.audience_changes._has_ended", lambda header: True)


def test_a_hundred_kills(emulator: Emulator, tmp_path: Path) -> None:
    def prepare() -> None:
        (tmp_path / "state.db").unlink(missing_ok=True)
        emulator.reset()
        emulator.add_sender("news@example.com")
        load(BEFORE, "1")
        load(AWAY, "2")

    prepare()
    was_killed, lines = run_in_child(None, KILLED)
    assert not was_killed
    assert lines > POINTS
    kills = 0
    for point in range(POINTS):
        prepare()
        at = 1 + point * lines // POINTS
        was_killed, _ = run_in_child(at, KILLED)
        kills += was_killed
        people = AFTER[point % len(AFTER)]
        done(created(load(people, "next"), "next"), "next")
        assert emulator.campaign_recipients("next") == sorted(f"{name}@example.com" for name in people), at
        held = {contact["email"]: contact["name"] for contact in emulator.contacts()}
        assert {f"{name}@example.com": value for name, value in people.items()}.items() <= held.items(), at
    # How often the import looks for responses differs, so a run may be over before its last lines.
    assert kills > 0.9 * POINTS
