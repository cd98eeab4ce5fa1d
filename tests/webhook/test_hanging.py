"""A database that hangs instead of failing: what is given up, and that everything works again afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg
import psycopg2
import pytest

from airflow_provider_mail.warehouse.connection import connected
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.webhook import cached, commits
from airflow_provider_mail.webhook.cached import Cached
from airflow_provider_mail.webhook.commits import GroupCommit, NotStored
from airflow_provider_mail.webhook.inbox import Inbox, Push
from airflow_provider_mail.webhook.tokens import TOKENS_SECONDS, Tokens, new_token
from tests.support.postgres import Database, PostgresServer
from tests.support.processes import PATIENCE
from tests.support.proxy import Proxy
from tests.warehouse.conftest import HOOKS

pytestmark = pytest.mark.not_unit


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    with postgres_server.database() as made:
        yield made


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy(f"{database.socket_folder}/.s.PGSQL.5432") as running:
        yield running


@pytest.fixture(params=["psycopg3", "psycopg2"])
def inbox(request: pytest.FixtureRequest, database: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    """An inbox behind the proxy, with a token."""
    connection = json.loads(database.airflow_connection) | {"host": "127.0.0.1", "port": proxy.port}
    monkeypatch.setenv("AIRFLOW_CONN_FAR", json.dumps(connection))
    inbox = Inbox(HOOKS[request.param]("far"))
    inbox.create()
    tokens = Tokens(inbox)
    tokens.create()
    tokens.add(new_token(), "mail_default")
    return inbox


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    for module in (commits, cached):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(commits, "_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(cached, "READ_SECONDS", PATIENCE)
    return clock


def push(body: bytes) -> Push:
    return Push(body, datetime.now(UTC), "mail_default", False)


@pytest.mark.parametrize("connect", [lambda inbox: closing(inbox.open()), lambda inbox: connected(inbox.hook)])
def test_every_connection_notices_a_server_that_is_gone(inbox: Inbox, connect: Any) -> None:
    with connect(inbox) as connection, socket.socket(fileno=os.dup(connection.fileno())) as shared:
        limit = shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert limit == 1000 * shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60_000


def bodies(inbox: Inbox) -> list[bytes]:
    with closing(inbox.open()) as connection:
        return [each.body for each in inbox.scan(connection, after=0, max_pushes=100)]


def test_a_connection_that_went_silent_is_cut_and_replaced(inbox: Inbox, proxy: Proxy, clock: SimpleNamespace) -> None:
    async def run() -> None:
        await group.store(push(b"first"))
        proxy.hold(new=False)
        silent = asyncio.create_task(group.store(push(b"silent")))
        await asyncio.to_thread(proxy.wait_for_held, PATIENCE)
        assert group._writer is not None
        reading = group._writer.reading
        assert reading is not None
        clock.now += commits.WRITE_SECONDS
        with pytest.raises(NotStored):
            await silent
        await asyncio.wait_for(asyncio.wrap_future(reading.result), PATIENCE)  # its thread ends
        assert group.failed_lately()
        await group.store(push(b"second"))
        assert not group.failed_lately()

    group = GroupCommit(inbox, max_pending=100)
    asyncio.run(run())
    group.close()
    assert bodies(inbox) == [b"first", b"second"]


@pytest.mark.parametrize("locked", [False, True], ids=["silent", "locked"])
def test_tokens_that_cannot_be_read_are_read_again(
    inbox: Inbox, proxy: Proxy, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, locked: bool
) -> None:  # fmt: skip
    async def run() -> None:
        assert len(await cache.get()) == 1
        with closing(inbox.open()) as other, monkeypatch.context() as patch:
            if locked:
                other.cursor().execute("LOCK TABLE mail_inbox_tokens IN ACCESS EXCLUSIVE MODE")
            else:
                proxy.hold(new=True)
            patch.setattr(cached, "READ_SECONDS", 0.1)
            for _ in range(2):
                clock.now += TOKENS_SECONDS
                with pytest.raises((TimeoutError, WarehouseError, psycopg.Error, psycopg2.Error)):
                    await cache.get()
            proxy.release()
        clock.now += 1
        assert len(await cache.get()) == 1

    cache = Cached(Tokens(inbox).valid, TOKENS_SECONDS, "The tokens of the receiver could not be read")
    asyncio.run(run())
    assert caplog.text.count("The tokens of the receiver could not be read: ") == 1
