"""What the receiver says of itself when nothing can be stored: 503 for pushes and health, and that it is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from airflow_provider_mail.webhook import commits, health
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import Tokens
from tests.support.clock import StillClock
from tests.support.statsd import StatsdServer
from tests.tasks.test_metrics import statsd  # noqa: F401 - a fixture
from tests.webhook.receiving import TOKEN, execute, receiver, stored

pytestmark = [pytest.mark.not_unit, pytest.mark.parametrize("inbox", ["sqlite", "psycopg3"], indirect=True)]


READ_ONLY = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {}', current_database()); END $$"
BROKEN = {
    "no inbox": ("ALTER TABLE mail_inbox RENAME TO hidden", "ALTER TABLE hidden RENAME TO mail_inbox"),
    "no tokens": ("ALTER TABLE mail_inbox_tokens RENAME TO hidden", "ALTER TABLE hidden RENAME TO mail_inbox_tokens"),
    "full in Postgres": (
        "ALTER TABLE mail_inbox ADD CONSTRAINT disk_full CHECK (body_bytes <= 2) NOT VALID",
        "ALTER TABLE mail_inbox DROP CONSTRAINT disk_full",
    ),
    "full in SQLite": (
        "CREATE TRIGGER full BEFORE INSERT ON mail_inbox WHEN NEW.body_bytes > 2 "
        "BEGIN SELECT RAISE(ABORT, 'disk full'); END",
        "DROP TRIGGER full",
    ),
    "read-only in Postgres": (
        READ_ONLY.format("SET default_transaction_read_only = on"),
        f"SET transaction_read_only = off; {READ_ONLY.format('RESET default_transaction_read_only')}",
    ),
}
"""By what is wrong: how it begins and ends. Of a full disk a probe notices nothing."""


@contextmanager
def broken(inbox: Inbox, problem: str) -> Iterator[None]:
    if problem == "away":
        with mock.patch.object(inbox.hook, "get_conn", side_effect=OSError("away")):
            yield
        return
    begin, end = BROKEN[problem]
    execute(inbox, begin)
    yield
    execute(inbox, end)


@pytest.mark.parametrize("problem", ["away", *BROKEN])
def test_while_nothing_can_be_stored_the_service_tries_again(
    ready: Inbox, still_clock: StillClock, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with receiver(ready) as sender:
            with broken(ready, problem):
                response = await sender.request("POST", f"/{TOKEN}", b"[{}]")
                assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
                assert await sender.get("/health", "/alive") == [503, 200]
            assert caplog.records
            still_clock.move(commits.FAILED_SECONDS)
            assert await sender.get("/health", "/a/alive") == [200, 200]
            assert await sender.push() == 200

    if problem.endswith("Postgres" if ready.hook.conn_type == "sqlite" else "SQLite"):
        pytest.skip("of the other database")
    asyncio.run(run())
    assert len(stored(ready)) == 1


def test_without_a_token_no_push_can_be_stored(inbox: Inbox, still_clock: StillClock) -> None:
    async def run() -> None:
        async with receiver(inbox) as sender:
            assert [*await sender.get("/health"), await sender.push()] == [503, 404]
            assert (await sender.request("POST", "/health")).status_code == 404

    Tokens(inbox).create()
    asyncio.run(run())


def test_what_waits_in_the_inbox_is_bounded(ready: Inbox, still_clock: StillClock) -> None:
    async def run() -> None:
        async with receiver(ready, max_inbox=10) as sender:
            assert await sender.get("/health") == [200]
            assert [await sender.push(b"[{},{}]") for _ in range(3)] == [200, 200, 503]
            still_clock.move(health.STATE_SECONDS)
            assert [*await sender.get("/health"), await sender.push()] == [503, 503]
            execute(ready, "UPDATE mail_inbox SET drained_at = received_at")
            still_clock.move(health.STATE_SECONDS)
            assert [*await sender.get("/health"), await sender.push()] == [200, 200]

    asyncio.run(run())
    assert ready.state().waiting_pushes == 1


def test_pushes_and_the_inbox_are_counted(
    ready: Inbox,
    still_clock: StillClock,
    statsd: StatsdServer,  # noqa: F811
) -> None:
    async def run() -> None:
        async with receiver(ready) as sender:
            assert await sender.get("/health") == [200]  # the state is known
            assert [await sender.push(body) for body in (b"[{},{}]", b"[{}]", b"{}")] == [200, 200, 400]
            assert (await sender.request("POST", "/x")).status_code == 404
            with broken(ready, "no inbox"):
                assert await sender.push() == 503
            statsd.received()
            still_clock.move(health.STATE_SECONDS)
            assert [*await sender.get("/health"), await sender.push(b"[{},{}]")] == [503, 200]

    asyncio.run(run())
    found = statsd.received()
    assert found.pop(("mail.inbox.oldest_seconds",)) >= 0
    assert found == {
        ("mail.receive.pushes", "200"): 1,
        ("mail.receive.events", "200"): 2,
        ("mail.inbox.pushes",): 2,
        ("mail.inbox.bytes",): 11,
    }
