"""Reads for the page in a few threads of its own, with a time limit.

Airflow's API server runs its own routes in a pool of threads, which a database that does not respond would fill.
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
"""Maximum number of threads, including abandoned ones whose driver has not returned."""


class NoAnswer(Exception):
    """The database does not answer in time."""


class Places:
    """Runs what reads the database in a few threads."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(PLACES)
        self._readings: set[Reading[Any]] = set()

    async def read(self, function: Callable[[], T]) -> T:
        """Run a function that reads the database in a thread; return its result or raise its error.

        When the caller is cancelled, its place becomes free.

        :raises NoAnswer: there is no result within `SECONDS`.
        """
        try:
            async with asyncio.timeout(SECONDS), self._free:
                self._readings = {started for started in self._readings if not started.result.done()}
                if len(self._readings) >= MAX_THREADS:
                    raise TimeoutError
                reading = Reading(function, SECONDS)
                self._readings.add(reading)
                return await aread(reading)
        except TimeoutError:
            address = next((f" ({started.address})" for started in self._readings if started.address), "")
        raise NoAnswer(f"the database did not answer within {SECONDS:g} seconds{address}")


places = Places()
