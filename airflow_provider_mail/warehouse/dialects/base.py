"""The base class of all dialects: the pieces of SQL and the checks that every database needs."""

from __future__ import annotations

import datetime
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_provider_mail.warehouse.errors import WarehouseError, safe_message, sqlstate
from airflow_provider_mail.warehouse.request import Between, LoadRequest, LoadResult, OneOf, Where
from airflow_provider_mail.warehouse.rows import ReadValue, batched, fits
from airflow_provider_mail.warehouse.table import Column, TableName, quoted

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.dialects.inbox import InboxSql

_MAX_NAMES = 500
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
    def opening(cls, hook: DbApiHook, seconds: float, held: ExitStack) -> AbstractContextManager[object]:
        """Wait until the database can be opened, before a connection is opened in this context.

        :param held: takes what is held as long as the connection is open.
        """
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
        """Return the conversions that the values of some columns need, by the place of the column.

        :param description: the columns, as DB-API has them.
        """
        return {}

    @classmethod
    def may_create(cls, cursor: Any) -> bool:
        """Whether the user of the connection may create tables, as far as the database tells."""
        return True

    @classmethod
    def close_reader(cls, connection: Any, cursor: Any) -> None:
        cursor.close()


class Dialect(Reader, ABC):
    """How one kind of database is loaded; an instance serves one load."""

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
    inbox: ClassVar[type[InboxSql] | None] = None
    """The spelling of the inbox of pushes, for a database that can hold one."""

    def __init__(self, hook: DbApiHook, request: LoadRequest) -> None:
        self.hook = hook
        self.request = request
        self.table = request.table
        self.target = self._qualified(request.resolved or request.name)
        self.loaded_at = datetime.datetime.now(datetime.UTC)
        self._missing_names: set[str] = set()
        self.is_asked = False
        self.is_confirmed = request.removal is None or request.removal.read_again is None

    @classmethod
    def read_clock(cls, cursor: Any) -> datetime.datetime:
        cursor.execute(f"SELECT {cls.unix_time}")
        return datetime.datetime.fromtimestamp(float(cursor.fetchone()[0]), datetime.UTC)

    @classmethod
    def limited(cls, sql: str, count: int, offset: int) -> str:
        return f"{sql} LIMIT {count} OFFSET {offset}"

    @classmethod
    def month(cls, column: str) -> str:
        """Return the month in UTC of a timestamp, as a number such as 202603, or what begins as 2026-03 as text."""
        return f"100 * EXTRACT(YEAR FROM {column}) + EXTRACT(MONTH FROM {column})"

    @abstractmethod
    def load(self, connection: Any) -> LoadResult:
        """Load the rows in one transaction, which is committed on success."""

    def delete(self, connection: Any, conditions: Iterable[Where]) -> int:
        return self._change(connection, [(f"DELETE FROM {self.target}", [], where) for where in conditions])

    def update(self, connection: Any, where: Where, values: Mapping[str, Any]) -> int:
        assignments = ", ".join(f"{self._column(name)} = {self.hook.placeholder}" for name in values)
        parameters = [self._parameter(self.table[name], value) for name, value in values.items()]
        return self._change(connection, [(f"UPDATE {self.target} SET {assignments}", parameters, where)])

    def _change(self, connection: Any, statements: Sequence[tuple[str, list[Any], Where]]) -> int:
        def work(execute: Callable[..., int]) -> int:
            count = 0
            for statement, parameters, where in statements:
                condition, values = self._condition("conditions", where, spell=self._as_parameter)
                count += execute(f"{statement} WHERE {condition}", [*parameters, *values])
            return count

        return self.transact(connection, work)

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

    @abstractmethod
    def existing_columns(self, connection: Any) -> Collection[str]:
        """Return the lower-case names of the table's columns; none when it does not exist."""

    def resolved_name(self, connection: Any) -> TableName:
        """Return the name of the table, with its schema if the database shows in which one it finds the table."""
        return self.request.name

    def select_page(self, columns: Iterable[str], by: str) -> str:
        """Return the statement that selects the rows after a value, which is its parameter, ordered by that column."""
        # Without LIMIT, which not every database has: the rest need not be fetched.
        order = self._column(by)
        names = self._columns_list(columns)
        return f"SELECT {names} FROM {self.target} WHERE {order} > {self.hook.placeholder} ORDER BY {order}"

    def select_where(self, columns: Iterable[str], where: Where) -> Condition:
        condition, values = self._condition("where", where, spell=self._as_parameter)
        return f"SELECT {self._columns_list(columns)} FROM {self.target} WHERE {condition}", values

    def _begin(self, connection: Any) -> None:
        if self.hook.supports_autocommit:
            self.hook.set_autocommit(connection, False)

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

    def _as_parameter(self, column: Column, value: Any) -> Condition:
        return self.hook.placeholder, [self._parameter(column, value)]

    def _spelled(self, column: Column, value: Any) -> Condition:
        """Spell a value in the statements of a load."""
        return self._as_parameter(column, value)

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

    def _condition(
        self,
        argument: str,
        where: Where,
        alias: str = "",
        *,
        spell: Callable[[Column, Any], Condition] | None = None,
    ) -> Condition:
        """The condition that columns have the given values.

        :param argument: the argument that ``where`` comes from, for errors.
        :param where: by column, a value, ``None``, `Between` or `OneOf`.
        :param alias: prefix of the columns, such as ``t.``.
        :param spell: spells a value of a column. Default: as in the statements of a load.
        :raises ValueError: when a value does not have the type of its column.
        """
        parts: list[str] = []
        parameters: list[Any] = []
        for name, expected in where.items():
            column, spelled = self.table[name], f"{alias}{self._column(name)}"
            if expected is None and column.nullable:
                parts.append(f"{spelled} IS NULL")
                continue
            values = [expected]
            if isinstance(expected, Between):
                values = [expected.low, expected.high]
            elif isinstance(expected, OneOf):
                values = [*expected.values]
            if any(value is None or not fits(column, type(value)) for value in values):
                raise ValueError(f"`{argument}` compares column {name} with a value that is not {column.type.name}")
            marks = []
            for value in values:
                mark, mark_parameters = (spell or self._spelled)(column, value)
                marks.append(mark)
                parameters += mark_parameters
            if isinstance(expected, Between):
                parts.append(f"{spelled} BETWEEN {' AND '.join(marks)}")
            elif isinstance(expected, OneOf):
                parts.append(f"{spelled} IN ({', '.join(marks)})")
            else:
                parts.append(f"{spelled} = {marks[0]}")
        return " AND ".join(parts), parameters

    def check_conditions(self) -> None:
        """Reject an invalid condition before the load begins."""
        self._window()
        for where in self.request.covers.parts.values() if self.request.covers else ():
            self._condition("covers", where)

    def _window(self, alias: str = "") -> Condition:
        return self._condition("replace_where", self.request.replace_where or {}, alias)

    def _last_observed(self, alias: str = "") -> str:
        """The time at which a row of the table was last observed to be as it is, or to be gone."""
        observed, gone = f"{alias}{self._column(str(self.table.observed))}", self.table.gone
        return f"coalesce({alias}{self._column(gone)}, {observed})" if gone else observed

    # Steps of a load

    def _delete_expired(self, cursor: Any) -> None:
        """Delete rows that were observed before ``expire_before``, except those of ``replace_where``."""
        if expired := self._expired():
            self._execute(cursor, f"DELETE FROM {self.target} WHERE {expired[0]}", expired[1])

    def _expired(self) -> Condition | None:
        """The condition for these rows; ``None`` without ``expire_before``."""
        if self.request.expire_before is None:
            return None
        observed = self.table[str(self.table.observed)]
        mark, values = self._spelled(observed, self.request.expire_before)
        condition = f"{self._column(observed.name)} < {mark}"
        if self.request.replace_where:
            window, window_values = self._window()
            condition, values = f"{condition} AND NOT ({window})", [*values, *window_values]
        return condition, values

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
        conditions = [self._condition("windows", window) for window in self._removable() if self.request.removal]
        return sum(
            self._count(cursor, f"SELECT COUNT(*) FROM {self.target} WHERE {condition}", values)
            for condition, values in conditions
        )

    def _check_removal(self, cursor: Any, before: int) -> None:
        """Compare the number of rows that may be removed with that before the load; called before the commit.

        :raises UnconfirmedError: when too many were removed.
        """
        if before and self.is_confirmed and self.request.removal:
            after = self._count_removable(cursor)
            self.request.removal.check(before, after, self.prefix, is_looked_up=self.is_asked)

    def _confirm(self, add_rows: Callable[[], object]) -> None:
        """Read a second time, without holding locks, and ask for the rows that would be marked as gone.

        :param add_rows: adds the rows of the source to those of the first reading.
        """
        assert self.request.removal
        assert self.request.removal.read_again
        _log.info("Table %s: rows would be removed; reading a second time to confirm it", self.request.name)
        self.is_confirmed = True
        self.request.source.extend(self.request.removal.read_again())
        add_rows()
        self._ask()

    def _ask(self, find: Callable[[], object] = lambda: None) -> None:
        """Ask the service for the rows that would be marked as gone.

        :param find: collects their names. Default: they are known already.
        """
        if (mark_gone := self.request.mark_gone) and mark_gone.exists:
            find()
            if names := sorted(self._missing_names):
                self._missing_names.difference_update(self.request.source.call(mark_gone.exists, names))
            self.is_asked = True

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

    def _insert_result(
        self, inserted_by: Mapping[Any, int], existing: Collection[tuple[Any, ...]] | None = None
    ) -> LoadResult:
        """The result of a load that updates nothing.

        :param inserted_by: the inserted rows by their value of `Table.counted_by`, or all by ``None``.
        :param existing: keys that the table had before. Default: unknown.
        """
        source, inserted = self.request.source, sum(inserted_by.values())
        unchanged = source.read - source.rejected - inserted
        reported = inserted_by if self.table.counted_by else None
        return LoadResult(source.read, inserted, 0, unchanged, 0, inserted_by=reported, existing=existing)

    def _reject_future(self, cursor: Any, source: str, condition: Condition, observed: str) -> None:
        """Fail when rows claim to have been observed in the future: until then no load would replace them."""
        if self.table.observed:
            self._reject_later(cursor, source, condition, observed, self.table[self.table.observed])

    def _reject_later(self, cursor: Any, source: str, condition: Condition, spelled: str, column: Column) -> None:
        if self.request.clock is None:
            return
        latest = self.request.clock.latest()
        condition_sql, values = condition
        mark, latest_values = self._spelled(column, latest)
        statement = f"SELECT COUNT(*) FROM {source} WHERE {condition_sql} AND {spelled} > {mark}"
        if count := self._count(cursor, statement, [*values, *latest_values]):
            raise self._future_error(cursor, count, latest)

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

    def _time_literal(self, value: datetime.datetime) -> str:
        return f"'{value.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}'"

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
