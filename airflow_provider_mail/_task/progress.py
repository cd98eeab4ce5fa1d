"""The progress of a long import or load: in its log, its metrics and the task state store; the counts of an import."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_mail._config import setting
from airflow_provider_mail._metrics import ROWS_ACCEPTED, ROWS_READ, ROWS_REJECTED, emit, task_tags

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.rejects import RejectSpool
    from airflow_provider_mail.api.flows.import_contacts import Progress

LOG_INTERVAL = 10.0
"""Seconds between two lines of the log."""

STORE_INTERVAL, STORE_SHARE = 30.0, 20
"""Seconds between two writes to the task state store; a slow store takes at most a twentieth of the time."""

STATE_KEY = "mail_progress"
STATE_RETENTION = timedelta(days=1)

MAX_REASONS = 50
"""Reasons of rejections that are stored with the counts of an import."""


class TaskProgress(NamedTuple):
    """The progress of a task.

    :param earlier: rows processed in earlier tries: they are only read, so the rate does not include them.
    :param rejected: rows among ``done`` that were rejected; ``None`` where rows are not checked.
    """

    done: int
    seconds: float
    total: int | None = None
    earlier: int = 0
    rejected: int | None = None
    beside: str = ""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return (self.done - self.earlier) / self.seconds if self.seconds else 0.0

    @property
    def share(self) -> float | None:
        """The part that is done, from 0 to 1, if the total is known."""
        return min(self.done / self.total, 1.0) if self.total else None

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest takes at this rate, if the total is known."""
        return max(self.total - self.done, 0) / self.rate if self.total and self.rate > 0 else None

    def line(self, things: str) -> str:
        """Format the progress for the log."""
        parts = [*filter(None, [self.beside]), f"{self.done:,} {things} done"]
        if self.earlier:
            parts.append(f"{self.earlier:,} of them in earlier tries")
        if self.rejected is not None:
            parts.append(f"{self.rejected:,} of them rejected")
        parts.append(f"{self.rate:,.0f} {things}/s")
        if self.total and self.seconds_left is not None:
            parts += [f"{self.share:.0%} of {self.total:,}", f"about {self.seconds_left:,.0f} s left"]
        return ", ".join(parts)

    def record(self) -> dict[str, Any]:
        """The progress as plain JSON, without what is not known."""
        share, left = self.share, self.seconds_left
        values = {
            "done": self.done,
            "rejected": self.rejected,
            "per_second": round(self.rate, 1),
            "total": self.total,
            "share": None if share is None else round(share, 3),
            "seconds_left": None if left is None else round(left),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return {name: value for name, value in values.items() if value is not None}


class ProgressLog:
    """Logs rows, rate, share and time left every ten seconds, and stores them every thirty.

    A task that takes less time has no line and no record.
    """

    def __init__(self, log: Any, context: Context, things: str = "rows") -> None:
        self._total: int | None = None
        self._log = log
        self._things = things
        self._store: Any = context.get("task_state_store")
        self._started = time.monotonic()
        self._next_line = self._started + LOG_INTERVAL
        self._next_write = self._started + STORE_INTERVAL
        # An earlier try may have been killed, and have left its record.
        self._written = self._store is not None and context["ti"].try_number > 1

    def expect(self, total: int | None) -> None:
        """Set the number of rows."""
        self._total = total

    def update(self, done: int, *, earlier: int = 0, rejected: int | None = None, beside: str = "") -> bool:
        """Log and store the progress, if that is due; return whether it was logged."""
        now = time.monotonic()
        if now < self._next_line:
            return False
        self._next_line = now + LOG_INTERVAL
        progress = TaskProgress(done, now - self._started, self._total, earlier, rejected, beside)
        self._log.info("%s", progress.line(self._things))
        if self._store is not None and now >= self._next_write:
            self._write(progress)
        return True

    def close(self) -> None:
        """Delete the record, which is outdated once the task ends."""
        if self._written:
            self._written = False
            self._attempt(lambda: self._store.delete(STATE_KEY))

    def _write(self, progress: TaskProgress) -> None:
        started = time.monotonic()
        self._written = True
        self._attempt(lambda: self._store.set(STATE_KEY, progress.record(), retention=STATE_RETENTION))
        now = time.monotonic()
        self._next_write = now + max(STORE_INTERVAL, STORE_SHARE * (now - started))

    def _attempt(self, call: Any) -> None:
        try:
            call()
        except Exception as error:
            # The stored progress is only informational.
            self._log.debug("The progress could not be stored: %s", error)


class ImportProgress:
    """Called with the counts of an import after each chunk; shows and counts them every ten seconds."""

    def __init__(self, task: Any, context: Context, total: int | None) -> None:
        self._log = ProgressLog(task.log, context)
        self._log.expect(total)
        self._tags = task_tags(task)
        self._counted = dict.fromkeys((ROWS_READ, ROWS_ACCEPTED, ROWS_REJECTED), 0)

    def __call__(self, progress: Progress) -> None:
        """Log, store and count the progress, if that is due."""
        done = progress.accepted + progress.rejected
        if self._log.update(done, earlier=progress.accepted_earlier, rejected=progress.rejected):
            self._count(progress)

    def close(self, progress: Progress) -> None:
        """Count what has not been counted yet."""
        self._count(progress)
        self._log.close()

    def _count(self, progress: Progress) -> None:
        counts = {
            ROWS_READ: progress.read,
            # A row that an earlier try got accepted was counted then.
            ROWS_ACCEPTED: progress.accepted - progress.accepted_earlier,
            ROWS_REJECTED: progress.rejected,
        }
        emit({metric: count - self._counted[metric] for metric, count in counts.items()}, self._tags)
        self._counted = counts


def import_counts(progress: Progress) -> dict[str, int]:
    """Return the counts of an import, as its task returns them."""
    return {name: count for name, count in asdict(progress).items() if name != "seconds"}


@contextmanager
def import_record(
    task: Any, context: Context, import_id: str, progress: Progress, spool: RejectSpool, *, sandbox: bool
) -> Iterator[None]:
    """Store the counts of an import when it ends, in place of those of an earlier try, if ``imports_conn_id`` is set.

    :param import_id: identifies the task instance, the same in every try.
    :param spool: the rejected rows, of which only the reasons are stored.
    :param sandbox: whether the service only checks the rows.
    """
    from airflow_provider_mail.version_compat import AirflowSkipException

    state = "failed"
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
                "reasons": [
                    {"field": field, "reason": reason, "rows": rows}
                    for field, reason, rows in spool.reasons(MAX_REASONS)
                ],
                "sandbox": sandbox,
                "try_number": context["ti"].try_number,
            }
            _store_record(task, conn_id, values, progress)


def _store_record(task: Any, conn_id: str, values: dict[str, Any], progress: Progress) -> None:
    """Store the row. An error is only logged: the task's work is done, and must not be done again."""
    from airflow_provider_mail.warehouse.connection import configured_hook
    from airflow_provider_mail.warehouse.load import database_time, load
    from airflow_provider_mail.warehouse.tables.imports import IMPORTS

    table = setting("imports_table")
    try:
        hook = configured_hook("imports_conn_id", conn_id)
        # Columns are named as the counts that they have, those of rows with a prefix.
        counts = asdict(progress)
        values |= {name: counts[count] for name in IMPORTS.names if (count := name.removeprefix("rows_")) in counts}
        # The database's clock, so that the row of a later try is never taken for the older one.
        values["finished_at"] = database_time(hook) or datetime.now(UTC)
        load(hook, IMPORTS, table, [tuple(values[name] for name in IMPORTS.names)])
    except Exception:
        task.log.exception("The counts of the import could not be stored in %s of connection %r", table, conn_id)
