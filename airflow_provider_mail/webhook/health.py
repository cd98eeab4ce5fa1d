"""What is read from the database of the inbox, and for how long: what waits there, and which tokens are valid."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from airflow_provider_mail._config import ReceiverSettings
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.time_limit import Threads, aread, read_within
from airflow_provider_mail.webhook.inbox import Inbox, InboxState, open_inbox, problem_of
from airflow_provider_mail.webhook.tokens import Tokens

T = TypeVar("T")

_log = logging.getLogger(__name__)

READ_SECONDS = 5
"""How long a request waits for a result of the database; the longest wait is this plus `commits.STORE_SECONDS`."""

_FAILED_SECONDS = 1


class Cached(Generic[T]):
    """The result of a function that reads the database, so that requests with guessed tokens cause no queries.

    :param seconds: the age at which it is called again.
    :param problem: what its failure means, for the log.
    """

    def __init__(self, read: Callable[[], T], seconds: float, problem: str) -> None:
        self._read = read
        self._seconds = seconds
        self._problem = problem
        self._threads = Threads()
        self._attempt: asyncio.Future[T] | None = None
        self._until = 0.0
        self._is_failing = False

    async def get(self) -> T:
        # A request that is cancelled must not cancel the attempt that others wait for.
        return await asyncio.shield(self.start())

    def start(self) -> asyncio.Future[T]:
        """Return the attempt to read whose result is valid now. While the database hangs, all requests share one."""
        now = time.monotonic()
        if self._attempt is None or now >= self._until:
            self._attempt = asyncio.ensure_future(self._fresh())
            self._attempt.add_done_callback(lambda attempt: attempt.cancelled() or attempt.exception())  # is retrieved
            self._until = now + self._seconds
        return self._attempt

    async def _fresh(self) -> T:
        try:
            result = await aread(self._threads.start(self._read, READ_SECONDS))
        except Exception as error:
            self._until = time.monotonic() + _FAILED_SECONDS
            if not self._is_failing:
                _log.error("%s: %s", self._problem, problem_of(error, READ_SECONDS))
            self._is_failing = True
            raise
        self._is_failing = False
        return result


ROTATE = "airflow mail receive rotate"

SECONDS = 30.0


@dataclass(frozen=True)
class ReceiverStatus:
    """The state of receiving."""

    inbox: InboxState
    max_bytes: int
    tokens: Mapping[str, int]

    @property
    def problems(self) -> list[tuple[str, str]]:
        """What needs attention, and the command or setting that fixes it."""
        problems = []
        if not self.tokens:
            problems.append(("there is no valid token: every push is answered with 404", ROTATE))
        if self.inbox.waiting_bytes >= self.max_bytes:
            fix = "drain it (MailEventsToSqlOperator), or raise [mail] receive_max_inbox_bytes"
            problems.append(("the inbox is full: every push is answered with 503", fix))
        if self.inbox.is_old:
            fix = "check the task of MailEventsToSqlOperator, and that its DAG is not paused"
            problems.append(("a push waits for more than a day: the inbox is not drained", fix))
        return problems


def receiver_status(settings: ReceiverSettings, *, seconds: float = SECONDS) -> ReceiverStatus:
    """Read the state of receiving.

    :raises MailConfigError: there is no inbox.
    :raises WarehouseError: there is no table, or the database does not answer in time.
    """
    inbox = open_inbox()
    try:
        state, tokens = read_within(lambda: _read(inbox), seconds)
        return ReceiverStatus(state, settings.receive_max_inbox_bytes, Counter(tokens.values()))
    except (MailConfigError, WarehouseError):
        raise
    except Exception as error:
        problem = problem_of(error, seconds)
    # Outside of `except`, so that the driver's exception is not chained.
    raise WarehouseError(f"the inbox of connection {inbox.hook.get_conn_id()!r} cannot be read: {problem}")


def _read(inbox: Inbox) -> tuple[InboxState, dict[str, str]]:
    with inbox.connected() as cursor:
        if not inbox.sql.exists(cursor, inbox.name):
            raise WarehouseError(f"there is no table {inbox.table}: create it with `{ROTATE}`")
    return inbox.state(), Tokens(inbox).valid()
