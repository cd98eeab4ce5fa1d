"""The time of observation, by a clock that all workers share instead of the clock of one worker."""

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

LONGEST_ZONE = timedelta(hours=14)
"""A clock that is behind by up to this much may show the time of a wrong zone."""

_log = logging.getLogger(__name__)


class Observation:
    """One reading of data from the service; to be created before the first request is sent.

    Its time is when the request was sent, by the service's clock (the ``Date`` header of its responses), so the data is
    never older; by the database's clock if the service's is wrong. For a retried request, it is the time of the last
    attempt.

    :param client: the client that sends the requests, and no others meanwhile.
    :param sql_hook: the hook of a database, if any, with whose clock the service's is compared.
    """

    def __init__(self, client: MailClient, sql_hook: DbApiHook | None = None) -> None:
        self._clock = client.service_clock
        self._sql_hook = sql_hook
        self._database_now: datetime | None = None
        self._clock.restart()
        self._began = time.time()

    @cached_property
    def at(self) -> datetime:
        """The time at which the request was sent, in UTC; to be read after the first response.

        If the service's clock differs from the database's, it is the time of the database, which all loads of a table
        share: a row with a wrong time would hide newer ones. The time of a service that is more than 14 hours behind is
        used nevertheless, since it still orders the responses: such a clock was set on purpose.
        """
        from airflow_provider_mail.warehouse.load import FUTURE_TOLERANCE, database_time

        if self._sql_hook is not None:
            self._database_now = database_time(self._sql_hook)
        database_now = self._database_now
        worker_now, asked_at = time.time(), self._clock.asked_at
        sent = self._began if asked_at is None else self._clock.asked_at_local
        elapsed = timedelta(seconds=worker_now - sent)
        if asked_at is None:
            if database_now is not None:
                return database_now - elapsed
            _log.warning("Neither the service nor a database has a clock: observed_at is the time of this worker")
            return datetime.fromtimestamp(sent, UTC)
        if abs(self._clock.offset) > CLOCK_TOLERANCE:
            _log.warning("The clocks of service and worker differ by %.0f s", abs(self._clock.offset))
        if database_now is None:
            return asked_at
        by_database = database_now - elapsed
        ahead = asked_at - by_database
        if ahead > FUTURE_TOLERANCE or -LONGEST_ZONE < ahead < -FUTURE_TOLERANCE:
            _log.warning(
                "Check the clocks: the service's is %.0f s ahead of the database's, whose time is observed_at",
                ahead.total_seconds(),
            )
            return by_database
        return asked_at

    def now(self) -> datetime:
        """Return the present time, by the later of the two clocks: no observation can be later."""
        now = self.at + timedelta(seconds=max(time.time() - self._began, 0.0))
        # Without a database, use the worker's clock: a service that is behind must not make correct times wrong.
        return max(now, self._database_now or datetime.now(UTC))
