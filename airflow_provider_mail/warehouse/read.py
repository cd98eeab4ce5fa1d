"""Reading the rows of a user's statement, however many they are, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.warehouse.dialects.base import connected, database
from airflow_provider_mail.warehouse.dialects.mysql import plain_cursors, with_utf8
from airflow_provider_mail.warehouse.dialects.postgres import rows_as_tuples
from airflow_provider_mail.warehouse.errors import WarehouseError, words

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]


@contextmanager
def stream_rows(
    hook: DbApiHook, sql: str, parameters: Parameters | None = None, size: int = 5000
) -> Iterator[tuple[tuple[str, ...], Iterator[list[Row]]]]:
    """Run one SELECT on a connection of its own; the column names, and the rows in lists of at most `size`.

    Postgres and MySQL keep the rows on the server until they are asked for, SQLite and DuckDB find them step by step;
    what other drivers do is up to them. On these four nothing can be written. Everything is closed on leaving the
    `with`, also when not all rows were taken. Use it in one thread: SQLite insists.

    :param parameters: of the statement, in the driver's style; never logged.
    :raises WarehouseError: when the statement fails, on entering or later; names `sql` and the connection.
    """
    if size < 1:
        raise ValueError("`size` must be at least 1")

    def run(action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            said = words(error, parameters, quotes_rows=False)
            trace = error.__traceback__
        # Outside of `except`, so that the driver's exception, which may hold values, does not hang on to it.
        raise WarehouseError(f"`sql` on connection {hook.get_conn_id()!r}: {said}").with_traceback(trace)

    with connected(hook) as connection:
        cursor = run(lambda: _cursor(hook, connection))
        try:
            run(lambda: cursor.execute(sql) if parameters is None else cursor.execute(sql, parameters))
            # psycopg2 describes the columns of a server-side cursor only after a first look at the rows.
            first = run(lambda: cursor.fetchmany(size))
            if cursor.description is None:
                raise WarehouseError(f"`sql` on connection {hook.get_conn_id()!r}: it has no result; a SELECT?")

            def batches() -> Iterator[list[Row]]:
                batch = first
                while batch:
                    # Most drivers give tuples: a million of them are not made anew.
                    yield list(batch) if type(batch[0]) is tuple else [tuple(row) for row in batch]
                    batch = run(lambda: cursor.fetchmany(size))

            yield tuple(str(column[0]) for column in cursor.description), batches()
        finally:
            with suppress(Exception):
                if database(hook) in ("mysql", "mariadb"):
                    connection.close()  # closing a cursor would read all the rows that nobody took
                # SQLite keeps its locks as long as there is an open cursor, whatever becomes of the connection.
                cursor.close()


def _cursor(hook: DbApiHook, connection: Any) -> Any:
    kind = database(hook)
    if kind == "sqlite":
        connection.execute("PRAGMA query_only = ON")
    elif kind in ("postgresql", "postgres"):
        return _server_cursor(hook, connection)
    elif kind == "duckdb":
        cursor = connection.cursor()
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        return cursor
    elif kind in ("mysql", "mariadb"):
        return _mysql_cursor(connection)
    return connection.cursor()


def _mysql_cursor(connection: Any) -> Any:
    plain_cursors(connection)
    with_utf8(connection)
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    if hasattr(connection, "cursorclass"):
        from MySQLdb.cursors import SSCursor

        connection.cursorclass = SSCursor
    return connection.cursor()


def _server_cursor(hook: DbApiHook, connection: Any) -> Any:
    hook.set_autocommit(connection, False)  # a server-side cursor lives in a transaction
    rows_as_tuples(connection)
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        # All rows will be read, so the plan that is quickest to the first one is not wanted.
        cursor.execute("SET LOCAL cursor_tuple_fraction = 1")
    return connection.cursor(name="airflow_provider_mail")
