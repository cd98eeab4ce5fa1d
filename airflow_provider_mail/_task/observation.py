"""The time of observation: by a clock that all workers share, not by that of one worker."""

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
"""Difference in seconds between the clocks of worker and service above which a warning is logged."""

_log = logging.getLogger(__name__)


class Observation:
    """One reading of the service; to be created before the first request is sent.

    Its time is that of sending the request by the service's clock (the ``Date`` header of its responses), so the data
    is never older. For a retried request it is that of the last attempt.

    :param client: the client that sends the requests, and no others meanwhile.
    :param sql_hook: the hook of the database, if any, whose clock is used if the service has none.
    """

    def __init__(self, client: MailClient, sql_hook: DbApiHook | None = None) -> None:
        self._clock = client.service_clock
        self._sql_hook = sql_hook
        self._clock.restart()
        self._began = time.time()

    @cached_property
    def at(self) -> datetime:
        """The time at which the service was asked, in UTC; to be read after the first response."""
        if (asked_at := self._clock.asked_at) is not None:
            if abs(self._clock.offset) > CLOCK_TOLERANCE:
                _log.warning("The clocks of service and worker differ by %.0f s", abs(self._clock.offset))
            return asked_at
        from airflow_provider_mail.warehouse.load import database_time

        elapsed = timedelta(seconds=time.time() - self._began)
        if self._sql_hook is not None and (now := database_time(self._sql_hook)) is not None:
            return now - elapsed
        _log.warning("Neither the service nor a database has a clock: observed_at is the time of this worker")
        return datetime.now(UTC) - elapsed

    def now(self) -> datetime:
        """The present time, by the same clock."""
        return self.at + timedelta(seconds=max(time.time() - self._began, 0.0))
