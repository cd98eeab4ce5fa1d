"""Group commit, with an inbox that can be held up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from airflow_provider_mail.webhook import commits
from airflow_provider_mail.webhook.commits import GroupCommit, NotStored, Overloaded
from airflow_provider_mail.webhook.inbox import Push
from airflow_provider_mail.webhook.threads import MAX_THREADS
from tests.support.processes import PATIENCE


class HeldInbox:
    """Stores when it is let."""

    def __init__(self) -> None:
        self.stored: list[list[bytes]] = []
        self.opened = 0
        self.failures: list[Exception] = []
        self.started = threading.Event()
        self.go = threading.Event()
        self.closed = threading.Event()

    @contextmanager
    def connection(self) -> Iterator[object]:
        self.opened += 1
        yield self
        self.closed.set()

    def insert(self, connection: object, pushes: Sequence[Push]) -> None:
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


def test_what_could_not_be_stored_waits_no_more() -> None:
    async def run() -> None:
        for _ in range(2):
            inbox.failures = [OSError("away")]
            with pytest.raises(NotStored):
                await group.store(push(b"x" * 8))
        first = await begun(inbox, group)
        second = asyncio.create_task(group.store(push(b"y" * 5)))  # all that the limit allows beside the first
        await asyncio.sleep(0)
        inbox.go.set()
        await asyncio.gather(first, second)

    inbox = HeldInbox()
    inbox.go.set()
    group = GroupCommit(inbox, max_pending=10)  # type: ignore[arg-type]
    asyncio.run(run())
    assert sorted(b"".join(each for stored in inbox.stored for each in stored)) == sorted(b"firstyyyyy")
    group.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that transactions and requests see, in seconds, looked at all the time."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(commits, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(commits, "_CHECK_SECONDS", 0.001)
    return clock


def test_a_transaction_that_hangs_is_given_up_and_what_waits_behind_it_is_stored(
    clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        hanging.go.clear()
        first = await begun(hanging, group)
        clock.now += 1
        second = asyncio.create_task(group.store(push(b"second")))
        await asyncio.sleep(0)
        group._inbox = working  # type: ignore[assignment]  # what the next connection is to
        clock.now += commits.WRITE_SECONDS - 2
        group.give_up_hanging()
        assert not first.done()
        clock.now += 1
        with pytest.raises(NotStored):
            await first
        await second
        await group.store(push(b"third"))

    hanging, working = HeldInbox(), HeldInbox()
    working.go.set()
    group = GroupCommit(hanging, max_pending=100)  # type: ignore[arg-type]
    asyncio.run(run())
    assert working.stored == [[b"second"], [b"third"]]
    assert caplog.text.count("The inbox did not answer for 15 s: 1 pushes are not confirmed") == 1
    hanging.go.set()
    assert hanging.closed.wait(PATIENCE), "the thread ends once its driver returns"
    assert hanging.stored == [[b"first"]], "stored twice at worst: the service tries again"
    assert group._pending == 0
    group.close()


def test_a_push_behind_transactions_that_are_slow_gets_its_answer_in_time(clock: SimpleNamespace) -> None:
    async def run() -> None:
        first = await begun(inbox, group)
        clock.now += commits.STORE_SECONDS  # the writer began just now
        assert group._writer is not None
        group._writer.since = clock.now
        with pytest.raises(NotStored):
            await first

    inbox = HeldInbox()
    group = GroupCommit(inbox, max_pending=10)  # type: ignore[arg-type]
    asyncio.run(run())
    inbox.go.set()
    group.close()
    assert inbox.stored == [[b"first"]]


def test_a_database_that_hangs_makes_a_few_threads(clock: SimpleNamespace) -> None:
    async def run() -> None:
        for _ in range(MAX_THREADS):
            inbox.started.clear()
            waiting = asyncio.create_task(group.store(push(b"x")))
            assert await asyncio.to_thread(inbox.started.wait, PATIENCE)
            clock.now += commits.WRITE_SECONDS
            with pytest.raises(NotStored):
                await waiting
        with pytest.raises(Overloaded):
            await group.store(push(b"x"))
        inbox.go.set()
        for given_up in group._threads._readings:
            await asyncio.wrap_future(given_up.result)
        await group.store(push(b"y"))

    inbox = HeldInbox()
    group = GroupCommit(inbox, max_pending=10)  # type: ignore[arg-type]
    asyncio.run(run())
    assert inbox.stored[-1] == [b"y"]
    assert group._pending == 0
    group.close()


def test_bodies_that_arrive_are_bounded_too() -> None:
    async def run() -> None:
        with group.room() as one, group.room() as other:
            one.add(6)
            other.add(4)
            for room in (one, other):
                with pytest.raises(Overloaded):
                    room.add(1)
            with pytest.raises(Overloaded):
                await group.store(push(b"x"))
        with group.room() as alone:
            alone.add(5)
            alone.add(100)  # one always fits
        await group.store(push(b"x"))

    inbox = HeldInbox()
    inbox.go.set()
    group = GroupCommit(inbox, max_pending=10)  # type: ignore[arg-type]
    asyncio.run(run())
    assert (inbox.stored, group._pending) == ([[b"x"]], 0)
    group.close()


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
