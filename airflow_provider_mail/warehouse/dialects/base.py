"""What all databases have in common, and what each must answer for itself."""

from __future__ import annotations

import datetime
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_provider_mail.warehouse.coverage import Between, Coverage, MarkGone
from airflow_provider_mail.warehouse.errors import FallError, WarehouseError, connect_error_message, words
from airflow_provider_mail.warehouse.rows import Source, fits
from airflow_provider_mail.warehouse.table import Column, Table, TableName

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook


BUSY_FILE_WAITS_S = {
    "Could not set lock on file": 60.0,
    # What a file looks like to others while DuckDB makes it, and what any other file looks like for good.
    "not a valid DuckDB database file": 5.0,
}
"""How long a database in a file is waited for, by what its driver says."""

_ATTEMPTS = 8
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5

T = TypeVar("T")
Where = Mapping[str, Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadResult:
    """What a load did to the table. `None`: the database has no cheap way to say so.

    :param rows: given by the caller; of rows with one key only the last counts in the other numbers.
    :param inserted: had a key that was not there.
    :param changed: replaced a row that said something else.
    :param unchanged: were there already, apart from when they were observed.
    :param outdated: were left out because the table knows something that was observed later.
    :param deleted: of `replace_where`, not given again.
    :param gone: of `mark_gone`, not given again and not marked before.
    """

    rows: int
    inserted: int | None = None
    changed: int | None = None
    unchanged: int | None = None
    outdated: int | None = None
    deleted: int | None = None
    gone: int | None = None


FEWEST_ROWS_TO_COMPARE = 10
"""Below so many rows a fraction says nothing; only an empty result is checked."""


@dataclass(frozen=True, kw_only=True)
class FallLimit:
    """How far the number of rows in `replace_where` may fall in one load.

    :param allow_empty: whether none may be left where there were some.
    :param max_fraction: the largest part of the rows, from 0 to 1, that may be removed on balance.
    """

    allow_empty: bool
    max_fraction: float

    def exceeded(self, before: int, after: int) -> bool:
        """Whether a load that found `before` rows may not leave `after`."""
        if not before:
            return False
        if not after:
            return not self.allow_empty
        return before >= FEWEST_ROWS_TO_COMPARE and (before - after) / before > self.max_fraction


@dataclass(frozen=True)
class LoadRequest:
    """One load: these rows into this table."""

    table: Table
    name: TableName
    source: Source
    replace_where: Where | None = None
    covers: Coverage | None = None
    mark_gone: MarkGone | None = None
    fall_limit: FallLimit | None = None
    expire_before: datetime.datetime | None = None
    not_after: Callable[[], datetime.datetime] | None = None
    """No row can have been observed later than this."""


class Dialect(ABC):
    """How one kind of database is loaded; made for one load."""

    types: ClassVar[Mapping[str, str]]
    """By the name of a portable type, what a column is declared as."""
    unix_time: ClassVar[str | None] = None
    """The expression for the seconds since 1970 by the database's clock."""

    def __init__(self, hook: DbApiHook, job: LoadRequest) -> None:
        self.hook = hook
        self.job = job
        self.table = job.table
        self.target = self.qualified(job.name)

    @abstractmethod
    def load(self, connection: Any) -> LoadResult:
        """Load the job in one transaction of `connection`, which is committed on success."""

    @abstractmethod
    def qualified(self, name: TableName) -> str:
        """Spell the user's table in a statement."""

    def column(self, name: str) -> str:
        """Spell a column in a statement; most databases need no quotes for the names that we use."""
        return name

    def columns_list(self, names: Iterable[str], alias: str = "") -> str:
        """Columns separated by commas."""
        return ", ".join(f"{alias}{self.column(name)}" for name in names)

    @abstractmethod
    def parameter(self, column: Column, value: Any) -> Any:
        """Turn one value of `column` into what the driver takes."""

    def column_type(self, column: Column) -> str:
        """What the column is declared as."""
        return self.types[column.type.name]

    def definition(self, column: Column) -> str:
        """One line of CREATE TABLE."""
        return f"{self.column(column.name)} {self.column_type(column)}{'' if column.nullable else ' NOT NULL'}"

    def create_statement(self) -> str:
        """CREATE TABLE with all columns and the key."""
        lines = [*map(self.definition, self.table.columns), f"PRIMARY KEY ({self.columns_list(self.table.key)})"]
        return f"CREATE TABLE {self.target} (\n  " + ",\n  ".join(lines) + "\n)"

    def addition(self, column: Column) -> str:
        """ALTER TABLE with a column that came later; nullable, since the rows that are there know nothing of it."""
        return f"ALTER TABLE {self.target} ADD {self.column(column.name)} {self.column_type(column)}"

    def missing(self, there: Mapping[str, str]) -> list[Column]:
        """The declared columns that the table lacks.

        :param there: by lower-case name, the columns that it has.
        :raises WarehouseError: when one of them belongs to the key and so cannot be added.
        """
        columns = [column for column in self.table.columns if column.name not in there]
        for column in columns:
            if column.name in self.table.key:
                raise self.error(f"it has no column {column.name}, which is part of the key; another `table`?")
        return columns

    def window(self, alias: str = "") -> tuple[str, list[Any]]:
        """The condition of `replace_where`, with its parameters."""
        return self.condition("replace_where", self.job.replace_where or {}, alias)

    def delete_expired(self, cursor: Any) -> None:
        """Delete what was observed before `expire_before`, apart from what `replace_where` deals with."""
        if self.job.expire_before is None:
            return
        observed = self.table[str(self.table.observed)]
        condition = f"{self.column(observed.name)} < {self.hook.placeholder}"
        values = [self.parameter(observed, self.job.expire_before)]
        if self.job.replace_where:
            window, more = self.window()
            condition, values = f"{condition} AND NOT ({window})", [*values, *more]
        cursor.execute(f"DELETE FROM {self.target} WHERE {condition}", values)

    def window_rows(self, cursor: Any) -> int:
        """How many rows are in `replace_where`, where their number may not fall too far; else 0."""
        if not self.job.fall_limit or not self.job.replace_where:
            return 0
        condition, values = self.window()
        cursor.execute(f"SELECT count(*) FROM {self.target} WHERE {condition}", values)
        return int(cursor.fetchone()[0])

    def check_fall(self, cursor: Any, before: int) -> None:
        """Compare with what is left, before it is committed.

        :raises FallError: when too few rows are left.
        """
        if not before:
            return
        after = self.window_rows(cursor)
        if self.job.fall_limit and self.job.fall_limit.exceeded(before, after):
            raise FallError(f"{self.prefix}{before} rows would become {after}", before=before, after=after)

    def condition(self, argument: str, where: Where, alias: str = "") -> tuple[str, list[Any]]:
        """A condition, with its parameters.

        :raises ValueError: naming `argument`, when a column cannot be compared with what it is to be.
        """
        parts: list[str] = []
        values: list[Any] = []
        for name, wanted in where.items():
            column, mark, spelled = self.table[name], self.hook.placeholder, f"{alias}{self.column(name)}"
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
                raise ValueError(f"`{argument}` compares column {name} with something that is no {column.type.name}")
            values += [self.parameter(column, end) for end in ends]
        return " AND ".join(parts), values

    def check_conditions(self) -> None:
        """Find out about a wrong condition before anything happens."""
        self.window()
        for where in self.job.covers.parts.values() if self.job.covers else ():
            self.condition("covers", where)

    def refuse_future(self, cursor: Any, source: str, condition: tuple[str, list[Any]], observed: str) -> None:
        """Fail when rows say that they were observed later than now: no load would replace them until then.

        :param source: tables to select from.
        :param condition: which rows of them, with parameters.
        :param observed: the column that says it, as spelled there.
        """
        if self.job.not_after is None or not self.table.observed:
            return
        latest = self.job.not_after()
        where, values = condition
        at = self.parameter(self.table[self.table.observed], latest)
        cursor.execute(
            f"SELECT COUNT(*) FROM {source} WHERE {where} AND {observed} > {self.hook.placeholder}", [*values, at]
        )
        if count := int(cursor.fetchone()[0]):
            now = f"'{latest.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}'"
            fixes = [(self.table.observed, now), *([(self.table.gone, "NULL")] if self.table.gone else [])]
            raise self.error(
                f"{count} rows say that they were observed after {now} (UTC), which lies in the future, so no newer "
                "row would replace them: a worker whose clock was wrong has written them. Correct them, load again: "
                + "; ".join(f"UPDATE {self.job.name} SET {name} = {to} WHERE {name} > {now}" for name, to in fixes)
            )

    def conflicts(self, error: BaseException) -> bool:
        """Whether another transaction got in the way, so that the same one may do better now."""
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        return str(state) in ("40001", "40P01")

    def repeated(self, attempt: Callable[[], T], undo: Callable[[], object]) -> T:
        """Make a transaction, again when another one got in the way, a bounded number of times."""
        for number in range(1, _ATTEMPTS):
            try:
                return attempt()
            except Exception as error:
                if not self.conflicts(error):
                    raise
                _log.info("Table %s: another transaction got in the way (%s); once more", self.job.name, number)
            undo()
            # Apart from each other, or the same two meet again.
            time.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**number) * random.random())
        return attempt()

    def words(self, error: BaseException) -> str:
        """What a driver's exception says, without the values of rows."""
        return words(error)

    def error(self, what: str) -> WarehouseError:
        """An error about the user's table."""
        return WarehouseError(f"{self.prefix}{what}")

    @property
    def prefix(self) -> str:
        """What errors begin with."""
        return f"table {self.job.name} on connection {self.hook.get_conn_id()!r}: "


def database(hook: DbApiHook) -> str:
    """Name the kind of database: by SQLAlchemy's name where Airflow knows it, else by the connection's type."""
    name = hook.dialect_name
    return str(hook.conn_type if name == "default" else name).lower()


def _opened(hook: DbApiHook) -> Any:
    """A connection; a database that is a file of one process (DuckDB) is waited for."""
    start = time.monotonic()
    while True:
        try:
            return hook.get_conn()
        except Exception as error:
            longest = next((wait for words, wait in BUSY_FILE_WAITS_S.items() if words in str(error)), 0.0)
            if time.monotonic() - start >= longest:
                raise
        time.sleep(_FIRST_PAUSE_S + _FIRST_PAUSE_S * random.random())


@contextmanager
def connected(hook: DbApiHook) -> Iterator[Any]:
    """A connection of our own; what was not committed is rolled back.

    :raises WarehouseError: when there is no connection to be had.
    """
    failure = ""
    try:
        connection = _opened(hook)
    except Exception as error:
        if type(error).__module__.startswith("airflow."):
            raise  # says itself which connection id or package is missing
        failure = connect_error_message(error)
    if failure:
        raise WarehouseError(f"cannot connect to {hook.get_conn_id()!r}: {failure}")
    try:
        yield connection
    except BaseException:
        with suppress(Exception):  # a lost connection cannot roll back, and need not
            connection.rollback()
        raise
    finally:
        with suppress(Exception):
            connection.close()
