"""Loads rows into a table of the user's database: all or none, and repeating a load changes nothing."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.infrequent_gc import infrequent_gc
from airflow_provider_mail.warehouse.connection import connected, run_with_connection
from airflow_provider_mail.warehouse.dialects import dialect_of
from airflow_provider_mail.warehouse.request import (
    FUTURE_TOLERANCE,
    LOCK_TIMEOUT,
    Between,
    Clock,
    Coverage,
    History,
    LoadRequest,
    LoadResult,
    MarkGone,
    RemovalRule,
)
from airflow_provider_mail.warehouse.rows import OnUnstorable, Source
from airflow_provider_mail.warehouse.table import Table, TableName, TaskRun

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

__all__ = [
    "FUTURE_TOLERANCE",
    "LOCK_TIMEOUT",
    "Between",
    "Coverage",
    "History",
    "LoadResult",
    "MarkGone",
    "RemovalRule",
    "database_time",
    "load",
]


def load(
    hook: DbApiHook,
    table: Table,
    name: str | TableName,
    rows: Iterable[Sequence[Any]],
    *,
    replace_where: Mapping[str, Any] | None = None,
    covers: Coverage | None = None,
    mark_gone: MarkGone | None = None,
    removal: RemovalRule | None = None,
    expire_before: datetime.datetime | None = None,
    now: datetime.datetime | None = None,
    history: History | None = None,
    on_unstorable: OnUnstorable | None = None,
    lock_timeout: float = LOCK_TIMEOUT,
    task_run: TaskRun | None = None,
) -> LoadResult:
    """Insert rows, or update those with the same keys, in one transaction on one connection.

    The table is created when missing and gets the declared columns that it lacks; no column is ever narrowed or
    dropped. Of several rows with the same key the last one is loaded, or the first one into a table whose rows are
    never updated. A row never replaces one that was observed later.
    When anything fails, the table is unchanged. Memory does not grow with the number of rows, except in Postgres for
    tables whose rows are never updated.

    :param name: its name in the database, optionally with its schema.
    :param rows: tuples in the order of the table's columns. Exceptions of their iterator are raised unchanged.
    :param replace_where: the window that these rows replace, as conditions (by column, a value or `Between`): other
        rows in it are deleted in the same transaction. Default: no row is deleted.
    :param covers: parts of the table for which these rows are complete. They are recorded in ``mail_loads`` in the same
        schema, and their unchanged rows are not written again. Default: unchanged rows get a new time of observation.
    :param mark_gone: windows for which these rows are complete: other rows in them are marked as gone. Default: no row
        is marked. The mark of a loaded row is always cleared.
    :param removal: which rows may be deleted, marked as gone or ended in the history. Default: any that this load
        lacks.
    :param expire_before: rows that any load observed earlier are deleted in the same transaction. Default: none.
    :param now: the present time, with a zone, by the latest clock that ``observed_at`` may come from. The load fails
        when rows of the table that it compares with, or readings of ``history``, were observed more than five minutes
        later. Default: not checked.
    :param history: the history of the part of the table that these rows are, which must be complete; recorded in the
        same transaction, unless a row cannot be stored. Default: none.
    :param on_unstorable: receives rows that cannot be stored, up to 1,000; the others are loaded, and no row is deleted
        or marked as gone, since a rejected row may exist in the table. Default: the first such row fails the load.
    :param lock_timeout: seconds to wait for a lock in Postgres, MySQL and MariaDB; in SQLite and DuckDB it is a minute.
        Default: 600.
    :param task_run: the try of a task that loads, for the columns that say so. Default: none.
    :raises UnconfirmedError: when ``removal`` does not allow that many rows to be removed.
    :raises WarehouseError: naming table and connection, and row or column if known; never values.
    """
    request = LoadRequest(
        table,
        name if isinstance(name, TableName) else TableName.parse(name),
        Source(rows, on_unstorable),
        replace_where,
        covers if covers and covers.parts else None,
        mark_gone,
        removal=removal,
        expire_before=expire_before,
        lock_timeout=lock_timeout,
        clock=Clock(now) if now else None,
        history=history,
        task_run=task_run or TaskRun(),
    )
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
