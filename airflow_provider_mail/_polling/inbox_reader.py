"""Queries the inbox of received pushes without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from asgiref.sync import sync_to_async

from airflow_provider_mail.api.errors import MailConfigError, MailConnectError, MailError
from airflow_provider_mail.warehouse.errors import WarehouseError, connect_error_message, safe_message
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.settings import InboxName, inbox_of

T = TypeVar("T")


class InboxReader:
    """Queries an inbox; reads the connection once, and again after an error.

    :param name: where the inbox is.
    """

    def __init__(self, name: InboxName) -> None:
        self.name = name
        self._inbox: Inbox | None = None
        # A thread of its own: a database that does not answer must hold up nothing else.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="mail-inbox")

    def query(self, ask: Callable[[Inbox], T]) -> T:
        """Query the inbox; blocks.

        :param ask: the query, such as ``Inbox.waiting``.
        :raises MailError: temporary, unless the connection cannot hold an inbox.
        """
        with self._errors():
            self._inbox = self._inbox or self._connect()
            return ask(self._inbox)

    async def aquery(self, ask: Callable[[Inbox], T]) -> T:
        """Query the inbox without blocking the event loop.

        :param ask: as for `query`.
        :raises MailError: as `query` does.
        """
        with self._errors():
            if self._inbox is None:
                # In this way for the reasons given in `MailHook.get_async_conn`. The queries need nothing of Airflow.
                self._inbox = await asyncio.shield(sync_to_async(self._connect, thread_sensitive=False)())
            return await asyncio.get_running_loop().run_in_executor(self._executor, ask, self._inbox)

    def close(self) -> None:
        """End the thread once a running query has ended."""
        self._executor.shutdown(wait=False)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
            return
        except MailError:
            raise
        except Exception as error:
            self._inbox = None
            message = connect_error_message(error) if isinstance(error, OSError) else safe_message(error)
        # Outside of `except`, so that the driver's exception is not chained.
        raise MailConnectError(f"the {self.name} could not be read: {message}")

    def _connect(self) -> Inbox:
        try:
            inbox = inbox_of(*self.name)
        except WarehouseError as error:
            raise MailConfigError(str(error)) from None
        # The hook of SQLite would read the connection again for each query.
        connection = inbox.hook.connection
        inbox.hook.__dict__["get_connection"] = lambda conn_id: connection
        return inbox
