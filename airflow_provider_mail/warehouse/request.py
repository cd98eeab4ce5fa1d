"""One load as data: what is loaded into which table under which conditions, what it is complete for, and its result.

A row has the time at which its content was first observed (``observed_at``). That a later load found it unchanged is
recorded once for a whole part of the table (`Coverage`), in ``mail_loads`` in the same schema: a day of statistics, a
list of contacts. Together, they tell a late load of old data from new data.

A `History` records from when to when each row was in a part: from the first complete reading that has it until the
first later one that does not. The times of all readings are kept, so a reading that is loaded after a later one changes
the history as if it had been loaded first.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from airflow_provider_mail.warehouse.errors import UnconfirmedError
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import (
    BIGINT,
    DATE,
    INTEGER,
    LOAD_COLUMNS,
    TEAM,
    TIMESTAMP,
    Column,
    Table,
    TableName,
    TaskRun,
    text,
)

_MAX_PART_CHARACTERS = 250

LOADS = Table(
    comment="When each part of the tables beside this one was last read whole from the mail service",
    key=("table_name", "mail_conn_id", "team_name", "part"),
    columns=(
        Column("table_name", text(64), "Name of the table as the database spells it, without its schema"),
        Column("mail_conn_id", text(250), "Airflow connection of the account that was read"),
        TEAM,
        Column("part", text(_MAX_PART_CHARACTERS), "What of the table: a day (YYYY-MM-DD), or a list"),
        Column("observed_at", TIMESTAMP, "When it was last read", observed=True),
    ),
    load_columns=(
        *LOAD_COLUMNS,
        Column("dag_id", text(250), "DAG of the task that read it; null outside of a task", nullable=True),
        Column("task_id", text(250), "That task", nullable=True),
        Column("map_index", INTEGER, "Index of a mapped task, otherwise -1", nullable=True),
        Column("try_number", INTEGER, "Number of the task's try, from 1", nullable=True),
        Column("load_rows", BIGINT, "Rows of the whole load, which may have read other parts too", nullable=True),
    ),
)
LOADS_NAME = "mail_loads"


Where = Mapping[str, Any]


@dataclass(frozen=True)
class Between:
    """Values from ``low`` to ``high``, both inclusive."""

    low: Any
    high: Any


@dataclass(frozen=True)
class OneOf:
    values: Sequence[Any]


@dataclass(frozen=True)
class Coverage:
    """The parts of a table for which a load has every row of the service, as of one time.

    The load may also have rows outside of all parts.

    :param observed_at: the time at which reading began, with a zone; the rows have the same.
    :param parts: the rows of each part, as conditions (by column, a value or `Between`), by its name in ``mail_loads``.
    :param whole: the condition for the rows of all parts.
    """

    mail_conn_id: str
    observed_at: datetime.datetime
    parts: Mapping[str, Mapping[str, Any]]
    whole: Mapping[str, Any]
    team_name: str = ""

    def __bool__(self) -> bool:
        return bool(self.parts)

    @classmethod
    def days(
        cls,
        column: Column,
        first: datetime.date,
        last: datetime.date,
        *,
        mail_conn_id: str,
        team_name: str,
        observed_at: datetime.datetime,
        only: Collection[datetime.date] | None = None,
    ) -> Coverage:
        """Cover days in UTC of one account; none when ``last`` lies before ``first``.

        :param column: the date or timestamp that decides to which day a row belongs.
        :param only: the days that are covered; the load has no rows of the others. Default: all.
        """
        account = {"mail_conn_id": mail_conn_id, "team_name": team_name}
        count = (last - first).days + 1
        days = (first + datetime.timedelta(days=number) for number in range(count))
        parts = {
            day.isoformat(): {**account, column.name: _span(column, day, day)}
            for day in days
            if only is None or day in only
        }
        return cls(mail_conn_id, observed_at, parts, {**account, column.name: _span(column, first, last)}, team_name)

    @classmethod
    def one(
        cls,
        part: str,
        where: Mapping[str, Any],
        *,
        mail_conn_id: str,
        team_name: str = "",
        observed_at: datetime.datetime,
    ) -> Coverage:
        """Cover one part.

        :param part: its name; a long one is cut and gets a digest.
        :param where: the values that its rows have, by column.
        """
        if len(part) > _MAX_PART_CHARACTERS:
            digest = hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()[:16]
            part = f"{part[: _MAX_PART_CHARACTERS - 17]} {digest}"
        return cls(mail_conn_id, observed_at, {part: where}, where, team_name)

    def windows(self, parts: Iterable[str]) -> list[Where]:
        """Return the conditions for the rows of some parts: one for all days that follow each other."""
        windows: list[Where] = []
        for where in map(self.parts.__getitem__, sorted(parts)):
            if windows and (joined := _joined(windows[-1], where)):
                windows[-1] = joined
            else:
                windows.append(where)
        return windows

    def rows(self, name: TableName) -> Iterator[tuple[Any, ...]]:
        for part in self.parts:
            yield table_name(name), self.mail_conn_id, self.team_name, part, self.observed_at


@dataclass(frozen=True)
class MarkGone:
    """Rows that the service does not have any more: those in a window that a load does not have.

    :param observed_at: the time at which reading began, with a zone; only rows that were observed earlier can be gone.
    :param windows: called when all rows have been read; returns the windows for which they are complete, as conditions
        (by column, a value, ``None`` or `Between`). Without a window, no row is marked.
    :param exists: returns those of these values of the key's last column that the service still has, outside of the
        windows: their rows are not marked. Default: the windows are all that it has.
    """

    observed_at: datetime.datetime
    windows: Callable[[], Sequence[Mapping[str, Any]]]
    exists: Callable[[Sequence[str]], Collection[str]] | None = None


def table_name(name: TableName) -> str:
    """Return the name of a table as ``mail_loads`` has it, without its schema."""
    last = name.parts[-1]
    return last.text if last.quoted else last.text.lower()


def _span(column: Column, first: datetime.date, last: datetime.date) -> Between:
    if column.type == DATE:
        return Between(first, last)
    return Between(
        datetime.datetime.combine(first, datetime.time.min, datetime.UTC),
        datetime.datetime.combine(last, datetime.time.max, datetime.UTC),
    )


def _joined(first: Where, second: Where) -> Where | None:
    """The condition for the rows of two days, if the second one follows the first one."""
    different = [name for name, values in second.items() if values != first[name]]
    if len(different) != 1:
        return None
    (name,) = different
    earlier, later = first[name], second[name]
    if not isinstance(earlier, Between) or not isinstance(later, Between):
        return None
    step = {"microseconds": 1} if isinstance(later.low, datetime.datetime) else {"days": 1}
    is_next = earlier.high + datetime.timedelta(**step) == later.low
    return {**first, name: Between(earlier.low, later.high)} if is_next else None


VALID_FROM, VALID_TO = "valid_from", "valid_to"
READ_AT, ROWS, LIST_ID = "read_at", "contacts", "list_id"


@dataclass(frozen=True)
class History:
    """The history of a list that one load reads, which must be complete.

    :param intervals: the declared table of the times at which each row was in a list: ``valid_from`` to ``valid_to``.
    :param where: the rows of the list in the loaded table, as values by column.
    :param list_id: what tells the list from all others, whatever its name; ``None``: there is no list of this name.
    :param ended: the lists that had this name when they were last read, and that the service does not have any more.
    """

    intervals: Table
    readings: Table
    name: TableName
    readings_name: TableName
    where: Mapping[str, Any]
    observed_at: datetime.datetime
    list_id: str | None
    ended: tuple[str, ...] = ()


MAX_REMOVED_FRACTION = 0.1
"""The largest fraction of the rows that one load removes by default."""

MIN_ROWS_TO_COMPARE = 10
"""Below this number of rows, a fraction is not meaningful; only an empty result is checked."""


@dataclass(frozen=True)
class LoadResult:
    """What a load did to the table. ``None``: it was not asked to.

    :param rows: given by the caller. Of several rows with one key, only the last counts in the other numbers.
    :param inserted: their keys were new.
    :param unchanged: existed with the same content, apart from the time of observation.
    :param outdated: were skipped because the table has a row that was observed later.
    :param deleted: existing rows of ``replace_where`` that were not given.
    :param gone: existing rows of ``mark_gone`` that were not given and not marked before.
    :param inserted_by: the inserted rows by their value of `Table.counted_by`.
    :param joined: rows of ``history`` that the reading before this one does not have; ``None`` without a new reading.
    :param left: rows of the reading before this one that this one does not have.
    :param existing: keys of given rows that the table had before, if its rows are never updated.
    """

    rows: int
    inserted: int = 0
    changed: int = 0
    unchanged: int = 0
    outdated: int = 0
    deleted: int | None = None
    gone: int | None = None
    inserted_by: Mapping[Any, int] = field(default_factory=dict)
    joined: int | None = None
    left: int | None = None
    existing: Collection[tuple[Any, ...]] = field(default=(), compare=False, repr=False)

    @property
    def removed(self) -> int:
        return (self.deleted or 0) + (self.gone or 0) + (self.left or 0)


@dataclass(frozen=True, kw_only=True)
class RemovalRule:
    """Which rows a load may remove: delete, mark as gone, or end in a history. All loads follow this rule.

    A single response never removes a row: a load that would remove some reads a second time, and removes only what both
    readings lack. If that is all rows, or too many of them, it needs a permission.

    :param max_fraction: the largest part of the rows, from 0 to 1, by which their number may shrink; not applied below
        ten rows.
    :param read_again: reads a second time; yields the rows that the first reading lacks. Default: the rows are those of
        two readings already.
    :param look_up: asks another operation of the service for a sample of rows that both readings lack, each with its
        values of `look_up_by`; raises an error if it still has one. Default: nothing is asked.
    """

    allow_empty: bool
    max_fraction: float
    read_again: Callable[[], Iterable[Sequence[Any]]] | None = None
    look_up: Callable[[Sequence[tuple[Any, ...]]], None] | None = None
    look_up_by: tuple[str, ...] = ()

    def check(self, before: int, after: int, prefix: str, unit: str = "rows", *, is_looked_up: bool = False) -> None:
        """Compare the number of rows before and after a load, of which both readings lack the difference.

        :param is_looked_up: the service was asked for each removed row by its name. Then the only one may be removed.
        :raises UnconfirmedError: when too many would be removed; the message names the permission.
        """
        if after:
            permission = "max_removed_fraction"
            is_exceeded = before >= MIN_ROWS_TO_COMPARE and (before - after) / before > self.max_fraction
        else:
            permission = "allow_empty=True"
            is_exceeded = before > (1 if is_looked_up else 0) and not self.allow_empty
        if is_exceeded:
            raise UnconfirmedError(
                f"{prefix}{before} {unit} would become {after}. Nothing was removed; {permission} allows it: set it "
                "for one run if the service's data is right",
                before=before,
                after=after,
            )

    def check_sent(self, fallen: int, prefix: str) -> None:
        """Check that no number of sent mails falls to zero: sent mails remain sent."""
        if fallen and not self.allow_empty:
            raise UnconfirmedError(
                f"{prefix}the numbers of sent mails of {fallen} records would fall to zero. Nothing was stored; "
                "allow_empty=True allows it: set it for one run if the service's data is right",
                before=fallen,
                after=0,
            )


LOCK_TIMEOUT = 600.0
"""How many seconds a load waits for a lock by default."""

FUTURE_TOLERANCE = datetime.timedelta(minutes=5)
"""How far a time of observation may lie in the future: the clocks of a service's machines differ."""


@dataclass(frozen=True)
class Clock:
    start: datetime.datetime
    # The function at that time, not at import: tests replace it with a clock that they move.
    _start_seconds: float = field(default_factory=lambda: time.monotonic())

    def latest(self) -> datetime.datetime:
        return self.start + FUTURE_TOLERANCE + datetime.timedelta(seconds=time.monotonic() - self._start_seconds)


@dataclass(frozen=True)
class LoadRequest:
    """One load.

    :param source: the rows, in the order of the table's columns. Those that cannot be stored, up to 1,000, are given to
        its ``on_unstorable``: then the others are loaded, and no row is deleted or marked as gone, since a rejected row
        may exist in the table. Exceptions of its iterator are raised unchanged.
    :param replace_where: the window that these rows replace, as conditions (by column, a value or `Between`): other
        rows in it are deleted in the same transaction. Default: no row is deleted.
    :param covers: parts of the table for which these rows are complete. They are recorded in ``mail_loads`` in the same
        schema, and their unchanged rows are not written again. Default: unchanged rows get a new time of observation.
    :param mark_gone: windows for which these rows are complete: other rows in them are marked as gone. Default: no row
        is marked. The mark of a loaded row is always cleared.
    :param removal: which rows may be deleted, marked as gone or ended in the history. Default: any that this load
        lacks.
    :param expire_before: rows that any load observed earlier are deleted in the same transaction. Default: none.
    :param lock_timeout: seconds to wait for a lock in Postgres, MySQL and MariaDB; in SQLite and DuckDB it is a minute.
    :param clock: the latest clock that ``observed_at`` may come from. The load fails when rows of the table that it
        compares with, or readings of ``history``, were observed more than five minutes later. Default: not checked.
    :param history: the history of the part of the table that these rows are, which must be complete; recorded in the
        same transaction, unless a row cannot be stored. Default: none.
    :param recorded: the rows of the load that this one records. Default: ``source``.
    :param resolved: the table's name with its schema, both as the database spells them. Default: not known.
    """

    table: Table
    name: TableName
    source: Source
    _: KW_ONLY
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
        rows = Source(self.covers.rows(self.resolved or self.name))
        return replace(self.beside(LOADS, TableName.parse(LOADS_NAME), rows), recorded=self.source)

    def beside(self, table: Table, name: TableName, source: Source) -> LoadRequest:
        """The load of another table in the same transaction.

        :param name: its name; without a schema, it is in that of this table.
        """
        return LoadRequest(
            table,
            (self.resolved or self.name).beside(name),
            source,
            lock_timeout=self.lock_timeout,
            clock=self.clock,
            task_run=self.task_run,
        )

    def load_values(self, loaded_at: datetime.datetime) -> tuple[Any, ...]:
        return self.task_run.values(self.table, loaded_at, (self.recorded or self.source).read)
