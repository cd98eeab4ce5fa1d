"""The inbox of received pushes: queries that do not block the event loop, and the polls for what waits for a push."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Connection
from asgiref.sync import sync_to_async

from airflow_provider_mail._config import InboxName
from airflow_provider_mail._polling.shared_poller import (
    PollSubscription,
    SharedPoller,
    WaitSubscription,
    result_or_error,
)
from airflow_provider_mail.api.errors import MailConfigError, MailConnectError, MailError
from airflow_provider_mail.api.flows.waits import PollDecision, Wait, WaitStatus
from airflow_provider_mail.version_compat import use_connection
from airflow_provider_mail.warehouse.errors import WarehouseError, connect_error_message
from airflow_provider_mail.warehouse.time_limit import Reading, aread, read_within
from airflow_provider_mail.webhook.inbox import Inbox, inbox_of, problem_of

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

log = logging.getLogger(__name__)

T = TypeVar("T")

QUERY_SECONDS = 30.0
"""Time limit of a query; shorter than that of the last poll of a wait."""

STATUS_INTERVAL = 1.0
"""Seconds between two queries for events ``TaskStatus``."""

FAILED_PAUSE = 10.0
"""Seconds between two of them while they fail."""


class _ReadConnection(Connection):
    """A connection that masks nothing when its extra is read.

    Airflow masked the extra when it read the connection. Masking it again would use Airflow's supervisor channel, which
    the thread of a query must not use: on Airflow 3.0 and 3.1 that ends the triggerer.
    """

    __slots__ = ()

    @property
    def extra_dejson(self) -> dict[str, Any]:
        return json.loads(self.extra) if self.extra else {}


_CONNECTION_FIELDS = ("conn_id", "conn_type", "host", "schema", "login", "password", "port", "extra")


def read_connection(hook: DbApiHook) -> None:
    """Let a hook use the connection as it is now, in any thread; SQLite's would read it again for each query."""
    read = hook.connection
    use_connection(hook, _ReadConnection(**{field: getattr(read, field) for field in _CONNECTION_FIELDS}))


class InboxReader:
    """Queries an inbox; reads the connection once, and again after an error."""

    def __init__(self, name: InboxName) -> None:
        self.name = name
        self._inbox: Inbox | None = None

    def query(self, ask: Callable[[Inbox], T]) -> T:
        """Query the inbox; blocks, at most for `QUERY_SECONDS`.

        :raises MailError: the query failed; the error is temporary, unless the connection cannot hold an inbox.
        """
        with self._errors():
            self._inbox = self._inbox or self._connect()
            return read_within(partial(ask, self._inbox), QUERY_SECONDS)

    async def aquery(self, ask: Callable[[Inbox], T]) -> T:
        with self._errors():
            if self._inbox is None:
                # Done this way for the reasons in `MailHook.get_async_conn`. The queries themselves do not use Airflow.
                self._inbox = await asyncio.shield(sync_to_async(self._connect, thread_sensitive=False)())
            return await aread(Reading(partial(ask, self._inbox), QUERY_SECONDS))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
            return
        except MailError:
            raise
        except Exception as error:
            self._inbox = None
            is_refused = isinstance(error, OSError) and not isinstance(error, TimeoutError)
            message = connect_error_message(error) if is_refused else problem_of(error, QUERY_SECONDS)
        # Outside of `except`, so that the driver's exception is not chained.
        raise MailConnectError(f"the {self.name} could not be read: {message}")

    def _connect(self) -> Inbox:
        try:
            inbox = inbox_of(self.name)
        except WarehouseError as error:
            raise MailConfigError(str(error)) from None
        read_connection(inbox.hook)
        return inbox


class InboxWait(Wait):
    def __init__(self, inbox: InboxName, **options: Any) -> None:
        super().__init__(list(inbox), **options)
        self._inbox = inbox

    def _decide(self, result: bool, at: float, offset: float) -> PollDecision:
        if result:
            inbox = {"inbox_conn_id": self._inbox.conn_id, "inbox_table": self._inbox.table}
            return PollDecision(WaitStatus.COMPLETE, f"pushes wait in the {self._inbox}", inbox)
        return PollDecision(WaitStatus.WAITING, f"no push waits in the {self._inbox}")


class InboxPoller(SharedPoller[WaitSubscription[InboxWait]]):
    def __init__(self, inbox: InboxName, interval: float) -> None:
        super().__init__(inbox, interval)
        self._reader = InboxReader(inbox)

    async def poll_for(self, due: Collection[WaitSubscription[InboxWait]]) -> None:
        at, result = time.time(), await result_or_error(self._reader.aquery(Inbox.waiting))
        for subscription in due:
            subscription.deliver(result, at, 0.0)


@dataclass(eq=False, kw_only=True, slots=True)
class TaskStatusSubscription(PollSubscription):
    """The subscription of a poller of campaigns.

    :param wake: called when a push with an event ``TaskStatus`` may have arrived.
    """

    mail_conn_id: str
    wake: Callable[[], object]

    def deliver(self, result: bool, at: float, offset: float) -> None:
        if result:
            self.wake()


class TaskStatusPoller(SharedPoller[TaskStatusSubscription]):
    """Queries the inbox while campaigns are polled, and makes polls start when a campaign may have changed.

    A push is not proof: it may be lost, and anybody who knows the URL may send one. It only makes the next poll start
    earlier; the poll decides.
    """

    def __init__(self, inbox: InboxName, interval: float) -> None:
        super().__init__(inbox, interval)
        self._reader = InboxReader(inbox)
        self._seen: Collection[int] | None = None
        self._is_failing = False

    async def poll_for(self, due: Collection[TaskStatusSubscription]) -> None:
        at, result = time.time(), await result_or_error(self._reader.aquery(Inbox.task_status_pushes))
        if isinstance(result, MailError):
            if not self._is_failing:
                log.warning("Campaigns are polled at their intervals only: %s", result)
            self._is_failing = True
            for subscription in self._subscriptions:
                subscription.due = time.monotonic() + FAILED_PAUSE
            return
        seen, self._seen, self._is_failing = self._seen, result.keys(), False
        new = {conn_id for id, conn_id in result.items() if id not in (seen or ())}
        for subscription in self._subscriptions:
            # A push that came before the first query may have come after the first poll.
            subscription.deliver(seen is None or subscription.mail_conn_id in new, at, 0.0)
