"""Runs of an audience that are killed with SIGKILL at a hundred points: the next run finds what they have done."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail_emulator import Emulator
from mail_emulator.responses import Response
from tests.faults.test_any_faults import settle
from tests.support.changes import around_requests, snapshot
from tests.support.killer import traced
from tests.support.sampling import ALL_FAULTS
from tests.tasks.test_audience import created, done
from tests.tasks.test_audience_changes import IMPORTS, imported

POINTS = 100 if ALL_FAULTS else 20
"""How many lines of an import at which it is killed; further points are its requests."""
TRACED = (
    *(f"/_audience/{name}.py" for name in ("compared", "comparison", "removal", "state", "store")),
    *("_task/storage.py", "import_contacts.py", "load.py"),
)

BEFORE = dict.fromkeys(("ada", "bob", "cem", "dora", "eva"), "before")
AWAY = {name: value for name, value in BEFORE.items() if name != "eva"}
KILLED = {"ada": "changed", "bob": "before", "cem": "before", "eva": "before", "max": "new"}
"""In the run that is killed, people change, leave, come back and join."""
AFTER = (KILLED, BEFORE, {**AWAY, "max": "new"})
DELETING = {"on_removed": "delete_contact", "max_removed_fraction": 1}


@dataclass
class Point:
    """Where a process is killed: at a line, or when the service has performed a request and not responded.

    :param line: counted from 1.
    :param request: counted from 0.
    """

    line: int | None = None
    request: int | None = None


@dataclass
class Audience:
    """The runs of an audience whose state is in a table or a folder.

    :param arguments: of the import.
    """

    emulator: Emulator
    folder: Path
    arguments: dict[str, Any]

    def load(self, people: dict[str, str], run_id: str) -> dict[str, Any]:
        rows = [{"email": f"{name}@example.com", "name": value} for name, value in people.items()]
        return done(imported(contacts=rows, chunk_size=2, max_in_flight=1, **self.arguments), run_id)

    def prepare(self) -> Callable[[], None]:
        """Run twice; return a function that restores what state and service are then."""
        self.load(BEFORE, "1")
        self.load(AWAY, "2")
        restore_service, copy = snapshot(self.emulator), self.folder.with_suffix(".copy")
        shutil.copytree(self.folder, copy)

        def restore() -> None:
            restore_service()
            # Also the journal of a database that the process has left.
            shutil.rmtree(self.folder)
            shutil.copytree(copy, self.folder)

        return restore

    def run_in_child(self, point: Point) -> tuple[bool, int, int]:
        """Run the import in a process of its own.

        :return: whether it was killed, how many lines it has executed, and how many requests it has sent.
        """
        numbers, forked, sent = itertools.count(), threading.Event(), 0

        def around(perform: Callable[[], Response]) -> Response:
            nonlocal sent
            response, sent = perform(), sent + 1
            if next(numbers) == point.request and forked.wait(60):
                os.kill(child, signal.SIGKILL)
            return response

        with around_requests(self.emulator, IMPORTS, around), around_requests(self.emulator, "contacts/delete", around):
            # Not while the emulator's thread uses SQLite: in the child, nobody would release the locks of its library.
            with self.emulator.service.lock:
                child, counted = traced(lambda: self.load(KILLED, "killed"), TRACED, point.line)
            forked.set()
            _, status = os.waitpid(child, 0)
            # The service may still perform what it was sent: it has read that when it has read a later request.
            httpx.get(self.emulator.base_url)
            settle(self.emulator)
        was_killed = os.WIFSIGNALED(status)
        with counted:
            lines = 0 if was_killed else pickle.load(counted)[0]
        return was_killed, lines, sent


@pytest.fixture(params=[{}, DELETING], ids=["excluding", "deleting"])
def audience(
    request: pytest.FixtureRequest, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Audience:
    service = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(service))
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps({"conn_type": "sqlite", "host": str(folder / "state.db")}))
    monkeypatch.setenv("AIRFLOW__MAIL__AUDIENCE_KEY", "a secret")
    monkeypatch.setattr("airflow_provider_mail._audience.state.has_ended", lambda header: True)
    return Audience(emulator, folder, {"state_conn_id": "state"} | request.param)


def test_a_hundred_kills(audience: Audience, emulator: Emulator) -> None:
    """No change is lost, none is recorded that was not accepted, and nobody is mailed who has left."""
    restore = audience.prepare()
    was_killed, lines, requests = audience.run_in_child(Point())
    assert not was_killed
    assert lines > POINTS
    points = [Point(line=1 + number * lines // POINTS) for number in range(POINTS)]
    points += [Point(request=number) for number in range(requests)] * len(AFTER)
    kills = 0
    for number, point in enumerate(points):
        restore()
        kills += audience.run_in_child(point)[0]
        people = AFTER[number % len(AFTER)]
        done(created(audience.load(people, "next"), "next"), "next")
        assert emulator.campaign_recipients("next") == sorted(f"{name}@example.com" for name in people), point
        held = {contact["email"]: contact["name"] for contact in emulator.contacts()}
        expected = {f"{name}@example.com": value for name, value in people.items()}
        assert expected.items() <= held.items(), point
        assert "on_removed" not in audience.arguments or held == expected, point
    # How often the import looks for responses differs, so a run may be over before its last lines.
    assert kills > 0.9 * len(points)
