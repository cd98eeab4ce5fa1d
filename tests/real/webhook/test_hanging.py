"""A database that hangs instead of failing: the driver is made to return, and everything works again afterwards."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from airflow_provider_mail.warehouse.database import connected
from airflow_provider_mail.webhook.commits import WRITE_SECONDS, GroupCommit, NotStored
from airflow_provider_mail.webhook.inbox import Inbox, Push
from tests.support.clock import StillClock
from tests.support.postgres import Database
from tests.support.processes import wait_until
from tests.warehouse.conftest import HOOKS
from tests.webhook.receiving import stored


@pytest.fixture(params=["psycopg3", "psycopg2"])
def inbox(request: pytest.FixtureRequest, postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    monkeypatch.setenv("AIRFLOW_CONN_FAR", postgres_database.airflow_connection)
    inbox = Inbox(HOOKS[request.param]("far"))
    inbox.create()
    return inbox


def push(body: bytes) -> Push:
    return Push(body, datetime.now(UTC), "mail_default", False)


def test_every_connection_notices_that_its_server_is_gone(inbox: Inbox) -> None:
    for opened in (inbox.connection(), connected(inbox.hook)):
        with opened as connection:
            info = connection.info
            limits = info.get_parameters() if hasattr(info, "get_parameters") else info.dsn_parameters
            assert (limits["tcp_user_timeout"], limits["keepalives_idle"]) == ("60000", "60")


def test_a_silent_connection_is_cut_and_replaced(
    inbox: Inbox, postgres_database: Database, still_clock: StillClock
) -> None:
    async def run() -> None:
        await group.store(push(b"first"))
        with postgres_database.connect() as other:
            with other.transaction():
                other.execute("LOCK TABLE mail_inbox IN ACCESS EXCLUSIVE MODE")
                silent = asyncio.create_task(group.store(push(b"silent")))
                await asyncio.to_thread(wait_until, waits, what="the transaction waits", interval=0.01)
                still_clock.move(WRITE_SECONDS)
                with pytest.raises(NotStored):
                    await silent
            assert group.failed_lately()
        await group.store(push(b"second"))
        assert not group.failed_lately()
        await group.close()

    def waits() -> bool:
        with postgres_database.connect() as other:
            return other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None

    group = GroupCommit(inbox, max_pending=100)
    asyncio.run(run())
    assert [push.body for push in stored(inbox)] == [b"first", b"second"]
