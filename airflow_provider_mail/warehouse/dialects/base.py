"""The base class of all dialects: the pieces of SQL and the checks that every database needs."""

from __future__ import annotations

import datetime
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message, sqlstate
from airflow_provider_mail.warehouse.request import Between, LoadRequest, OneOf, Where
from airflow_provider_mail.warehouse.rows import ReadValue
from airflow_provider_mail.warehouse.table import Column, TableName, quoted

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.dialects.inbox import InboxSql

STAGE = "airflow_provider_mail_stage"
_MAX_ATTEMPTS = 8
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.05, 0.5

T = TypeVar("T")
Condition = tuple[str, list[Any]]
"""A condition in SQL, with its parameters."""

STANDARD_TYPES: Mapping[str, str] = {
    "text": "TEXT",
    "bigint": "BIGINT",
    "integer": "INTEGER",
    "double": "DOUBLE PRECISION",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "json": "TEXT",
}

_log = logging.getLogger(__name__)


class Reader:
    """How a user's statement is read, in any database."""

    reusable: ClassVar[bool] = False
    """Whether another statement can be read on the same connection."""

    @classmethod
    def limit_connecting(cls, hook: DbApiHook, seconds: int, response_seconds: float | None) -> None:
        """Limit how long the driver takes to connect, if it can. Options that the connection sets take precedence.

        :param hook: a hook that nobody else uses.
        :param response_seconds: how long to wait for the response to a statement, for a driver whose wait no other
            thread can end.
        """

    @classmethod
    def opening(cls, hook: DbApiHook, seconds: float) -> AbstractContextManager[object]:
        """Wait until the database can be opened, in a context that lasts as long as the connection."""
        return nullcontext()

    @classmethod
    def busy_seconds(cls, error: BaseException) -> float:
        """Return for how long to repeat opening a connection that has failed with an error; 0 if that is in vain."""
        return 0.0

    @classmethod
    def open_reader(cls, hook: DbApiHook, connection: Any) -> Any:
        """Open a cursor for one statement that reads. If the database supports it, the statement cannot write."""
        return connection.cursor()

    @classmethod
    def column_readers(cls, description: Sequence[Sequence[Any]]) -> Mapping[int, ReadValue]:
        """Return the conversions that the values of some columns need, by the place of the column."""
        return {}

    @classmethod
    def may_create(cls, cursor: Any) -> bool:
        """Whether the user of the connection may create tables, as far as the database tells."""
        return True

    @classmethod
    def close_reader(cls, connection: Any, cursor: Any) -> None:
        cursor.close()


class Dialect(Reader, ABC):
    """The SQL of one kind of database; an instance serves one load."""

    types: ClassVar[Mapping[str, str]] = STANDARD_TYPES
    """The declared type of a column, by the name of the portable type."""
    parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Converts a value to what the driver takes as a parameter, by the name of the portable type; absent: unchanged."""
    text_cast: ClassVar[str] = "VARCHAR"
    """The type that a value is cast to for its text."""
    words: ClassVar[str | None] = None
    """The subquery for each ``word`` in a text, which is a parameter: a statement that is the same for any number of
    values costs drivers less than one with a placeholder for each. ``None`` in a database that plans it badly."""
    among: ClassVar[str] = "{column} IN ({words})"
    """The condition that a column has one of those words."""
    unix_time: ClassVar[str]
    """The expression for the seconds since 1970 by the database's clock."""
    held_seconds: ClassVar[float | None] = None
    """How long a connection may stay open where others cannot use the database meanwhile."""
    distinct: ClassVar[str]
    """The operator that is true if two lists of values differ, and that treats NULL as equal to NULL."""
    compatible_types: ClassVar[Mapping[str, tuple[str, ...]]]
    """Actual types that keep every value of a portable type, by its name."""
    inbox: ClassVar[type[InboxSql] | None] = None
    """The spelling of the inbox of pushes, for a database that can hold one."""

    def __init__(self, hook: DbApiHook, request: LoadRequest, stage: str = STAGE) -> None:
        self.hook = hook
        self.request = request
        self.table = request.table
        self.target = self._qualified(request.resolved or request.name)
        self.stage_name = stage
        self.loaded_at = datetime.datetime.now(datetime.UTC)

    @classmethod
    def read_clock(cls, cursor: Any) -> datetime.datetime:
        cursor.execute(f"SELECT {cls.unix_time}")
        return datetime.datetime.fromtimestamp(float(cursor.fetchone()[0]), datetime.UTC)

    @classmethod
    def month(cls, column: str) -> str:
        """Return the month in UTC of a timestamp, as a number such as 202603, or what begins as 2026-03 as text."""
        return f"100 * EXTRACT(YEAR FROM {column}) + EXTRACT(MONTH FROM {column})"

    def transact(self, connection: Any, work: Callable[[Callable[..., Any]], T]) -> T:
        def attempt() -> T:
            self._begin(connection)
            with self._cursor(connection) as cursor:
                self._open_transaction(cursor)

                def execute(statement: str, parameters: Sequence[Any] = (), *, reads: bool = False) -> Any:
                    self._execute(cursor, statement, list(parameters))
                    return cursor.fetchall() if reads else self._affected(cursor)

                result = work(execute)
                connection.commit()
            return result

        return self._retry_conflicts(attempt, connection.rollback)

    def _open_transaction(self, cursor: Any) -> None:
        """Begin a transaction; in most databases, the first statement does."""

    def existing_columns(self, connection: Any) -> Collection[str]:
        """Return the lower-case names of the table's columns; none when it does not exist."""
        with self._cursor(connection) as cursor:
            return self._columns(cursor)

    @abstractmethod
    def _columns(self, cursor: Any) -> dict[str, str]:
        """The types of the columns of the user's table, by name; empty when it does not exist."""

    def resolved_name(self, connection: Any) -> TableName:
        with self._cursor(connection) as cursor:
            return self._resolved_name(cursor)

    @abstractmethod
    def _resolved_name(self, cursor: Any) -> TableName:
        """The table's name with its schema, as the database spells them; those it would get if it does not exist."""

    @abstractmethod
    def _begin(self, connection: Any) -> None:
        """Prepare the connection for transactions."""

    def _cursor(self, connection: Any) -> AbstractContextManager[Any]:
        return closing(connection.cursor())

    def _affected(self, cursor: Any) -> int:
        return int(cursor.rowcount)

    def _qualified(self, name: TableName) -> str:
        return ".".join(quoted(part.text) for part in name.parts)

    def _column(self, name: str) -> str:
        """Most databases need no quotes for our names."""
        return name

    def _columns_list(self, names: Iterable[str], alias: str = "") -> str:
        return ", ".join(f"{alias}{self._column(name)}" for name in names)

    def _parameter(self, column: Column, value: Any) -> Any:
        convert = self.parameters.get(column.type.name)
        return convert(value) if convert else value

    def _execute(self, cursor: Any, statement: str, values: Sequence[Any] = ()) -> None:
        # Without parameters, drivers read a percent sign as it is.
        cursor.execute(statement, values) if values else cursor.execute(statement)

    def _count(self, cursor: Any, statement: str, values: Sequence[Any] = ()) -> int:
        self._execute(cursor, statement, values)
        return int(cursor.fetchone()[0])

    def _load_values(self) -> list[Any]:
        values = self.request.load_values(self.loaded_at)
        return [
            None if value is None else self._parameter(column, value)
            for column, value in zip(self.table.load_columns, values, strict=True)
        ]

    def _load_marks(self) -> str:
        return f", {self.hook.placeholder}" * len(self.table.load_columns)

    def _load_assignments(self, alias: str = "") -> str:
        return "".join(f", {alias}{self._column(name)} = {self.hook.placeholder}" for name in self.table.load_names)

    # Table definition

    def _column_type(self, column: Column) -> str:
        return self.types[column.type.name]

    def _definition(self, column: Column) -> str:
        return f"{self._column(column.name)} {self._column_type(column)}{'' if column.nullable else ' NOT NULL'}"

    def _create_statement(self) -> str:
        key = f"PRIMARY KEY ({self._columns_list(self.table.key)})"
        lines = [*map(self._definition, self.table.stored_columns), key, *self._keys()]
        return f"CREATE TABLE {self.target} (\n  " + ",\n  ".join(lines) + "\n)"

    def _keys(self) -> Sequence[str]:
        """The other keys in the definition of the table."""
        return ()

    def _addition(self, column: Column) -> str:
        """ALTER TABLE for a column of a later version; nullable, since existing rows have no value for it."""
        return f"ALTER TABLE {self.target} ADD {self._column(column.name)} {self._column_type(column)}"

    def _missing(self, existing: Iterable[str]) -> list[Column]:
        """The declared columns that the table lacks.

        :raises WarehouseError: when a column of the key is missing, which cannot be added.
        """
        names = set(existing)
        columns = [column for column in self.table.stored_columns if column.name not in names]
        for column in columns:
            if column.name in self.table.key:
                raise self.error(f"it has no column {column.name}, which is part of the key; another `table`?")
        return columns

    # Conditions

    def _condition(self, where: Where, alias: str = "") -> Condition:
        """The condition that columns have the given values.

        :param where: by column, a value, ``None``, `Between` or `OneOf`.
        """
        parts: list[str] = []
        parameters: list[Any] = []
        for name, expected in where.items():
            column, spelled = self.table[name], f"{alias}{self._column(name)}"
            mark = self.hook.placeholder
            values: Sequence[Any] = [expected]
            if expected is None:
                parts.append(f"{spelled} IS NULL")
                continue
            if isinstance(expected, Between):
                values = [expected.low, expected.high]
                parts.append(f"{spelled} BETWEEN {mark} AND {mark}")
            elif isinstance(expected, OneOf):
                values = expected.values
                parts.append(f"{spelled} IN ({', '.join([mark] * len(values))})")
            else:
                parts.append(f"{spelled} = {mark}")
            parameters += [self._parameter(column, value) for value in values]
        return " AND ".join(parts), parameters

    def _last_observed(self) -> str:
        """The time at which a row of the table was last observed to be as it is, or to be gone."""
        observed, gone = f"t.{self._column(str(self.table.observed))}", self.table.gone
        return f"coalesce(t.{self._column(gone)}, {observed})" if gone else observed

    # Statements of a load: `s` is the staged row, `t` the row of the user's table with its key

    def _can_hold(self, column: Column, actual: str) -> bool:
        return actual in self.compatible_types[column.type.name]

    @property
    def _staged(self) -> str:
        """What to select from to get each key once: its last row, or its first one if rows are never updated."""
        return self.stage_name

    def _staged_columns(self) -> str:
        return ", ".join(f"{column.name} {self._column_type(column)}" for column in self.table.columns)

    def _joined(self) -> str:
        """Staged rows beside those of the table that have their keys."""
        return f"{self._staged} AS s LEFT JOIN {self.target} AS t ON {self._same_key()}"

    def _same_key(self) -> str:
        return " AND ".join(f"s.{name} = t.{name}" for name in map(self._column, self.table.key))

    def _exists(self) -> str:
        return f"(t.{self._column(self.table.key[0])} IS NOT NULL)"

    def _is_newer(self, alias: str) -> str:
        """Also true for equal times: of two rows with one time of observation, that of the later load is taken."""
        if not (observed := self.table.observed):
            return "true"
        return f"coalesce({alias}.{observed} >= {self._last_observed()}, true)"

    def _is_changed(self) -> str:
        if not (content := self.table.content):
            return "false"
        staged, existing = (self._columns_list(content, alias) for alias in ("s.", "t."))
        return f"(({staged}) {self.distinct} ({existing}))"

    def _needs_observed_at(self) -> Condition:
        """Whether an unchanged row needs the time of this observation: unless ``mail_loads`` records it."""
        if not self.table.observed:
            return "false", []
        if not self.request.covers or not self.request.is_complete:
            return "true", []
        condition, values = self._condition(self.request.covers.whole, "s.")
        return f"NOT coalesce({condition}, false)", values

    def _upsert(self, source: str, condition: str = "true") -> str:
        """Insert from ``source``, or update the row with the same key unless it is newer.

        The values of ``load_columns`` are parameters, before those of the condition.
        """
        action = "NOTHING"
        if self.table.updated:
            updated = (*self.table.updated, *self.table.load_names)
            assignments = ", ".join(f"{name} = excluded.{name}" for name in updated)
            action = f"UPDATE SET {assignments} WHERE {self._is_newer('excluded')}"
        key = self._columns_list(self.table.key)
        return f"{self._insert(source)} WHERE {condition} {self._ordered()} ON CONFLICT ({key}) DO {action}"

    def _insert(self, source: str) -> str:
        selected = f"{self._columns_list(self.table.names, 's.')}{self._load_marks()}"
        names = self._columns_list(self.table.stored_names)
        return f"INSERT INTO {self.target} AS t ({names}) SELECT {selected} FROM {source}"

    def _ordered(self, alias: str = "s.") -> str:
        """The order in which all loads write, so that two of them queue instead of deadlocking."""
        return f"ORDER BY {self._columns_list(self.table.key, alias)}"

    def _delete_stale_sql(self, condition: str) -> str:
        """Delete rows of the table that fulfil the condition and were not staged."""
        return f"DELETE FROM {self.target} AS t WHERE {condition} AND NOT {self._is_staged()}"

    def _mark_stale_sql(self, condition: str) -> str:
        """Mark such rows as gone; the time is the first parameter, before the values of ``load_columns``."""
        gone = f"{self._column(str(self.table.gone))} = {self.hook.placeholder}{self._load_assignments()}"
        return f"UPDATE {self.target} AS t SET {gone} WHERE {condition} AND NOT {self._is_staged()}"

    def _select_stale_sql(self, selected: str, condition: str) -> str:
        return f"SELECT {selected} FROM {self.target} AS t WHERE {condition} AND NOT {self._is_staged()}"

    def _stale(self, window: Condition, late: Sequence[Where], latest: Any) -> Condition:
        """The condition for rows in a window that are stale unless they were staged.

        :param late: the conditions for what another load has read later, which is left out.
        :param latest: the time of this load. Rows that were observed later are not stale; without a time, there is
            nothing to compare with.
        """
        condition, values = window
        for where in late:
            excluded, excluded_values = self._condition(where, "t.")
            condition += f" AND NOT coalesce({excluded}, false)"
            values += excluded_values
        if latest is not None:
            condition += f" AND coalesce({self._last_observed()} <= {self.hook.placeholder}, true)"
            values.append(latest)
        return condition, values

    def _is_staged(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.stage_name} AS s WHERE {self._same_key()})"

    def _conflicts(self, error: BaseException) -> bool:
        """Whether the transaction failed because of a concurrent one, so that repeating it may succeed."""
        return str(sqlstate(error)) in ("40001", "40P01")

    def _retry_conflicts(self, attempt: Callable[[], T], undo: Callable[[], object]) -> T:
        """Run a transaction; repeat it after a conflict with another one, up to eight attempts in all."""
        for number in range(1, _MAX_ATTEMPTS):
            try:
                return attempt()
            except Exception as error:
                if not self._conflicts(error):
                    raise
                _log.info(
                    "Table %s: conflict with another transaction (attempt %s of %s); retrying",
                    self.request.name,
                    number,
                    _MAX_ATTEMPTS,
                )
            undo()
            # A random pause, or the same two transactions conflict again.
            time.sleep(min(_MAX_PAUSE_S, _MIN_PAUSE_S * 2**number) * random.random())
        return attempt()

    # Errors

    def safe_message(self, error: BaseException) -> str:
        return safe_message(error)

    def error(self, message: str) -> WarehouseError:
        return WarehouseError(f"{self.prefix}{message}")

    @property
    def prefix(self) -> str:
        return f"table {self.request.name} on connection {self.hook.get_conn_id()!r}: "
