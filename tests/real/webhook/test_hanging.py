"""A database that hangs instead of failing: what is given up, and that everything works again afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
import psycopg2
import pytest

from airflow_provider_mail.warehouse.connection import connected
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.webhook.cached import Cached
from airflow_provider_mail.webhook.commits import WRITE_SECONDS, GroupCommit, NotStored
from airflow_provider_mail.webhook.inbox import Inbox, Push
from airflow_provider_mail.webhook.tokens import TOKENS_SECONDS, Tokens, new_token
from tests.support.clock import StillClock
from tests.support.postgres import Database
from tests.support.processes import PATIENCE
from tests.support.proxy import Proxy
from tests.warehouse.conftest import HOOKS
from tests.webhook.receiving import stored


@pytest.fixture
def proxy(postgres_database: Database) -> Iterator[Proxy]:
    with Proxy(f"{postgres_database.socket_folder}/.s.PGSQL.5432") as running:
        yield running


@pytest.fixture(params=["psycopg3", "psycopg2"])
def inbox(
    request: pytest.FixtureRequest, postgres_database: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> Inbox:
    """An inbox behind the proxy, with a token."""
    connection = json.loads(postgres_database.airflow_connection) | {"host": "127.0.0.1", "port": proxy.port}
    monkeypatch.setenv("AIRFLOW_CONN_FAR", json.dumps(connection))
    inbox = Inbox(HOOKS[request.param]("far"))
    inbox.create()
    tokens = Tokens(inbox)
    tokens.create()
    tokens.add(new_token(), "mail_default")
    return inbox


def push(body: bytes) -> Push:
    return Push(body, datetime.now(UTC), "mail_default", False)


@pytest.mark.parametrize("connect", [lambda inbox: closing(inbox.open()), lambda inbox: connected(inbox.hook)])
def test_every_connection_notices_that_its_server_is_gone(inbox: Inbox, connect: Any) -> None:
    with connect(inbox) as connection, socket.socket(fileno=os.dup(connection.fileno())) as shared:
        limit = shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert limit == 1000 * shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60_000


def test_a_silent_connection_is_cut_and_replaced(inbox: Inbox, proxy: Proxy, still_clock: StillClock) -> None:
    async def run() -> None:
        await group.store(push(b"first"))
        proxy.hold(new=False)
        silent = asyncio.create_task(group.store(push(b"silent")))
        await asyncio.to_thread(proxy.wait_for_held, PATIENCE)
        still_clock.move(WRITE_SECONDS)
        with pytest.raises(NotStored):
            await silent
        assert group.failed_lately()
        await group.store(push(b"second"))
        assert not group.failed_lately()

    group = GroupCommit(inbox, max_pending=100)
    asyncio.run(run())
    group.close()
    assert [push.body for push in stored(inbox)] == [b"first", b"second"]


@pytest.mark.parametrize("locked", [False, True], ids=["silent", "locked"])
def test_tokens_that_cannot_be_read_are_read_again(
    inbox: Inbox, proxy: Proxy, caplog: pytest.LogCaptureFixture, locked: bool
) -> None:
    """In real time: each attempt takes five seconds."""
    errors = (TimeoutError, WarehouseError, psycopg.Error, psycopg2.Error)

    async def run() -> None:
        assert len(await cache.get()) == 1
        with closing(inbox.open()) as other:
            if locked:
                other.cursor().execute("LOCK TABLE mail_inbox_tokens IN ACCESS EXCLUSIVE MODE")
            else:
                proxy.hold(new=True)
            for _ in range(2):
                await asyncio.sleep(TOKENS_SECONDS)
                with pytest.raises(errors):
                    await cache.get()
            proxy.release()
        tokens: Any = None
        while tokens is None:
            with suppress(*errors):
                tokens = await cache.get()
            await asyncio.sleep(0.1)
        assert len(tokens) == 1

    cache = Cached(Tokens(inbox).valid, TOKENS_SECONDS, "The tokens of the receiver could not be read")
    asyncio.run(run())
    assert caplog.text.count("The tokens of the receiver could not be read: ") == 1
