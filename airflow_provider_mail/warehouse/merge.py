"""Merge files that a warehouse has loaded into a table of staged rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.warehouse.connection import connected
from airflow_provider_mail.warehouse.coverage import MarkGone
from airflow_provider_mail.warehouse.dialects import DIALECTS, database, dialect_of
from airflow_provider_mail.warehouse.dialects.merging import Merging
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.manifest import Manifest
from airflow_provider_mail.warehouse.request import Clock, LoadRequest, LoadResult, RemovalRule
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import TableName
from airflow_provider_mail.warehouse.task_run import TaskRun

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

__all__ = ["create_stage", "merge_stage"]

T = TypeVar("T")


def create_stage(hook: DbApiHook, manifest: Manifest, name: str) -> str:
    """Create the empty table that the warehouse loads the files into; return its name.

    :param name: the table that the rows are merged into.
    :raises WarehouseError: naming table and connection.
    """
    dialect = _dialect(hook, manifest, name)
    _run(hook, dialect, dialect.create_stage)
    return dialect.stage


def merge_stage(
    hook: DbApiHook,
    manifest: Manifest,
    name: str,
    *,
    removal: RemovalRule | None = None,
    exists: Callable[[Sequence[str]], Collection[str]] | None = None,
) -> LoadResult:
    """Merge the staged rows, then remove the table of staged rows; a load that is merged already changes nothing.

    :param name: the table, created if it does not exist.
    :param exists: see :class:`~airflow_provider_mail.warehouse.coverage.MarkGone`. Default: the windows are all that
        the service has.
    :param removal: which rows may be removed. Default: any that the load lacks.
    :raises UnconfirmedError: when too many would be removed.
    :raises WarehouseError: naming table and connection; nothing was merged. Also when the service was asked more than
        five minutes after now, by the clock of this worker: the rows would hide newer ones.
    """
    dialect = _dialect(hook, manifest, name, removal, exists)
    if manifest.observed_at > Clock(datetime.datetime.now(datetime.UTC)).latest():
        raise dialect.error(
            f"check the clocks of the service and of this worker, then write the files again: load {manifest.load_id} "
            f"was read at {manifest.observed_at:%Y-%m-%d %H:%M:%S} (UTC), which lies in the future, so its rows would "
            "hide newer ones"
        )

    def work(cursor: Any) -> LoadResult:
        dialect.prepare(cursor)
        account = {"mail_conn_id": manifest.mail_conn_id}
        return dialect.merge_files(cursor, manifest.rows, manifest.observed_at, account)

    return _run(hook, dialect, work)


def _dialect(
    hook: DbApiHook,
    manifest: Manifest,
    name: str,
    removal: RemovalRule | None = None,
    exists: Callable[[Sequence[str]], Collection[str]] | None = None,
) -> Merging:
    dialect = dialect_of(hook)
    if not issubclass(dialect, Merging):
        warehouses = ", ".join(name for name, path in DIALECTS.items() if path.startswith("warehouses."))
        raise WarehouseError(
            f"connection {hook.get_conn_id()!r}: {database(hook)} is not loaded from files, which is for "
            f"{warehouses}; load it with the operators of airflow_provider_mail.transfers.mail_to_sql"
        )
    table = TableName.parse(name)
    source = Source(())
    source.read, source.rejected = manifest.rows, manifest.rejected  # by the warehouse
    request = LoadRequest(
        manifest.table,
        table,
        source,
        manifest.replace_where,
        manifest.coverage,
        MarkGone(manifest.observed_at, lambda: manifest.mark_gone, exists) if manifest.mark_gone else None,
        removal=removal,
        clock=Clock(max(manifest.observed_at, datetime.datetime.now(datetime.UTC))),
        task_run=TaskRun.current(),
    )
    return dialect(hook, request, manifest.load_id, has_json_text=manifest.file_format == "parquet")


def _run(hook: DbApiHook, dialect: Merging, work: Callable[[Any], T]) -> T:
    try:
        with connected(hook) as connection, closing(dialect.open(connection)) as cursor:
            return work(cursor)
    except WarehouseError:
        raise
    except Exception as error:
        failure = dialect.error(dialect.safe_message(error)).with_traceback(error.__traceback__)
    # Outside of `except`, so that the driver's exception, full of values, is not chained.
    raise dialect.request.source.error or failure
