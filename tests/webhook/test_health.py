"""What the receiver says of itself when nothing can be stored: 503 for pushes and health, and that it is alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from airflow_provider_mail.webhook import cached, commits, health
from airflow_provider_mail.webhook.cached import Cached
from airflow_provider_mail.webhook.commits import GroupCommit
from airflow_provider_mail.webhook.health import Health
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.receiver import Receiver
from airflow_provider_mail.webhook.tokens import TOKENS_SECONDS, Tokens, new_token
from tests.support.processes import PATIENCE
from tests.support.statsd import StatsdServer
from tests.tasks.test_metrics import statsd  # noqa: F401 - a fixture
from tests.webhook.running import HEADERS

pytestmark = pytest.mark.not_unit

TOKEN = new_token()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    for module in (commits, cached):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(cached, "READ_SECONDS", PATIENCE)
    return clock


@dataclass
class Client:
    """Asks a receiver."""

    http: httpx.AsyncClient

    async def push(self, body: bytes = b"[{}]") -> int:
        return (await self.http.post(f"/{TOKEN}", content=body, headers=HEADERS)).status_code

    async def get(self, path: str) -> int:
        return (await self.http.get(path)).status_code


@asynccontextmanager
async def receiver(inbox: Inbox, *, max_inbox: int = 1000) -> AsyncIterator[Client]:
    tokens: Cached[Any] = Cached(Tokens(inbox).valid, TOKENS_SECONDS, "tokens")
    group = GroupCommit(inbox, max_pending=1000)
    state = Health(inbox, tokens, group.failed_lately, max_bytes=max_inbox)
    app = Receiver(group, tokens, state, max_body=1000, user_agent="")
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as http:
        yield Client(http)
    group.close()


@pytest.fixture
def ready(inbox: Inbox) -> Inbox:
    """An inbox with a token."""
    Tokens(inbox).create()
    Tokens(inbox).add(TOKEN, "mail_default")
    return inbox


def execute(inbox: Inbox, *statements: str) -> None:
    with closing(inbox.open()) as connection:
        for statement in statements:
            connection.cursor().execute(statement)
        connection.commit()


@contextmanager
def renamed(inbox: Inbox, table: str) -> Iterator[None]:
    execute(inbox, f"ALTER TABLE {table} RENAME TO hidden")
    yield
    execute(inbox, f"ALTER TABLE hidden RENAME TO {table}")


@contextmanager
def full_disk(inbox: Inbox) -> Iterator[None]:
    """A write fails that a probe does not notice."""
    if inbox.is_sqlite:
        execute(inbox, "CREATE TRIGGER full BEFORE INSERT ON mail_inbox WHEN NEW.body_bytes > 2 "
                       "BEGIN SELECT RAISE(ABORT, 'disk full'); END")  # fmt: skip
        yield
        execute(inbox, "DROP TRIGGER full")
    else:
        execute(inbox, "ALTER TABLE mail_inbox ADD CONSTRAINT disk_full CHECK (body_bytes <= 2) NOT VALID")
        yield
        execute(inbox, "ALTER TABLE mail_inbox DROP CONSTRAINT disk_full")


@contextmanager
def read_only(inbox: Inbox) -> Iterator[None]:
    if inbox.is_sqlite:
        pytest.skip("a file is not read-only for the superuser")
    with closing(inbox.open()) as connection:
        name = connection.info.dbname
    execute(inbox, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    yield
    execute(inbox, "SET transaction_read_only = off", f"ALTER DATABASE {name} RESET default_transaction_read_only")


@contextmanager
def away(inbox: Inbox) -> Iterator[None]:
    def fail() -> None:
        raise OSError("away")

    inbox.hook.__dict__["get_conn"] = fail
    yield
    del inbox.hook.__dict__["get_conn"]


@pytest.mark.parametrize(
    "broken",
    [lambda inbox: renamed(inbox, "mail_inbox"), lambda inbox: renamed(inbox, "mail_inbox_tokens"),
     full_disk, read_only, away],
    ids=["no inbox", "no tokens", "full", "read-only", "away"],
)  # fmt: skip
def test_while_nothing_can_be_stored(
    ready: Inbox, clock: SimpleNamespace, broken: Callable[[Inbox], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        for _ in range(2):
            async with receiver(ready) as client:
                with broken(ready):
                    assert await client.push() == 503
                    assert [await client.get(path) for path in ("/health", "/alive")] == [503, 200]
                assert caplog.records
                caplog.clear()
                clock.now += commits.FAILED_SECONDS
                assert [await client.get(path) for path in ("/health", "/a/alive")] == [200, 200]
                assert await client.push() == 200
                clock.now += health.HEALTH_SECONDS

    asyncio.run(run())


def test_without_a_token_no_push_can_be_stored(inbox: Inbox) -> None:
    async def run() -> None:
        async with receiver(inbox) as client:
            assert [await client.get("/health"), await client.push()] == [503, 404]
            assert (await client.http.post("/health")).status_code == 404

    Tokens(inbox).create()
    asyncio.run(run())


def test_what_waits_in_the_inbox_is_bounded(ready: Inbox, clock: SimpleNamespace) -> None:
    async def run() -> None:
        async with receiver(ready, max_inbox=10) as client:
            assert await client.get("/health") == 200
            assert [await client.push(b"[{},{}]") for _ in range(3)] == [200, 200, 503]
            clock.now += health.STATE_SECONDS
            assert await client.get("/health") == 503
            assert await client.push() == 503
            execute(ready, "UPDATE mail_inbox SET drained_at = received_at")
            clock.now += health.STATE_SECONDS
            assert await client.get("/health") == 200
            assert await client.push() == 200

    asyncio.run(run())
    assert ready.state().waiting_pushes == 1


def test_what_is_counted(ready: Inbox, clock: SimpleNamespace, statsd: StatsdServer) -> None:  # noqa: F811
    async def run() -> None:
        async with receiver(ready) as client:
            assert await client.get("/health") == 200  # the state is known
            assert [await client.push(b"[{},{}]"), await client.push(b"[{}]"), await client.push(b"{}")] == [
                200,
                200,
                400,
            ]
            assert (await client.http.post("/x")).status_code == 404
            with renamed(ready, "mail_inbox"):
                assert await client.push(b"[{}]") == 503
            statsd.received()
            clock.now += health.STATE_SECONDS
            assert await client.get("/health") == 503
            assert await client.push(b"[{},{}]") == 200

    asyncio.run(run())
    found = statsd.received()
    assert found.pop(("mail.inbox.oldest_seconds",)) >= 0
    assert found == {
        ("mail.receive.pushes", "200"): 1,
        ("mail.receive.events", "200"): 2,
        ("mail.inbox.pushes",): 2,
        ("mail.inbox.bytes",): 11,
    }
