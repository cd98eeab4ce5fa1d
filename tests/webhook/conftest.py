"""Inboxes in the databases that can hold one, and warehouses that their pushes are drained into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.warehouse.tables.events import DEAD_LETTERS, EVENTS
from airflow_provider_mail.webhook.drain import Drained, EventTables, drain, replay
from airflow_provider_mail.webhook.erasure import erase
from airflow_provider_mail.webhook.inbox import Inbox, Push
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    DIALECTS,
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)
from tests.webhook.pushes import receive, sqlite_inbox
from tests.webhook.receiving import PATIENCE, TOKEN

NAMES = ("mail_events", "mail_dead_letters")


class Drains:
    """All that is done with an inbox and its warehouse, whose tables are made."""

    def __init__(self, inbox: Inbox, warehouse: Warehouse) -> None:
        self.inbox = inbox
        self.warehouse = warehouse
        self.tables = EventTables(warehouse.hook, *NAMES)
        self.tables.create()

    def receive(self, *pushes: Push) -> None:
        receive(self.inbox, pushes)

    def drain(self, **options: Any) -> Drained:
        return drain(self.inbox, self.tables, **{"batch_size": 100, **options})

    def replay(self) -> tuple[int, ...]:
        """The numbers of letters that were read, of new events, and of letters that are left."""
        return tuple(replay(self.warehouse.hook, *NAMES).values())

    def erase(self, email: str) -> tuple[int, ...]:
        """The numbers of pushes, dead letters and events."""
        return tuple(erase(email, self.inbox, self.warehouse.hook, *NAMES).values())

    def events(self) -> list[dict[str, Any]]:
        rows = self.warehouse.rows(EVENTS, NAMES[0])
        events = [dict(zip(EVENTS.names, row, strict=True)) for row in rows]
        return sorted(events, key=lambda row: (row["push_id"], row["push_index"]))

    def letters(self) -> list[dict[str, Any]]:
        rows = self.warehouse.rows(DEAD_LETTERS, NAMES[1])
        return [dict(zip(DEAD_LETTERS.names, row, strict=True)) for row in rows]


def patient(kind: str) -> dict[str, str]:
    """How a connection waits for a lock that is never released: until it fails the test."""
    return {} if kind == "sqlite" else {"options": f"-c lock_timeout={PATIENCE:.0f}s"}


@pytest.fixture(params=["sqlite", "psycopg3", "psycopg2"])
def inbox(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Inbox:  # noqa: F811
    """An empty inbox, the database of connection `warehouse`."""
    made = Inbox(make_warehouse(request.param, **patient(request.param)).hook)
    made.create()
    return made


@pytest.fixture
def ready(inbox: Inbox) -> Inbox:
    """An inbox with a token."""
    Tokens(inbox, TokenOwner("mail_default", "", "")).add(TOKEN)
    return inbox


@pytest.fixture(params=DIALECTS)
def drained(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse], tmp_path: Path) -> Drains:  # noqa: F811
    """An inbox in SQLite, and a warehouse of each dialect."""
    return Drains(sqlite_inbox(tmp_path / "inbox.db"), make_warehouse(request.param))


@pytest.fixture(params=["sqlite", "psycopg3"])
def together(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Drains:  # noqa: F811
    """Inbox and warehouse in one database."""
    warehouse = make_warehouse(request.param, **patient(request.param))
    inbox = Inbox(warehouse.hook)
    inbox.create()
    return Drains(inbox, warehouse)


@pytest.fixture
def embedded(make_warehouse: Callable[..., Warehouse], tmp_path: Path) -> Drains:  # noqa: F811
    """Inbox and warehouse in SQLite."""
    return Drains(sqlite_inbox(tmp_path / "inbox.db"), make_warehouse("sqlite"))
