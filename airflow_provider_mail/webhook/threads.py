"""The threads of a receiver that use the database. A database that hangs blocks only a few of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from airflow_provider_mail.warehouse.time_limit import Reading

T = TypeVar("T")

MAX_THREADS = 8
"""Threads for one purpose, including abandoned ones whose driver has not returned."""


class Threads:
    """Starts threads for one purpose."""

    def __init__(self) -> None:
        self._readings: list[Reading[Any]] = []

    def start(self, function: Callable[[], T], seconds: float) -> Reading[T]:
        """Run a function in a new thread.

        :param seconds: the limit of each of its statements.
        :raises TimeoutError: too many threads hang already.
        """
        self._readings = [started for started in self._readings if not started.result.done()]
        if len(self._readings) >= MAX_THREADS:
            raise TimeoutError
        reading = Reading(function, seconds)
        self._readings.append(reading)
        return reading
