"""Every other database with a `DbApiHook`: delete the keys, insert the rows.

Slower, with fewer numbers to tell: every row is written anew. Two loads at once are right where the database enforces
the primary key and has transactions, and only there: both are tried out before the first row is asked for.
"""

from __future__ import annotations

import datetime
import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from airflow_provider_mail.warehouse.coverage import LOADS, MarkGone, loads_beside
from airflow_provider_mail.warehouse.dialects.base import Dialect, LoadRequest, LoadResult
from airflow_provider_mail.warehouse.errors import connect_error_message, mysql_number, redacted_message
from airflow_provider_mail.warehouse.rows import Encoder, Source, each, json_text, utc
from airflow_provider_mail.warehouse.table import Column, TableName, quoted

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

# Old SQLite takes 999, SQL Server 2,100; Oracle takes 1,000 members of a list.
_MOST_PARAMETERS = 900

_MYSQL_CONFLICTS = (1205, 1213, 1020)  # lock wait timeout (SQL Server: deadlock), deadlock, record has changed

NOT_ENFORCING = frozenset(
    (
        "athena",
        "bigquery",
        "clickhouse",
        "databricks",
        "drill",
        "druid",
        "gcpbigquery",
        "hive",
        "hive_cli",
        "hiveserver2",
        "impala",
        "kylin",
        "pinot",
        "presto",
        "redshift",
        "snowflake",
        "spark",
        "spark_sql",
        "trino",
        "vertica",
    )
)
"""Databases, by SQLAlchemy's names and connection types, without enforced primary keys, or without transactions."""

_PROBE: Mapping[str, Any] = {
    "integer": 0,
    "double": 0.0,
    "boolean": False,
    "date": datetime.date(1970, 1, 1),
    "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "json": {},
}

_CONVERTS: Mapping[str, Callable[[Any], Any]] = {"timestamp": utc, "json": json_text}

Row = tuple[Any, ...]


class Portable(Dialect):
    """Standard SQL and PEP 249, nothing else."""

    types: ClassVar[Mapping[str, str]] = {
        "text": "TEXT",
        "bigint": "BIGINT",
        "integer": "INTEGER",
        "double": "DOUBLE PRECISION",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp": "TIMESTAMP",
        "json": "TEXT",
    }

    def __init__(self, hook: DbApiHook, job: LoadRequest) -> None:
        super().__init__(hook, job)
        names = self.table.names
        self._key_at = [names.index(name) for name in self.table.key]
        self._observed_at = names.index(self.table.observed) if self.table.observed else None
        self._under_way: Sequence[Row] = ()
        self._loads: Portable | None = None
        if job.covers:
            noted = Source(job.covers.rows(job.name))
            self._loads = Portable(hook, LoadRequest(LOADS, loads_beside(job.name), noted, not_after=job.not_after))

    def qualified(self, name: TableName) -> str:
        # A name that the user did not quote is left to the database's own folding.
        return ".".join(quoted(part.text) if part.quoted else part.text for part in name.parts)

    def parameter(self, column: Column, value: Any) -> Any:
        convert = _CONVERTS.get(column.type.name)
        return convert(value) if convert else value

    def column_type(self, column: Column) -> str:
        return f"VARCHAR({column.type.length})" if column.type.length else super().column_type(column)

    def conflicts(self, error: BaseException) -> bool:
        # Another load may have inserted the same key meanwhile. A constraint of the user's may say the same.
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if mysql_number(error) in _MYSQL_CONFLICTS:
            return True
        taken = "IntegrityError" in [kind.__name__ for kind in type(error).__mro__] and state in (None, "23505")
        return taken or super().conflicts(error)

    def load(self, connection: Any) -> LoadResult:
        if self.hook.supports_autocommit:
            self.hook.set_autocommit(connection, False)
        both = [self, self._loads] if self._loads else [self]
        with closing(connection.cursor()) as cursor, _Spools(both) as spools:
            for one in both:
                one._prepare(connection, cursor)
                one._try_out(connection, cursor)
            for spool in spools:
                spool.fill()

            def attempt() -> int:
                outdated, *_ = [spool.dialect._replace(cursor, spool) for spool in spools]
                connection.commit()
                return outdated

            outdated = self.repeated(attempt, connection.rollback)
        return LoadResult(rows=self.job.source.read, outdated=outdated)

    def _replace(self, cursor: Any, spool: _Spool) -> int:
        """Write the rows; how many were left out because the table knows something newer."""
        self.delete_expired(cursor)
        before = self.window_rows(cursor)
        if self.job.replace_where and not self.job.source.rejected:
            self.refuse_future(cursor, self.target, self.window(), self._last_word())
            condition, values = self.window()
            if (earliest := self._earliest(spool)) is not None:
                # What was seen later than ours is not stale.
                condition += f" AND {self._not_newer()}"
                values.append(earliest)
            cursor.execute(f"DELETE FROM {self.target} WHERE {condition}", values)
        insert = self._insert_statement()
        outdated = 0
        for batch in _batches(spool.rows(), _MOST_PARAMETERS // (len(self._key_at) + 1)):
            self._under_way = batch
            self._delete(cursor, batch)
            newer = self._newer(cursor, batch) if self._observed_at is not None else ()
            if newer:
                keys = " OR ".join([f"({self._same_key()})"] * len(batch))
                values = [row[index] for row in batch for index in self._key_at]
                self.refuse_future(cursor, self.target, (f"({keys})", values), self._last_word())
            outdated += len(newer)
            if given := [row for row in batch if self._key(row) not in newer]:
                cursor.executemany(insert, given)
        if self.job.mark_gone and not self.job.source.rejected:
            self._mark_gone(cursor, self.job.mark_gone)
        self.check_fall(cursor, before)
        return outdated

    def _mark_gone(self, cursor: Any, job: MarkGone) -> None:
        gone, mark = str(self.table.gone), self.hook.placeholder
        at = self.parameter(self.table[gone], job.observed_at)
        for window in job.windows():
            condition, values = self.condition("mark_gone", window)
            self.refuse_future(cursor, self.target, (condition, values), self._last_word())
            # Every row that was given has been written with the time of this load.
            cursor.execute(
                f"UPDATE {self.target} SET {gone} = {mark} "
                f"WHERE {condition} AND {gone} IS NULL AND {self.table.observed} < {mark}",
                [at, *values, at],
            )

    def _earliest(self, spool: _Spool) -> Any:
        """When the load was made, as far as it tells; what the driver takes."""
        if self.job.covers:
            return utc(self.job.covers.observed_at)
        at = self._observed_at
        return None if at is None else min((row[at] for row in spool.rows()), default=None)

    def _delete(self, cursor: Any, batch: list[Row]) -> None:
        """Delete what has the keys, apart from what was observed later."""
        one, at = self._same_key(), list(self._key_at)
        if self._observed_at is not None:
            one, at = f"{one} AND {self._not_newer()}", [*at, self._observed_at]
        condition = " OR ".join([f"({one})"] * len(batch))
        cursor.execute(f"DELETE FROM {self.target} WHERE {condition}", [row[index] for row in batch for index in at])

    def _newer(self, cursor: Any, batch: list[Row]) -> set[tuple[Any, ...]]:
        """The keys of what was observed later."""
        assert self._observed_at is not None
        one, at = f"({self._same_key()} AND NOT {self._not_newer()})", [*self._key_at, self._observed_at]
        cursor.execute(
            f"SELECT {self.columns_list(self.table.key)} FROM {self.target} WHERE {' OR '.join([one] * len(batch))}",
            [row[index] for row in batch for index in at],
        )
        return {tuple(map(_comparable, key)) for key in cursor.fetchall()}

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(_comparable(row[index]) for index in self._key_at)

    def _same_key(self) -> str:
        return " AND ".join(f"{name} = {self.hook.placeholder}" for name in self.table.key)

    def _not_newer(self) -> str:
        last = self._last_word()
        return f"({last} IS NULL OR {last} <= {self.hook.placeholder})"

    def _last_word(self) -> str:
        """When a row was last seen to be what it is, or gone."""
        observed = str(self.table.observed)
        return f"COALESCE({self.table.gone}, {observed})" if self.table.gone else observed

    def _insert_statement(self) -> str:
        marks = ", ".join(self.hook.placeholder for _ in self.table.columns)
        return f"INSERT INTO {self.target} ({self.columns_list(self.table.names)}) VALUES ({marks})"

    def _try_out(self, connection: Any, cursor: Any) -> None:
        """Insert a row of nobody's twice and take it back: the second must fail, and none may stay.

        :raises WarehouseError: where two loads at once would double rows, or a failed one would leave some.
        """
        row = [None if column.nullable else self._probe_value(column) for column in self.table.columns]
        key = [row[index] for index in self._key_at]
        refused = enforced = None
        try:
            cursor.execute(self._insert_statement(), row)
        except Exception as error:
            refused = self.words(error)
        if not refused:
            try:
                cursor.execute(self._insert_statement(), row)
            except Exception:
                enforced = True
        self._roll_back(connection)
        if refused:
            raise self.error(f"a row to try it out was refused: {refused}")
        cursor.execute(f"SELECT COUNT(*) FROM {self.target} WHERE {self._same_key()}", key)
        if int(cursor.fetchone()[0]):
            cursor.execute(f"DELETE FROM {self.target} WHERE {self._same_key()}", key)
            connection.commit()
            raise self.error(
                "rows stay although they were rolled back: the database, or this connection, has no transactions, and "
                "a load that fails would leave a part of its rows"
            )
        self._roll_back(connection)
        if not enforced:
            raise self.error(
                f"it takes two rows with one key ({', '.join(self.table.key)}), so two loads at once would double "
                "rows: it needs a primary key, and a database that enforces it"
            )

    def _probe_value(self, column: Column) -> Any:
        if column.type.name == "text":
            return uuid4().hex[: column.type.length]
        if column.type.name == "bigint":
            return -(uuid4().int >> 66)
        return self.parameter(column, _PROBE[column.type.name])

    def _roll_back(self, connection: Any) -> None:
        refused = ""
        try:
            connection.rollback()
        except Exception as error:
            refused = connect_error_message(error)  # no row has been seen yet
        if refused:
            raise self.error(f"the database cannot roll back ({refused}): a load needs a transaction")

    def words(self, error: BaseException) -> str:
        return redacted_message(error, chain.from_iterable(self._under_way), (*self.table.names, str(self.job.name)))

    def _prepare(self, connection: Any, cursor: Any) -> None:
        """Create the table or add columns, in a transaction of its own: many databases commit at DDL anyway."""
        there = self._columns(connection, cursor)
        statements = (
            [self.create_statement()]
            if there is None
            else [self.addition(column) for column in self.missing(dict.fromkeys(there, ""))]
        )
        for statement in statements:
            refused = None
            try:
                cursor.execute(statement)
                connection.commit()
            except Exception as error:
                self._roll_back(connection)
                refused = connect_error_message(error)  # no row has been seen yet
            if refused and not self._complete(connection, cursor):
                raise self.error(f"{refused}. Create it as your database likes it, then load again:\n{statement}")

    def _complete(self, connection: Any, cursor: Any) -> bool:
        """Whether somebody else made the table in the meantime."""
        there = self._columns(connection, cursor)
        return there is not None and not self.missing(dict.fromkeys(there, ""))

    def _columns(self, connection: Any, cursor: Any) -> list[str] | None:
        try:
            cursor.execute(f"SELECT * FROM {self.target} WHERE 1 = 0")
        except Exception:  # no two drivers agree on how they say that there is no such table
            self._roll_back(connection)
            return None
        names = [str(column[0]).lower() for column in cursor.description]
        cursor.fetchall()
        self._roll_back(connection)  # what was looked up must not stay locked while the rows come in
        return names


class _Spool:
    """All rows of a load in a temporary file: each key once, the last of its rows, in the order of the keys.

    So the user's table is not locked while the rows come, two loads lock in the same order, and can be repeated.
    """

    def __init__(self, dialect: Portable) -> None:
        self.dialect = dialect
        self._file = sqlite3.connect("", isolation_level=None)
        key = ", ".join(f"k{index}" for index in dialect._key_at)
        self._file.execute(f"CREATE TABLE spool ({key}, line BLOB, PRIMARY KEY ({key})) WITHOUT ROWID")

    def fill(self) -> None:
        """Take all rows."""
        marks = ", ".join("?" for _ in [*self.dialect._key_at, "line"])
        self._file.execute("BEGIN")
        self._file.executemany(f"INSERT OR REPLACE INTO spool VALUES ({marks})", self._lines())

    def rows(self) -> Iterator[Row]:
        """The rows, as often as wanted."""
        for (line,) in self._file.execute("SELECT line FROM spool"):
            yield pickle.loads(line)

    def close(self) -> None:
        self._file.close()

    def _lines(self) -> Iterator[tuple[Any, ...]]:
        dialect = self.dialect
        for row in dialect.job.source.encoded(Encoder(dialect.table, each(_CONVERTS))):
            yield (*dialect._key(row), pickle.dumps(row, pickle.HIGHEST_PROTOCOL))


class _Spools(list[_Spool]):
    """Spools that are removed on leaving the `with`."""

    def __init__(self, dialects: Iterable[Portable]) -> None:
        super().__init__(map(_Spool, dialects))

    def __enter__(self) -> _Spools:
        return self

    def __exit__(self, *_: object) -> None:
        for spool in self:
            spool.close()


def _comparable(value: Any) -> Any:
    """Key values that drivers give back in other types than they take."""
    if isinstance(value, datetime.datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    if isinstance(value, datetime.date):
        return value.isoformat()
    return int(value) if isinstance(value, bool) or type(value).__name__ == "Decimal" else value


def _batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch
