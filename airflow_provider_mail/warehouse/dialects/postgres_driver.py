"""What psycopg 3 and psycopg2, the drivers of Postgres, need to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from airflow_provider_mail.warehouse.errors import is_client_side
from airflow_provider_mail.warehouse.rows import UnreadableValue

READER = "airflow_provider_mail"
"""The name of a server-side cursor."""
_MOST_UNSENT = 2**20


class StreamCursor:
    """Rows of a statement while the server computes the next ones: twice as fast as a server-side cursor."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._statement: tuple[Any, ...] = ()
        self._rows: Any = None
        self.description: Any = None

    def execute(self, *statement: Any) -> None:
        """Set the statement, which begins with the first fetch."""
        self._statement = statement

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        if self._rows is None:
            self._rows = self._cursor.stream(*self._statement, size=size)
        rows = list(islice(self._rows, size))
        if self.description is None:
            self.description = self._cursor.description if rows else self._description_without_rows()
        return rows

    def _description_without_rows(self) -> Any:
        # A stream without rows has no description. A server-side cursor has one without running the statement.
        with self._connection.cursor(name=READER) as cursor:
            cursor.execute(*self._statement)
            return cursor.description

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._cursor.close()


def can_stream(connection: Any) -> bool:
    """Whether the driver streams many rows at a time: psycopg 3 with libpq 17."""
    if not hasattr(connection, "row_factory"):
        return False
    from psycopg import capabilities

    return capabilities.has_stream_chunked()


def rows_as_tuples(connection: Any) -> None:
    """Undo the cursor class of the Airflow connection (``dictcursor`` and others)."""
    if hasattr(connection, "row_factory"):
        from psycopg.rows import tuple_row

        connection.row_factory = tuple_row
    else:
        connection.cursor_factory = None


_TIMES = {1082: 1182, 1083: 1183, 1114: 1115, 1184: 1185, 1186: 1187, 1266: 1270}
"""Types with values that Python cannot represent, such as ``infinity``, years BC and 24:00, with their array types."""

_DAY_TIMES = (1083, 1266)


def read_all_times(connection: Any) -> None:
    """Let the driver return :class:`UnreadableValue` for a time that Python cannot represent, instead of failing."""
    if not hasattr(connection, "row_factory"):
        from psycopg2 import extensions  # type: ignore[import-untyped]

        def convert(oid: int, read: Callable[[Any, Any], Any], text: Any, cursor: Any) -> Any:
            return None if text is None else _or_unreadable(oid, text, partial(read, text, cursor))

        for oid, array in _TIMES.items():
            read = connection.string_types.get(oid) or extensions.string_types[oid]
            converter = extensions.new_type((oid,), f"TIME{oid}", partial(convert, oid, read))
            for typecaster in (converter, extensions.new_array_type((array,), f"TIMES{array}", converter)):
                extensions.register_type(typecaster, connection)
        return
    from psycopg.pq import Format

    def tolerant(oid: int, loader: Any) -> Any:
        class Tolerant:
            format = Format.TEXT

            def __init__(self, _oid: int, context: Any = None) -> None:
                self._load = loader(oid, context).load

            def load(self, data: Any) -> Any:
                return _or_unreadable(oid, bytes(data).decode(), partial(self._load, data))

        return Tolerant

    for oid in _TIMES:
        loader = connection.adapters.get_loader(oid, Format.TEXT)
        connection.adapters.register_loader(oid, tolerant(oid, loader))


def _or_unreadable(oid: int, text: str, read: Callable[[], Any]) -> Any:
    # The drivers would return the year 9999, None or 00:00 for these.
    if text.endswith("infinity") or (oid in _DAY_TIMES and text.startswith("24:")):
        return UnreadableValue()
    try:
        return read()
    except Exception as error:
        if not is_client_side(error):
            raise
        return UnreadableValue()


class _Reader:
    """Blocks of text as the file that psycopg2 needs; it accepts more than the size that it asks for."""

    def __init__(self, blocks: Iterator[str]) -> None:
        self._blocks = blocks

    def read(self, _size: int = -1) -> str:
        return next(self._blocks, "")


def copy_blocks(cursor: Any, statement: str, blocks: Iterator[str]) -> None:
    if hasattr(cursor, "copy_expert"):
        cursor.copy_expert(statement, _Reader(blocks))
        return
    from psycopg.waiting import Wait

    def sent() -> Iterator[Wait]:
        while cursor.connection.pgconn.flush():
            yield Wait.W

    unsent = 0
    with cursor.copy(statement) as copy:
        for block in blocks:
            copy.write(block)
            unsent += len(block)
            if unsent >= _MOST_UNSENT:
                # psycopg 3.3.4 and older never wait: what a slow server has not yet received fills the memory.
                cursor.connection.wait(sent())
                unsent = 0
