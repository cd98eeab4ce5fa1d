"""The progress of an import in the task's log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.import_plan import Progress

LOG_INTERVAL = 10.0


class ProgressLog:
    """Logs rows, rate, share and time left, at most every ten seconds.

    :param log: the task's logger.
    :param total: the number of rows, if it is known.
    """

    def __init__(self, log: Any, total: int | None) -> None:
        self._log = log
        self._total = total
        self._next = time.monotonic() + LOG_INTERVAL

    def __call__(self, progress: Progress) -> None:
        """Log the progress, if that is due.

        :param progress: the progress after a chunk.
        """
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LOG_INTERVAL
            self._log.info("%s", describe(progress, self._total))


def describe(progress: Progress, total: int | None) -> str:
    """Format the progress as one line.

    :param progress: the progress.
    :param total: the number of rows, if it is known.
    """
    done = progress.accepted + progress.rejected
    # Rows of earlier tries are only read, so they do not count for the rate.
    rate = (done - progress.accepted_earlier) / progress.seconds if progress.seconds else 0.0
    line = f"{done:,} rows done, "
    if progress.accepted_earlier:
        line += f"{progress.accepted_earlier:,} of them in earlier tries, "
    line += f"{progress.rejected:,} of them rejected, {rate:,.0f} rows/s"
    if total and rate:
        left = max(total - done, 0)
        line += f", {min(done / total, 1):.0%} of {total:,}, about {left / rate:,.0f} s left"
    return line
