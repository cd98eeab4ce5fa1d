"""Loads through a temporary table: rows are staged first, then merged in one short transaction.

Rows often arrive as slowly as a service responds. While they are staged, the user's table is not locked. Then one load
at a time creates or extends the table, and merges what is new. So two loads of the same keys cannot deadlock, the
second one compares with what the first one left, and readers never wait. Where other programs write to the table too,
a transaction may still fail because of theirs; then the staged rows are merged again.
"""

from __future__ import annotations

import datetime
import logging
import re
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.api._core.pagination import SAMPLE
from airflow_provider_mail.warehouse.dialects.base import STAGE, Condition, Dialect
from airflow_provider_mail.warehouse.dialects.history import HistoryMerge
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.request import LoadRequest, LoadResult, OneOf, Where
from airflow_provider_mail.warehouse.rows import Source, batched
from airflow_provider_mail.warehouse.table import Column, literal

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_COVERAGE_STAGE = "airflow_provider_mail_loads"
_MAX_NAMES = 500

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Counts:
    """Numbers of staged rows by outcome; ``refreshed``: unchanged rows that got a new time of observation."""

    staged: int
    inserted: int
    outdated: int
    changed: int
    refreshed: int

    @property
    def written(self) -> int:
        return self.inserted + self.changed + self.refreshed


class Staged(Dialect):
    """How tables are loaded, in a database with temporary tables and an upsert."""

    has_comment_on: ClassVar[bool] = False
    """Whether comments are stored by statements of their own (COMMENT ON)."""

    counts_upserts: ClassVar[bool] = False
    """Whether the driver counts the rows that an upsert has written, each once."""

    def __init__(self, hook: DbApiHook, request: LoadRequest, stage: str = STAGE) -> None:
        super().__init__(hook, request, stage)
        self.coverage: Staged | None = None
        self.history: HistoryMerge | None = None
        self._beside: list[Staged] = []
        self._main: Staged = self
        self._existed = False
        self._waits_since = 0.0
        self._began = 0.0
        self._missing_names: set[str] = set()
        self.is_confirmed = request.removal is None or request.removal.read_again is None

    def _resolve(self, cursor: Any) -> None:
        """Find the table, and the tables beside it in its schema, which its name alone does not determine."""
        name = self._resolved_name(cursor)
        self.request = replace(self.request, resolved=name)
        self.target = self._qualified(name)
        if coverage := self.request.coverage_request():
            self.coverage = self._other(cursor, coverage, _COVERAGE_STAGE)
            self._beside.append(self.coverage)
        if history := self.request.history:
            tables = ((history.intervals, history.name), (history.readings, history.readings_name))
            intervals, readings = (
                self._other(cursor, self.request.beside(table, other_name, Source(()))) for table, other_name in tables
            )
            self.history = HistoryMerge(self, history, intervals, readings)
            self._beside += [intervals, readings]

    def _other(self, cursor: Any, request: LoadRequest, stage: str = STAGE) -> Staged:
        dialect = type(self)(self.hook, request, stage)
        dialect._main = self
        dialect._resolve(cursor)
        return dialect

    def load(self, connection: Any) -> LoadResult:
        self._begin(connection)
        with self._cursor(connection) as cursor:
            self._limit_waits(cursor)
            self._waits_since = time.monotonic()
            self._resolve(cursor)
            staged = [self, self.coverage] if self.coverage else [self]
            for table in (self, *self._beside):
                table._check(cursor)
            connection.rollback()  # the checks must not hold locks while the rows arrive
            self._open_staging(cursor)
            for table in staged:
                table._create_stage(cursor)
                table._stage(cursor)

            def attempt() -> LoadResult:
                self._began = self._began or time.monotonic()
                self._open_merge(cursor)
                self._limit_waits(cursor)
                self._waits_since = time.monotonic()
                for table in (self, *self._beside):
                    table._lock(cursor)
                self._prepare(cursor)
                for table in self._beside:
                    table._prepare_beside(cursor)
                # Read under the lock, from the clock that all loads share: later commits have later times.
                self.loaded_at = self.read_clock(cursor)
                for table in self._beside:
                    table.loaded_at = self.loaded_at
                result = self.merge(cursor)
                if self.is_confirmed or not result.removed:
                    connection.commit()
                return result

            def undo() -> None:
                self._undo_merge(connection, cursor)

            result = self._retry_conflicts(attempt, undo)
            if not self.is_confirmed and result.removed:
                undo()
                self._confirm(cursor)
                self._began = 0.0
                result = self._retry_conflicts(attempt, undo)
            return result

    def _confirm(self, cursor: Any) -> None:
        """Read a second time, without holding locks, and ask for the rows that would be marked as gone."""
        rule, mark_gone, source = self.request.removal, self.request.mark_gone, self.request.source
        assert rule
        assert rule.read_again
        _log.info("Table %s: rows would be removed; reading a second time to confirm it", self.request.name)
        self.is_confirmed = True
        source.extend(rule.read_again())
        self._stage(cursor)
        if mark_gone and mark_gone.exists and self._missing_names:
            self._missing_names.difference_update(source.call(mark_gone.exists, sorted(self._missing_names)))
        if rule.look_up:
            with self._searching(cursor):
                if sample := self._sample(cursor, rule.look_up_by):
                    source.call(rule.look_up, sample)

    def _sample(self, cursor: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return values of some of the rows that both readings lack."""
        windows = self._removable()
        latest = self._observed_at(cursor) if windows else None
        sample = self.history.sample(cursor, columns) if self.history else []
        for window in windows:
            condition, values = self._stale(self._condition(window, "t."), (), latest)
            statement = self._select_stale_sql(self._columns_list(columns, "t."), condition)
            cursor.execute(f"{statement} LIMIT {SAMPLE - len(sample)}", values)
            sample += map(tuple, cursor.fetchall())
        return sample

    # Waiting for locks

    def _limit_waits(self, cursor: Any) -> None:
        """Bound each wait for a lock by ``lock_timeout``."""

    def _lock_message(self) -> str:
        limit, waited = self.request.lock_timeout, time.monotonic() - self._main._waits_since
        cure = "raise `lock_timeout`"
        if waited < 0.9 * limit:  # the database's own limit is shorter, and stays
            cure = "raise the lock timeout of the database's server, role or session"
        return f"end what holds the lock, or {cure}: the load has waited for {min(waited, limit):.0f} s"

    # What a dialect implements

    def _open_staging(self, cursor: Any) -> None:
        """Called before the first temporary table is created."""

    @abstractmethod
    def _create_stage(self, cursor: Any) -> None:
        """Create the temporary table."""

    @abstractmethod
    def _stage(self, cursor: Any) -> None:
        """Put all rows of the source into the temporary table, beside those of an earlier reading."""

    @abstractmethod
    def _open_merge(self, cursor: Any) -> None:
        """Begin what `undo_merge` reverts; called before each attempt."""

    def _undo_merge(self, connection: Any, cursor: Any) -> None:
        """Revert a failed merge; the temporary tables keep their rows."""
        connection.rollback()

    def _lock(self, cursor: Any) -> None:
        """Wait until no other load merges into this table."""

    def _describe(self, cursor: Any, columns: tuple[Column, ...], *, whole: bool) -> None:
        """Store the comments of columns and, if ``whole`` is set, that of the table."""
        if not self.has_comment_on:
            return
        if whole:
            cursor.execute(f"COMMENT ON TABLE {self.target} IS {literal(self.table.comment)}")
        for column in columns:
            cursor.execute(f"COMMENT ON COLUMN {self.target}.{column.name} IS {literal(column.comment)}")

    # Checking and creating tables

    def _check(self, cursor: Any) -> None:
        existing = self._columns(cursor)
        self._check_types(existing)
        self._check_collations(cursor)
        self._existed = bool(existing)
        if existing:
            self._check_key(cursor, complete=not self._missing(existing))

    def _check_collations(self, cursor: Any) -> None:
        """Otherwise the database would silently drop rows."""
        for column, collation in self._inexact(cursor):
            raise self.error(
                f"{self._collation_advice(column)}. The collation {collation} of column {column} takes different texts "
                "for one, so rows would be lost: key columns must compare every character"
            )

    @abstractmethod
    def _inexact(self, cursor: Any) -> Sequence[tuple[str, str]]:
        """The columns of the key that treat different texts as equal, each with its collation."""

    def _collation_advice(self, column: str) -> str:
        return (
            f"create the table anew with column {column} without a collation and copy its rows, or name another `table`"
        )

    def _check_key(self, cursor: Any, *, complete: bool) -> None:
        if not complete:
            return
        failure = None
        try:
            cursor.execute("EXPLAIN " + self._upsert(f"{self.target} AS s"), self._load_values())
        except Exception as error:
            if not re.search("on conflict|conflict target", str(error), re.IGNORECASE):
                raise
            failure = self._no_key()
        if failure:
            raise failure

    def _no_key(self) -> WarehouseError:
        return self.error(f"it has no primary key or unique index on ({', '.join(self.table.key)})")

    def _prepare(self, cursor: Any) -> None:
        existing = self._columns(cursor)
        if not existing:
            if self._existed:
                raise self.error("it was dropped or renamed during the load: load again")
            cursor.execute(self._create_statement())
            for columns in self.table.indexes:
                if index := self._index(columns):
                    cursor.execute(f"CREATE INDEX {index} ({self._columns_list(columns)})")
            self._describe(cursor, self.table.stored_columns, whole=True)
            return
        self._check_types(existing)
        missing = tuple(self._missing(existing))
        for column in missing:
            cursor.execute(self._addition(column))
        self._describe(cursor, missing, whole=False)

    def _index(self, columns: Sequence[str]) -> str:
        """An index, as CREATE INDEX begins; empty where none is created beside the table."""
        return ""

    def _prepare_beside(self, cursor: Any) -> None:
        """Prepare a table beside the loaded one; an error names it, for users who created only the other table."""
        try:
            return self._prepare(cursor)
        except WarehouseError:
            raise
        except Exception as error:
            if self._conflicts(error):
                raise
            message = self.safe_message(error)
        raise self.error(message)

    def _check_types(self, existing: dict[str, str]) -> None:
        for column in self.table.stored_columns:
            actual = existing.get(column.name)
            if actual is not None and not self._can_hold(column, actual):
                raise self.error(
                    f"column {column.name} is {actual or 'of no type'}, expected {self._column_type(column)}"
                )

    # Merging

    def merge(self, cursor: Any) -> LoadResult:
        source = self.request.source
        if self.table.insert_only:
            inserted_by, existing = self._insert_new(cursor)
            inserted = sum(inserted_by.values())
            return LoadResult(
                source.read,
                inserted,
                unchanged=source.read - source.rejected - inserted,
                inserted_by=inserted_by if self.table.counted_by else {},
                existing=existing,
            )
        self._delete_expired(cursor)
        replaced = self.request.replace_where
        with self._searching(cursor):
            recorded = self._record_history(cursor)
            stale = [window for window in self._removable() if self._has_others(cursor, window)]
        before = self._count_removable(cursor) if stale else 0
        late = self._late(cursor)
        if late and self.coverage:
            self.coverage._reject_future(cursor, self.coverage._joined())
        dropped = self._drop(cursor, late) if late else 0
        with self._searching(cursor):
            deleted = sum(self._delete_stale(cursor, window, late) for window in stale if window is replaced)
            gone = sum(self._mark_gone(cursor, window, late) for window in stale if window is not replaced)
        counts = self._write(cursor)
        self._check_removal(cursor, before)
        if counts.outdated:
            self._reject_future(cursor, self._joined())
        if self.coverage and self.request.is_complete:
            self.coverage._write(cursor)
        return LoadResult(
            rows=source.read,
            inserted=counts.inserted,
            changed=counts.changed,
            unchanged=counts.staged - counts.inserted - counts.outdated - counts.changed,
            outdated=counts.outdated + dropped,
            deleted=deleted,
            gone=gone if self.request.mark_gone else None,
            joined=recorded[0] if recorded else None,
            left=recorded[1] if recorded else None,
        )

    def _searching(self, cursor: Any) -> AbstractContextManager[object]:
        """Prepare to search for rows that were not staged."""
        return nullcontext()

    def _record_history(self, cursor: Any) -> tuple[int, int] | None:
        """Record the staged rows in the history, before those of parts that a later load has read are dropped."""
        if not self.history or self.request.source.rejected:
            return None
        return self.history.merge(cursor)

    def _insert_new(self, cursor: Any) -> tuple[dict[Any, int], set[tuple[Any, ...]]]:
        """Insert the staged rows whose keys are new.

        :return: their number by `Table.counted_by`, or else by ``None``, and the keys that exist.
        """
        key, counted, source = self._columns_list(self.table.key, "s."), self._counted_by("s."), self._joined()
        # Without a condition, which could make the database read the table first instead of the staged rows.
        cursor.execute(f"SELECT {self._exists()}, {counted}, {key} FROM {source}")
        inserted_by, existing = Counter[Any](), set[tuple[Any, ...]]()
        for exists, value, *own in cursor.fetchall():
            if exists:
                existing.add(tuple(own))
            else:
                inserted_by[value] += 1
        cursor.execute(self._upsert(source, f"NOT {self._exists()}"), self._load_values())
        return inserted_by, existing

    def _counted_by(self, alias: str = "") -> str:
        name = self.table.counted_by
        return f"{alias}{self._column(name)}" if name else "NULL"

    def _write(self, cursor: Any) -> Counts:
        exists, is_newer, is_changed = self._exists(), self._is_newer("s"), self._is_changed()
        needs_observed_at, values = self._needs_observed_at()
        outcomes = (
            f"NOT {exists}",
            f"{exists} AND NOT {is_newer}",
            f"{exists} AND {is_newer} AND {is_changed}",
            f"{exists} AND {is_newer} AND NOT {is_changed} AND {needs_observed_at}",
        )
        sums = (f"coalesce(sum(CASE WHEN {case} THEN 1 ELSE 0 END), 0)" for case in outcomes)
        cursor.execute(f"SELECT {', '.join(['count(*)', *sums])} FROM {self._joined()}", values)
        counts = Counts(*map(int, cursor.fetchone()))
        if counts.written == counts.staged:
            cursor.execute(self._upsert(f"{self._staged} AS s"), self._load_values())
        elif counts.written:
            to_write = f"(NOT {exists} OR ({is_newer} AND ({is_changed} OR {needs_observed_at})))"
            cursor.execute(self._upsert(self._joined(), to_write), [*self._load_values(), *values])
        if counts.written and self.counts_upserts:
            self._check_written(self._affected(cursor), counts.written)
        return counts

    def _check_written(self, written: int, expected: int) -> None:
        """Check that no trigger or rule has dropped rows silently."""
        if written != expected:
            raise self.error(
                f"look at the triggers and rules of the table: {expected - written} of {expected} rows were dropped "
                "without an error"
            )

    def _reject_future(self, cursor: Any, source: str, condition: Condition = ("true", [])) -> None:
        """Fail when rows of the table lie in the future: until then no load would replace them."""
        if self.table.observed:
            observed = self.table[self.table.observed]
            self._reject_later(cursor, source, condition, self._last_observed(), observed)

    def _reject_later(self, cursor: Any, source: str, condition: Condition, spelled: str, column: Column) -> None:
        if self.request.clock is None:
            return
        latest = self.request.clock.latest()
        condition_sql, values = condition
        statement = f"SELECT COUNT(*) FROM {source} WHERE {condition_sql} AND {spelled} > {self.hook.placeholder}"
        if count := self._count(cursor, statement, [*values, self._parameter(column, latest)]):
            raise self._main._future_error(cursor, count, latest)

    def _future_error(self, cursor: Any, count: int, latest: datetime.datetime) -> WarehouseError:
        # The corrected time is that of this load or a later one, so that the next load is newer.
        to = self._time_literal(self.request.observed_at or latest)
        statements = []
        for target, action, condition in self._corrections(to, self._time_literal(latest)):
            if self._count(cursor, f"SELECT COUNT(*) FROM {target} WHERE {condition}"):
                statements.append(f"{action} WHERE {condition}")
        return self.error(
            f"run the statements at the end, then load again. {count} rows have a time of observation after "
            f"{latest.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S} (UTC), which lies in the future, so no newer row "
            f"would replace them; a wrong clock has written them: {'; '.join(statements)}"
        )

    def _corrections(self, to: str, latest: str) -> Iterator[tuple[str, str, str]]:
        """Table, statement without condition, and condition, for each correction of times in the future."""
        for name, value in ((self.table.observed, to), (self.table.gone, "NULL")):
            if name:
                yield self.target, f"UPDATE {self.target} SET {name} = {value}", f"{name} > {latest}"
        if self.coverage:
            yield from self.coverage._corrections(to, latest)
        if self.history:
            yield from self.history.corrections(to, latest)

    def _time_literal(self, value: datetime.datetime) -> str:
        return f"'{value.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}'"

    # Removing rows

    def _delete_expired(self, cursor: Any) -> None:
        """Delete rows that were observed before ``expire_before``, except those of ``replace_where``."""
        if self.request.expire_before is None:
            return
        observed = self.table[str(self.table.observed)]
        condition, values = (
            f"{self._column(observed.name)} < {self.hook.placeholder}",
            [self._parameter(observed, self.request.expire_before)],
        )
        if self.request.replace_where:
            window, window_values = self._condition(self.request.replace_where)
            condition, values = f"{condition} AND NOT ({window})", [*values, *window_values]
        self._execute(cursor, f"DELETE FROM {self.target} WHERE {condition}", values)

    def _removable(self) -> list[Where]:
        """The windows of ``replace_where`` and ``mark_gone``; none if a row was rejected, which may be in the table."""
        request = self.request
        if request.source.rejected:
            return []
        windows = [request.replace_where] if request.replace_where else []
        if request.mark_gone:
            windows += [{**window, str(self.table.gone): None} for window in request.mark_gone.windows()]
        return windows

    def _count_removable(self, cursor: Any) -> int:
        """Count the rows of these windows, if there is a rule for removing them."""
        conditions = [self._condition(window) for window in self._removable() if self.request.removal]
        return sum(
            self._count(cursor, f"SELECT COUNT(*) FROM {self.target} WHERE {condition}", values)
            for condition, values in conditions
        )

    def _check_removal(self, cursor: Any, before: int) -> None:
        """Compare the number of rows that may be removed with that before the load; called before the commit."""
        if before and self.is_confirmed and self.request.removal:
            is_looked_up = bool(self.request.mark_gone and self.request.mark_gone.exists)
            self.request.removal.check(before, self._count_removable(cursor), self.prefix, is_looked_up=is_looked_up)

    def _narrowed(self, window: Where, rows: Iterable[tuple[Any, ...]]) -> Iterable[Where]:
        """Narrow a window to the rows that the service does not have; remember their names until it has been asked.

        :param rows: the values of the key's last column, of the rows that would be marked.
        """
        names = {str(name) for (name,) in rows}
        if self.is_confirmed:
            names &= self._missing_names
        else:
            self._missing_names |= names
        return [{**window, self.table.key[-1]: OneOf(batch)} for batch in batched(sorted(names), _MAX_NAMES)]

    def _late(self, cursor: Any) -> list[Where]:
        """The conditions for the parts of ``covers`` that another load has read later than this one."""
        if not self.coverage or not self.request.covers:
            return []
        cursor.execute(f"SELECT s.part FROM {self.coverage._joined()} WHERE NOT {self.coverage._is_newer('s')}")
        return self.request.covers.windows(part for (part,) in cursor.fetchall())

    def _drop(self, cursor: Any, late: Sequence[Where]) -> int:
        conditions, parameters = zip(*(self._condition(where) for where in late), strict=True)
        condition, values = " OR ".join(f"({condition})" for condition in conditions), [*chain(*parameters)]
        count = self._count(cursor, f"SELECT count(*) FROM {self._staged} AS s WHERE {condition}", values)
        cursor.execute(f"DELETE FROM {self.stage_name} WHERE {condition}", values)
        return count

    def _has_others(self, cursor: Any, window: Where) -> bool:
        """Whether the table has, or may have, rows in a window that were not staged."""
        condition, values = self._condition(window, "t.")
        return self._count(cursor, self._select_stale_sql("count(*)", condition), values) > 0

    def _delete_stale(self, cursor: Any, window: Where, late: Sequence[Where]) -> int:
        latest = self._observed_at(cursor) if self.table.observed else None
        self._reject_future(cursor, f"{self.target} AS t", self._condition(window, "t."))
        condition, values = self._stale(self._condition(window, "t."), late, latest)
        cursor.execute(self._delete_stale_sql(condition), values)
        deleted = self._affected(cursor)
        self._check_removed(cursor, condition, values)
        return deleted

    def _check_removed(self, cursor: Any, condition: str, values: list[Any]) -> None:
        """Check that no trigger or rule has kept rows silently."""
        if left := self._count(cursor, self._select_stale_sql("count(*)", condition), values):
            raise self.error(
                f"look at the triggers and rules of the table: {left} rows that the service does not have any more "
                "stayed as they were, without an error"
            )

    def _mark_gone(self, cursor: Any, window: Where, late: Sequence[Where]) -> int:
        mark_gone = self.request.mark_gone
        assert mark_gone
        at = self._parameter(self.table[str(self.table.gone)], mark_gone.observed_at)
        self._reject_future(cursor, f"{self.target} AS t", self._condition(window, "t."))
        windows: Iterable[Where] = [window]
        if mark_gone.exists:
            condition, values = self._stale(self._condition(window, "t."), late, at)
            cursor.execute(self._select_stale_sql(f"t.{self._column(self.table.key[-1])}", condition), values)
            windows = self._narrowed(window, cursor.fetchall())
        count = 0
        for part in windows:
            condition, values = self._stale(self._condition(part, "t."), late, at)
            cursor.execute(self._mark_stale_sql(condition), [at, *self._load_values(), *values])
            count += self._affected(cursor)
            self._check_removed(cursor, condition, values)
        return count

    def _observed_at(self, cursor: Any) -> Any:
        """The time of observation of this load, as the driver takes it; ``None`` without rows."""
        observed = str(self.table.observed)
        if asked := self.request.covers or self.request.mark_gone or self.request.history:
            return self._parameter(self.table[observed], asked.observed_at)
        cursor.execute(f"SELECT max({observed}) FROM {self._staged} AS s")
        (latest,) = cursor.fetchone()
        return latest
