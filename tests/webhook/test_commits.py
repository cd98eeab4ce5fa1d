"""Group commit, with an inbox that can be held up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from airflow_provider_mail.webhook import commits
from airflow_provider_mail.webhook.commits import GroupCommit, NotStored, Overloaded
from airflow_provider_mail.webhook.inbox import Push
from tests.support.processes import PATIENCE


class Connection:
    def close(self) -> None:
        """Nothing is open."""


class HeldInbox:
    """Stores when it is let."""

    def __init__(self) -> None:
        self.stored: list[list[bytes]] = []
        self.opened = 0
        self.failures: list[Exception] = []
        self.started = threading.Event()
        self.go = threading.Event()

    def open(self) -> Connection:
        self.opened += 1
        return Connection()

    def insert(self, connection: Connection, pushes: Sequence[Push]) -> None:
        self.started.set()
        assert self.go.wait(PATIENCE)
        if self.failures:
            raise self.failures.pop()
        self.stored.append([push.body for push in pushes])


def push(body: bytes) -> Push:
    return Push(body, datetime.now(UTC), "mail_default", False)


async def begun(inbox: HeldInbox, group: GroupCommit) -> asyncio.Task[None]:
    """A push whose transaction has begun."""
    first = asyncio.create_task(group.store(push(b"first")))
    assert await asyncio.to_thread(inbox.started.wait, PATIENCE)
    return first


def test_pushes_that_arrive_during_a_transaction_share_the_next() -> None:
    async def run() -> None:
        first = await begun(inbox, group)
        others = [asyncio.create_task(group.store(push(b"%d" % number))) for number in range(50)]
        await asyncio.sleep(0)
        inbox.go.set()
        await asyncio.gather(first, *others)

    inbox = HeldInbox()
    group = GroupCommit(inbox, max_pending=1000)  # type: ignore[arg-type]
    asyncio.run(run())
    assert inbox.stored == [[b"first"], [b"%d" % number for number in range(50)]]
    assert inbox.opened == 1
    group.close()


def test_what_waits_is_bounded_in_bytes() -> None:
    async def run() -> None:
        first = await begun(inbox, group)
        second = asyncio.create_task(group.store(push(b"x" * 5)))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await group.store(push(b"y"))
        inbox.go.set()
        await asyncio.gather(first, second)
        await group.store(push(b"z" * 100))  # one always fits

    inbox = HeldInbox()
    group = GroupCommit(inbox, max_pending=10)  # type: ignore[arg-type]
    asyncio.run(run())
    assert inbox.stored == [[b"first"], [b"xxxxx"], [b"z" * 100]]
    group.close()


def test_a_connection_that_went_stale_is_replaced_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        await group.store(push(b"1"))
        inbox.failures = [OSError("idle for too long")]
        await group.store(push(b"2"))
        inbox.failures = [OSError("with a body: ada@planted.example"), OSError("away")]
        with pytest.raises(NotStored):
            await group.store(push(b"3"))
        await group.store(push(b"4"))

    inbox = HeldInbox()
    inbox.go.set()
    group = GroupCommit(inbox, max_pending=10)  # type: ignore[arg-type]
    asyncio.run(run())
    assert inbox.stored == [[b"1"], [b"2"], [b"4"]]
    assert inbox.opened == 4
    assert "The inbox could not store 1 pushes: OSError" in caplog.text
    assert "planted" not in caplog.text
    group.close()


def test_a_database_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        with pytest.raises(NotStored):
            await group.store(push(b"late"))

    monkeypatch.setattr(commits, "STORE_SECONDS", 0.01)
    inbox = HeldInbox()
    group = GroupCommit(inbox, max_pending=10)  # type: ignore[arg-type]
    asyncio.run(run())
    inbox.go.set()
    group.close()
    assert inbox.stored == [[b"late"]], "stored twice at worst: the service tries again"


def test_what_waits_is_stored_at_the_end() -> None:
    async def run() -> list[BaseException | None]:
        first = await begun(inbox, group)
        second = asyncio.create_task(group.store(push(b"second")))
        await asyncio.sleep(0)
        inbox.go.set()
        await asyncio.to_thread(group.close)
        with pytest.raises(Overloaded):
            await group.store(push(b"after the end"))
        return await asyncio.gather(first, second)

    inbox = HeldInbox()
    group = GroupCommit(inbox, max_pending=100)  # type: ignore[arg-type]
    asyncio.run(run())
    assert inbox.stored == [[b"first"], [b"second"]]
