"""The user's database: its dialect and connections, loads into declared tables, and what is read from it."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_provider_mail.api._core.pacing import infrequent_gc
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.warehouse import dialects
from airflow_provider_mail.warehouse.errors import (
    UnstorableError,
    WarehouseError,
    connect_error_message,
    is_client_side,
    safe_message,
)
from airflow_provider_mail.warehouse.request import Clock, LoadRequest, LoadResult, Where
from airflow_provider_mail.warehouse.rows import ReadValue, Source, moment
from airflow_provider_mail.warehouse.table import Table, TableName
from airflow_provider_mail.warehouse.time_limit import CONNECT_SECONDS, LONGEST_PAUSE, current_reading, pause

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.warehouse.dialects.base import Dialect, Reader
    from airflow_provider_mail.warehouse.dialects.staged import Staged


__all__ = ["Clock", "LoadRequest", "LoadResult", "Source", "TableName", "database_time", "load"]

DIALECTS = {
    "sqlite": "sqlite.Sqlite",
    "postgresql": "postgres.Postgres",
    "postgres": "postgres.Postgres",
    "duckdb": "duckdb.DuckDb",
    "mysql": "mysql.MySql",
    "mariadb": "mysql.MySql",
}
"""The databases whose tables are loaded, with the module and the class of each; any database can be read."""


def kind_of(hook: DbApiHook) -> str:
    """Name the kind of database: SQLAlchemy's name if Airflow knows it, otherwise the type of the connection."""
    # The hook of Redshift derives from that of Postgres, and says that it is one.
    name = "redshift" if hook.conn_type == "redshift" else hook.dialect_name
    return str(hook.conn_type if name == "default" else name).lower()


def reader_of(hook: DbApiHook) -> type[Reader]:
    """Return how statements of the user's are read, in any database."""
    path = DIALECTS.get(kind_of(hook), "base.Reader")
    module, class_name = path.split(".")
    reader: type[Reader] = getattr(import_module(f"{dialects.__name__}.{module}"), class_name)
    return reader


def dialect_of(hook: DbApiHook) -> type[Staged]:
    """Return how tables are loaded.

    :raises WarehouseError: in this database they are not; names the connection and the alternatives.
    """
    if kind_of(hook) not in DIALECTS:
        raise WarehouseError(
            f"connection {hook.get_conn_id()!r}: tables are loaded in SQLite, Postgres, DuckDB, MySQL and MariaDB, not "
            f"in {kind_of(hook)}: use the dlt source there (docs/dlt.md), or write files (docs/object-storage.md)"
        )
    return cast("type[Staged]", reader_of(hook))


T = TypeVar("T")

PATIENT_SECONDS = 60
"""Limit for connecting, and for a missing acknowledgement by the server, where no request waits for the result."""


_PACKAGES = {
    "athena": "apache-airflow-providers-amazon",
    "databricks": "apache-airflow-providers-databricks",
    "drill": "apache-airflow-providers-apache-drill",
    "druid": "apache-airflow-providers-apache-druid",
    "duckdb": "airflow-provider-duckdb",
    "exasol": "apache-airflow-providers-exasol",
    "gcpbigquery": "apache-airflow-providers-google",
    "hive_cli": "apache-airflow-providers-apache-hive",
    "hiveserver2": "apache-airflow-providers-apache-hive",
    "impala": "apache-airflow-providers-apache-impala",
    "jdbc": "apache-airflow-providers-jdbc",
    "mssql": "apache-airflow-providers-microsoft-mssql",
    "mysql": "apache-airflow-providers-mysql",
    "odbc": "apache-airflow-providers-odbc",
    "oracle": "apache-airflow-providers-oracle",
    "pinot": "apache-airflow-providers-apache-pinot",
    "postgres": "apache-airflow-providers-postgres",
    "presto": "apache-airflow-providers-presto",
    "redshift": "apache-airflow-providers-amazon",
    "snowflake": "apache-airflow-providers-snowflake",
    "sqlite": "apache-airflow-providers-sqlite",
    "teradata": "apache-airflow-providers-teradata",
    "trino": "apache-airflow-providers-trino",
    "vertica": "apache-airflow-providers-vertica",
}
"""The package that has the hook, by connection type."""


def hook_of(conn_id: str) -> DbApiHook:
    """Return the ``DbApiHook`` of a connection to any database.

    :raises WarehouseError: its type has no such hook, or the provider of the hook is not installed.
    :raises AirflowNotFoundException: there is no such connection.
    """
    # Not at the top: on Airflow 3.0 this imports all hooks.
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.version_compat import AirflowException, BaseHook

    connection = BaseHook.get_connection(conn_id)
    connection_name = f"connection {conn_id!r}"
    try:
        if connection.conn_type == "databricks":  # whose own hook starts jobs
            from airflow.providers.databricks.hooks.databricks_sql import DatabricksSqlHook

            hook = DatabricksSqlHook(databricks_conn_id=conn_id)
        else:
            hook = connection.get_hook()
    except (AirflowException, ImportError) as error:
        advice = "Install the provider of that type on every worker, or fix the connection's type"
        if package := _PACKAGES.get(connection.conn_type or ""):
            is_loaded = connection.conn_type in DIALECTS
            purpose = "On every worker" if is_loaded else "Load its tables with dlt (docs/dlt.md); to read it"
            advice = f"{purpose}: pip install {package}"
        raise WarehouseError(
            f"{connection_name} of type {connection.conn_type!r} has no hook: {error}. {advice}"
        ) from None
    if not isinstance(hook, DbApiHook):
        raise WarehouseError(f"{connection_name} is not a database with a DbApiHook ({type(hook).__name__})")
    if hasattr(hook, "use_legacy_sql") and not any(name.endswith("use_legacy_sql") for name in connection.extra_dejson):
        hook.use_legacy_sql = False  # By default, Airflow's hook uses BigQuery's legacy SQL.
    return hook


def configured_hook(option: str, conn_id: str) -> DbApiHook:
    """Return the hook of a connection that Airflow's configuration names.

    :raises MailConfigError: there is no such database.
    """
    from airflow_provider_mail.version_compat import AirflowException

    try:
        return hook_of(conn_id)
    except (AirflowException, WarehouseError) as error:
        problem = f"connection {conn_id!r}: {error}" if isinstance(error, AirflowException) else str(error)
    raise MailConfigError(f"[mail] {option}: {problem}")


@contextmanager
def connected(hook: DbApiHook) -> Iterator[Any]:
    """Open a connection; on exit, roll back on an error and close.

    In a :class:`~airflow_provider_mail.warehouse.time_limit.Reading` the connection has its time limits.
    """
    failure, start, reading = "", time.monotonic(), current_reading()
    longest = reading.seconds if reading else float("inf")
    with ExitStack() as held:
        try:
            if reading:
                reading.address = address(hook)
            held.enter_context(reader_of(hook).opening(hook, longest))
            connection = _open(hook, start, longest)
        except Exception as error:
            if type(error).__module__.startswith("airflow."):
                raise  # names the missing connection id or package itself
            failure = connect_error_message(error)
        if failure:
            raise WarehouseError(f"cannot connect to {hook.get_conn_id()!r}: {failure}")
        try:
            with reading.uses(connection) if reading else nullcontext():
                try:
                    yield connection
                except BaseException:
                    with suppress(Exception):  # a lost connection cannot roll back, and need not
                        connection.rollback()
                    raise
        finally:
            with suppress(Exception):
                connection.close()


def run_with_connection(
    dialect: Dialect, work: Callable[[Any], T], *, tells_rows: bool = False, connection: Any = None
) -> T:
    """Call a function with a connection; an error of the driver becomes one without values.

    :param connection: an open connection, on which a transaction that fails is rolled back. Default: a new one.
    :param tells_rows: whether its message has the number of rows that were read.
    :raises WarehouseError: naming table and connection. An error of reading the rows is raised unchanged.
    """
    source = dialect.request.source
    try:
        with connected(dialect.hook) if connection is None else _rolled_back(connection) as opened:
            return work(opened)
    except WarehouseError:
        raise
    except Exception as error:
        message = dialect.safe_message(error) + (f" ({source.read} rows read)" if tells_rows else "")
        failure = dialect.error(message).with_traceback(error.__traceback__)
    # Outside of `except`, so that the driver's exception, full of values, is not chained.
    if isinstance(source.error, UnstorableError):
        raise source.error.with_text(str(dialect.error(str(source.error))))
    raise source.error or failure


@contextmanager
def _rolled_back(connection: Any) -> Iterator[Any]:
    try:
        yield connection
    except BaseException:
        with suppress(Exception):
            connection.rollback()
        raise


def address(hook: DbApiHook) -> str:
    """Return host and port of a database, or its file, to show to people; never the user. May be empty."""
    connection = hook.get_connection(hook.get_conn_id())
    port = f", port {connection.port}" if connection.port else ""
    return f"host {connection.host}{port}" if connection.host else ""


def _open(hook: DbApiHook, start: float, longest: float) -> Any:
    # A copy: the hook of Databricks caches its connection, and would return it again after it was closed.
    hook = copy(hook)
    reading = current_reading()
    connect_seconds = CONNECT_SECONDS if reading else PATIENT_SECONDS
    dialect = reader_of(hook)
    dialect.limit_connecting(hook, connect_seconds, reading.seconds if reading else None)
    while True:
        try:
            return copy(hook).get_conn()
        except Exception as error:
            if time.monotonic() - start >= min(dialect.busy_seconds(error), longest):
                raise
        pause()


def load(hook: DbApiHook, request: LoadRequest) -> LoadResult:
    """Insert rows, or update those with the same keys, in one transaction on one connection.

    The table is created when missing and gets the declared columns that it lacks; no column is ever narrowed or
    dropped. Of several rows with the same key the last one is loaded, or the first one into a table whose rows are
    never updated. A row never replaces one that was observed later.
    When anything fails, the table is unchanged. Memory does not grow with the number of rows, except by the keys of
    tables whose rows are never updated.

    :raises UnconfirmedError: when ``request.removal`` does not allow that many rows to be removed.
    :raises WarehouseError: naming table and connection, and row or column if known; never values.
    """
    dialect = dialect_of(hook)(hook, request)
    with infrequent_gc():
        return run_with_connection(dialect, dialect.load, tells_rows=True)


def database_time(hook: DbApiHook) -> datetime.datetime:
    dialect = dialect_of(hook)
    with connected(hook) as connection, closing(connection.cursor()) as cursor:
        return dialect.read_clock(cursor)


Parameters = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]


@contextmanager
def stream_rows(
    hook: DbApiHook, sql: str, parameters: Parameters | None = None, size: int = 5000, *, connection: Any = None
) -> Iterator[tuple[tuple[str, ...], Iterator[list[Row]]]]:
    """Run one SELECT, and stream its rows.

    Postgres and MySQL keep the rows on the server until they are fetched, SQLite and DuckDB compute them step by step;
    other drivers decide themselves. On these four the statement cannot write. Everything is closed on exit, even when
    not all rows were read. Use it in one thread, as SQLite demands.

    :param connection: an open connection of a dialect that is `reusable`. Default: one of its own.
    :return: a context manager with the names of the columns, and the rows in lists.
    :raises WarehouseError: when the statement fails, on entering or later; names ``sql`` and the connection.
    """
    if size < 1:
        raise ValueError("`size` must be at least 1")

    def run(action: Callable[[], T], fetched: int | None = None) -> T:
        try:
            return action()
        except Exception as error:
            message = safe_message(error, parameters, quotes_rows=fetched is not None)
            if is_client_side(error):
                message += _advice(fetched or 0)
            trace = error.__traceback__
        # Outside of `except`, so that the driver's exception, which may hold values, is not chained.
        raise WarehouseError(f"`sql` on connection {hook.get_conn_id()!r}: {message}").with_traceback(trace)

    reader, cursor = reader_of(hook), None
    with connected(hook) if connection is None else nullcontext(connection) as opened:
        cursor = run(lambda: reader.open_reader(hook, opened))
        try:
            # SQLite reads the first row here.
            run(lambda: cursor.execute(sql) if parameters is None else cursor.execute(sql, parameters))
            # psycopg2 describes the columns of a server-side cursor only after the first fetch.
            first_batch = run(lambda: cursor.fetchmany(size), 0)
            if cursor.description is None:
                raise WarehouseError(f"`sql` on connection {hook.get_conn_id()!r}: it has no result; is it a SELECT?")

            readers = reader.column_readers(cursor.description)

            def batches() -> Iterator[list[Row]]:
                batch, fetched = first_batch, 0
                while batch:
                    fetched += len(batch)
                    if readers:
                        batch = [_read(row, readers) for row in batch]
                    # Most drivers return tuples, which need no copy.
                    yield list(batch) if type(batch[0]) is tuple else [tuple(row) for row in batch]
                    batch = run(lambda: cursor.fetchmany(size), fetched)

            yield tuple(str(column[0]) for column in cursor.description), batches()
        finally:
            with suppress(Exception):
                # SQLite holds its locks as long as a cursor is open, even on a closed connection.
                reader.close_reader(opened, cursor)


def _read(row: Sequence[Any], readers: Mapping[int, ReadValue]) -> Row:
    return tuple(readers[place](value) if place in readers else value for place, value in enumerate(row))


def _advice(fetched: int) -> str:
    return (
        f". The driver cannot convert a value after row {fetched}: select its column as text, such as "
        "CAST(column AS TEXT), and for text with bytes of another encoding convert it in the query"
    )


class _Kept:
    """One connection for several transactions.

    Where others cannot use the database meanwhile, it is closed after a second, and opened again for the next one.
    """

    def __init__(self, hook: DbApiHook) -> None:
        self._hook, self._seconds = hook, dialect_of(hook).held_seconds
        self._turn, self._open = threading.RLock(), ExitStack()
        self._connection: Any = None
        self._closed = 0.0

    @contextmanager
    def used(self) -> Iterator[Any]:
        with self._turn:
            if self._connection is None:
                if time.monotonic() - self._closed < LONGEST_PAUSE:
                    pause()  # whoever waits for the database tries again at such intervals
                self._connection = self._open.enter_context(connected(self._hook))
                if self._seconds:
                    timer = threading.Timer(self._seconds, self.close)
                    timer.daemon = True
                    timer.start()
                    self._open.callback(timer.cancel)
            yield self._connection

    def close(self) -> None:
        with self._turn:
            self._connection = None
            self._open.close()
            self._closed = time.monotonic()


_ROWS = 1000
"""So many are inserted in one statement: SQLite takes 32,766 parameters."""


class StoredTable:
    """A declared table in a database."""

    def __init__(self, hook: DbApiHook, table: Table, name: str | TableName) -> None:
        self._hook = hook
        self._table = table
        parsed = name if isinstance(name, TableName) else TableName.parse(name)
        self._dialect = dialect_of(hook)(hook, LoadRequest(table, parsed, Source(())))
        self._kept: _Kept | None = None

    @property
    def spelled(self) -> str:
        """The name of the table as a statement has it."""
        return self._dialect.target

    def column(self, name: str) -> str:
        return self._dialect._column(name)

    def as_text(self, name: str) -> str:
        """Return the expression for the text of a column of JSON."""
        return f"CAST({self.column(name)} AS {self._dialect.text_cast})"

    def parameter(self, name: str, value: Any) -> Any:
        return self._dialect._parameter(self._table[name], value)

    def existing_columns(self, connection: Any = None) -> frozenset[str]:
        """Return the names of the table's columns; none when it does not exist."""
        return run_with_connection(
            self._dialect, lambda opened: frozenset(self._dialect.existing_columns(opened)), connection=connection
        )

    def beside(self, name: str, connection: Any = None) -> TableName:
        """Return the name of another table: without a schema, in that in which the database finds this one."""
        parsed = TableName.parse(name)
        if len(parsed.parts) > 1:
            return parsed
        return run_with_connection(self._dialect, self._dialect.resolved_name, connection=connection).beside(parsed)

    def page(self, columns: Sequence[str], by: str, after: str, size: int) -> list[tuple[Any, ...]]:
        """Return the first rows after a value, in the order of a column.

        :param by: name of the column, which is different in each row.
        """
        order, names = self.column(by), self._dialect._columns_list(columns)
        sql = f"SELECT {names} FROM {self.spelled} WHERE {order} > {self._hook.placeholder} ORDER BY {order}"
        with stream_rows(self._hook, sql, [after], size) as (_, batches):
            rows = next(batches, [])
        times = [self._table[name].type.name == "timestamp" for name in columns]
        return [
            tuple(moment(value) if is_time else value for is_time, value in zip(times, row, strict=True))
            for row in rows
        ]

    def select(self, columns: str, condition: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that fulfil a condition. Read them all before the next statement."""
        sql = f"SELECT {columns} FROM {self.spelled} WHERE {condition}"
        with stream_rows(self._hook, sql) as (_, batches):
            for batch in batches:
                yield from batch

    def rows(self, columns: Sequence[str], where: Where) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that have the given values. Read them all before the next statement.

        :param where: by column, a value, ``None``, `Between` or `OneOf`.
        """
        condition, values = self._dialect._condition(where)
        sql = f"SELECT {self._dialect._columns_list(columns)} FROM {self.spelled} WHERE {condition}"
        with stream_rows(self._hook, sql, values) as (_, batches):
            for batch in batches:
                yield from batch

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep one connection for the transactions inside."""
        self._kept = _Kept(self._hook)
        try:
            yield
        finally:
            self._kept.close()
            self._kept = None

    def transaction(self, work: Callable[[Callable[..., Any]], T]) -> T:
        """Run statements in one transaction, which is rolled back after an exception.

        :param work: called with a function that runs a statement with parameters and returns the number of rows, or the
            rows themselves with ``reads=True``. After a conflict with another transaction it is called again.
        """
        with self._kept.used() if self._kept else nullcontext() as connection:
            return run_with_connection(
                self._dialect, lambda opened: self._dialect.transact(opened, work), connection=connection
            )

    def among(self, column: str, words: Sequence[str]) -> tuple[str, list[str]]:
        """Return the condition that a column has one of some words, as SQL and its parameters."""
        if self._dialect.words is None:
            return f"{column} IN ({', '.join([self._hook.placeholder] * len(words))})", [*words]
        return self._dialect.among.format(column=column, words=self._dialect.words), [" ".join(words)]

    @property
    def knows_words(self) -> bool:
        return self._dialect.words is not None

    def insert_words(
        self, execute: Callable[..., Any], columns: Mapping[str, str], values: Sequence[Any], words: Sequence[str]
    ) -> None:
        """Insert a row for each of some words in one statement, in a :meth:`transaction`.

        :param columns: the expressions of the columns, of ``word`` and placeholders for ``values``.
        """
        execute(
            f"INSERT INTO {self.spelled} ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
            f"FROM ({self._dialect.words}) AS words",
            [*values, " ".join(words)],
        )

    def insert(self, execute: Callable[..., Any], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows with all columns, in a :meth:`transaction`."""
        marks = f"({', '.join([self._hook.placeholder] * len(self._table.columns))})"
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            execute(
                f"INSERT INTO {self.spelled} ({', '.join(self._table.names)}) VALUES {', '.join([marks] * len(some))}",
                [value for row in some for value in row],
            )

    def now(self, execute: Callable[..., Any]) -> int:
        """Return the seconds since 1970 by the database's clock, in a :meth:`transaction`."""
        return int(float(execute(f"SELECT {self._dialect.unix_time}", reads=True)[0][0]))

    def delete(self, conditions: Sequence[Where]) -> int:
        """Delete the rows that fulfil one of the conditions; return their number."""

        def work(execute: Callable[..., int]) -> int:
            spelled = map(self._dialect._condition, conditions)
            return sum(
                execute(f"DELETE FROM {self.spelled} WHERE {condition}", values) for condition, values in spelled
            )

        return self.transaction(work)

    def update(self, where: Where, values: Mapping[str, Any]) -> int:
        """Change the rows that fulfil a condition; return their number."""
        assignments = ", ".join(f"{self.column(name)} = {self._hook.placeholder}" for name in values)
        condition, parameters = self._dialect._condition(where)
        statement = f"UPDATE {self.spelled} SET {assignments} WHERE {condition}"
        given = [self.parameter(name, value) for name, value in values.items()]
        return self.transaction(lambda execute: int(execute(statement, [*given, *parameters])))
