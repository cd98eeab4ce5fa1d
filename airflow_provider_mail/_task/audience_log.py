"""The log of an audience: a row for each run, and a row for each person that changed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook


def log_run(hook: DbApiHook, table: str, values: dict[str, Any], changes: Iterable[tuple[str, str]], log: Any) -> None:
    """Store the log of one run, in place of that of an earlier try. An error is only logged: the run has ended.

    :param table: the table of runs; that of the changes has the suffix ``_changes``.
    :param values: those of `AUDIENCE_RUNS` but the time, by column.
    :param changes: the digest of each person, and the operation.
    """
    from airflow_provider_mail.warehouse.load import database_time, load
    from airflow_provider_mail.warehouse.tables.columns import derived_name
    from airflow_provider_mail.warehouse.tables.imports import AUDIENCE_CHANGES, AUDIENCE_RUNS

    try:
        now, import_id = database_time(hook) or datetime.now(UTC), values["import_id"]
        rows = ((import_id, person, operation, now) for person, operation in changes)
        load(hook, AUDIENCE_CHANGES, derived_name(table, "_changes"), rows, replace_where={"import_id": import_id})
        values = {**values, "finished_at": now}
        load(hook, AUDIENCE_RUNS, table, [tuple(values[name] for name in AUDIENCE_RUNS.names)])
    except Exception:
        log.exception("The log of the audience could not be stored in %s", table)
