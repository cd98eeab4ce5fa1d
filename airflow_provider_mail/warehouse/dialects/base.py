"""The base class of all dialects: the pieces of SQL and the checks that every database needs."""

from __future__ import annotations

import datetime
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_provider_mail.warehouse.coverage import Between
from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message, sqlstate
from airflow_provider_mail.warehouse.request import LoadRequest, LoadResult, Where
from airflow_provider_mail.warehouse.rows import fits
from airflow_provider_mail.warehouse.table import Column, TableName, quoted

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

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


class Dialect(ABC):
    """How one kind of database is loaded; an instance serves one load.

    :param hook: the hook of the database.
    :param request: the load.
    """

    types: ClassVar[Mapping[str, str]] = STANDARD_TYPES
    """The declared type of a column, by the name of the portable type."""
    parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Converts a value to what the driver takes as a parameter, by the name of the portable type; absent: unchanged."""
    unix_time: ClassVar[str | None] = None
    """The expression for the seconds since 1970 by the database's clock."""

    def __init__(self, hook: DbApiHook, request: LoadRequest) -> None:
        self.hook = hook
        self.request = request
        self.table = request.table
        self.target = self._qualified(request.name)
        self.loaded_at = datetime.datetime.now(datetime.UTC)

    @classmethod
    def read_clock(cls, cursor: Any) -> datetime.datetime:
        """Return the time by the database's clock.

        :param cursor: an open cursor.
        """
        cursor.execute(f"SELECT {cls.unix_time}")
        return datetime.datetime.fromtimestamp(float(cursor.fetchone()[0]), datetime.UTC)

    @classmethod
    def open_reader(cls, hook: DbApiHook, connection: Any) -> Any:
        """Open a cursor for one statement that reads. Where the database can, the statement cannot write.

        :param hook: the hook of the database.
        :param connection: an open connection that reads nothing else.
        """
        return connection.cursor()

    @classmethod
    def close_reader(cls, connection: Any, cursor: Any) -> None:
        """Close a cursor, of which not all rows may have been read.

        :param connection: its connection.
        :param cursor: the cursor.
        """
        cursor.close()

    @abstractmethod
    def load(self, connection: Any) -> LoadResult:
        """Load the rows in one transaction, which is committed on success.

        :param connection: an open connection of the driver.
        """

    def delete(self, connection: Any, conditions: Iterable[Where]) -> int:
        """Delete the rows of the table that fulfil one of the conditions, and commit; return their number.

        :param connection: an open connection of the driver.
        :param conditions: values by column.
        """
        return self._change(connection, [(f"DELETE FROM {self.target}", [], where) for where in conditions])

    def update(self, connection: Any, where: Where, values: Mapping[str, Any]) -> int:
        """Change the rows of the table that fulfil a condition, and commit; return their number.

        :param connection: an open connection of the driver.
        :param where: values by column.
        :param values: the new values by column.
        """
        assignments = ", ".join(f"{self._column(name)} = {self.hook.placeholder}" for name in values)
        parameters = [self._parameter(self.table[name], value) for name, value in values.items()]
        return self._change(connection, [(f"UPDATE {self.target} SET {assignments}", parameters, where)])

    def _change(self, connection: Any, statements: Sequence[tuple[str, list[Any], Where]]) -> int:
        """Run statements with their conditions in one transaction; return how many rows they changed."""

        def attempt() -> int:
            count = 0
            self._begin(connection)
            with self._cursor(connection) as cursor:
                for statement, parameters, where in statements:
                    condition, values = self._condition("conditions", where)
                    cursor.execute(f"{statement} WHERE {condition}", [*parameters, *values])
                    count += self._affected(cursor)
                connection.commit()
            return count

        return self._retry_conflicts(attempt, connection.rollback)

    @abstractmethod
    def existing_columns(self, connection: Any) -> Collection[str]:
        """Return the lower-case names of the table's columns; none when it does not exist.

        :param connection: an open connection of the driver.
        """

    def column(self, name: str) -> str:
        """Spell a column in a statement.

        :param name: its name.
        """
        return self._column(name)

    def select_page(self, columns: Iterable[str], by: str) -> str:
        """Return the statement for the rows behind a value, its parameter, in the order of the column.

        :param columns: names of the columns to select.
        :param by: name of the column to compare and sort by.
        """
        # Without LIMIT, which not every database has: the rest need not be fetched.
        order = self._column(by)
        names = self._columns_list(columns)
        return f"SELECT {names} FROM {self.target} WHERE {order} > {self.hook.placeholder} ORDER BY {order}"

    def _begin(self, connection: Any) -> None:
        """Configure the connection."""
        if self.hook.supports_autocommit:
            self.hook.set_autocommit(connection, False)

    def _cursor(self, connection: Any) -> AbstractContextManager[Any]:
        """Open a cursor of this connection; closed on exit."""
        return closing(connection.cursor())

    def _affected(self, cursor: Any) -> int:
        """How many rows the last statement deleted or updated."""
        return int(cursor.rowcount)

    def _qualified(self, name: TableName) -> str:
        """Spell the name of a table in a statement."""
        return ".".join(quoted(part.text) for part in name.parts)

    def _column(self, name: str) -> str:
        """Spell a column in a statement; most databases need no quotes for our names."""
        return name

    def _columns_list(self, names: Iterable[str], alias: str = "") -> str:
        """Spell columns, separated by commas."""
        return ", ".join(f"{alias}{self._column(name)}" for name in names)

    def _parameter(self, column: Column, value: Any) -> Any:
        """Convert one value of ``column`` to what the driver takes."""
        convert = self.parameters.get(column.type.name)
        return convert(value) if convert else value

    def _load_values(self) -> list[Any]:
        """The values of the table's ``load_columns``, as parameters."""
        values = self.request.load_values(self.loaded_at)
        return [
            None if value is None else self._parameter(column, value)
            for column, value in zip(self.table.load_columns, values, strict=True)
        ]

    def _load_marks(self) -> str:
        """The placeholders of these parameters, each after a comma."""
        return f", {self.hook.placeholder}" * len(self.table.load_columns)

    def _load_assignments(self, alias: str = "") -> str:
        """Assignments of these parameters, each after a comma."""
        return "".join(f", {alias}{self._column(name)} = {self.hook.placeholder}" for name in self.table.load_names)

    # Table definition

    def _column_type(self, column: Column) -> str:
        """The type with which the column is declared."""
        return self.types[column.type.name]

    def _definition(self, column: Column) -> str:
        """One line of CREATE TABLE."""
        return f"{self._column(column.name)} {self._column_type(column)}{'' if column.nullable else ' NOT NULL'}"

    def _create_statement(self) -> str:
        """CREATE TABLE with all columns and the key."""
        key = f"PRIMARY KEY ({self._columns_list(self.table.key)})"
        lines = [*map(self._definition, self.table.stored_columns), key]
        return f"CREATE TABLE {self.target} (\n  " + ",\n  ".join(lines) + "\n)"

    def _addition(self, column: Column) -> str:
        """ALTER TABLE for a column of a later version; nullable, since existing rows have no value for it."""
        return f"ALTER TABLE {self.target} ADD {self._column(column.name)} {self._column_type(column)}"

    def _missing(self, existing: Iterable[str]) -> list[Column]:
        """The declared columns that the table lacks.

        :param existing: lower-case names of the table's columns.
        :raises WarehouseError: when a column of the key is missing, which cannot be added.
        """
        names = set(existing)
        columns = [column for column in self.table.stored_columns if column.name not in names]
        for column in columns:
            if column.name in self.table.key:
                raise self.error(f"it has no column {column.name}, which is part of the key; another `table`?")
        return columns

    # Conditions

    def _condition(self, argument: str, where: Where, alias: str = "") -> Condition:
        """The condition that columns have the given values.

        :param argument: the argument that ``where`` comes from, for errors.
        :param where: by column, a value, ``None`` or `Between`.
        :param alias: prefix of the columns, such as ``t.``.
        :raises ValueError: when a value does not have the type of its column.
        """
        parts: list[str] = []
        values: list[Any] = []
        for name, wanted in where.items():
            column, mark, spelled = self.table[name], self.hook.placeholder, f"{alias}{self._column(name)}"
            if wanted is None and column.nullable:
                parts.append(f"{spelled} IS NULL")
                continue
            if isinstance(wanted, Between):
                parts.append(f"{spelled} BETWEEN {mark} AND {mark}")
                ends = [wanted.low, wanted.high]
            else:
                parts.append(f"{spelled} = {mark}")
                ends = [wanted]
            if any(end is None or not fits(column, type(end)) for end in ends):
                raise ValueError(f"`{argument}` compares column {name} with a value that is not {column.type.name}")
            values += [self._parameter(column, end) for end in ends]
        return " AND ".join(parts), values

    def check_conditions(self) -> None:
        """Reject an invalid condition before the load begins."""
        self._window()
        for where in self.request.covers.parts.values() if self.request.covers else ():
            self._condition("covers", where)

    def _window(self, alias: str = "") -> Condition:
        """The condition of ``replace_where``."""
        return self._condition("replace_where", self.request.replace_where or {}, alias)

    def _last_observed(self, alias: str = "") -> str:
        """The time at which a row of the table was last observed to be as it is, or to be gone."""
        observed, gone = f"{alias}{self._column(str(self.table.observed))}", self.table.gone
        return f"coalesce({alias}{self._column(gone)}, {observed})" if gone else observed

    # Steps of a load

    def _delete_expired(self, cursor: Any) -> None:
        """Delete rows that were observed before ``expire_before``, except those of ``replace_where``."""
        if self.request.expire_before is None:
            return
        observed = self.table[str(self.table.observed)]
        condition = f"{self._column(observed.name)} < {self.hook.placeholder}"
        values = [self._parameter(observed, self.request.expire_before)]
        if self.request.replace_where:
            window, more = self._window()
            condition, values = f"{condition} AND NOT ({window})", [*values, *more]
        cursor.execute(f"DELETE FROM {self.target} WHERE {condition}", values)

    def _window_rows(self, cursor: Any) -> int:
        """Count the rows in ``replace_where`` if there is a ``fall_limit``; otherwise 0."""
        if not self.request.fall_limit or not self.request.replace_where:
            return 0
        condition, values = self._window()
        cursor.execute(f"SELECT count(*) FROM {self.target} WHERE {condition}", values)
        return int(cursor.fetchone()[0])

    def _check_fall(self, cursor: Any, before: int) -> None:
        """Compare the number of rows in ``replace_where`` with that before the load; called before the commit.

        :raises FallError: when it has fallen too far.
        """
        if before and self.request.fall_limit:
            self.request.fall_limit.check(before, self._window_rows(cursor), self.prefix)

    def _insert_result(self, inserted_by: Mapping[Any, int]) -> LoadResult:
        """The result of a load that updates nothing.

        :param inserted_by: the inserted rows by their value of `Table.counted_by`, or all by ``None``.
        """
        source, inserted = self.request.source, sum(inserted_by.values())
        unchanged = source.read - source.rejected - inserted
        shown = inserted_by if self.table.counted_by else None
        return LoadResult(source.read, inserted, 0, unchanged, 0, inserted_by=shown)

    def _reject_future(self, cursor: Any, source: str, condition: Condition, observed: str) -> None:
        """Fail when rows claim to have been observed in the future: until then no load would replace them.

        :param source: the tables to select from.
        :param condition: which rows of them.
        :param observed: the time of observation, as spelled there.
        """
        if self.request.not_after is None or not self.table.observed:
            return
        latest = self.request.not_after()
        where, values = condition
        at = self._parameter(self.table[self.table.observed], latest)
        cursor.execute(
            f"SELECT COUNT(*) FROM {source} WHERE {where} AND {observed} > {self.hook.placeholder}", [*values, at]
        )
        if count := int(cursor.fetchone()[0]):
            raise self._future_error(count, latest)

    def _future_error(self, count: int, latest: datetime.datetime) -> WarehouseError:
        """The error about rows that were observed after ``latest``."""
        now = f"'{latest.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}'"
        fixes = [(self.table.observed, now), *([(self.table.gone, "NULL")] if self.table.gone else [])]
        return self.error(
            f"{count} rows have a time of observation after {now} (UTC), which lies in the future, so no newer row "
            "would replace them. A worker with a wrong clock has written them. Correct them, then load again: "
            + "; ".join(f"UPDATE {self.request.name} SET {name} = {to} WHERE {name} > {now}" for name, to in fixes)
        )

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
        """Describe a driver's exception without values of rows.

        :param error: the driver's exception.
        """
        return safe_message(error)

    def error(self, message: str) -> WarehouseError:
        """Build an error that names the table and the connection.

        :param message: what is wrong.
        """
        return WarehouseError(f"{self.prefix}{message}")

    @property
    def prefix(self) -> str:
        """The beginning of error messages."""
        return f"table {self.request.name} on connection {self.hook.get_conn_id()!r}: "
