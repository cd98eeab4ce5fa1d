"""The drain is killed at random moments while pushes arrive: each acknowledged event is in the warehouse once."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from airflow_provider_mail.webhook.drain import EventTables, drain
from airflow_provider_mail.webhook.inbox import Inbox
from tests.support.processes import fork
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)
from tests.webhook.pushes import event, push, receive, sqlite_inbox

KILLS = 100 if "MAIL_ALL_FAULTS" in os.environ else 8
EVENTS = 20


class Killed:
    """An inbox, its warehouse, and drains that are killed."""

    def __init__(self, inbox: Inbox, tables: EventTables, seed: int) -> None:
        self.inbox = inbox
        self.tables = tables
        self.dice = random.Random(seed)
        self.acknowledged: set[str] = set()
        self.kills = 0

    def receive(self) -> None:
        """A push, which repeats some of the events before."""
        first = max(0, len(self.acknowledged) - self.dice.randrange(EVENTS))
        sent = [event(number) for number in range(first, first + EVENTS)]
        receive(self.inbox, [push(*sent, {"no": "event"})])
        self.acknowledged.update(each["Email"] for each in sent)

    def start(self) -> BaseProcess:
        return fork(partial(drain, batch_size=2), self.inbox, self.tables)

    def run(self, seconds: float) -> None:
        """Start a drain, and kill it within so many seconds unless it has ended."""
        process = self.start()
        time.sleep(self.dice.random() * seconds)
        self.kills += process.is_alive()
        process.kill()
        process.join()

    def one_undisturbed(self) -> float:
        """The seconds that an undisturbed drain takes; they only spread the kills."""
        start = time.monotonic()
        process = self.start()
        process.join()
        assert process.exitcode == 0
        return time.monotonic() - start


@pytest.mark.parametrize("kind", ["sqlite", "psycopg3", "mysql"])
def test_each_acknowledged_event_is_stored_once(
    kind: str,
    make_warehouse: Callable[..., Warehouse],  # noqa: F811
    tmp_path: Path,
) -> None:
    warehouse = make_warehouse(kind)
    inbox = sqlite_inbox(tmp_path / "inbox.db") if kind == "mysql" else Inbox(warehouse.hook)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    killed = Killed(inbox, EventTables(warehouse.hook, "mail_events", "mail_dead_letters"), seed)
    killed.inbox.create()
    killed.tables.create()
    for _ in range(6):
        killed.receive()
    seconds = killed.one_undisturbed()
    while killed.kills < KILLS:
        for _ in range(3):
            killed.receive()
        killed.run(seconds)
    killed.one_undisturbed()
    assert not killed.inbox.waiting()
    stored = [email for (email,) in warehouse.query("SELECT email FROM mail_events")]
    assert sorted(stored) == sorted(killed.acknowledged)
    assert warehouse.query("SELECT count(*) FROM mail_dead_letters") == [(1,)]
