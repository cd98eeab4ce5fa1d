"""DuckDB: in a file, in memory, or at MotherDuck.

One process at a time uses a database file, and one of its threads at a time merges. DuckDB locks its file itself, but
not at every moment: when several processes open, write and close a file at once, version 2.0.0 sometimes loses a
committed transaction. It has no table locks either: of two transactions that write the same row, the second one fails.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_provider_mail.warehouse.dialects.base import STANDARD_TYPES
from airflow_provider_mail.warehouse.dialects.staged import Staged
from airflow_provider_mail.warehouse.rows import (
    Encoder,
    ReadValue,
    chunks,
    each,
    json_text,
    read_fields,
    read_float32,
    read_items,
    utc,
    utc_text,
    utc_texts,
)
from airflow_provider_mail.warehouse.table import Column, TableName, literal
from airflow_provider_mail.warehouse.time_limit import pause

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

T = TypeVar("T")

_CONFLICT = re.compile(
    r"\A(?:TransactionContext Error: .*(?:conflict|Failed to commit)|Constraint Error: .*duplicate key)", re.IGNORECASE
)
_MAX_CHUNK_ROWS, _MAX_CHUNK_CHARACTERS = 5000, 1 << 20
_LOCKED = "Could not set lock on file"
_BUSY_SECONDS = {
    _LOCKED: 60.0,
    # Raised while another process creates the file, and always for a file of another kind.
    "not a valid DuckDB database file": 5.0,
    # Another thread of this process is just closing it.
    "is already attached by database": 5.0,
}
"""How long to wait for the file, by the message of the driver."""
_COLLATED = re.compile(r'[(,]\s*"?(\w+)"? VARCHAR COLLATE "?([\w.]+)')
_EXACT = ("", "binary", "c", "posix")
_SEARCHED = "list_append(current_schemas(false), 'main')"
"""The schemas of ``search_path`` in the current database."""


def _double(value: float) -> float | str:
    return value if value - value == 0 else str(value)  # JSON has no infinity


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "date": datetime.date.isoformat,
    "timestamp": utc_text,
    "json": json_text,
    "double": _double,
}


class _Locks:
    """The locks of this process: for each lock file, its descriptor and the number of connections that share it.

    A forked child starts with new locks.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.merging = threading.Lock()
        self.held: dict[str, tuple[int, int]] = {}

    def acquire(self, file: str) -> bool:
        """Lock the file, or share this process's lock; return whether that worked."""
        with self.guard:
            if file in self.held:
                descriptor, users = self.held[file]
            else:
                descriptor, users = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), 0
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    os.close(descriptor)
                    if isinstance(error, BlockingIOError):
                        return False
                    raise
            self.held[file] = descriptor, users + 1
            return True

    def release(self, file: str) -> None:
        with self.guard:
            descriptor, users = self.held.pop(file, (-1, 0))
            if users > 1:
                self.held[file] = descriptor, users - 1
            elif users:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that was forked meanwhile
                os.close(descriptor)


_locks = _Locks()
os.register_at_fork(after_in_child=_locks.__init__)  # type: ignore[misc]


@contextmanager
def one_process(database: str, seconds: float) -> Iterator[None]:
    """Lock a database file against other processes that call this; threads of this process share the lock.

    :param seconds: how long to wait. After that, or if no lock is possible, continue: DuckDB's own lock decides.
    """
    file, end, locked = f"{os.path.realpath(database)}.lock", time.monotonic() + seconds, False
    with suppress(OSError):
        while not (locked := _locks.acquire(file)) and time.monotonic() < end:
            pause()
    try:
        yield
    finally:
        if locked:
            _locks.release(file)


def _reader(column_type: Any) -> ReadValue | None:
    """The conversion that the values of a type need, which the driver returns in a wider type."""
    kind = getattr(column_type, "id", None)  # a text before version 1.4 of DuckDB, without the width
    if kind == "float":
        return read_float32
    if kind not in ("list", "array", "struct", "map"):
        return None
    readers = {name: _reader(child) for name, child in column_type.children if name != "size"}
    if kind == "struct":
        return read_fields(readers)
    if kind == "map":
        item = readers["value"]
        return item and (lambda pairs: pairs and {key: item(value) for key, value in pairs.items()})
    return read_items(readers["child"])


class DuckDb(Staged):
    """Stages rows as batches of JSON, since binding values one by one takes a millisecond per row.

    Only one process at a time can open a file; loads wait for it.
    """

    distinct = "IS DISTINCT FROM"
    has_comment_on = True
    held_seconds = 1.0  # opening takes 60 ms
    words = "SELECT unnest(string_split(?, ' ')) AS word"
    unix_time = "epoch(now())"
    # Timestamps without a zone: to read them with one, Python would need another package (pytz).
    types: ClassVar[Mapping[str, str]] = {**STANDARD_TYPES, "text": "VARCHAR", "double": "DOUBLE", "json": "JSON"}
    parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"timestamp": utc, "json": json_text}
    compatible_types: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "text": ("VARCHAR",),
        "bigint": ("BIGINT", "HUGEINT"),
        "integer": ("INTEGER", "BIGINT", "HUGEINT"),
        "double": ("DOUBLE",),
        "boolean": ("BOOLEAN",),
        "date": ("DATE",),
        "timestamp": ("TIMESTAMP",),
        "json": ("JSON",),
    }

    @classmethod
    def busy_seconds(cls, error: BaseException) -> float:
        return next((seconds for text, seconds in _BUSY_SECONDS.items() if text in str(error)), 0.0)

    @classmethod
    def opening(cls, hook: DbApiHook, seconds: float) -> AbstractContextManager[object]:
        file = hook.get_connection(hook.get_conn_id()).host
        if file in ("", ":memory:", None):  # in memory, or at MotherDuck
            return nullcontext()
        return one_process(file, min(_BUSY_SECONDS[_LOCKED], seconds))

    @classmethod
    def open_reader(cls, hook: DbApiHook, connection: Any) -> Any:
        """Begin a read-only transaction; return the connection: cursors are connections that `Reading` cannot end."""
        connection.execute("BEGIN TRANSACTION READ ONLY")
        return connection

    @classmethod
    def column_readers(cls, description: Sequence[Sequence[Any]]) -> Mapping[int, ReadValue]:
        readers = enumerate(_reader(column[1]) for column in description)
        return {place: reader for place, reader in readers if reader}

    def _conflicts(self, error: BaseException) -> bool:
        # Also when another transaction has inserted the same key, which this one cannot see.
        return bool(_CONFLICT.match(str(error)))

    def _retry_conflicts(self, attempt: Callable[[], T], undo: Callable[[], object]) -> T:
        # DuckDB has no table locks: threads that keep conflicting could use up the attempts of one of them.
        with _locks.merging:
            return super()._retry_conflicts(attempt, undo)

    def _begin(self, connection: Any) -> None:
        connection.execute("BEGIN")  # for the checks; DuckDB's commit() and rollback() need a transaction

    def _cursor(self, connection: Any) -> AbstractContextManager[Any]:
        return nullcontext(connection)  # DuckDB's cursors are connections of their own

    def _resolved_name(self, cursor: Any) -> TableName:
        *places, name = (part.text for part in self.request.name.parts)
        condition = {
            0: f"database_name = current_database() AND list_contains({_SEARCHED}, schema_name)",
            1: "((lower(schema_name) = lower(?) AND database_name = current_database()) OR "
            "(lower(database_name) = lower(?) AND schema_name = 'main'))",
            2: "lower(database_name) = lower(?) AND lower(schema_name) = lower(?)",
        }[len(places)]
        # Among several schemas: that which has the table, or else the first one of `search_path`.
        cursor.execute(
            "SELECT database_name, schema_name, coalesce(c.table_name, ?) FROM duckdb_schemas() AS s LEFT JOIN "
            "(SELECT DISTINCT database_name, schema_name, table_name FROM duckdb_columns() "
            "WHERE lower(table_name) = lower(?)) AS c USING (database_name, schema_name) "
            f"WHERE {condition} ORDER BY c.table_name IS NULL, list_position({_SEARCHED}, schema_name) LIMIT 1",
            [name, name, *(places * 2 if len(places) == 1 else places)],
        )
        return TableName.exact(*(cursor.fetchone() or [*places, name]))

    def _place(self, cursor: Any) -> TableName:
        """The name that a load has found; finding it takes as long as writing many rows."""
        return self.request.resolved or self._resolved_name(cursor)

    def _columns(self, cursor: Any) -> dict[str, str]:
        place = [part.text for part in self._place(cursor).parts]
        if len(place) < 3:
            return {}  # there is no such schema
        cursor.execute(
            "SELECT lower(column_name), data_type FROM duckdb_columns() WHERE database_name = ? AND schema_name = ? "
            "AND lower(table_name) = lower(?)",
            place,
        )
        return dict(cursor.fetchall())

    def _inexact(self, cursor: Any) -> Sequence[tuple[str, str]]:
        *schema, name = (part.text for part in self._place(cursor).parts)
        cursor.execute("SELECT current_setting('default_collation')")
        (default,) = cursor.fetchone()
        cursor.execute(
            "SELECT sql FROM duckdb_tables() WHERE concat_ws('.', database_name, schema_name) = ? AND table_name = ?",
            [".".join(schema), name],
        )
        (statement,) = cursor.fetchone() or ("",)
        declared = {name.lower(): collation for name, collation in _COLLATED.findall(statement)}
        collations = ((name, declared.get(name, default)) for name in self.table.key if self.table[name].type.length)
        return [(name, collation) for name, collation in collations if collation.lower() not in _EXACT]

    def _collation_advice(self, column: str) -> str:
        return f"{super()._collation_advice(column)}; if it has none, SET default_collation = ''"

    def _create_stage(self, cursor: Any) -> None:
        cursor.execute(f"CREATE TEMP TABLE {self.stage_name} (stage_row BIGINT, {self._staged_columns()})")
        self._staged_count = 0

    def _stage(self, cursor: Any) -> None:
        shape = {"stage_row": ["BIGINT"], **{column.name: [self._json_type(column)] for column in self.table.columns}}
        selected = ", ".join(f"unnest(given.{name})" for name in shape)
        insert = (
            f"INSERT INTO {self.stage_name} SELECT {selected} "
            f"FROM (SELECT from_json_strict(?, {literal(json.dumps(shape))}) AS given)"
        )
        for text in self._texts():
            cursor.execute(insert, [text])

    def _open_merge(self, cursor: Any) -> None:
        cursor.execute("BEGIN")

    def _undo_merge(self, connection: Any, cursor: Any) -> None:
        with suppress(Exception):  # a commit that failed has rolled back already
            connection.rollback()

    @property
    def _staged(self) -> str:
        names, key = ", ".join(self.table.names), ", ".join(self.table.key)
        aggregate = "min" if self.table.insert_only else "max"
        kept_rows = f"SELECT {aggregate}(stage_row) AS stage_row FROM {self.stage_name} GROUP BY {key}"
        return f"(SELECT {names} FROM {self.stage_name} SEMI JOIN ({kept_rows}) USING (stage_row))"

    def _ordered(self, alias: str = "s.") -> str:
        return ""  # DuckDB does not lock rows; sorting would take memory

    def _affected(self, cursor: Any) -> int:
        return int(cursor.fetchone()[0])  # the statement's result; versions before 2 leave `rowcount` at -1

    def _json_type(self, column: Column) -> str:
        # JSON in JSON would be parsed and written anew.
        return "VARCHAR" if column.type.name == "json" else self._column_type(column)

    def _texts(self) -> Iterator[str]:
        encoder = Encoder(self.table, {**each(_CONVERTERS), "timestamp": utc_texts})
        encoded = self.request.source.encoded(encoder)
        for rows in chunks(encoded, _MAX_CHUNK_ROWS, _MAX_CHUNK_CHARACTERS):
            numbers = range(self._staged_count, self._staged_count + len(rows))
            self._staged_count += len(rows)
            values_by_column = dict(
                zip(("stage_row", *self.table.names), (list(numbers), *zip(*rows, strict=True)), strict=True)
            )
            yield json.dumps(values_by_column, ensure_ascii=False, separators=(",", ":"))
