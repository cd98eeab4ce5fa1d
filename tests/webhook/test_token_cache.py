"""How often the receiver reads the tokens: guesses must not become queries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from airflow_provider_mail.webhook import cached
from airflow_provider_mail.webhook.cached import Cached
from airflow_provider_mail.webhook.tokens import TOKENS_SECONDS


class Database:
    """Counts its queries; down when it has no tokens."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] | None = {"digest": "mail_default"}
        self.queries = 0

    def __call__(self) -> Mapping[str, str]:
        self.queries += 1
        if self.tokens is None:
            raise OSError("down")
        return dict(self.tokens)


async def many(cache: Cached[Mapping[str, str]]) -> list[object]:
    return await asyncio.gather(*(cache.get() for _ in range(100)), return_exceptions=True)


def test_one_query_for_all_requests_of_some_seconds() -> None:
    async def run() -> None:
        assert await many(cache) == await many(cache) == [{"digest": "mail_default"}] * 100

    database = Database()
    cache = Cached(database, TOKENS_SECONDS, "down")
    asyncio.run(run())
    assert database.queries == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that the cache sees, in seconds."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(cached, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_new_token_is_known_after_some_seconds(clock: SimpleNamespace) -> None:
    async def run() -> None:
        await cache.get()
        database.tokens = {"digest": "mail_default", "new": "mail_default"}
        assert len(await cache.get()) == 1
        clock.now += TOKENS_SECONDS
        assert len(await cache.get()) == 2

    database = Database()
    cache = Cached(database, TOKENS_SECONDS, "down")
    asyncio.run(run())


def test_while_the_database_is_down_it_is_asked_once_per_second(clock: SimpleNamespace) -> None:
    async def run() -> None:
        for _ in range(3):
            assert {type(each) for each in await many(cache)} == {OSError}
        assert database.queries == 1
        clock.now += 1
        database.tokens = {}
        assert await cache.get() == {}

    database = Database()
    database.tokens = None
    cache = Cached(database, TOKENS_SECONDS, "down")
    asyncio.run(run())
