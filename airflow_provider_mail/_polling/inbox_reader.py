"""Queries the inbox of received pushes without blocking the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from airflow.sdk import Connection
from asgiref.sync import sync_to_async

from airflow_provider_mail._config import InboxName
from airflow_provider_mail.api.errors import MailConfigError, MailConnectError, MailError
from airflow_provider_mail.warehouse.errors import WarehouseError, connect_error_message, safe_message
from airflow_provider_mail.warehouse.time_limit import Reading, aread, read_within
from airflow_provider_mail.webhook.inbox import Inbox, inbox_of

T = TypeVar("T")

QUERY_SECONDS = 30.0
"""Time limit of a query; shorter than that of the last poll of a wait."""


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


class InboxReader:
    """Queries an inbox; reads the connection once, and again after an error."""

    def __init__(self, name: InboxName) -> None:
        self.name = name
        self._inbox: Inbox | None = None

    def query(self, ask: Callable[[Inbox], T]) -> T:
        """Query the inbox; blocks, at most for `QUERY_SECONDS`.

        :param ask: the query, such as ``Inbox.waiting``.
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
        except TimeoutError:
            self._inbox, message = None, f"no answer within {QUERY_SECONDS:g} seconds"
        except WarehouseError as error:
            self._inbox, message = None, str(error)
        except Exception as error:
            self._inbox = None
            message = connect_error_message(error) if isinstance(error, OSError) else safe_message(error)
        # Outside of `except`, so that the driver's exception is not chained.
        raise MailConnectError(f"the {self.name} could not be read: {message}")

    def _connect(self) -> Inbox:
        try:
            inbox = inbox_of(self.name)
        except WarehouseError as error:
            raise MailConfigError(str(error)) from None
        # The hook of SQLite would read the connection again for each query.
        read = inbox.hook.connection
        connection = _ReadConnection(**{field: getattr(read, field) for field in _CONNECTION_FIELDS})
        inbox.hook.__dict__.update(_connection=connection, get_connection=lambda conn_id: connection)
        return inbox
