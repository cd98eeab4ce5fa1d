"""SQLite, the embedded default."""

from __future__ import annotations

import datetime
import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_mail.warehouse.dialects.base import STANDARD_TYPES
from airflow_provider_mail.warehouse.dialects.inbox import InboxSql
from airflow_provider_mail.warehouse.dialects.staged import Staged
from airflow_provider_mail.warehouse.request import Where
from airflow_provider_mail.warehouse.rows import Encoder, each, json_text, utc_text, utc_texts
from airflow_provider_mail.warehouse.table import Column, TableName, quoted
from airflow_provider_mail.warehouse.time_limit import current_reading

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

_LOCK_WAIT_MS = 60_000
_STAGE_CACHE_KIB = 12_000


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "boolean": int,
    "date": datetime.date.isoformat,
    "timestamp": utc_text,  # the form that SQLite's own datetime() writes, so that the two compare
    "json": json_text,
}


def _affinity(declared: str) -> str:
    """The affinity of a declared type (SQLite's documentation, "Determination Of Column Affinity")."""
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


class SqliteInbox(InboxSql):
    """SQLite. Times are text in UTC and sort as such."""

    id_type, body_type, time_type = "INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB", "TEXT"
    begin = begin_insert = "BEGIN IMMEDIATE"
    is_one_of = "id IN (SELECT value FROM json_each(?))"
    now = "strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now', {mark} || ' seconds')"

    def configure(self, hook: DbApiHook, connection: Any) -> None:
        connection.isolation_level = None
        reading = current_reading()
        wait = int(1000 * reading.seconds) if reading else _LOCK_WAIT_MS
        # WAL: a drain reads while pushes arrive. FULL: a commit survives a crash of the host.
        for pragma in (f"busy_timeout = {wait}", "journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}").fetchall()

    def lock_definition(self, cursor: Any, table: str) -> None:
        cursor.execute(self.begin)

    @contextmanager
    def only_one(self, cursor: Any, name: str) -> Iterator[bool]:
        # A lock of a file beside the database, whatever the name.
        cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
        with Path(f"{cursor.fetchone()[0]}.rotation.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def exists(self, cursor: Any, name: TableName) -> bool:
        *schema, table = (part.text for part in name.parts)
        cursor.execute("SELECT 1 FROM pragma_table_info(?, ?)", [table, schema[-1] if schema else "main"])
        return cursor.fetchone() is not None

    def index(self, name: str, table: TableName) -> str:
        *schema, own = table.parts
        return f"{''.join(f'{quoted(part.text)}.' for part in schema)}{name} ON {quoted(own.text)}"

    def time(self, when: datetime.datetime) -> Any:
        return when.astimezone(datetime.UTC).isoformat(" ", "microseconds")

    def read_time(self, value: Any) -> datetime.datetime:
        return datetime.datetime.fromisoformat(value)

    def ids(self, ids: Sequence[int]) -> Any:
        return json.dumps(ids)


class Sqlite(Staged):
    """Stages rows in the connection's temporary database, so that the user's database is not locked."""

    reusable = True
    distinct = "IS NOT"
    counts_upserts = True
    inbox = SqliteInbox
    words = """SELECT value AS word FROM json_each('["' || replace(?, ' ', '","') || '"]')"""
    unix_time = "(julianday('now') - 2440587.5) * 86400.0"
    # JSON as text: the type "JSON" would be numeric to SQLite, which would turn '1.0' into 1.
    types: ClassVar[Mapping[str, str]] = {**STANDARD_TYPES, "double": "DOUBLE"}
    parameters = _CONVERTERS
    compatible_types: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "text": ("text", "blob"),
        "json": ("text", "blob"),
        "bigint": ("integer", "numeric", "blob"),
        "integer": ("integer", "numeric", "blob"),
        "boolean": ("integer", "numeric", "blob"),
        "double": ("real", "numeric", "blob"),
        # "numeric" keeps a text that is not a number, such as a date.
        "date": ("text", "numeric", "blob"),
        "timestamp": ("text", "numeric", "blob"),
    }

    @classmethod
    def month(cls, column: str) -> str:
        return f"SUBSTR({column}, 1, 7)"

    @classmethod
    def open_reader(cls, hook: DbApiHook, connection: Any) -> Any:
        connection.execute("PRAGMA query_only = ON")
        return connection.cursor()

    def _definition(self, column: Column) -> str:
        # SQLite has no comments, but stores the statement and shows it as `.schema`.
        return f"{super()._definition(column)} /* {column.comment} */"

    def _begin(self, connection: Any) -> None:
        connection.isolation_level = None  # no implicit transactions or commits
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_WAIT_MS}")
        # With the default of 2 MB, rows that are staged in no order would be written to disk again and again.
        connection.execute(f"PRAGMA temp.cache_size = -{_STAGE_CACHE_KIB}")

    def _resolved_name(self, cursor: Any) -> TableName:
        *schema, name = (part.text for part in self.request.name.parts)
        cursor.execute("SELECT name FROM pragma_database_list ORDER BY name <> 'temp', seq")  # as SQLite searches
        for database in (schema_name for (schema_name,) in cursor.fetchall()):
            if not schema or schema[-1].lower() == database.lower():
                master = f"{quoted(database)}.{'sqlite_temp_master' if database == 'temp' else 'sqlite_master'}"
                cursor.execute(f"SELECT name FROM {master} WHERE lower(name) = lower(?) AND type <> 'index'", [name])
                if row := cursor.fetchone():
                    return TableName.exact(database, *row)
        return TableName.exact(*(schema or ["main"]), name)

    def _columns(self, cursor: Any) -> dict[str, str]:
        arguments = [part.text for part in reversed(self._resolved_name(cursor).parts)]
        cursor.execute("SELECT lower(name), type FROM pragma_table_info(?, ?)", arguments)
        return dict(cursor.fetchall())

    def _inexact(self, cursor: Any) -> Sequence[tuple[str, str]]:
        schema, name = (part.text for part in self._resolved_name(cursor).parts)
        cursor.execute(
            "SELECT lower(x.name), x.coll FROM pragma_index_list(?, ?) AS i JOIN pragma_index_xinfo(i.name, ?) AS x "
            """WHERE i."unique" AND x."key" AND x.coll <> 'BINARY'""",
            [name, schema, schema],
        )
        return [(column, collation) for column, collation in cursor.fetchall() if column in self.table.key]

    def _can_hold(self, column: Column, actual: str) -> bool:
        return super()._can_hold(column, _affinity(actual))

    def _index(self, columns: Sequence[str]) -> str:
        *schema, table = (part.text for part in (self.request.resolved or self.request.name).parts)
        name = "_".join((table, "by", *columns))
        return f"{'.'.join(map(quoted, [*schema, name]))} ON {quoted(table)}"

    def _create_stage(self, cursor: Any) -> None:
        # The primary key keeps one row of each key, in sorted order.
        definition = f"{self._staged_columns()}, PRIMARY KEY ({', '.join(self.table.key)})"
        cursor.execute(f"CREATE TEMP TABLE {self.stage_name} ({definition}) WITHOUT ROWID")

    def _stage(self, cursor: Any) -> None:
        cursor.execute("BEGIN")
        on_conflict = "IGNORE" if self.table.insert_only else "REPLACE"
        cursor.executemany(
            f"INSERT OR {on_conflict} INTO {self.stage_name} VALUES ({', '.join('?' for _ in self.table.columns)})",
            self.request.source.encoded(Encoder(self.table, {**each(_CONVERTERS), "timestamp": utc_texts})),
        )
        cursor.execute("COMMIT")

    def _has_others(self, cursor: Any, window: Where) -> bool:
        # An index has the first number, and the second one is found in the order of the key: many times faster than
        # looking for each row.
        condition, values = self._condition({name: window[name] for name in window if name != self.table.gone}, "t.")
        rows = self._count(cursor, f"SELECT count(*) FROM {self.target} AS t WHERE {condition}", values)
        staged = f"SELECT coalesce(sum(CASE WHEN {condition} THEN 1 ELSE 0 END), 0) FROM {self._joined()}"
        return rows != self._count(cursor, staged, values)

    def _open_transaction(self, cursor: Any) -> None:
        self._open_merge(cursor)

    def _open_merge(self, cursor: Any) -> None:
        cursor.execute("BEGIN IMMEDIATE")
