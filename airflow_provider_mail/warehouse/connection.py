"""Connections to the user's database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.connect_limits import limit_connecting
from airflow_provider_mail.warehouse.errors import WarehouseError, connect_error_message
from airflow_provider_mail.warehouse.file_lock import one_process, pause
from airflow_provider_mail.warehouse.lock_watch import LockWatch
from airflow_provider_mail.warehouse.time_limit import CONNECT_SECONDS, current_reading

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_LOCKED = "Could not set lock on file"
BUSY_FILE_WAITS_S = {
    _LOCKED: 60.0,
    # Raised while another process creates the file, and always for a file of another kind.
    "not a valid DuckDB database file": 5.0,
    # Another thread of this process is just closing it.
    "is already attached by database": 5.0,
}
"""How long to wait for a database in a file, by the message of its driver."""

PATIENT_SECONDS = 60
"""Limit for connecting, and for a missing acknowledgement by the server, where no request waits for the result."""

_BY_TYPE = {
    "databricks": "databricks",
    "gcpbigquery": "bigquery",
    "redshift": "redshift",
    "snowflake": "snowflake",
    "trino": "trino",
}
"""Databases by connection type, where the hook's ``dialect_name`` is another one: that of Redshift is Postgres."""


def database(hook: DbApiHook) -> str:
    """Name the kind of database: SQLAlchemy's name if Airflow knows it, otherwise the type of the connection."""
    if warehouse := _BY_TYPE.get(str(hook.conn_type).lower()):
        return warehouse
    name = hook.dialect_name
    return str(hook.conn_type if name == "default" else name).lower()


@contextmanager
def connected(hook: DbApiHook) -> Iterator[Any]:
    """Open a connection; on exit, roll back on an error and close.

    In a :class:`~airflow_provider_mail.warehouse.time_limit.Reading` the connection has its time limits.

    :raises WarehouseError: when the connection fails.
    """
    failure, start, reading = "", time.monotonic(), current_reading()
    longest = reading.seconds if reading else float("inf")
    with ExitStack() as lock:
        try:
            if reading:
                reading.address = address(hook)
            with ExitStack() as watch:
                if file := _duckdb_file(hook):
                    wait = min(BUSY_FILE_WAITS_S[_LOCKED], longest)
                    holder = "another process uses the database file"
                    watch.enter_context(LockWatch(f"connection {hook.get_conn_id()!r}: ", lambda: holder, wait))
                    lock.enter_context(one_process(file, wait))
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


def _duckdb_file(hook: DbApiHook) -> str | None:
    """The file of a DuckDB database; none for one in memory or at MotherDuck."""
    if str(hook.conn_type).lower() != "duckdb":
        return None
    host = hook.get_connection(hook.get_conn_id()).host
    return None if host in ("", ":memory:") else host


def address(hook: DbApiHook) -> str:
    """Return host and port of a database, or its file, to show to people; never the user. May be empty."""
    connection = hook.get_connection(hook.get_conn_id())
    port = f", port {connection.port}" if connection.port else ""
    return f"host {connection.host}{port}" if connection.host else ""


def _open(hook: DbApiHook, start: float, longest: float) -> Any:
    """Connect. Wait at most ``longest`` seconds for a DuckDB file that another process uses."""
    # A copy: the hook of Databricks caches its connection, and would return it again after it was closed.
    hook = copy(hook)
    reading = current_reading()
    connect_seconds = CONNECT_SECONDS if reading else PATIENT_SECONDS
    limit_connecting(hook, database(hook), connect_seconds, reading.seconds if reading else None)
    while True:
        try:
            return copy(hook).get_conn()
        except Exception as error:
            wait = next((wait for text, wait in BUSY_FILE_WAITS_S.items() if text in str(error)), 0.0)
            if time.monotonic() - start >= min(wait, longest):
                raise
        pause()
