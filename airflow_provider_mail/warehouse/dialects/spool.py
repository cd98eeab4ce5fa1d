"""The rows of a load in a temporary file, for databases without a temporary table that every driver can fill."""

from __future__ import annotations

import datetime
import pickle
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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
