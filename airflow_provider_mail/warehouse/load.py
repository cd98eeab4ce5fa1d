"""Loading rows into a table of the user's database: all of them or none, and twice the same as once."""

from __future__ import annotations

import datetime
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.coverage import Between, Coverage, MarkGone
from airflow_provider_mail.warehouse.dialects.base import (
    Dialect,
    FallLimit,
    LoadRequest,
    LoadResult,
    connected,
    database,
)
from airflow_provider_mail.warehouse.dialects.duckdb import DuckDb
from airflow_provider_mail.warehouse.dialects.mysql import MySql
from airflow_provider_mail.warehouse.dialects.portable import NOT_ENFORCING, Portable
from airflow_provider_mail.warehouse.dialects.postgres import Postgres
from airflow_provider_mail.warehouse.dialects.sqlite import Sqlite
from airflow_provider_mail.warehouse.errors import UnstorableError, WarehouseError
from airflow_provider_mail.warehouse.rows import OnUnstorable, Source
from airflow_provider_mail.warehouse.table import Table, TableName

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

__all__ = [
    "DIALECTS",
    "Between",
    "Coverage",
    "FallLimit",
    "LoadResult",
    "MarkGone",
    "check_database",
    "database_time",
    "load",
]

_log = logging.getLogger(__name__)

FUTURE_TOLERANCE = datetime.timedelta(minutes=5)
"""So much later than now may a row say that it was observed: clocks of a service's machines differ."""

DIALECTS: Mapping[str, type[Dialect]] = {
    "sqlite": Sqlite,
    "postgresql": Postgres,
    "postgres": Postgres,
    "duckdb": DuckDb,
    "mysql": MySql,
    "mariadb": MySql,
}
"""Databases with a way of their own; the others are loaded as `Portable` does it."""


def load(
    hook: DbApiHook,
    table: Table,
    name: str,
    rows: Iterable[Sequence[Any]],
    *,
    replace_where: Mapping[str, Any] | None = None,
    covers: Coverage | None = None,
    mark_gone: MarkGone | None = None,
    fall_limit: FallLimit | None = None,
    expire_before: datetime.datetime | None = None,
    now: datetime.datetime | None = None,
    on_unstorable: OnUnstorable | None = None,
) -> LoadResult:
    """Insert rows or update those that have their keys, in one transaction on one connection.

    The table is created when missing and gets the declared columns that it lacks; nothing is ever narrowed or dropped.
    Of rows with the same key the last one wins. A row never replaces one that was observed later. When anything fails,
    the table is what it was. Memory does not grow with the number of rows.

    :param name: of the table, perhaps with its schema.
    :param rows: tuples in the order of the table's columns. What their iterator raises is raised unchanged.
    :param replace_where: the window that these rows replace, by column a value or `Between`: rows in it that are not
        given again are deleted in the same transaction.
    :param covers: parts of the table that these rows are the whole of. It is noted in `mail_loads` beside the table,
        and rows of theirs that did not change are not written again; without it they get a new time of observation.
    :param mark_gone: windows that these rows are the whole of: other rows in them are marked as gone. Default: no row
        is marked. A row that is given and was marked is cleared in any case.
    :param fall_limit: how far the number of rows in `replace_where` may fall.
    :param expire_before: rows that were observed earlier, of whatever load, are deleted in the same transaction.
        Default: none are.
    :param now: the time now, with a zone, by the clock that tells when rows are observed. The load fails when rows that
        it is about were observed later than that, by more than five minutes. Default: that is not checked.
    :param on_unstorable: takes rows that cannot be stored, up to 1,000; the others are loaded, and nothing is deleted
        or marked as gone, since what is rejected may be in the table. Default: the first one fails the load.
    :raises FallError: when it would fall further.
    :raises WarehouseError: naming table and connection, and row or column where it is known. No values.
    """
    if replace_where is not None and not replace_where:
        raise ValueError("`replace_where` without a condition would replace the whole table")
    if covers and not table.observed:
        raise ValueError("`covers` needs a table with a time of observation")
    if mark_gone and not table.gone:
        raise ValueError("`mark_gone` needs a table that says which rows are gone")
    if expire_before and not table.observed:
        raise ValueError("`expire_before` needs a table with a time of observation")
    covers = covers if covers and covers.parts else None
    not_after = _not_after(now) if now else None
    job = LoadRequest(
        table,
        TableName.parse(name),
        Source(rows, on_unstorable),
        replace_where,
        covers,
        mark_gone,
        fall_limit=fall_limit,
        expire_before=expire_before,
        not_after=not_after,
    )
    check_database(hook)
    kind = database(hook)
    if kind not in DIALECTS:
        _log.info("Database %s has no way of its own: %s is loaded by deleting the keys and inserting", kind, job.name)
    dialect = DIALECTS.get(kind, Portable)(hook, job)
    dialect.check_conditions()
    try:
        with _rare_collections(), connected(hook) as connection:
            return dialect.load(connection)
    except WarehouseError:
        raise
    except Exception as error:
        failure = dialect.error(f"{dialect.words(error)} ({job.source.read} rows read)").with_traceback(
            error.__traceback__
        )
    # Outside of `except`, so that the driver's exception, full of values, does not hang on to it.
    if isinstance(job.source.error, UnstorableError):
        job.source.error.args = (str(dialect.error(str(job.source.error))),)
    raise job.source.error or failure


def check_database(hook: DbApiHook) -> None:
    """Refuse a database in which two loads at once would double rows.

    :raises WarehouseError: naming the connection and what to do instead.
    """
    refused = NOT_ENFORCING.intersection((database(hook), str(hook.conn_type).lower()))
    if refused and database(hook) not in DIALECTS:
        raise WarehouseError(
            f"connection {hook.get_conn_id()!r}: {min(refused)} does not enforce primary keys or has no transactions, "
            "so two loads at once would double rows. Load into Postgres, SQLite, DuckDB, MySQL or MariaDB, or write "
            "files with MailStatsToObjectStorageOperator and merge them; see docs/warehouse.md for the tested databases"
        )


def database_time(hook: DbApiHook) -> datetime.datetime | None:
    """The time by the database's clock; ``None`` where we do not know how to ask for it.

    :raises WarehouseError: when there is no connection to be had.
    """
    dialect = DIALECTS.get(database(hook))
    if dialect is None or dialect.unix_time is None:
        return None
    with connected(hook) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT {dialect.unix_time}")
        return datetime.datetime.fromtimestamp(float(cursor.fetchone()[0]), datetime.UTC)


def _not_after(now: datetime.datetime) -> Callable[[], datetime.datetime]:
    start = time.monotonic()
    return lambda: now + FUTURE_TOLERANCE + datetime.timedelta(seconds=time.monotonic() - start)


_GC_THRESHOLD = 10_000
_gc_lock = threading.Lock()
_gc_loads = 0
_gc_before = 0


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector run less often while loads are under way.

    The many small objects of a load set off hundreds of collections, and those that go through all of Airflow's objects
    take a third of the processor's time. With this threshold a page of records is gone before the collector looks at
    it; garbage in cycles is still found. The threshold belongs to the whole process: the first load raises it, the last
    one puts it back, and one that somebody else has set meanwhile is left as it is.
    """
    global _gc_loads, _gc_before
    with _gc_lock:
        _gc_loads += 1
        if _gc_loads == 1:
            _gc_before = gc.get_threshold()[0]
            if 0 < _gc_before < _GC_THRESHOLD:  # 0: the collector is off
                gc.set_threshold(_GC_THRESHOLD)
    try:
        yield
    finally:
        with _gc_lock:
            _gc_loads -= 1
            if _gc_loads == 0 and gc.get_threshold()[0] == _GC_THRESHOLD:
                gc.set_threshold(_gc_before)
