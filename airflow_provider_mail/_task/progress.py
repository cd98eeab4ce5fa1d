"""The progress of a long import or load: in its log and metrics and, on Airflow 3.3, in the task state store."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_mail._metrics import ROWS_ACCEPTED, ROWS_READ, ROWS_REJECTED, emit, task_tags

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.import_plan import Progress

LOG_INTERVAL = 10.0
"""Seconds between two lines of the log."""

STORE_INTERVAL, STORE_SHARE = 30.0, 20
"""Seconds between two writes to the task state store; a slow store takes at most a twentieth of the time."""

STATE_KEY = "mail_progress"
STATE_RETENTION = timedelta(days=1)


class TaskProgress(NamedTuple):
    """The progress of a task.

    :param done: processed rows, including those of earlier tries.
    :param seconds: since its start.
    :param total: the number of rows, if it is known.
    :param earlier: rows processed in earlier tries: they are only read, so the rate does not include them.
    :param rejected: rows among ``done`` that were rejected; ``None`` where rows are not checked.
    :param beside: further counts, as text.
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
        """Format the progress for the log.

        :param things: what is counted, such as ``rows``.
        """
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

    :param things: what is counted. Default: ``rows``.
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
        """Set the number of rows.

        :param total: the number, ``None`` if it is not known.
        """
        self._total = total

    def update(self, done: int, *, earlier: int = 0, rejected: int | None = None, beside: str = "") -> bool:
        """Log and store the progress, if that is due; return whether it was logged.

        :param done: processed rows, including those of earlier tries.
        :param earlier: those of earlier tries. Default: none.
        :param rejected: those that were rejected. Default: rows are not checked.
        :param beside: further counts, as text for the log. Default: none.
        """
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
    """Called with the counts of an import after each chunk; shows and counts them every ten seconds.

    :param total: the number of rows, if it is known.
    """

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
