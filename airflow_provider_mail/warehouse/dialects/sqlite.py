"""SQLite, the embedded default."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from airflow_provider_mail.warehouse.dialects.staged import Staged
from airflow_provider_mail.warehouse.rows import Encoder, each, json_text, utc_text
from airflow_provider_mail.warehouse.table import Column, TableName, quoted

_LOCK_WAIT_MS = 60_000
_STAGE_CACHE_KIB = 12_000


_CONVERTS: Mapping[str, Callable[[Any], Any]] = {
    "boolean": int,
    "date": datetime.date.isoformat,
    "timestamp": utc_text,  # the form that SQLite's own datetime() writes, so that the two compare
    "json": json_text,
}


def _affinity(declared: str) -> str:
    """What SQLite makes of a declared type (its documentation, "Determination Of Column Affinity")."""
    declared = declared.upper()
    for affinity, marks in (
        ("integer", ("INT",)),
        ("text", ("CHAR", "CLOB", "TEXT")),
        ("blob", ("BLOB",)),
        ("real", ("REAL", "FLOA", "DOUB")),
    ):
        if any(mark in declared for mark in marks):
            return affinity
    return "numeric" if declared else "blob"


_HOLDING: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "blob"),
    "json": ("text", "blob"),
    "bigint": ("integer", "numeric", "blob"),
    "integer": ("integer", "numeric", "blob"),
    "boolean": ("integer", "numeric", "blob"),
    "double": ("real", "numeric", "blob"),
    # "numeric" leaves a text alone that is no number, and a date is none.
    "date": ("text", "numeric", "blob"),
    "timestamp": ("text", "numeric", "blob"),
}


class Sqlite(Staged):
    """Staged in the connection's own temporary database, which locks nobody out of the user's."""

    distinct = "IS NOT"
    unix_time = "(julianday('now') - 2440587.5) * 86400.0"
    types: ClassVar[Mapping[str, str]] = {
        "text": "TEXT",
        "bigint": "BIGINT",
        "integer": "INTEGER",
        "double": "DOUBLE",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp": "TIMESTAMP",
        "json": "TEXT",  # "JSON" would be numeric to SQLite and turn '1.0' into 1
    }

    def qualified(self, name: TableName) -> str:
        return ".".join(quoted(part.text) for part in name.parts)

    def parameter(self, column: Column, value: Any) -> Any:
        convert = _CONVERTS.get(column.type.name)
        return convert(value) if convert else value

    def definition(self, column: Column) -> str:
        # SQLite has no comments, but keeps the statement and shows it as `.schema`.
        return f"{super().definition(column)} /* {column.comment} */"

    def begin(self, connection: Any) -> None:
        connection.isolation_level = None  # transactions begin and end where we say so, DDL included
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_WAIT_MS}")
        # What is staged in no order would be written to disk again and again with the 2 MB that it has by default.
        connection.execute(f"PRAGMA temp.cache_size = -{_STAGE_CACHE_KIB}")

    def columns(self, cursor: Any) -> dict[str, str]:
        arguments = [part.text for part in reversed(self.job.name.parts)]
        marks = ", ".join("?" for _ in arguments)
        cursor.execute(f"SELECT lower(name), type FROM pragma_table_info({marks})", arguments)
        return dict(cursor.fetchall())

    def holds(self, column: Column, actual: str) -> bool:
        return _affinity(actual) in _HOLDING[column.type.name]

    def stage(self, cursor: Any) -> None:
        table = self.table
        columns = ", ".join(f"{column.name} {self.column_type(column)}" for column in table.columns)
        key = ", ".join(table.key)
        cursor.execute(f"CREATE TEMP TABLE {self.stage_name} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
        cursor.execute("BEGIN")
        cursor.executemany(
            f"INSERT OR REPLACE INTO {self.stage_name} VALUES ({', '.join('?' for _ in table.columns)})",
            self.job.source.encoded(Encoder(table, each(_CONVERTS))),
        )
        cursor.execute("COMMIT")

    def open_merge(self, cursor: Any) -> None:
        cursor.execute("BEGIN IMMEDIATE")

    @property
    def staged(self) -> str:
        return self.stage_name  # its key keeps one row of each, in order
