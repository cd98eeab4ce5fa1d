"""The progress of a contact import: in the log, in the task's state, and in the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_mail._metrics import ROWS_ACCEPTED, ROWS_READ, ROWS_REJECTED, emit, task_tags
from airflow_provider_mail._task.progress import ProgressLog

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.flows.import_contacts import Progress


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
