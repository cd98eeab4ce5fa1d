"""Postgres, through psycopg 3 or psycopg2, whichever the hook opens."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

from airflow_provider_mail.warehouse.dialects.staged import Counts, Staged
from airflow_provider_mail.warehouse.rows import Convert, Encoder, aware, each, json_text
from airflow_provider_mail.warehouse.table import Column, TableName, literal, quoted

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_NULL = "\\N"
_STAGED = "airflow_provider_mail_staged"


def _texts(values: Sequence[str]) -> Sequence[str]:
    # Looking is many times quicker than translating, and there is hardly ever anything to find.
    together = "".join(values)
    if "\\" in together or "\n" in together or "\t" in together or "\r" in together:
        return [value.translate(_ESCAPES) for value in values]
    return values


def _json_texts(values: Sequence[Any]) -> Sequence[str]:
    return _texts([*map(json_text, values)])


def _timestamps(values: Sequence[datetime.datetime]) -> Sequence[str]:
    return [*map(str, map(aware, values))]


_COPIED: Mapping[str, Convert] = {
    **each(dict.fromkeys(("bigint", "integer", "double", "boolean", "date"), str)),
    "text": _texts,
    "timestamp": _timestamps,
    "json": _json_texts,
}

_HOLDING: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "character varying", "citext"),
    "bigint": ("bigint", "numeric"),
    "integer": ("integer", "bigint", "numeric"),
    "double": ("double precision", "numeric"),
    "boolean": ("boolean",),
    "date": ("date",),
    "timestamp": ("timestamp with time zone",),
    "json": ("jsonb",),
}
_BOUNDED_TEXT = re.compile(r"character varying\((\d+)\)")


class Postgres(Staged):
    """COPY into a temporary table, then one INSERT ... ON CONFLICT."""

    distinct = "IS DISTINCT FROM"
    unix_time = "extract(epoch FROM clock_timestamp())"
    types: ClassVar[Mapping[str, str]] = {
        "text": "text",
        "bigint": "bigint",
        "integer": "integer",
        "double": "double precision",
        "boolean": "boolean",
        "date": "date",
        "timestamp": "timestamp with time zone",
        "json": "jsonb",
    }

    def qualified(self, name: TableName) -> str:
        return ".".join(quoted(part.text if part.quoted else part.text.lower()) for part in name.parts)

    def parameter(self, column: Column, value: Any) -> Any:
        return aware(value) if column.type.name == "timestamp" else value

    def begin(self, connection: Any) -> None:
        self.hook.set_autocommit(connection, False)
        rows_as_tuples(connection)

    def columns(self, cursor: Any) -> dict[str, str]:
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self.target],
        )
        return dict(cursor.fetchall())

    def holds(self, column: Column, actual: str) -> bool:
        if bounded := _BOUNDED_TEXT.fullmatch(actual):
            return column.type.name == "text" and int(bounded[1]) >= (column.type.length or float("inf"))
        return actual in _HOLDING[column.type.name]

    def open_staging(self, cursor: Any) -> None:
        # Under a stricter level, default of some databases, two loads at once would be errors instead of a queue.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def stage(self, cursor: Any) -> None:
        columns = ", ".join(f"{column.name} {self.column_type(column)}" for column in self.table.columns)
        cursor.execute(f"CREATE TEMP TABLE {self.stage_name} (stage_row bigint, {columns}) ON COMMIT DROP")
        _copy(cursor, f"COPY {self.stage_name} FROM STDIN", self._blocks())

    def open_merge(self, cursor: Any) -> None:
        # One transaction from the first row on, since a pool in between (PgBouncer) may give the next one another
        # session, without our temporary table.
        cursor.execute(f"SAVEPOINT {_STAGED}")

    def undo_merge(self, connection: Any, cursor: Any) -> None:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {_STAGED}")  # gives back its locks, too

    def lock(self, cursor: Any) -> None:
        # By name, since there may be no table yet to lock; namesakes in other schemas wait too, for a moment.
        name = f"airflow_provider_mail.{self.job.name.parts[-1].text.lower()}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])

    @property
    def staged(self) -> str:
        names, key = self.columns_list(self.table.names), self._sortable("")
        return f"(SELECT DISTINCT ON ({key}) {names} FROM {self.stage_name} ORDER BY {key}, stage_row DESC)"

    def ordered(self, alias: str = "s.") -> str:
        return f"ORDER BY {self._sortable(alias)}"

    def _sortable(self, alias: str) -> str:
        # Comparing bytes is many times quicker than comparing words.
        collated = {name: ' COLLATE "C"' for name in self.table.key if self.table[name].type.name == "text"}
        return ", ".join(f"{alias}{name}{collated.get(name, '')}" for name in self.table.key)

    def take_over(self, cursor: Any) -> Counts:
        # In one statement, so that it is sorted and joined once.
        seen, values = self.seen_again()
        news = "NOT stage_there OR (stage_newer AND (stage_differs OR stage_seen))"
        flags = {
            "stage_there": self.there(),
            "stage_newer": self.newer("s"),
            "stage_differs": self.different(),
            "stage_seen": seen,
        }
        counts = (
            "true",
            "NOT stage_there",
            "stage_there AND NOT stage_newer",
            "stage_there AND stage_newer AND stage_differs",
            "stage_there AND stage_newer AND NOT stage_differs AND stage_seen",
        )
        cursor.execute(
            f"WITH judged AS MATERIALIZED (SELECT {', '.join(f's.{name}' for name in self.table.names)}, "
            f"{', '.join(f'{what} AS {name}' for name, what in flags.items())} FROM {self.joined()}), "
            f"written AS ({self.upsert('judged AS s', news)}) "
            f"SELECT {', '.join(f'count(*) FILTER (WHERE {what})' for what in counts)} FROM judged",
            values,
        )
        return Counts(*map(int, cursor.fetchone()))

    def describe(self, cursor: Any, columns: tuple[Column, ...], *, whole: bool) -> None:
        if whole:
            cursor.execute(f"COMMENT ON TABLE {self.target} IS {literal(self.table.comment)}")
        for column in columns:
            cursor.execute(f"COMMENT ON COLUMN {self.target}.{column.name} IS {literal(column.comment)}")

    def _blocks(self) -> Iterator[str]:
        """The rows in the text format of COPY, some tens of kilobytes at a time."""
        number = count(1)
        for columns in self.job.source.columns(Encoder(self.table, _COPIED, null=_NULL, nul=False)):
            yield "".join([f"{next(number)}\t{line}\n" for line in map("\t".join, zip(*columns, strict=True))])


def rows_as_tuples(connection: Any) -> None:
    """Undo the cursor that the Airflow connection may ask for (`dictcursor` and relatives)."""
    if hasattr(connection, "row_factory"):
        from psycopg.rows import tuple_row

        connection.row_factory = tuple_row
    else:
        connection.cursor_factory = None


class _Reader:
    """Blocks of text as the file that psycopg2 wants; it takes more than it asked for."""

    def __init__(self, blocks: Iterator[str]) -> None:
        self._blocks = blocks

    def read(self, _size: int = -1) -> str:
        return next(self._blocks, "")


def _copy(cursor: Any, statement: str, blocks: Iterator[str]) -> None:
    if hasattr(cursor, "copy_expert"):
        cursor.copy_expert(statement, _Reader(blocks))
        return
    with cursor.copy(statement) as copy:
        for block in blocks:
            copy.write(block)
