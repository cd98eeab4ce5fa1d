"""Inboxes in the databases that can hold one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_mail.webhook.inbox import Inbox
from tests.warehouse.conftest import (  # noqa: F401 - fixtures
    Warehouse,
    make_warehouse,
    warehouse_database,
    warehouse_maria,
)


@pytest.fixture(params=["sqlite", "psycopg3", "psycopg2"])
def inbox(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Inbox:  # noqa: F811
    """An empty inbox."""
    made = Inbox(make_warehouse(request.param).hook)
    made.create()
    return made
