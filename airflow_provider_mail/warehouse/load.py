"""Loads rows into a table of the user's database: all or none, and repeating a load changes nothing."""

from __future__ import annotations

import datetime
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_provider_mail.api._core.pacing import infrequent_gc
from airflow_provider_mail.warehouse.connection import connected, run_with_connection
from airflow_provider_mail.warehouse.dialects import dialect_of
from airflow_provider_mail.warehouse.request import Clock, LoadRequest, LoadResult
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import TableName

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

__all__ = ["Clock", "LoadRequest", "LoadResult", "Source", "TableName", "database_time", "load"]


def load(hook: DbApiHook, request: LoadRequest) -> LoadResult:
    """Insert rows, or update those with the same keys, in one transaction on one connection.

    The table is created when missing and gets the declared columns that it lacks; no column is ever narrowed or
    dropped. Of several rows with the same key the last one is loaded, or the first one into a table whose rows are
    never updated. A row never replaces one that was observed later.
    When anything fails, the table is unchanged. Memory does not grow with the number of rows, except in Postgres for
    tables whose rows are never updated.

    :raises UnconfirmedError: when ``request.removal`` does not allow that many rows to be removed.
    :raises WarehouseError: naming table and connection, and row or column if known; never values.
    """
    dialect = dialect_of(hook)(hook, request)
    dialect.check_conditions()
    with infrequent_gc():
        return run_with_connection(dialect, dialect.load, tells_rows=True)


def database_time(hook: DbApiHook) -> datetime.datetime:
    """Return the time by the database's clock.

    :raises WarehouseError: when the connection fails.
    """
    dialect = dialect_of(hook)
    with connected(hook) as connection, closing(connection.cursor()) as cursor:
        return dialect.read_clock(cursor)
