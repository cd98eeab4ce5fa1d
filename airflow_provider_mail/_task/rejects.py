"""Rejected rows of an import or a load, kept on disk until they are stored in the table or file that the user chose."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Self

from airflow_provider_mail._task.mixin import task_instance_name
from airflow_provider_mail._task.storage import Spool

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.validate_rows import Reject
    from airflow_provider_mail.warehouse.database import LoadResult
    from airflow_provider_mail.warehouse.errors import UnstorableError
    from airflow_provider_mail.warehouse.rows import OnUnstorable
    from airflow_provider_mail.warehouse.table import Table, TableName

FIRST_ROWS = 10
"""Number of row numbers, or lines of a file, in the summary: enough to find the error in the source."""

MAX_LOAD_ID = 250
"""Length in bytes of ``import_id`` in the table of rejected rows."""


class RejectSpool(Spool["Reject"]):
    """Collects rejected rows.

    They cannot be stored immediately: the source is still being read, and SQLite has either one writer or readers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._first_rows: list[tuple[str, int]] = []
        self._place = "row"
        self.place_of: Callable[[int], tuple[str | None, int]] = lambda number: (None, number)
        """Returns the file of a row, if there are several, and its number there."""
        self.columns: Sequence[str] = ()
        """The names of the values of a row, where it has as many."""

    def add(self, reject: Reject) -> None:
        file, number = self.place_of(reject.row_number)
        reject = replace(reject, row=[_plain(value) for value in reject.row], file=file, row_number=number)
        super().add(reject)
        # The service's message may quote a row, so only the reasons of this package are logged.
        self._reasons[(reject.field, reject.reason) if reject.field else ("", reject.reason.partition(":")[0])] += 1
        # Rejects do not come in the order of the rows: those of the service come later than those of the checks.
        self._place = "row" if reject.line is None else "line"
        self._first_rows = sorted({*self._first_rows, (file or "", reject.place)})[:FIRST_ROWS]

    def reasons(self, limit: int) -> list[tuple[str, str, int]]:
        """Return the most frequent reasons, without values: field, reason and number of rows."""
        return [(field, reason, count) for (field, reason), count in self._reasons.most_common(limit)]

    def summary(self, limit: int = 5) -> str:
        """Summarize the most frequent reasons and the first row numbers, without values."""
        listed = [f"{' '.join(filter(None, reason))} ({count})" for *reason, count in self.reasons(limit)]
        reasons = ", ".join(listed) + (", ..." if len(self._reasons) > limit else "")
        places = (f"{file}:{number}" if file else str(number) for file, number in self._first_rows)
        rows = ", ".join(places) + (", ..." if self.count > len(self._first_rows) else "")
        return f"{reasons}; {self._place}{'s' if self.count > 1 else ''} {rows}" if self.count else ""

    def write(self, path: str) -> None:
        """Write all rows as JSON Lines; an existing file is replaced.

        A local file holds personal data and is readable only by its owner, regardless of the umask.
        """
        from airflow.sdk import ObjectStoragePath

        target = ObjectStoragePath(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _private(target.path) if target.protocol in ("", "file", "local") else target.open("wb") as file:
            for reject in self:
                names = self.columns if len(self.columns) == len(reject.row) else ()
                record = {
                    **({"file": reject.file} if reject.file else {}),
                    "row_number": reject.place,
                    "field": reject.field,
                    "reason": reject.reason,
                    "row": dict(zip(names, reject.row, strict=True)) if names else list(reject.row),
                }
                # A lone surrogate may be the reason for the rejection.
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _private(path: str) -> IO[bytes]:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with suppress(PermissionError):  # The file belongs to another user.
            os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    try:
        text = str(value)
    except ValueError:  # Python does not format integers of thousands of digits, not even within a list.
        return f"a value of type {type(value).__name__} with a number of thousands of digits"
    return value if isinstance(value, int) else text


def store_rejects(
    hook: DbApiHook, table: str, rejects: Iterable[Reject], *, import_id: str, keep_days: float | None
) -> None:
    """Store rejected rows in a table, replacing those of an earlier try of the task.

    :param keep_days: rows of any task that were rejected more than this many days ago are deleted in the same
        transaction. ``None``: no rows are deleted.
    """
    from airflow_provider_mail._task.storage import current_task_run
    from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, load
    from airflow_provider_mail.warehouse.tables.imports import REJECTS, reject_row

    now = datetime.now(UTC)
    request = LoadRequest(
        REJECTS,
        TableName.parse(table),
        Source(reject_row(reject, import_id=import_id, rejected_at=now) for reject in rejects),
        replace_where={"import_id": import_id},
        expire_before=None if keep_days is None else now - timedelta(days=keep_days),
        task_run=current_task_run(),
    )
    load(hook, request)


@dataclass
class UnstorableRecords:
    """Handles records that cannot be stored.

    :param hook: the hook of the database with the table of rejects, if there is one.
    :param rejects: where they are kept; ``None`` to let them fail the load.
    :param target: the hook of the database that is loaded; ``None`` for a load that writes files.
    :param consequence: the effect of rejected records on the stored rows, for the log.
    """

    hook: DbApiHook | None
    rejects: Any
    target: DbApiHook | None
    lock_timeout: float = 600
    consequence: str = ", so no row is deleted or marked as gone"
    _rejects: list[Reject] = field(default_factory=list)

    def load(
        self,
        table: Table,
        name: str | TableName,
        rows: Iterable[Sequence[Any]],
        *,
        now: datetime | None = None,
        **options: Any,
    ) -> LoadResult:
        """Load rows with :func:`airflow_provider_mail.warehouse.database.load`; collect rejected ones until `store`.

        :param now: the present time by the clock of ``observed_at``.
        :param options: further fields of :class:`~airflow_provider_mail.warehouse.request.LoadRequest`.
        """
        from airflow_provider_mail._task.storage import current_task_run
        from airflow_provider_mail.warehouse.database import Clock, LoadRequest, Source, TableName, load

        assert self.target
        options = {"lock_timeout": self.lock_timeout, "task_run": current_task_run(), **options}
        clock = Clock(now) if now else None
        source = Source(rows, self.begin())
        return load(self.target, LoadRequest(table, TableName.parse(name), source, clock=clock, **options))

    def begin(self) -> OnUnstorable | None:
        """Clear the rejects of an earlier load; return the receiver of the next load's; ``None`` fails the load."""
        self._rejects = []
        return None if self.rejects is None else self._add

    def store(self, context: Context, log: Any) -> dict[str, int]:
        """Store the rejects of the last load, replacing those of an earlier try; return the count for XCom."""
        rejects = self.rejects
        if rejects is None:
            return {}
        with RejectSpool() as spool:
            for reject in self._rejects:
                spool.add(reject)
            if rejects.path:
                spool.write(rejects.path)
            if rejects.table and self.hook:
                load_id = task_instance_name(context, MAX_LOAD_ID)
                store_rejects(self.hook, rejects.table, spool, import_id=load_id, keep_days=rejects.keep_days)
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
