"""The progress of a long import or load in its log and the task state store, and the row that says how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.version_compat import StateStore, state_store

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

    from airflow_provider_mail.warehouse.table import Table

LOG_INTERVAL = 10.0
"""Seconds between two lines of the log."""

STORE_INTERVAL, STORE_SHARE = 30.0, 20
"""Seconds between two writes to the task state store; a slow store takes at most a twentieth of the time."""

STATE_KEY = "mail_progress"
STATE_RETENTION = timedelta(days=1)


class ProgressLog:
    """Logs rows, rate, share and time left every ten seconds, and stores them every thirty.

    A task that takes less time has no line and no record.
    """

    def __init__(self, log: Any, context: Context, things: str = "rows") -> None:
        self._log = log
        self._things = things
        self._store = state_store(context)
        self._total: int | None = None
        self._started = time.monotonic()
        self._next_line = self._started + LOG_INTERVAL
        self._next_write = self._started + STORE_INTERVAL
        # An earlier try may have been killed, and have left its record.
        self._written = self._store is not None and context["ti"].try_number > 1

    def expect(self, total: int | None) -> None:
        self._total = total

    def update(self, done: int, *, earlier: int = 0, rejected: int | None = None, beside: str = "") -> bool:
        """Log and store the progress, if that is due; return whether it was logged.

        :param earlier: rows processed in earlier tries: they are only read, so the rate does not include them.
        :param rejected: rows among ``done`` that were rejected; ``None`` where rows are not checked.
        """
        now = time.monotonic()
        if now < self._next_line:
            return False
        self._next_line = now + LOG_INTERVAL
        rate = (done - earlier) / (now - self._started)
        share = min(done / self._total, 1.0) if self._total else None
        left = max(self._total - done, 0) / rate if self._total and rate > 0 else None
        parts = [beside, f"{done:,} {self._things} done"]
        parts.append(f"{earlier:,} of them in earlier tries" if earlier else "")
        parts.append("" if rejected is None else f"{rejected:,} of them rejected")
        parts.append(f"{rate:,.0f} {self._things}/s")
        if share is not None and left is not None:
            parts += [f"{share:.0%} of {self._total:,}", f"about {left:,.0f} s left"]
        self._log.info("%s", ", ".join(filter(None, parts)))
        if self._store is not None and now >= self._next_write:
            record = {
                "done": done,
                "rejected": rejected,
                "per_second": round(rate, 1),
                "total": self._total,
                "share": None if share is None else round(share, 3),
                "seconds_left": None if left is None else round(left),
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            record = {name: value for name, value in record.items() if value is not None}
            self._written = True
            self._attempt(lambda store: store.set(STATE_KEY, record, retention=STATE_RETENTION))
            written = time.monotonic()
            self._next_write = written + max(STORE_INTERVAL, STORE_SHARE * (written - now))
        return True

    def close(self) -> None:
        """Delete the record, which is outdated once the task ends."""
        if self._written:
            self._written = False
            self._attempt(lambda store: store.delete(STATE_KEY))

    def _attempt(self, call: Callable[[StateStore], None]) -> None:
        try:
            if self._store is not None:
                call(self._store)
        except Exception as error:
            # The stored progress is only informational.
            self._log.debug("The progress could not be stored: %s", error)


def store_run(
    log: Any,
    connect: Callable[[], DbApiHook],
    table: Table,
    table_name: str,
    values: dict[str, Any],
    before: Callable[[DbApiHook, datetime], object] = lambda hook, now: None,
) -> None:
    """Store the row of a run that has ended, in place of that of an earlier try.

    An error is only logged: the work of the task is done, and must not be done again.

    :param values: those of the row, by column, but ``finished_at``.
    :param before: called with that time, to store what belongs to the row.
    """
    from airflow_provider_mail._task.storage import current_task_run
    from airflow_provider_mail.warehouse.database import LoadRequest, Source, TableName, database_time, load

    try:
        hook = connect()
        # The database's clock, so that the row of a later try is never taken for the older one.
        now = database_time(hook)
        before(hook, now)
        values = values | {"finished_at": now}
        row = tuple(values[name] for name in table.names)
        load(hook, LoadRequest(table, TableName.parse(table_name), Source([row]), task_run=current_task_run()))
    except Exception:
        log.exception("The row of this run could not be stored in table %s", table_name)
