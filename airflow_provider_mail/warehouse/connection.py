"""Connections to the user's database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.errors import WarehouseError, connect_error_message
from airflow_provider_mail.warehouse.file_lock import one_process, pause
from airflow_provider_mail.warehouse.lock_watch import LockWatch

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_LOCKED = "Could not set lock on file"
BUSY_FILE_WAITS_S = {
    _LOCKED: 60.0,
    # How a file looks to other processes while DuckDB creates it, and how a file of another kind looks for ever.
    "not a valid DuckDB database file": 5.0,
}
"""How long to wait for a database in a file, by the message of its driver."""

_BY_TYPE = {
    "databricks": "databricks",
    "gcpbigquery": "bigquery",
    "redshift": "redshift",
    "snowflake": "snowflake",
    "trino": "trino",
}
"""Databases by the type of their connections: to SQLAlchemy, the hook of Redshift names Postgres."""


def database(hook: DbApiHook) -> str:
    """Name the kind of database: SQLAlchemy's name if Airflow knows it, otherwise the type of the connection.

    :param hook: the hook of the database.
    """
    if warehouse := _BY_TYPE.get(str(hook.conn_type).lower()):
        return warehouse
    name = hook.dialect_name
    return str(hook.conn_type if name == "default" else name).lower()


@contextmanager
def connected(hook: DbApiHook) -> Iterator[Any]:
    """Open a connection; on exit, roll back on an error and close.

    :param hook: the hook of the database.
    :raises WarehouseError: when the connection fails.
    """
    failure, start = "", time.monotonic()
    with ExitStack() as lock:
        try:
            with ExitStack() as watch:
                if file := _duckdb_file(hook):
                    wait = BUSY_FILE_WAITS_S[_LOCKED]
                    holder = "another process uses the database file"
                    watch.enter_context(LockWatch(f"connection {hook.get_conn_id()!r}: ", lambda: holder, wait))
                    lock.enter_context(one_process(file, wait))
                connection = _open(hook, start)
        except Exception as error:
            if type(error).__module__.startswith("airflow."):
                raise  # names the missing connection id or package itself
            failure = connect_error_message(error)
        if failure:
            raise WarehouseError(f"cannot connect to {hook.get_conn_id()!r}: {failure}")
        try:
            yield connection
        except BaseException:
            with suppress(Exception):  # a lost connection cannot roll back, and need not
                connection.rollback()
            raise
        finally:
            with suppress(Exception):
                connection.close()


def _duckdb_file(hook: DbApiHook) -> str | None:
    """The file of a DuckDB database; none for one in memory or at MotherDuck."""
    if str(hook.conn_type).lower() != "duckdb":
        return None
    host = hook.get_connection(hook.get_conn_id()).host
    return None if host in ("", ":memory:") else host


def _open(hook: DbApiHook, start: float) -> Any:
    """Connect; wait for a database file that another process uses (DuckDB)."""
    while True:
        try:
            # By a copy, since the hook of Databricks keeps its connection and returns it again, closed as it is.
            return copy(hook).get_conn()
        except Exception as error:
            longest = next((wait for text, wait in BUSY_FILE_WAITS_S.items() if text in str(error)), 0.0)
            if time.monotonic() - start >= longest:
                raise
        pause()
