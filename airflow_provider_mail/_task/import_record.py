"""The counts of an import, as a row of a table that ``[mail] imports_conn_id`` of Airflow's configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow_provider_mail._config import setting

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.rejects import RejectSpool
    from airflow_provider_mail.api.flows.import_plan import Progress

MOST_REASONS = 50

State: TypeAlias = Literal["success", "failed", "skipped"]


@contextmanager
def import_record(
    task: Any, context: Context, import_id: str, progress: Progress, spool: RejectSpool, *, sandbox: bool
) -> Iterator[None]:
    """Store the counts of an import when it ends, in place of those of an earlier try.

    :param import_id: identifies the task instance, the same in every try.
    :param spool: the rejected rows, of which only the reasons are stored.
    :param sandbox: whether the service only checks the rows.
    """
    from airflow_provider_mail.version_compat import AirflowSkipException

    state: State = "failed"
    try:
        yield
        state = "success"
    except AirflowSkipException:
        state = "skipped"
        raise
    finally:
        if conn_id := setting("imports_conn_id"):
            values = {
                "import_id": import_id,
                "mail_conn_id": task.mail_conn_id,
                "list_name": task.list_name or None,
                "state": state,
                "rows_read": progress.read,
                "rows_accepted": progress.accepted,
                "rows_accepted_earlier": progress.accepted_earlier,
                "rows_rejected": progress.rejected,
                "reasons": [
                    {"field": field, "reason": reason, "rows": rows}
                    for field, reason, rows in spool.reasons(MOST_REASONS)
                ],
                "requests": progress.requests,
                "remarks": progress.remarks,
                "sandbox": sandbox,
                "try_number": context["ti"].try_number,
                "seconds": progress.seconds,
            }
            _store(task, conn_id, values)


def _store(task: Any, conn_id: str, values: dict[str, Any]) -> None:
    """Store the row. An error is only logged: the task's work is done, and must not be done again."""
    from airflow_provider_mail.warehouse.connection import configured_hook
    from airflow_provider_mail.warehouse.load import database_time, load
    from airflow_provider_mail.warehouse.tables.imports import IMPORTS

    table = setting("imports_table")
    try:
        hook = configured_hook("imports_conn_id", conn_id)
        # The database's clock, so that the row of a later try is never taken for the older one.
        values["finished_at"] = database_time(hook) or datetime.now(UTC)
        load(hook, IMPORTS, table, [tuple(values[name] for name in IMPORTS.names)])
    except Exception:
        task.log.exception("The counts of the import could not be stored in %s of connection %r", table, conn_id)
