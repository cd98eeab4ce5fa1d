"""When the service was asked: by a clock that all workers share, never by a worker's own alone."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.api.client import MailClient

CLOCK_TOLERANCE = 60.0
"""Seconds. A worker's clock that is further away from the service's is mentioned in the log."""

_log = logging.getLogger(__name__)


class Observation:
    """One reading of the service, made before its first request is sent.

    Its time is the service's (the ``Date`` header of its responses) at which the request was sent, so what the service
    says is never older than that. A request that is repeated counts from its last attempt.

    :param client: sends the requests, and no others meanwhile.
    :param sql_hook: of the database, whose clock is asked where the service shows none.
    """

    def __init__(self, client: MailClient, sql_hook: DbApiHook) -> None:
        self._clock = client.service_clock
        self._sql_hook = sql_hook
        self._clock.restart()
        self._began = time.time()

    @cached_property
    def at(self) -> datetime:
        """When the service was asked, in UTC. Read it after the first response has come."""
        if (asked_at := self._clock.asked_at) is not None:
            if abs(self._clock.offset) > CLOCK_TOLERANCE:
                _log.warning("The clocks of service and worker differ by %.0f s", abs(self._clock.offset))
            return asked_at
        from airflow_provider_mail.warehouse.load import database_time

        elapsed = timedelta(seconds=time.time() - self._began)
        if (now := database_time(self._sql_hook)) is not None:
            return now - elapsed
        _log.warning("Neither the service nor the database tells the time: observed_at is that of this worker")
        return datetime.now(UTC) - elapsed

    def now(self) -> datetime:
        """The time now, by the same clock."""
        return self.at + timedelta(seconds=max(time.time() - self._began, 0.0))
