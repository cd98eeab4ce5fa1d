"""Records of the service that a table cannot store: they fail the load, or are rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.arguments import task_instance_name

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.validate_rows import Reject
    from airflow_provider_mail.warehouse.errors import UnstorableError
    from airflow_provider_mail.warehouse.load import LoadResult
    from airflow_provider_mail.warehouse.rows import OnUnstorable
    from airflow_provider_mail.warehouse.table import Table, TableName

MAX_LOAD_ID = 250
"""Length in bytes of ``import_id`` in the table of rejected rows."""


@dataclass
class UnstorableRecords:
    """Handles records that cannot be stored.

    :param hook: the hook of the database; ``None`` for a load that writes files.
    :param reject: whether they are rejected instead of failing the load.
    :param table: the table that stores rejected records, if any.
    :param path: the file that stores rejected records, if any.
    :param keep_days: number of days for which the table keeps them; ``None``: without limit.
    :param lock_timeout: seconds that the load waits for a lock.
    :param consequence: the effect of rejected records on the stored rows, for the log.
    """

    hook: DbApiHook | None
    reject: bool
    table: str | None
    path: str | None
    keep_days: float | None
    lock_timeout: float = 600
    consequence: str = ", so no row is deleted or marked as gone"
    _rejects: list[Reject] = field(default_factory=list)

    def load(self, table: Table, name: str | TableName, rows: Iterable[Sequence[Any]], **options: Any) -> LoadResult:
        """Load rows with :func:`airflow_provider_mail.warehouse.load.load`; collect rejected ones until `keep`.

        :param name: the name of the table in the database, as text or parsed.
        :param rows: in the order of the table's columns.
        :param options: further arguments of :func:`~airflow_provider_mail.warehouse.load.load`.
        """
        from airflow_provider_mail.warehouse.load import load

        assert self.hook
        options = {"lock_timeout": self.lock_timeout, **options}
        return load(self.hook, table, name, rows, on_unstorable=self.begin(), **options)

    def begin(self) -> OnUnstorable | None:
        """Clear the rejects of an earlier load; return the receiver of the next load's; ``None`` fails the load."""
        self._rejects = []
        return self._add if self.reject else None

    def keep(self, context: Context, log: Any) -> dict[str, int]:
        """Store the rejects of the last load, replacing those of an earlier try; return the count for XCom."""
        if not self.reject:
            return {}
        from airflow_provider_mail._task.rejected_rows import RejectSpool, store_rejects

        with RejectSpool() as spool:
            for reject in self._rejects:
                spool.add(reject)
            if self.path:
                spool.write(self.path)
            if self.table and self.hook:
                load_id = task_instance_name(context, MAX_LOAD_ID)
                store_rejects(self.hook, self.table, spool, import_id=load_id, keep_days=self.keep_days)
            if spool.count:
                log.warning(
                    "%s records cannot be stored and were rejected%s: %s",
                    spool.count,
                    self.consequence,
                    spool.summary(),
                )
            return {"rejected": spool.count}

    def _add(self, row: Sequence[Any], error: UnstorableError) -> None:
        from airflow_provider_mail.api.flows.validate_rows import Reject

        self._rejects.append(Reject(row_number=error.row, field=error.column, reason=error.reason, row=list(row)))
