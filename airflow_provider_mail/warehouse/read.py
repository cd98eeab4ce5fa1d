"""Reads the result of a user's statement in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.warehouse.connection import connected
from airflow_provider_mail.warehouse.dialects import dialect_of
from airflow_provider_mail.warehouse.errors import WarehouseError, is_client_side, safe_message

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

    dialect, cursor = dialect_of(hook), None
    with connected(hook) as connection:
        cursor = run(lambda: dialect.open_reader(hook, connection))
        try:
            # SQLite reads the first row here.
            run(lambda: cursor.execute(sql) if parameters is None else cursor.execute(sql, parameters))
            # psycopg2 describes the columns of a server-side cursor only after the first fetch.
            first_batch = run(lambda: cursor.fetchmany(size), 0)
            if cursor.description is None:
                raise WarehouseError(f"`sql` on connection {hook.get_conn_id()!r}: it has no result; is it a SELECT?")

            def batches() -> Iterator[list[Row]]:
                batch, fetched = first_batch, 0
                while batch:
                    fetched += len(batch)
                    # Most drivers return tuples, which need no copy.
                    yield list(batch) if type(batch[0]) is tuple else [tuple(row) for row in batch]
                    batch = run(lambda: cursor.fetchmany(size), fetched)

            yield tuple(str(column[0]) for column in cursor.description), batches()
        finally:
            with suppress(Exception):
                # SQLite holds its locks as long as a cursor is open, even on a closed connection.
                dialect.close_reader(connection, cursor)


def _advice(fetched: int) -> str:
    """Describe where the value is that the driver cannot convert, as far as that is known, and what to do."""
    return (
        f". The driver cannot convert a value after row {fetched}: select its column as text, such as "
        "CAST(column AS TEXT), and for text with bytes of another encoding convert it in the query"
    )
