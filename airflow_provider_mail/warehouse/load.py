"""Loading rows into a table of the user's database: all of them or none, and twice the same as once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.dialect import Between, Dialect, Job, LoadResult, connected, database
from airflow_provider_mail.warehouse.errors import WarehouseError, words
from airflow_provider_mail.warehouse.portable import Portable
from airflow_provider_mail.warehouse.postgres import Postgres
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.sqlite import Sqlite
from airflow_provider_mail.warehouse.table import Table, TableName

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

__all__ = ["DIALECTS", "Between", "LoadResult", "load"]

DIALECTS: Mapping[str, type[Dialect]] = {"sqlite": Sqlite, "postgresql": Postgres, "postgres": Postgres}
"""Databases with a way of their own; the others are loaded as `Portable` does it."""


def load(
    hook: DbApiHook,
    table: Table,
    name: str,
    rows: Iterable[Sequence[Any]],
    *,
    replace_where: Mapping[str, Any] | None = None,
) -> LoadResult:
    """Insert rows or update those that have their keys, in one transaction on one connection.

    The table is created when missing and gets the declared columns that it lacks; nothing is ever narrowed or dropped.
    Of rows with the same key the last one wins. A row never replaces one that was observed later. When anything fails,
    the table is what it was. Memory does not grow with the number of rows.

    :param name: of the table, perhaps with its schema.
    :param rows: tuples in the order of the table's columns. What their iterator raises is raised unchanged.
    :param replace_where: the window that these rows replace, by column a value or `Between`: rows in it that are not
        given again are deleted in the same transaction.
    :raises WarehouseError: naming table and connection, and row or column where it is known. No values.
    """
    if replace_where is not None and not replace_where:
        raise ValueError("`replace_where` without a condition would replace the whole table")
    job = Job(table, TableName.parse(name), Source(rows), replace_where)
    dialect = DIALECTS.get(database(hook), Portable)(hook, job)
    dialect.window()  # a wrong condition is known before anything happens
    try:
        with connected(hook) as connection:
            return dialect.load(connection)
    except WarehouseError:
        raise
    except Exception as error:
        failure = dialect.error(f"{words(error)} ({job.source.read} rows read)").with_traceback(error.__traceback__)
    # Outside of `except`, so that the driver's exception, full of values, does not hang on to it.
    raise job.source.error or failure
