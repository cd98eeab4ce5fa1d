"""Databases without a temporary table that every driver can fill: the rows of a load are kept in a temporary file."""

from __future__ import annotations

import datetime
import pickle
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.warehouse.dialects.base import Dialect
from airflow_provider_mail.warehouse.errors import redacted_message
from airflow_provider_mail.warehouse.request import LoadRequest

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

Row = tuple[Any, ...]


class RowSpool:
    """Keeps each key once, with the last or the first of its rows, in the order of the keys.

    The user's table is not locked while the rows arrive, two loads lock its rows in the same order, and a load can be
    repeated.

    :param first: whether to keep the first row instead of the last one.
    """

    def __init__(self, key_indexes: Sequence[int], *, first: bool = False) -> None:
        self._key_indexes = key_indexes
        self._insert = f"INSERT OR {'IGNORE' if first else 'REPLACE'} INTO spool"
        self._file = sqlite3.connect("", isolation_level=None)
        key = ", ".join(f"k{index}" for index in key_indexes)
        self._file.execute(f"CREATE TABLE spool ({key}, line BLOB, PRIMARY KEY ({key})) WITHOUT ROWID")

    def fill(self, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" for _ in [*self._key_indexes, "line"])
        lines = ((*self.key(row), pickle.dumps(row, pickle.HIGHEST_PROTOCOL)) for row in rows)
        self._file.execute("BEGIN")
        self._file.executemany(f"{self._insert} VALUES ({marks})", lines)
        self._file.execute("COMMIT")

    def rows(self) -> Iterator[Row]:
        for (line,) in self._file.execute("SELECT line FROM spool"):
            yield pickle.loads(line)

    def key(self, row: Row) -> Row:
        return tuple(comparable(row[index]) for index in self._key_indexes)

    def close(self) -> None:
        self._file.close()


def comparable(value: Any) -> Any:
    """Normalize a key value: drivers return other types than they take."""
    if isinstance(value, datetime.datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    if isinstance(value, datetime.date):
        return value.isoformat()
    return int(value) if isinstance(value, bool) or type(value).__name__ == "Decimal" else value


class Spooled(Dialect):
    """A database that is loaded from such a file."""

    def __init__(self, hook: DbApiHook, request: LoadRequest) -> None:
        super().__init__(hook, request)
        names = self.table.names
        self._key_indexes = [names.index(name) for name in self.table.key]
        self._observed_index = names.index(self.table.observed) if self.table.observed else None
        self._current_batch: Sequence[Row] = ()

    def _spool(self) -> RowSpool:
        return RowSpool(self._key_indexes, first=self.table.insert_only)

    def _earliest(self, spool: RowSpool) -> Any:
        """The first time of observation in the rows, as the driver takes it; ``None`` without one."""
        index = self._observed_index
        return None if index is None else min((row[index] for row in spool.rows()), default=None)

    def _column_names(self, cursor: Any, name: str) -> list[str]:
        cursor.execute(f"SELECT * FROM {name} WHERE 1 = 0")
        names = [str(column[0]).lower() for column in cursor.description]
        cursor.fetchall()
        return names

    def safe_message(self, error: BaseException) -> str:
        names = (*self.table.names, str(self.request.name))
        return redacted_message(error, chain.from_iterable(self._current_batch), names)
