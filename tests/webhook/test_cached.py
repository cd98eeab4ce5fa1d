"""How often the receiver reads its database: guesses of strangers do not become queries."""

from __future__ import annotations

import asyncio

from airflow_provider_mail.webhook.cached import Cached
from airflow_provider_mail.webhook.tokens import TOKENS_SECONDS
from tests.support.clock import StillClock


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


def test_all_requests_of_some_seconds_share_one_query(still_clock: StillClock) -> None:
    async def run() -> None:
        cache = Cached(database, TOKENS_SECONDS, "down")

        async def many() -> list[object]:
            return await asyncio.gather(*(cache.get() for _ in range(100)), return_exceptions=True)

        assert await many() == await many() == [{"digest"}] * 100
        database.tokens = {"digest", "new"}
        still_clock.move(TOKENS_SECONDS - 1)
        assert await cache.get() == {"digest"}
        still_clock.move(1)
        assert await many() == [{"digest", "new"}] * 100
        assert database.queries == 2

        database.tokens = None
        still_clock.move(TOKENS_SECONDS)
        for _ in range(3):
            assert {type(error) for error in await many()} == {OSError}
        assert database.queries == 3
        database.tokens = {"back"}
        still_clock.move(1)
        assert await cache.get() == {"back"}

    database = Database()
    asyncio.run(run())
