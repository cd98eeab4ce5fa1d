"""Inboxes in the databases that can hold one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import Tokens
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    ALL,
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)
from tests.webhook.draining import Drains
from tests.webhook.pushes import sqlite_inbox
from tests.webhook.receiving import TOKEN


@pytest.fixture(params=["sqlite", "psycopg3", "psycopg2"])
def inbox(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Inbox:  # noqa: F811
    """An empty inbox, the database of connection `warehouse`."""
    made = Inbox(make_warehouse(request.param).hook)
    made.create()
    return made


@pytest.fixture
def ready(inbox: Inbox) -> Inbox:
    """An inbox with a token."""
    Tokens(inbox).create()
    Tokens(inbox).add(TOKEN, "mail_default")
    return inbox


@pytest.fixture(params=ALL)
def drained(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse], tmp_path: Path) -> Drains:  # noqa: F811
    """An inbox in SQLite, and every warehouse."""
    return Drains(sqlite_inbox(tmp_path / "inbox.db"), make_warehouse(request.param))


@pytest.fixture(params=["sqlite", "psycopg3"])
def together(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Drains:  # noqa: F811
    """Inbox and warehouse in one database."""
    warehouse = make_warehouse(request.param)
    inbox = Inbox(warehouse.hook)
    inbox.create()
    return Drains(inbox, warehouse)


@pytest.fixture
def embedded(make_warehouse: Callable[..., Warehouse], tmp_path: Path) -> Drains:  # noqa: F811
    """Inbox and warehouse in SQLite."""
    return Drains(sqlite_inbox(tmp_path / "inbox.db"), make_warehouse("sqlite"))
