"""One load as data: what is loaded into which table under which conditions, and its result."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mail.warehouse.coverage import LOADS, Coverage, MarkGone, loads_beside
from airflow_provider_mail.warehouse.errors import UnconfirmedError
from airflow_provider_mail.warehouse.history import History
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import Table, TableName
from airflow_provider_mail.warehouse.task_run import TaskRun

Where = Mapping[str, Any]

MIN_ROWS_TO_COMPARE = 10
"""Below this number of rows, a fraction is not meaningful; only an empty result is checked."""


@dataclass(frozen=True)
class LoadResult:
    """What a load did to the table. ``None``: the database has no cheap way to count.

    :param rows: given by the caller. Of several rows with one key, only the last counts in the other numbers.
    :param inserted: their keys were new.
    :param changed: replaced a row with different content.
    :param unchanged: existed with the same content, apart from the time of observation.
    :param outdated: were skipped because the table has a row that was observed later.
    :param deleted: existing rows of ``replace_where`` that were not given.
    :param gone: existing rows of ``mark_gone`` that were not given and not marked before.
    :param inserted_by: the inserted rows by their value of `Table.counted_by`.
    :param joined: rows of ``history`` that the reading before this one does not have; ``None`` without a new reading.
    :param left: rows of the reading before this one that this one does not have.
    """

    rows: int
    inserted: int | None = None
    changed: int | None = None
    unchanged: int | None = None
    outdated: int | None = None
    deleted: int | None = None
    gone: int | None = None
    inserted_by: Mapping[Any, int] | None = None
    joined: int | None = None
    left: int | None = None

    @property
    def removed(self) -> int:
        """The number of rows that were deleted, marked as gone or ended in the history."""
        return (self.deleted or 0) + (self.gone or 0) + (self.left or 0)


@dataclass(frozen=True, kw_only=True)
class RemovalRule:
    """Which rows a load may remove: delete, mark as gone, or end in a history. All loads follow this rule.

    A single response never removes a row: a load that would remove some reads a second time, and removes only what both
    readings lack. If that is all rows, or too many of them, it needs a permission.

    :param allow_empty: whether a load may leave none of the rows.
    :param max_fraction: the largest part of the rows, from 0 to 1, by which their number may shrink; not applied below
        ten rows.
    :param read_again: reads a second time; yields the rows that the first reading lacks. Default: the rows are those of
        two readings already.
    """

    allow_empty: bool
    max_fraction: float
    read_again: Callable[[], Iterable[Sequence[Any]]] | None = None

    def check(self, before: int, after: int, prefix: str, unit: str = "rows") -> None:
        """Compare the number of rows before and after a load, of which both readings lack the difference.

        :param prefix: beginning of the error's message.
        :param unit: what is counted. Default: rows.
        :raises UnconfirmedError: when too many would be removed; the message names the permission.
        """
        if after:
            permission = "max_removed_fraction"
            is_exceeded = before >= MIN_ROWS_TO_COMPARE and (before - after) / before > self.max_fraction
        else:
            permission = "allow_empty=True"
            is_exceeded = before > 0 and not self.allow_empty
        if is_exceeded:
            raise UnconfirmedError(
                f"{prefix}{before} {unit} would become {after}. Nothing was removed; {permission} allows it: set it "
                "for one run if the service's data is right",
                before=before,
                after=after,
            )


LOCK_TIMEOUT = 600.0
"""How many seconds a load waits for a lock by default."""

FUTURE_TOLERANCE = datetime.timedelta(minutes=5)
"""How far a time of observation may lie in the future: the clocks of a service's machines differ."""


@dataclass(frozen=True)
class Clock:
    """The time during a load.

    :param start: the time at its beginning, with a zone.
    """

    start: datetime.datetime
    _start_seconds: float = field(default_factory=time.monotonic)

    def latest(self) -> datetime.datetime:
        """Return the latest time at which a row can have been observed."""
        return self.start + FUTURE_TOLERANCE + datetime.timedelta(seconds=time.monotonic() - self._start_seconds)


@dataclass(frozen=True)
class LoadRequest:
    """One load.

    :param replace_where: see :func:`airflow_provider_mail.warehouse.load.load`, also for the next four.
    :param covers: what the rows are complete for.
    :param mark_gone: which other rows are marked as gone.
    :param removal: which of these rows may be removed.
    :param expire_before: rows that were observed earlier are deleted.
    :param lock_timeout: seconds to wait for a lock.
    :param clock: tells which rows cannot have been observed yet. Default: not checked.
    :param recorded: the rows of the load that this one records. Default: ``source``.
    :param resolved: the table's name with its schema, both as the database spells them. Default: not known.
    :param connected: opens another connection, to look for what holds a lock. Default: it is not looked for.
    """

    table: Table
    name: TableName
    source: Source
    replace_where: Where | None = None
    covers: Coverage | None = None
    mark_gone: MarkGone | None = None
    removal: RemovalRule | None = None
    expire_before: datetime.datetime | None = None
    lock_timeout: float = LOCK_TIMEOUT
    clock: Clock | None = None
    history: History | None = None
    task_run: TaskRun = field(default_factory=TaskRun)
    recorded: Source | None = None
    resolved: TableName | None = None
    connected: Callable[[], AbstractContextManager[Any]] | None = None

    def __post_init__(self) -> None:
        if self.replace_where is not None and not self.replace_where:
            raise ValueError("`replace_where` without a condition would replace the whole table")
        if (self.covers or self.expire_before) and not self.table.observed:
            argument = "covers" if self.covers else "expire_before"
            raise ValueError(f"`{argument}` needs a table with a time of observation")
        if self.replace_where and self.table.insert_only:
            raise ValueError("`replace_where` needs a table whose rows may be replaced")
        if self.mark_gone and not self.table.gone:
            raise ValueError("`mark_gone` needs a table with a column for rows that are gone")

    @property
    def is_complete(self) -> bool:
        """Whether the rows are everything that ``covers`` names. Valid only after all of them have been read.

        With a rejected row they are not, and an empty result needs a permission.
        """
        is_empty_allowed = self.removal is None or self.removal.allow_empty
        return not self.source.rejected and (self.source.read > 0 or is_empty_allowed)

    @property
    def observed_at(self) -> datetime.datetime | None:
        """When the service was asked, or a later time before the load; ``None`` when that is not known."""
        if asked := self.covers or self.mark_gone or self.history:
            return asked.observed_at
        return self.clock.start if self.clock else None

    def coverage_request(self) -> LoadRequest | None:
        """The load of ``mail_loads`` that records ``covers``."""
        if not self.covers:
            return None
        name = self.resolved or self.name
        rows = Source(self.covers.rows(name))
        return LoadRequest(
            LOADS,
            loads_beside(name),
            rows,
            lock_timeout=self.lock_timeout,
            clock=self.clock,
            task_run=self.task_run,
            recorded=self.source,
        )

    def load_values(self, loaded_at: datetime.datetime) -> tuple[Any, ...]:
        """Return the values of the table's ``load_columns``.

        :param loaded_at: when the rows are written, with a zone.
        """
        return self.task_run.values(self.table, loaded_at, (self.recorded or self.source).read)
