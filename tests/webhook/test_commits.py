"""Group commit, with an inbox whose transactions the test lets go; and how often the receiver reads its database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime

import pytest

from airflow_provider_mail.warehouse.time_limit import MAX_THREADS
from airflow_provider_mail.webhook.commits import (
    FAILED_SECONDS,
    STORE_SECONDS,
    WRITE_SECONDS,
    GroupCommit,
    NotStored,
    Overloaded,
)
from airflow_provider_mail.webhook.health import Cached
from airflow_provider_mail.webhook.inbox import Push
from airflow_provider_mail.webhook.tokens import TOKENS_SECONDS
from tests.support.clock import StillClock
from tests.support.processes import end_of_database_threads
from tests.webhook.receiving import PATIENCE

pytestmark = [pytest.mark.usefixtures("still_clock"), pytest.mark.timeout(60)]

EVERY = range(1000)


class HeldInbox:
    """Counts its connections from one; a transaction on those that hold waits until the test lets it go."""

    def __init__(self, holds: Collection[int] = EVERY) -> None:
        self.holds = holds
        self.opened = 0
        self.stored: list[list[bytes]] = []
        self.failures: list[Exception] = []
        self.started, self.go, self.closed = (threading.Semaphore(0) for _ in range(3))

    @contextmanager
    def connection(self) -> Iterator[int]:
        self.opened += 1
        yield self.opened
        self.closed.release()

    def insert(self, connection: int, pushes: Sequence[Push]) -> None:
        self.started.release()
        if connection in self.holds:
            assert self.go.acquire(timeout=PATIENCE)
        if self.failures:
            raise self.failures.pop()
        self.stored.append([push.body for push in pushes])


Test = Callable[[GroupCommit], Awaitable[None]]


def run(inbox: HeldInbox, test: Test, *, max_pending: int = 10) -> None:
    """Run a test with a group commit, which has neither kept bytes at the end nor given back too many."""

    async def all_of_it() -> None:
        group = GroupCommit(inbox, max_pending=max_pending)  # type: ignore[arg-type]
        await test(group)
        with group.room() as one, group.room() as other:
            one(1)
            other(max_pending - 1)
            with pytest.raises(Overloaded):
                one(1)
        inbox.go.release(len(EVERY))
        await group.close()

    asyncio.run(all_of_it())


async def store(group: GroupCommit, body: bytes) -> None:
    """Store a push as the receiver does."""
    with group.room() as add:
        add(len(body))
        await group.store(Push(body, datetime.now(UTC), "mail_default", False))


async def waiting(group: GroupCommit, *bodies: bytes) -> list[asyncio.Task[None]]:
    """Pushes that wait to be stored."""
    tasks = [asyncio.create_task(store(group, body)) for body in bodies]
    await asyncio.sleep(0)
    return tasks


async def begun(inbox: HeldInbox, group: GroupCommit, body: bytes = b"first") -> asyncio.Task[None]:
    """A push whose transaction has begun."""
    (task,) = await waiting(group, body)
    assert await asyncio.to_thread(inbox.started.acquire, True, PATIENCE)
    return task


@pytest.mark.parametrize(
    ("bodies", "transactions"),
    [([b"%d" % number for number in range(201)], [1, 200, 1]), ([bytes(2**24 - 1), b"x", b"y"], [1, 2, 1])],
    ids=["pushes", "bytes"],
)
def test_pushes_that_arrive_during_a_transaction_share_the_next(bodies: list[bytes], transactions: list[int]) -> None:
    """Within its bounds, in the order of arrival."""

    async def test(group: GroupCommit) -> None:
        first = await begun(inbox, group)
        others = await waiting(group, *bodies)
        inbox.go.release(3)
        await asyncio.gather(first, *others)

    inbox = HeldInbox()
    run(inbox, test, max_pending=2**25)
    assert [body for stored in inbox.stored for body in stored] == [b"first", *bodies]
    assert ([len(stored) for stored in inbox.stored], inbox.opened) == (transactions, 1)


def test_all_pushes_of_a_group_know_at_once_that_it_failed() -> None:
    async def test(group: GroupCommit) -> None:
        first = await begun(inbox, group)
        others = await waiting(group, b"a", b"b", b"c")
        inbox.go.release()
        await first
        inbox.failures += [OSError(), OSError()]
        inbox.go.release(2)
        assert [type(each) for each in await asyncio.gather(*others, return_exceptions=True)] == [NotStored] * 3

    inbox = HeldInbox()
    run(inbox, test)


def test_what_waits_or_arrives_is_bounded_in_bytes_but_one_fits() -> None:
    async def test(group: GroupCommit) -> None:
        first = await begun(inbox, group)
        (second,) = await waiting(group, b"x" * 5)
        with pytest.raises(Overloaded):
            await store(group, b"y")
        inbox.go.release(9)
        await asyncio.gather(first, second)
        await store(group, b"z" * 100)
        with group.room() as one, group.room() as other:
            one(6)
            other(4)
            for room in (one, other):
                with pytest.raises(Overloaded):
                    room(1)
            with pytest.raises(Overloaded):
                await store(group, b"x")
        with group.room() as alone:
            alone(5)
            alone(100)

    inbox = HeldInbox()
    run(inbox, test)
    assert inbox.stored == [[b"first"], [b"xxxxx"], [b"z" * 100]]


def test_a_stale_connection_is_replaced_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(group: GroupCommit) -> None:
        await store(group, b"1")
        inbox.failures = [OSError("idle for too long")]
        await store(group, b"2")
        inbox.failures = [OSError("with a body: ada@planted.example"), OSError("away")]
        with pytest.raises(NotStored):
            await store(group, b"3")
        await store(group, b"4")

    inbox = HeldInbox(holds=())
    run(inbox, test)
    assert inbox.stored == [[b"1"], [b"2"], [b"4"]]
    assert inbox.opened == 4
    assert "The inbox could not store 1 pushes: OSError" in caplog.text
    assert "planted" not in caplog.text


def test_a_failure_counts_until_as_much_is_stored_or_for_a_minute(still_clock: StillClock) -> None:
    """On a full disk small pushes are stored for a while."""

    async def test(group: GroupCommit) -> None:
        async def failed_after(size: int, *failures: Exception) -> bool:
            inbox.failures = [*failures]
            with pytest.raises(NotStored) if failures else nullcontext():
                await store(group, b"x" * size)
            return group.failed_lately()

        full = OSError("full"), OSError("full")
        assert [await failed_after(8, *full), await failed_after(2, *full)] == [True, True]
        assert [await failed_after(size) for size in (2, 7, 8)] == [True, True, False]
        assert await failed_after(8, *full)
        still_clock.move(FAILED_SECONDS)
        assert not group.failed_lately()
        assert [await failed_after(2, *full), await failed_after(2)] == [True, False]

    inbox = HeldInbox(holds=())
    run(inbox, test)


def test_a_transaction_that_hangs_is_given_up(still_clock: StillClock, caplog: pytest.LogCaptureFixture) -> None:
    async def test(group: GroupCommit) -> None:
        await store(group, b"zero")
        inbox.holds = (1,)
        inbox.started.acquire()
        first = await begun(inbox, group)
        still_clock.move(1)
        (second,) = await waiting(group, b"second")
        still_clock.move(WRITE_SECONDS - 2)
        await asyncio.sleep(0)
        assert not first.done()
        still_clock.move(1)
        with pytest.raises(NotStored):
            await first
        await second
        await store(group, b"third")
        inbox.failures = [OSError("the server is back")]
        inbox.go.release()
        assert await asyncio.to_thread(inbox.closed.acquire, True, PATIENCE), "its thread ends with its driver"

    inbox = HeldInbox(holds=())
    run(inbox, test, max_pending=100)
    assert inbox.stored == [[b"zero"], [b"second"], [b"third"]], "what was given up is not written again"
    assert caplog.text.count("The inbox could not store 1 pushes: no answer within 15 s") == 1


def test_a_push_behind_slow_transactions_does_not_wait_for_ever(still_clock: StillClock) -> None:
    async def test(group: GroupCommit) -> None:
        first = await begun(inbox, group)
        others = await waiting(group, *bodies)
        still_clock.move(WRITE_SECONDS - 1)
        inbox.go.release()
        await first
        assert await asyncio.to_thread(inbox.started.acquire, True, PATIENCE)
        still_clock.move(STORE_SECONDS - WRITE_SECONDS + 1)
        results = await asyncio.gather(*others, return_exceptions=True)
        assert {type(result) for result in results} == {NotStored}
        inbox.go.release(2)
        await group.close()

    inbox, bodies = HeldInbox(), [b"x"] * 201
    run(inbox, test, max_pending=1000)
    assert [len(stored) for stored in inbox.stored] == [1, 200], "the sender repeats the others"


def test_a_database_that_hangs_makes_a_few_threads(still_clock: StillClock) -> None:
    async def test(group: GroupCommit) -> None:
        for _ in range(MAX_THREADS):
            first = await begun(inbox, group)
            still_clock.move(WRITE_SECONDS)
            with pytest.raises(NotStored):
                await first
        with pytest.raises(NotStored):
            await store(group, b"x")
        assert inbox.opened == MAX_THREADS
        inbox.go.release(len(EVERY))
        await end_of_database_threads(before)
        await store(group, b"y")

    before = threading.enumerate()
    inbox = HeldInbox()
    run(inbox, test)
    assert inbox.stored[-1] == [b"y"]


def test_what_waits_is_stored_at_the_end() -> None:
    """Also behind a push whose request has ended meanwhile."""

    async def test(group: GroupCommit) -> None:
        first = await begun(inbox, group)
        (second,) = await waiting(group, b"second")
        closing = asyncio.create_task(group.close())
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await store(group, b"after the end")
        assert not closing.done()
        first.cancel()
        await asyncio.sleep(0)
        inbox.go.release(2)
        await closing
        assert inbox.stored == [[b"first"], [b"second"]]
        await second

    inbox = HeldInbox()
    run(inbox, test, max_pending=100)
    assert inbox.stored == [[b"first"], [b"second"]]


# How often the receiver reads its database: guesses of strangers do not become queries


class Database:
    """Counts its queries; down when it has no tokens."""

    def __init__(self) -> None:
        self.tokens: set[str] | None = {"digest"}
        self.queries = 0

    def __call__(self) -> set[str]:
        self.queries += 1
        if self.tokens is None:
            raise OSError("down")
        return set(self.tokens)


def test_all_requests_of_some_seconds_share_one_query(
    still_clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        cache = Cached(database, TOKENS_SECONDS, "the tokens")

        async def many() -> list[object]:
            return await asyncio.gather(*(cache.get() for _ in range(100)), return_exceptions=True)

        assert await many() == await many() == [{"digest"}] * 100
        still_clock.move(TOKENS_SECONDS)
        gone, other = (asyncio.create_task(cache.get()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert await other == {"digest"}, "a request that ends does not end what others wait for"
        database.tokens = {"digest", "new"}
        still_clock.move(TOKENS_SECONDS - 1)
        assert await cache.get() == {"digest"}
        still_clock.move(1)
        assert await many() == [{"digest", "new"}] * 100
        assert database.queries == 3

        database.tokens = None
        still_clock.move(TOKENS_SECONDS)
        for _ in range(3):
            assert {type(error) for error in await many()} == {OSError}
        assert database.queries == 4
        database.tokens = {"back"}
        still_clock.move(1)
        assert await cache.get() == {"back"}

        database.tokens = None
        for _ in range(2):
            still_clock.move(TOKENS_SECONDS)
            with pytest.raises(OSError, match="down"):
                await cache.get()
        assert caplog.text.count("the tokens: OSError") == 2, "once for each time that the database is down"

    database = Database()
    asyncio.run(run())
