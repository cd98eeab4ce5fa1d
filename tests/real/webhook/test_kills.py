"""Kill -9 of the receiver and of its database under load: what was accepted is in the inbox.

Each once, or with MAIL_ALL_FAULTS=1 fifty times.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until
from tests.support.receiver import HEADERS, RunningReceiver
from tests.webhook.pushes import body, event

ALL = os.environ.get("MAIL_ALL_FAULTS") == "1"
ROUNDS = 100 if ALL else 2
SENDERS = 4

pytestmark = pytest.mark.timeout(7200 if ALL else 900)


class Load:
    """Pushes numbered events without a pause, from `with` to the end of it; tries nothing again."""

    def __init__(self, receiver: RunningReceiver) -> None:
        self._url = f"{receiver.url}/{receiver.token}"
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        self.accepted: list[int] = []
        self.statuses: list[int] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more pushes are accepted."""
        enough = len(self.accepted) + count
        wait_until(lambda: len(self.accepted) >= enough, what="accepted pushes", interval=0.01)

    def _send(self) -> None:
        with httpx.Client(headers=HEADERS, timeout=60) as client:
            while not self._ended.is_set():
                number = next(self._numbers)
                push = body(*(event(each, Number=str(number)) for each in range(number % 50 + 1)))
                try:
                    status = client.post(self._url, content=push).status_code
                except httpx.TransportError:
                    self._ended.wait(0.1)
                    continue
                if status == 200:
                    self.accepted.append(number)
                self.statuses.append(status)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A Postgres of its own, to be killed. It does not wait for the disk by itself: the inbox has to ask for it."""
    with (
        tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder,
        PostgresServer(Path(folder) / "data") as running,
    ):
        yield running


def kill_database(server: PostgresServer) -> None:
    """Kill every process of the server at once, and start it again."""
    postmaster = psutil.Process(server._server.get_pid())
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes)

    def started() -> bool:
        # On a busy machine it takes longer than pg_ctl waits, and is not ready when it is looked at again.
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            server._server.ensure_postgres_running()
            return True
        return False

    wait_until(started, what="the database runs again")


@pytest.mark.ci
def test_what_was_accepted_is_stored_after_kills(tmp_path: Path, server: PostgresServer) -> None:
    chance = random.Random()
    with (
        server.database() as database,
        RunningReceiver(tmp_path, database.airflow_connection) as receiver,
        Load(receiver) as load,
    ):
        for number in range(ROUNDS):
            load.wait_for_more(chance.randint(20, 200 if ALL else 60))
            if number % 2:
                receiver.process.kill()
                receiver.start()
            else:
                kill_database(server)
        load.wait_for_more(20)
        load.__exit__()
        assert set(load.accepted) - {int(event["Number"]) for event in receiver.events()} == set()
        assert set(load.statuses) <= {200, 503}
        log = receiver.log.read_text()
        assert (receiver.token in log, "@example.com" in log) == (False, False)
