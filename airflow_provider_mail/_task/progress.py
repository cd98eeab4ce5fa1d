"""What a long import tells in the task's log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_mail.api.flows.import_contacts import Progress

SECONDS_BETWEEN = 10.0


class ProgressLog:
    """Logs rows, rate, share and time left, not more often than every ten seconds.

    :param log: the task's logger.
    :param total: how many rows there will be, if that is known.
    """

    def __init__(self, log: Any, total: int | None) -> None:
        self._log = log
        self._total = total
        self._next = time.monotonic() + SECONDS_BETWEEN

    def __call__(self, progress: Progress) -> None:
        """Take the state after a chunk."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_BETWEEN
            self._log.info("%s", describe(progress, self._total))


def describe(progress: Progress, total: int | None) -> str:
    """The state in one line."""
    done = progress.accepted + progress.rejected
    # What earlier tries have done is only read, which says nothing about the time that the rest will take.
    rate = (done - progress.accepted_earlier) / progress.seconds if progress.seconds else 0.0
    line = f"{done:,} rows done, "
    if progress.accepted_earlier:
        line += f"{progress.accepted_earlier:,} of them in earlier tries, "
    line += f"{progress.rejected:,} of them set aside, {rate:,.0f} rows/s"
    if total and rate:
        left = max(total - done, 0)
        line += f", {min(done / total, 1):.0%} of {total:,}, about {left / rate:,.0f} s left"
    return line
