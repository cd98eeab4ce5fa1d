"""Loads through a temporary table: all rows are there, and cost nobody a lock, before the user's table is touched.

Rows often come as slowly as a service answers. They are staged first; then one writer at a time makes the table (or
adds columns), and one statement takes over what is new. So two loads of the same keys cannot dead-lock, whoever comes
second compares with what the first left, and readers wait for nobody.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing
from typing import Any

from airflow_provider_mail.warehouse.dialect import Dialect, LoadResult
from airflow_provider_mail.warehouse.table import Column

STAGE = "airflow_provider_mail_stage"


class Staged(Dialect):
    """A database with temporary tables, transactional DDL and `INSERT ... ON CONFLICT`."""

    distinct: str
    """The operator that finds two lists of values different, NULL being equal to NULL."""

    def load(self, connection: Any) -> LoadResult:
        self.begin(connection)
        with closing(connection.cursor()) as cursor:
            self.check(cursor)
            connection.rollback()  # what was looked up must not stay locked while the rows come in
            self.stage(cursor)
            self.lock(cursor)
            self.prepare(cursor)
            result = self.merge(cursor)
        connection.commit()
        return result

    @abstractmethod
    def begin(self, connection: Any) -> None:
        """Settings of the connection."""

    @abstractmethod
    def columns(self, cursor: Any) -> dict[str, str]:
        """The types of the columns of the user's table, by name; empty when there is no such table."""

    @abstractmethod
    def holds(self, column: Column, actual: str) -> bool:
        """Whether a column of the type `actual` keeps every value of the declared one as it is."""

    @abstractmethod
    def stage(self, cursor: Any) -> None:
        """Put all rows into a temporary table."""

    @abstractmethod
    def lock(self, cursor: Any) -> None:
        """Wait until no other load is merging into this table; from here on it is one transaction to its end."""

    @property
    @abstractmethod
    def staged(self) -> str:
        """What to select from to get each key once, the last of its rows, in order."""

    def describe(self, cursor: Any, columns: tuple[Column, ...], *, whole: bool) -> None:
        """Store the comments of columns, and of the `whole` table."""

    def check(self, cursor: Any) -> None:
        """Find out before the first row is asked for whether an existing table will do."""
        there = self.columns(cursor)
        if not there:
            return
        self._check_types(there)
        if self.missing(there):
            return
        refused = None
        try:
            cursor.execute("EXPLAIN " + self._upsert(self.target))
        except Exception as error:
            if "ON CONFLICT" not in str(error):
                raise
            refused = self.error(f"it has no primary key or unique index on ({', '.join(self.table.key)})")
        if refused:
            raise refused

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

    def merge(self, cursor: Any) -> LoadResult:
        """Take over what is new."""
        deleted = self._delete_stale(cursor)
        cursor.execute(self._count())
        staged, inserted, outdated, changed = map(int, cursor.fetchone())
        if inserted or changed or (self.table.observed and outdated < staged):
            cursor.execute(self._upsert(self.staged))
        return LoadResult(
            rows=self.job.source.read,
            inserted=inserted,
            changed=changed,
            unchanged=staged - inserted - outdated - changed,
            outdated=outdated,
            deleted=deleted,
        )

    def _check_types(self, there: dict[str, str]) -> None:
        for column in self.table.columns:
            actual = there.get(column.name)
            if actual is not None and not self.holds(column, actual):
                raise self.error(
                    f"column {column.name} is {actual or 'of no type'}, expected {self.column_type(column)}"
                )

    def _delete_stale(self, cursor: Any) -> int:
        if not self.job.replace_where:
            return 0
        condition, values = self.window("t.")
        kept = f"EXISTS (SELECT 1 FROM {STAGE} AS s WHERE {self._same_key()})"
        if observed := self.table.observed:
            # What was seen later than all of ours is not stale; without rows of ours there is nothing to compare with.
            condition += f" AND coalesce(t.{observed} <= (SELECT max({observed}) FROM {self.staged} AS s), true)"
        cursor.execute(f"DELETE FROM {self.target} AS t WHERE {condition} AND NOT {kept}", values)
        return int(cursor.rowcount)

    def _count(self) -> str:
        there = f"t.{self.table.key[0]} IS NOT NULL"
        outdated = f"{there} AND NOT {self._newer('s')}"
        changed = f"{there} AND {self._newer('s')} AND {self._different('s')}"
        cases = ", ".join(
            f"coalesce(sum(CASE WHEN {case} THEN 1 ELSE 0 END), 0)" for case in (f"NOT {there}", outdated, changed)
        )
        return f"SELECT count(*), {cases} FROM {self.staged} AS s LEFT JOIN {self.target} AS t ON {self._same_key()}"

    def _upsert(self, source: str) -> str:
        names, key = ", ".join(self.table.names), ", ".join(self.table.key)
        rest = [name for name in self.table.names if name not in self.table.key]
        action = "NOTHING"
        if rest:
            taken = ", ".join(f"{name} = excluded.{name}" for name in rest)
            condition = self._newer("excluded") if self.table.observed else self._different("excluded")
            action = f"UPDATE SET {taken} WHERE {condition}"
        return (
            f"INSERT INTO {self.target} AS t ({names}) SELECT {names} FROM {source} AS s WHERE true ORDER BY {key} "
            f"ON CONFLICT ({key}) DO {action}"
        )

    def _same_key(self) -> str:
        return " AND ".join(f"s.{name} = t.{name}" for name in self.table.key)

    def _newer(self, given: str) -> str:
        """Not older, to be exact: of two rows that were observed at once the later load's is taken."""
        if not (observed := self.table.observed):
            return "true"
        return f"coalesce({given}.{observed} >= t.{observed}, true)"

    def _different(self, given: str) -> str:
        if not (content := self.table.content):
            return "false"
        given_values, there = (", ".join(f"{alias}.{name}" for name in content) for alias in (given, "t"))
        return f"({given_values}) {self.distinct} ({there})"
