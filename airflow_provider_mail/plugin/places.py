"""Where the page reads: threads of its own, of which there are few, and which nobody waits for without end.

Airflow's API server runs its own routes in a pool of threads, which a database that does not answer would fill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from airflow_provider_mail.warehouse.time_limit import Reading, aread

T = TypeVar("T")

PLACES = 4
"""How many requests read at once, in each process of the API server."""

SECONDS = 20.0
"""How long a request waits for a place and for its data."""

MAX_THREADS = 4 * PLACES
"""How many threads there are at most, with those that nobody waits for any more and whose driver has not returned."""


class NoAnswer(Exception):
    """The database does not answer in time."""


class Places:
    """Runs what reads the database in a few threads."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(PLACES)
        self._readings: set[Reading[Any]] = set()

    async def read(self, function: Callable[[], T]) -> T:
        """Run a function that reads the database in a thread; return its result or raise its error.

        When the caller is cancelled, its place is free.

        :raises NoAnswer: there is no result within `SECONDS`.
        """
        try:
            async with asyncio.timeout(SECONDS), self._free:
                self._readings = {each for each in self._readings if not each.result.done()}
                if len(self._readings) >= MAX_THREADS:
                    raise TimeoutError
                reading = Reading(function, SECONDS)
                self._readings.add(reading)
                return await aread(reading)
        except TimeoutError:
            address = next((f" ({each.address})" for each in self._readings if each.address), "")
        raise NoAnswer(f"the database did not answer within {SECONDS:g} seconds{address}")


places = Places()
