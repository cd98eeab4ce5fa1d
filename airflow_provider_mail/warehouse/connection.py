"""Connections to the user's database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.dialects import dialect_of
from airflow_provider_mail.warehouse.errors import WarehouseError, connect_error_message
from airflow_provider_mail.warehouse.lock_watch import pause
from airflow_provider_mail.warehouse.time_limit import CONNECT_SECONDS, current_reading

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

PATIENT_SECONDS = 60
"""Limit for connecting, and for a missing acknowledgement by the server, where no request waits for the result."""


@contextmanager
def connected(hook: DbApiHook) -> Iterator[Any]:
    """Open a connection; on exit, roll back on an error and close.

    In a :class:`~airflow_provider_mail.warehouse.time_limit.Reading` the connection has its time limits.

    :raises WarehouseError: when the connection fails.
    """
    failure, start, reading = "", time.monotonic(), current_reading()
    longest = reading.seconds if reading else float("inf")
    with ExitStack() as held:
        try:
            if reading:
                reading.address = address(hook)
            with dialect_of(hook).opening(hook, longest, held):
                connection = _open(hook, start, longest)
        except Exception as error:
            if type(error).__module__.startswith("airflow."):
                raise  # names the missing connection id or package itself
            failure = connect_error_message(error)
        if failure:
            raise WarehouseError(f"cannot connect to {hook.get_conn_id()!r}: {failure}")
        try:
            with reading.uses(connection) if reading else nullcontext():
                try:
                    yield connection
                except BaseException:
                    with suppress(Exception):  # a lost connection cannot roll back, and need not
                        connection.rollback()
                    raise
        finally:
            with suppress(Exception):
                connection.close()


def open_connection(hook: DbApiHook) -> Any:
    """Open a connection with the time limits that its driver supports. The caller closes it."""
    return _open(hook, time.monotonic(), float("inf"))


def address(hook: DbApiHook) -> str:
    """Return host and port of a database, or its file, to show to people; never the user. May be empty."""
    connection = hook.get_connection(hook.get_conn_id())
    port = f", port {connection.port}" if connection.port else ""
    return f"host {connection.host}{port}" if connection.host else ""


def _open(hook: DbApiHook, start: float, longest: float) -> Any:
    """Connect. Wait at most ``longest`` seconds for a database that is busy."""
    # A copy: the hook of Databricks caches its connection, and would return it again after it was closed.
    hook = copy(hook)
    reading = current_reading()
    connect_seconds = CONNECT_SECONDS if reading else PATIENT_SECONDS
    dialect = dialect_of(hook)
    dialect.limit_connecting(hook, connect_seconds, reading.seconds if reading else None)
    while True:
        try:
            return copy(hook).get_conn()
        except Exception as error:
            if time.monotonic() - start >= min(dialect.busy_seconds(error), longest):
                raise
        pause()
