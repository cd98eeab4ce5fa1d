"""Every other database with a ``DbApiHook``: rows are deleted by key and inserted.

Slower than the other dialects, and with fewer counts: every row is written again. Concurrent loads are correct only
where the database enforces the primary key and has transactions; both are tested before the first row is read.
"""

from __future__ import annotations

import datetime
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_provider_mail.warehouse.dialects import database
from airflow_provider_mail.warehouse.dialects.spool import Row, RowSpool, Spooled, comparable
from airflow_provider_mail.warehouse.errors import (
    MYSQL_CONFLICTS,
    WarehouseError,
    connect_error_message,
    mysql_number,
    sqlstate,
)
from airflow_provider_mail.warehouse.request import LoadRequest, LoadResult, MarkGone, Where
from airflow_provider_mail.warehouse.rows import Encoder, batched, each, json_text, utc
from airflow_provider_mail.warehouse.table import Column, TableName

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

# Old versions of SQLite accept 999, SQL Server 2,100; Oracle accepts 1,000 members of a list.
_MAX_PARAMETERS = 900

_NOT_ENFORCING = (
    "athena clickhouse drill druid hive hive_cli hiveserver2 impala kylin pinot presto spark spark_sql vertica"
)
_log = logging.getLogger(__name__)

NOT_ENFORCING = frozenset(_NOT_ENFORCING.split())
"""Databases without enforced keys or without transactions that are not loaded by merging, by SQLAlchemy's name or
connection type."""

_PROBE: Mapping[str, Any] = {
    "integer": 0,
    "double": 0.0,
    "boolean": False,
    "date": datetime.date(1970, 1, 1),
    "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "json": {},
}

_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {"timestamp": utc, "json": json_text}


class Portable(Spooled):
    """Standard SQL and PEP 249 only."""

    parameters = _CONVERTERS

    def __init__(self, hook: DbApiHook, request: LoadRequest) -> None:
        super().__init__(hook, request)
        coverage = request.coverage_request()
        self._coverage = Portable(hook, coverage) if coverage else None

    @classmethod
    def check_database(cls, hook: DbApiHook) -> None:
        if rejected := NOT_ENFORCING.intersection((database(hook), str(hook.conn_type).lower())):
            raise WarehouseError(
                f"connection {hook.get_conn_id()!r}: {min(rejected)} does not enforce primary keys or has no "
                "transactions, so concurrent loads would duplicate rows: write files and load them with the database's "
                "own tools (docs/warehouses.md), or use dlt (docs/dlt.md)"
            )

    @classmethod
    def limited(cls, sql: str, count: int, offset: int) -> str:
        return f"{sql} OFFSET {offset} ROWS FETCH NEXT {count} ROWS ONLY"

    def _qualified(self, name: TableName) -> str:
        return str(name)  # unquoted parts are left to the case folding of the database

    def _column_type(self, column: Column) -> str:
        return f"VARCHAR({column.type.length})" if column.type.length else super()._column_type(column)

    def _conflicts(self, error: BaseException) -> bool:
        if mysql_number(error) in MYSQL_CONFLICTS:
            return True
        # Another load may have inserted the same key. A constraint of the user's may raise the same error.
        is_integrity_error = "IntegrityError" in [base.__name__ for base in type(error).__mro__]
        return (is_integrity_error and sqlstate(error) in (None, "23505")) or super()._conflicts(error)

    def load(self, connection: Any) -> LoadResult:
        _log.info(
            "Database %s has no own dialect: loading %s by deleting and inserting rows",
            database(self.hook),
            self.request.name,
        )
        self._begin(connection)
        tables = [self, self._coverage] if self._coverage else [self]
        with ExitStack() as stack:
            cursor = stack.enter_context(closing(connection.cursor()))
            spools = [stack.enter_context(closing(table._spool())) for table in tables]
            for table in tables:
                table._prepare(connection, cursor)
                table._probe(connection, cursor)
            for table, spool in zip(tables, spools, strict=True):
                spool.fill(table.request.source.encoded(Encoder(table.table, each(_CONVERTERS))))

            def attempt() -> LoadResult | None:
                complete = tables if self.request.is_complete else tables[:1]
                for table in complete:
                    table.loaded_at = datetime.datetime.now(datetime.UTC)
                if not self.is_confirmed and self._count_removable(cursor):
                    self._replace(cursor, spools[0])  # for the names that would be marked as gone
                    return None
                result, *_ = [table._replace(cursor, spool) for table, spool in zip(complete, spools, strict=False)]
                connection.commit()
                return result

            result = self._retry_conflicts(attempt, connection.rollback)
            if result is None:
                connection.rollback()
                encoder = Encoder(self.table, each(_CONVERTERS))
                self._confirm(lambda: spools[0].fill(self.request.source.encoded(encoder)))
                result = self._retry_conflicts(attempt, connection.rollback)
            assert result
            return result

    def _replace(self, cursor: Any, spool: RowSpool) -> LoadResult:
        """Write the rows, except those of which the table has a newer one, or any if rows are never updated."""
        self._delete_expired(cursor)
        before = self._count_removable(cursor)
        if self.request.replace_where and not self.request.source.rejected:
            self._delete_stale(cursor, self._observed_at(spool))
        insert, load_values = self._insert_statement(), self._load_values()
        by = self.table.names.index(self.table.counted_by) if self.table.counted_by else None
        outdated, inserted_by = 0, Counter[Any]()
        for batch in batched(spool.rows(), _MAX_PARAMETERS // (len(self._key_indexes) + 1)):
            self._current_batch = batch
            if self.table.insert_only:
                skipped = self._keys_found(cursor, batch, f"({self._same_key()})", self._key_indexes)
            else:
                skipped = self._delete_older(cursor, batch)
                outdated += len(skipped)
            if new_rows := [row for row in batch if spool.key(row) not in skipped]:
                cursor.executemany(insert, [(*row, *load_values) for row in new_rows])
                inserted_by.update(row[by] if by is not None else None for row in new_rows)
        if self.request.mark_gone and not self.request.source.rejected:
            self._mark_gone(cursor, self.request.mark_gone)
        self._check_removal(cursor, before)
        if self.table.insert_only:
            return self._insert_result(inserted_by)
        return LoadResult(self.request.source.read, outdated=outdated)

    def _delete_older(self, cursor: Any, batch: Sequence[Row]) -> set[Row]:
        """Delete the rows with these keys; return the keys of those that stay, since they were observed later."""
        row_condition, indexes = self._same_key(), list(self._key_indexes)
        if self._observed_index is not None:
            row_condition, indexes = f"{row_condition} AND {self._not_newer()}", [*indexes, self._observed_index]
        condition = " OR ".join([f"({row_condition})"] * len(batch))
        values = [row[index] for row in batch for index in indexes]
        cursor.execute(f"DELETE FROM {self.target} WHERE {condition}", values)
        if self._observed_index is None:
            return set()
        newer_one = f"({self._same_key()} AND NOT {self._not_newer()})"
        newer = self._keys_found(cursor, batch, newer_one, indexes)
        if newer:
            keys = " OR ".join([f"({self._same_key()})"] * len(batch))
            values = [row[index] for row in batch for index in self._key_indexes]
            self._reject_future(cursor, self.target, (f"({keys})", values), self._last_observed())
        return newer

    def _delete_stale(self, cursor: Any, observed_at: Any) -> None:
        """Delete the rows of ``replace_where`` that were not observed later than this load."""
        self._reject_future(cursor, self.target, self._window(), self._last_observed())
        condition, values = self._window()
        if observed_at is not None:
            condition += f" AND {self._not_newer()}"
            values.append(observed_at)
        cursor.execute(f"DELETE FROM {self.target} WHERE {condition}", values)

    def _corrections(self, to: str, latest: str) -> Iterator[tuple[str, str, str]]:
        yield from super()._corrections(to, latest)
        if self._coverage:
            yield from self._coverage._corrections(to, latest)

    def _mark_gone(self, cursor: Any, mark_gone: MarkGone) -> None:
        gone, mark = str(self.table.gone), self.hook.placeholder
        at = self._parameter(self.table[gone], mark_gone.observed_at)
        for window in mark_gone.windows():
            condition, values = self._condition("mark_gone", window)
            self._reject_future(cursor, self.target, (condition, values), self._last_observed())
            # All given rows have been written with the time of this load.
            older = f"{gone} IS NULL AND {self.table.observed} < {mark}"
            windows: Iterable[Where] = [window]
            if mark_gone.exists:
                name = self.table.key[-1]
                cursor.execute(f"SELECT {name} FROM {self.target} WHERE {condition} AND {older}", [*values, at])
                windows = self._narrowed(window, cursor.fetchall())
            for part in windows:
                condition, values = self._condition("mark_gone", part)
                cursor.execute(
                    f"UPDATE {self.target} SET {gone} = {mark}{self._load_assignments()} WHERE {condition} AND {older}",
                    [at, *self._load_values(), *values, at],
                )

    def _observed_at(self, spool: RowSpool) -> Any:
        """The time of observation of this load, as the driver takes it; ``None`` without rows."""
        if self.request.covers:
            return utc(self.request.covers.observed_at)
        return self._earliest(spool)

    def _keys_found(self, cursor: Any, batch: Sequence[Row], row_condition: str, indexes: Sequence[int]) -> set[Row]:
        """The keys of the rows of the table that fulfil a condition for one of these rows."""
        condition = " OR ".join([row_condition] * len(batch))
        cursor.execute(
            f"SELECT {self._columns_list(self.table.key)} FROM {self.target} WHERE {condition}",
            [row[index] for row in batch for index in indexes],
        )
        return {tuple(map(comparable, key)) for key in cursor.fetchall()}

    def _same_key(self) -> str:
        return " AND ".join(f"{name} = {self.hook.placeholder}" for name in self.table.key)

    def _not_newer(self) -> str:
        last = self._last_observed()
        return f"({last} IS NULL OR {last} <= {self.hook.placeholder})"

    def _insert_statement(self) -> str:
        marks = ", ".join(self.hook.placeholder for _ in self.table.stored_columns)
        return f"INSERT INTO {self.target} ({self._columns_list(self.table.stored_names)}) VALUES ({marks})"

    def _probe(self, connection: Any, cursor: Any) -> None:
        """Insert a test row twice and roll back: the second insert must fail, and no row may remain.

        Between them, rows are inserted whose keys differ in nothing but case or a space at the end.

        :raises WarehouseError: when concurrent loads would duplicate rows, or a failed load would leave some.
        """
        row = [None if column.nullable else self._probe_value(column) for column in self.table.stored_columns]
        key = [row[index] for index in self._key_indexes]
        others = list(self._similar(row))
        failure, is_enforced, inexact = "", False, ""
        try:
            cursor.execute(self._insert_statement(), row)
        except Exception as error:
            failure = self.safe_message(error)
        if not failure:
            inexact = self._inexact(cursor, others)
        if not failure and not inexact:
            try:
                cursor.execute(self._insert_statement(), row)
            except Exception:
                is_enforced = True
        self._roll_back(connection)
        if failure:
            raise self.error(f"a test row was rejected: {failure}")
        cursor.execute(f"SELECT COUNT(*) FROM {self.target} WHERE {self._same_key()}", key)
        if int(cursor.fetchone()[0]):
            for test_row in (row, *(other for _, other in others)):
                key = [test_row[index] for index in self._key_indexes]
                cursor.execute(f"DELETE FROM {self.target} WHERE {self._same_key()}", key)
            connection.commit()
            raise self.error(
                "rows stay although they were rolled back: the database, or this connection, has no transactions, so a "
                "failed load would leave a part of its rows"
            )
        self._roll_back(connection)
        if inexact:
            raise self.error(
                f"give column {inexact} a collation that compares every character, as key columns must: it takes "
                "texts for one that differ only in case or in a space at the end, so rows would be lost"
            )
        if not is_enforced:
            raise self.error(
                f"it accepts two rows with one key ({', '.join(self.table.key)}), so concurrent loads would duplicate "
                "rows: it needs a primary key, and a database that enforces it"
            )

    def _similar(self, row: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Rows whose keys differ from that of a row only in case or in a space at the end, with the column."""
        for index in self._key_indexes:
            column, value = self.table.stored_columns[index], row[index]
            for variant in (value.upper(), f"{value[:-1]} ", value[:-1]) if column.type.name == "text" else ():
                yield column.name, [*row[:index], variant, *row[index + 1 :]]

    def _inexact(self, cursor: Any, rows: Sequence[tuple[str, Sequence[Any]]]) -> str:
        for column, row in rows:
            try:
                cursor.execute(self._insert_statement(), row)
            except Exception:
                return column
        return ""

    def _probe_value(self, column: Column) -> Any:
        if column.type.name == "text":
            return uuid4().hex[: column.type.length]
        if column.type.name == "bigint":
            return -(uuid4().int >> 66)
        return self._parameter(column, _PROBE[column.type.name])

    def _roll_back(self, connection: Any) -> None:
        failure = ""
        try:
            connection.rollback()
        except Exception as error:
            failure = connect_error_message(error)  # no row has been read yet
        if failure:
            raise self.error(f"the database cannot roll back ({failure}): a load needs a transaction")

    def _prepare(self, connection: Any, cursor: Any) -> None:
        """Create the table or add columns, in a transaction of its own: many databases commit at DDL anyway."""
        existing = self._columns(connection, cursor)
        statements = (
            [self._create_statement()]
            if existing is None
            else [self._addition(column) for column in self._missing(existing)]
        )
        for statement in statements:
            failure = ""
            try:
                cursor.execute(statement)
                connection.commit()
            except Exception as error:
                self._roll_back(connection)
                failure = connect_error_message(error)  # no row has been read yet
            existing = self._columns(connection, cursor) if failure else None
            # Another load may have created or extended the table meanwhile.
            if failure and (existing is None or self._missing(existing)):
                raise self.error(f"{failure}. Create it in the dialect of your database, then load again:\n{statement}")

    def existing_columns(self, connection: Any) -> Collection[str]:
        with self._cursor(connection) as cursor:
            return self._columns(connection, cursor) or ()

    def _columns(self, connection: Any, cursor: Any) -> list[str] | None:
        """The names of the columns; ``None`` when the table does not exist."""
        try:
            names = self._column_names(cursor, self.target)
        except Exception:  # drivers have no common error for a missing table
            self._roll_back(connection)
            return None
        self._roll_back(connection)  # the query must not hold locks while the rows arrive
        return names
