"""Loads through a temporary table: all rows are there, and cost nobody a lock, before the user's table is touched.

Rows often come as slowly as a service answers. They are staged first; then one writer at a time makes the table (or
adds columns), and one transaction takes over what is new. So two loads of the same keys cannot dead-lock, whoever comes
second compares with what the first left, and readers wait for nobody. Others may still get in the way, in a database
that more than we write to: what is staged is merged again then.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.coverage import LOADS, loads_beside
from airflow_provider_mail.warehouse.dialects.base import Dialect, LoadRequest, LoadResult
from airflow_provider_mail.warehouse.errors import WarehouseError, words
from airflow_provider_mail.warehouse.rows import Source
from airflow_provider_mail.warehouse.table import Column

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

STAGE = "airflow_provider_mail_stage"
_LOADS_STAGE = "airflow_provider_mail_loads"


@dataclass(frozen=True)
class Counts:
    """What became of the staged rows; `refreshed` were only observed again."""

    staged: int
    inserted: int
    outdated: int
    changed: int
    refreshed: int

    @property
    def written(self) -> int:
        return self.inserted + self.changed + self.refreshed


class Staged(Dialect):
    """A database with temporary tables and an upsert of its own."""

    distinct: str
    """The operator that finds two lists of values different, NULL being equal to NULL."""

    def __init__(self, hook: DbApiHook, job: LoadRequest, stage: str = STAGE) -> None:
        super().__init__(hook, job)
        self.stage_name = stage
        self.loads: Staged | None = None
        if job.covers:
            source = Source(job.covers.rows(job.name))
            noted = LoadRequest(LOADS, loads_beside(job.name), source, not_after=job.not_after)
            self.loads = type(self)(hook, noted, _LOADS_STAGE)

    def load(self, connection: Any) -> LoadResult:
        both = [self, self.loads] if self.loads else [self]
        self.begin(connection)
        with self.cursor(connection) as cursor:
            for one in both:
                one.check(cursor)
            connection.rollback()  # what was looked up must not stay locked while the rows come in
            self.open_staging(cursor)
            for one in both:
                one.stage(cursor)

            def attempt() -> LoadResult:
                self.open_merge(cursor)
                for one in both:
                    one.lock(cursor)
                self.prepare(cursor)
                self._prepare_loads(cursor)
                result = self.merge(cursor)
                connection.commit()
                return result

            return self.repeated(attempt, lambda: self.undo_merge(connection, cursor))

    @abstractmethod
    def begin(self, connection: Any) -> None:
        """Settings of the connection."""

    def cursor(self, connection: Any) -> AbstractContextManager[Any]:
        """A cursor of this connection, closed afterwards."""
        return closing(connection.cursor())

    @abstractmethod
    def columns(self, cursor: Any) -> dict[str, str]:
        """The types of the columns of the user's table, by name; empty when there is no such table."""

    @abstractmethod
    def holds(self, column: Column, actual: str) -> bool:
        """Whether a column of the type `actual` keeps every value of the declared one as it is."""

    def open_staging(self, cursor: Any) -> None:
        """Called before the first temporary table."""

    @abstractmethod
    def stage(self, cursor: Any) -> None:
        """Put all rows into a temporary table."""

    @abstractmethod
    def open_merge(self, cursor: Any) -> None:
        """Begin what `undo_merge` takes back; called before each attempt."""

    def undo_merge(self, connection: Any, cursor: Any) -> None:
        """Take back a merge that failed; the temporary tables stay as they were."""
        connection.rollback()

    def lock(self, cursor: Any) -> None:
        """Wait until no other load is merging into this table."""

    @property
    @abstractmethod
    def staged(self) -> str:
        """What to select from to get each key once, the last of its rows."""

    def describe(self, cursor: Any, columns: tuple[Column, ...], *, whole: bool) -> None:
        """Store the comments of columns, and of the `whole` table."""

    def check(self, cursor: Any) -> None:
        """Find out before the first row is asked for whether an existing table will do."""
        there = self.columns(cursor)
        if not there:
            return
        self._check_types(there)
        self.check_key(cursor, complete=not self.missing(there))

    def check_key(self, cursor: Any, *, complete: bool) -> None:
        """Find out whether the key of the table is the declared one.

        :param complete: it has all columns.
        """
        if not complete:
            return
        refused = None
        try:
            cursor.execute("EXPLAIN " + self.upsert(f"{self.target} AS s"))
        except Exception as error:
            if not re.search("on conflict|conflict target", str(error), re.IGNORECASE):
                raise
            refused = self.no_key()
        if refused:
            raise refused

    def no_key(self) -> Exception:
        """The error about a table without our key."""
        return self.error(f"it has no primary key or unique index on ({', '.join(self.table.key)})")

    def prepare(self, cursor: Any) -> None:
        """Create the table or add what it lacks."""
        there = self.columns(cursor)
        if not there:
            cursor.execute(self.create_statement())
            self.describe(cursor, self.table.columns, whole=True)
            return
        self._check_types(there)
        missing = tuple(self.missing(there))
        for column in missing:
            cursor.execute(self.addition(column))
        self.describe(cursor, missing, whole=False)

    def _prepare_loads(self, cursor: Any) -> None:
        """The same for `mail_loads`; a user who made our table alone is told which one is missing."""
        if not self.loads:
            return
        try:
            return self.loads.prepare(cursor)
        except WarehouseError:
            raise
        except Exception as error:
            if self.conflicts(error):
                raise
            refused = words(error)
        raise self.loads.error(refused)

    def merge(self, cursor: Any) -> LoadResult:
        """Take over what is new."""
        self.delete_expired(cursor)
        before = self.window_rows(cursor)
        late = self._late_parts(cursor)
        if late and self.loads:
            self.loads.refuse_outdated(cursor)
        dropped = sum(self._drop(cursor, part) for part in late)
        deleted = self._delete_stale(cursor, late)
        gone = self._mark_gone(cursor, late)
        counts = self.take_over(cursor)
        self.check_fall(cursor, before)
        if counts.outdated:
            self.refuse_outdated(cursor)
        if self.loads:
            self.loads.take_over(cursor)
        return LoadResult(
            rows=self.job.source.read,
            inserted=counts.inserted,
            changed=counts.changed,
            unchanged=counts.staged - counts.inserted - counts.outdated - counts.changed,
            outdated=counts.outdated + dropped,
            deleted=deleted,
            gone=gone,
        )

    def refuse_outdated(self, cursor: Any) -> None:
        """Fail when staged rows are outdated because those of the table lie in the future."""
        self.refuse_future(cursor, self.joined(), ("true", []), self.last_word())

    def take_over(self, cursor: Any) -> Counts:
        """Write the staged rows that say something new."""
        sums, values = self.sums()
        cursor.execute(f"SELECT {sums} FROM {self.joined()}", values)
        counts = Counts(*map(int, cursor.fetchone()))
        if counts.written == counts.staged:
            cursor.execute(self.upsert(f"{self.staged} AS s"))
        elif counts.written:
            condition, values = self.to_write()
            cursor.execute(self.upsert(self.joined(), condition), values)
        return counts

    # Pieces of SQL, in which "s" is what is staged and "t" the user's table.

    def joined(self) -> str:
        """Staged rows beside those of the table that have their keys."""
        return f"{self.staged} AS s LEFT JOIN {self.target} AS t ON {self.same_key()}"

    def sums(self) -> tuple[str, list[Any]]:
        """The values of `Counts`, with parameters."""
        seen, values = self.seen_again()
        cases = (
            f"NOT {self.there()}",
            f"{self.there()} AND NOT {self.newer('s')}",
            f"{self.there()} AND {self.newer('s')} AND {self.different()}",
            f"{self.there()} AND {self.newer('s')} AND NOT {self.different()} AND {seen}",
        )
        return ", ".join(["count(*)", *(f"coalesce(sum(CASE WHEN {c} THEN 1 ELSE 0 END), 0)" for c in cases)]), values

    def to_write(self) -> tuple[str, list[Any]]:
        """Whether a staged row is news, with parameters."""
        seen, values = self.seen_again()
        return f"(NOT {self.there()} OR ({self.newer('s')} AND ({self.different()} OR {seen})))", values

    def upsert(self, source: str, condition: str = "true") -> str:
        """Insert from `source`, or update what has the key and is not newer."""
        names, key = self.columns_list(self.table.names), self.columns_list(self.table.key)
        rest = [name for name in self.table.names if name not in self.table.key]
        action = "NOTHING"
        if rest:
            taken = ", ".join(f"{name} = excluded.{name}" for name in rest)
            action = f"UPDATE SET {taken} WHERE {self.newer('excluded')}"
        selected = self.columns_list(self.table.names, "s.")
        return (
            f"INSERT INTO {self.target} AS t ({names}) SELECT {selected} FROM {source} WHERE {condition} "
            f"{self.ordered()} ON CONFLICT ({key}) DO {action}"
        )

    def ordered(self, alias: str = "s.") -> str:
        """The order in which all loads write, so that two of them wait for each other instead of dead-locking."""
        return f"ORDER BY {self.columns_list(self.table.key, alias)}"

    def same_key(self) -> str:
        return " AND ".join(f"s.{name} = t.{name}" for name in map(self.column, self.table.key))

    def there(self) -> str:
        return f"(t.{self.column(self.table.key[0])} IS NOT NULL)"

    def newer(self, given: str) -> str:
        """Not older, to be exact: of two rows that were observed at once the later load's is taken."""
        if not (observed := self.table.observed):
            return "true"
        return f"coalesce({given}.{observed} >= {self.last_word()}, true)"

    def last_word(self) -> str:
        """When a row of the table was last seen to be what it is, or gone."""
        observed, gone = f"t.{self.column(str(self.table.observed))}", self.table.gone
        return f"coalesce(t.{self.column(gone)}, {observed})" if gone else observed

    def different(self) -> str:
        """Whether a staged row says something else."""
        if not (content := self.table.content):
            return "false"
        given, there = (self.columns_list(content, alias) for alias in ("s.", "t."))
        return f"(({given}) {self.distinct} ({there}))"

    def seen_again(self) -> tuple[str, list[Any]]:
        """Whether an unchanged row needs the time of this observation: unless `mail_loads` tells it."""
        if not self.table.observed:
            return "false", []
        if not self.job.covers:
            return "true", []
        condition, values = self.condition("covers", self.job.covers.whole, "s.")
        return f"NOT coalesce({condition}, false)", values

    # What `mail_loads` knows

    def _late_parts(self, cursor: Any) -> list[str]:
        """The parts that another load has read later than this one."""
        if not self.loads:
            return []
        cursor.execute(f"SELECT s.part FROM {self.loads.joined()} WHERE NOT {self.loads.newer('s')}")
        return [part for (part,) in cursor.fetchall()]

    def _drop(self, cursor: Any, part: str) -> int:
        """Forget the staged rows of a part; how many there were."""
        condition, values = self._part(part)
        cursor.execute(f"SELECT count(*) FROM {self.staged} AS s WHERE {condition}", values)
        (count,) = cursor.fetchone()
        cursor.execute(f"DELETE FROM {self.stage_name} WHERE {condition}", values)
        return int(count)

    def _part(self, part: str, alias: str = "") -> tuple[str, list[Any]]:
        assert self.job.covers
        return self.condition("covers", self.job.covers.parts[part], alias)

    def _check_types(self, there: dict[str, str]) -> None:
        for column in self.table.columns:
            actual = there.get(column.name)
            if actual is not None and not self.holds(column, actual):
                raise self.error(
                    f"column {column.name} is {actual or 'of no type'}, expected {self.column_type(column)}"
                )

    def _delete_stale(self, cursor: Any, late: Sequence[str]) -> int:
        if not self.job.replace_where or self.job.source.rejected:
            return 0
        latest = self._latest(cursor) if self.table.observed else None
        self.refuse_future(cursor, f"{self.target} AS t", self.window("t."), self.last_word())
        condition, values = self._stale(self.window("t."), late, latest)
        cursor.execute(self.delete_stale(condition), values)
        return self.affected(cursor)

    def _mark_gone(self, cursor: Any, late: Sequence[str]) -> int | None:
        if not (job := self.job.mark_gone):
            return None
        gone = str(self.table.gone)
        at = self.parameter(self.table[gone], job.observed_at)
        count = 0
        for window in () if self.job.source.rejected else job.windows():
            self.refuse_future(
                cursor, f"{self.target} AS t", self.condition("mark_gone", window, "t."), self.last_word()
            )
            condition, values = self._stale(self.condition("mark_gone", window, "t."), late, at)
            cursor.execute(self.mark_stale(f"t.{self.column(gone)} IS NULL AND {condition}"), [at, *values])
            count += self.affected(cursor)
        return count

    def _stale(self, window: tuple[str, list[Any]], late: Sequence[str], latest: Any) -> tuple[str, list[Any]]:
        """The condition for rows of the table in a window, if they have not been staged, with its parameters."""
        condition, values = window
        for part in late:
            spared, more = self._part(part, "t.")
            condition += f" AND NOT coalesce({spared}, false)"
            values += more
        # What was seen later than all of ours is not stale; without rows of ours there is nothing to compare with.
        if latest is not None:
            condition += f" AND coalesce({self.last_word()} <= {self.hook.placeholder}, true)"
            values.append(latest)
        return condition, values

    def delete_stale(self, condition: str) -> str:
        """Delete what the condition is true for and has not been staged."""
        return f"DELETE FROM {self.target} AS t WHERE {condition} AND NOT {self._kept()}"

    def mark_stale(self, condition: str) -> str:
        """Mark as gone what the condition is true for and has not been staged; the time is the first parameter."""
        gone = self.column(str(self.table.gone))
        return (
            f"UPDATE {self.target} AS t SET {gone} = {self.hook.placeholder} WHERE {condition} AND NOT {self._kept()}"
        )

    def _kept(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.stage_name} AS s WHERE {self.same_key()})"

    def affected(self, cursor: Any) -> int:
        """How many rows the last statement deleted or marked."""
        return int(cursor.rowcount)

    def _latest(self, cursor: Any) -> Any:
        """When the load was made, as far as it tells; what the driver takes."""
        observed = self.table.observed
        assert observed
        if self.job.covers:
            return self.parameter(self.table[observed], self.job.covers.observed_at)
        cursor.execute(f"SELECT max({observed}) FROM {self.staged} AS s")
        (latest,) = cursor.fetchone()
        return latest
