"""Reads the result of a user's statement in constant memory; reads, changes and deletes rows of a declared table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.warehouse.connection import connected, run_with_connection
from airflow_provider_mail.warehouse.dialects import dialect_of, reader_of
from airflow_provider_mail.warehouse.errors import WarehouseError, is_client_side, safe_message
from airflow_provider_mail.warehouse.request import LoadRequest, Where
from airflow_provider_mail.warehouse.rows import ReadValue, Source, moment
from airflow_provider_mail.warehouse.table import Table, TableName

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]


@contextmanager
def stream_rows(
    hook: DbApiHook, sql: str, parameters: Parameters | None = None, size: int = 5000
) -> Iterator[tuple[tuple[str, ...], Iterator[list[Row]]]]:
    """Run one SELECT on a connection of its own, and stream its rows.

    Postgres and MySQL keep the rows on the server until they are fetched, SQLite and DuckDB compute them step by step;
    other drivers decide themselves. On these four the statement cannot write. Everything is closed on exit, even when
    not all rows were read. Use it in one thread, as SQLite demands.

    :param parameters: its parameters, in the driver's style; never logged. Default: none.
    :param size: the largest number of rows in a list.
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
    with connected(hook) as connection:
        cursor = run(lambda: reader.open_reader(hook, connection))
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
                reader.close_reader(connection, cursor)


def _read(row: Sequence[Any], readers: Mapping[int, ReadValue]) -> Row:
    return tuple(readers[place](value) if place in readers else value for place, value in enumerate(row))


def _advice(fetched: int) -> str:
    return (
        f". The driver cannot convert a value after row {fetched}: select its column as text, such as "
        "CAST(column AS TEXT), and for text with bytes of another encoding convert it in the query"
    )


class StoredTable:
    """A declared table in a database.

    :param name: its name in the database, optionally with its schema.
    :raises WarehouseError: for an invalid name.
    """

    def __init__(self, hook: DbApiHook, table: Table, name: str | TableName) -> None:
        self._hook = hook
        self._table = table
        parsed = name if isinstance(name, TableName) else TableName.parse(name)
        self._dialect = dialect_of(hook)(hook, LoadRequest(table, parsed, Source(())))
        self._connection: Any = None

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
        convert = self._dialect.parameters.get(self._table[name].type.name)
        return convert(value) if convert else value

    def existing_columns(self) -> frozenset[str]:
        """Return the names of the table's columns; none when it does not exist.

        :raises WarehouseError: naming the connection, never values.
        """
        return run_with_connection(
            self._dialect, lambda connection: frozenset(self._dialect.existing_columns(connection))
        )

    def beside(self, name: str) -> TableName:
        """Return the name of another table: without a schema, that in the schema in which the database finds this one.

        :raises WarehouseError: for an invalid name, or naming the connection, never values.
        """
        parsed = TableName.parse(name)
        if len(parsed.parts) > 1:
            return parsed
        return run_with_connection(self._dialect, self._dialect.resolved_name).beside(parsed)

    def page(self, columns: Sequence[str], by: str, after: str, size: int) -> list[tuple[Any, ...]]:
        """Return the first rows after a value, in the order of a column.

        :param by: name of the column, which is different in each row.
        :param after: only rows with larger values.
        """
        with stream_rows(self._hook, self._dialect.select_page(columns, by), [after], size) as (_, batches):
            rows = next(batches, [])
        times = [self._table[name].type.name == "timestamp" for name in columns]
        return [
            tuple(moment(value) if is_time else value for is_time, value in zip(times, row, strict=True))
            for row in rows
        ]

    def select(self, columns: str, condition: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that fulfil a condition. Read them all before the next statement.

        :param columns: what to select, as SQL spells it.
        :param condition: the condition, in SQL that every database knows.
        """
        sql = f"SELECT {columns} FROM {self.spelled} WHERE {condition}"
        with stream_rows(self._hook, sql) as (_, batches):
            for batch in batches:
                yield from batch

    def rows(self, columns: Sequence[str], where: Where) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that have the given values. Read them all before the next statement.

        :param where: by column, a value, ``None``, `Between` or `OneOf`.
        """
        with stream_rows(self._hook, *self._dialect.select_where(columns, where)) as (_, batches):
            for batch in batches:
                yield from batch

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep one connection for the transactions inside, if others can use the database meanwhile."""
        if not self._dialect.stays_open:
            yield
            return
        with connected(self._hook) as self._connection:
            try:
                yield
            finally:
                self._connection = None

    def transaction(self, work: Callable[[Callable[..., Any]], T]) -> T:
        """Run statements in one transaction, which is rolled back after an exception.

        :param work: called with a function that runs a statement with parameters and returns the number of rows, or the
            rows themselves with ``reads=True``. After a conflict with another transaction it is called again.
        :raises WarehouseError: naming the table and the connection, never values.
        """
        return run_with_connection(
            self._dialect, lambda connection: self._dialect.transact(connection, work), connection=self._connection
        )

    @property
    def unix_time(self) -> str:
        """The expression for the seconds since 1970 by the database's clock."""
        return self._dialect.unix_time

    def delete(self, conditions: Iterable[Mapping[str, Any]]) -> int:
        """Delete the rows that fulfil one of the conditions; return their number.

        :raises WarehouseError: naming the table and the connection, never values.
        """
        return run_with_connection(self._dialect, lambda connection: self._dialect.delete(connection, conditions))

    def update(self, where: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Change the rows that fulfil a condition; return their number.

        :raises WarehouseError: naming the table and the connection, never values.
        """
        return run_with_connection(self._dialect, lambda connection: self._dialect.update(connection, where, values))
