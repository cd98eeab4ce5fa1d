"""DuckDB: in a file, in memory, or at MotherDuck."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar

from airflow_provider_mail.warehouse.dialects.staged import Staged
from airflow_provider_mail.warehouse.rows import Encoder, chunks, each, json_text, utc, utc_text
from airflow_provider_mail.warehouse.table import Column, TableName, literal, quoted

_CONFLICT = re.compile(
    r"\A(?:TransactionContext Error: .*(?:conflict|Failed to commit)|Constraint Error: .*duplicate key)", re.IGNORECASE
)
_MOST_ROWS, _MOST_CHARACTERS = 5000, 1 << 20


def _double(value: float) -> float | str:
    return value if value - value == 0 else str(value)  # JSON knows no infinity


_CONVERTS: Mapping[str, Callable[[Any], Any]] = {
    "date": datetime.date.isoformat,
    "timestamp": utc_text,
    "json": json_text,
    "double": _double,
}
_PARAMETERS: Mapping[str, Callable[[Any], Any]] = {"timestamp": utc, "json": json_text}

_HOLDING: Mapping[str, tuple[str, ...]] = {
    "text": ("VARCHAR",),
    "bigint": ("BIGINT", "HUGEINT"),
    "integer": ("INTEGER", "BIGINT", "HUGEINT"),
    "double": ("DOUBLE",),
    "boolean": ("BOOLEAN",),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMP",),
    "json": ("JSON",),
}


class DuckDb(Staged):
    """Batches of rows as one JSON text each: binding values one by one takes a millisecond a row.

    A file belongs to one process at a time; loads wait for it.
    """

    distinct = "IS DISTINCT FROM"
    unix_time = "epoch(now())"
    types: ClassVar[Mapping[str, str]] = {
        "text": "VARCHAR",
        "bigint": "BIGINT",
        "integer": "INTEGER",
        "double": "DOUBLE",
        "boolean": "BOOLEAN",
        "date": "DATE",
        # With a zone it would need one more package (pytz) to be read from Python.
        "timestamp": "TIMESTAMP",
        "json": "JSON",
    }

    def qualified(self, name: TableName) -> str:
        return ".".join(quoted(part.text) for part in name.parts)

    def parameter(self, column: Column, value: Any) -> Any:
        convert = _PARAMETERS.get(column.type.name)
        return convert(value) if convert else value

    def conflicts(self, error: BaseException) -> bool:
        # Also when another transaction has inserted the same key, which ours cannot see.
        return bool(_CONFLICT.match(str(error)))

    def begin(self, connection: Any) -> None:
        connection.execute("BEGIN")  # for the look at the table; its commit() and rollback() need a transaction

    def cursor(self, connection: Any) -> AbstractContextManager[Any]:
        return nullcontext(connection)  # what DuckDB calls a cursor is a connection of its own

    def columns(self, cursor: Any) -> dict[str, str]:
        *places, name = (part.text.lower() for part in self.job.name.parts)
        where = {
            0: "schema_name = current_schema() AND database_name = current_database()",
            1: "((lower(schema_name) = ? AND database_name = current_database()) OR "
            "(lower(database_name) = ? AND schema_name = 'main'))",
            2: "lower(database_name) = ? AND lower(schema_name) = ?",
        }[len(places)]
        cursor.execute(
            f"SELECT lower(column_name), data_type FROM duckdb_columns() WHERE lower(table_name) = ? AND {where}",
            [name, *(places * 2 if len(places) == 1 else places)],
        )
        return dict(cursor.fetchall())

    def holds(self, column: Column, actual: str) -> bool:
        return actual in _HOLDING[column.type.name]

    def stage(self, cursor: Any) -> None:
        columns = self.table.columns
        declared = ", ".join(f"{column.name} {self.column_type(column)}" for column in columns)
        cursor.execute(f"CREATE TEMP TABLE {self.stage_name} (stage_row BIGINT, {declared})")
        shape = {"stage_row": ["BIGINT"], **{column.name: [self._given_as(column)] for column in columns}}
        selected = ", ".join(f"unnest(given.{name})" for name in shape)
        insert = (
            f"INSERT INTO {self.stage_name} SELECT {selected} "
            f"FROM (SELECT from_json_strict(?, {literal(json.dumps(shape))}) AS given)"
        )
        for text in self._texts():
            cursor.execute(insert, [text])

    def open_merge(self, cursor: Any) -> None:
        cursor.execute("BEGIN")

    def undo_merge(self, connection: Any, cursor: Any) -> None:
        with suppress(Exception):  # a commit that failed has rolled back already
            connection.rollback()

    @property
    def staged(self) -> str:
        names, key = ", ".join(self.table.names), ", ".join(self.table.key)
        last = f"SELECT max(stage_row) AS stage_row FROM {self.stage_name} GROUP BY {key}"
        return f"(SELECT {names} FROM {self.stage_name} SEMI JOIN ({last}) USING (stage_row))"

    def ordered(self, alias: str = "s.") -> str:
        return ""  # nobody waits for a row; sorting would take memory

    def affected(self, cursor: Any) -> int:
        return int(cursor.fetchone()[0])  # its result; versions before 2 leave `rowcount` at -1

    def describe(self, cursor: Any, columns: tuple[Column, ...], *, whole: bool) -> None:
        if whole:
            cursor.execute(f"COMMENT ON TABLE {self.target} IS {literal(self.table.comment)}")
        for column in columns:
            cursor.execute(f"COMMENT ON COLUMN {self.target}.{column.name} IS {literal(column.comment)}")

    def _given_as(self, column: Column) -> str:
        # JSON in JSON would be taken apart and spelled anew.
        return "VARCHAR" if column.type.name == "json" else self.column_type(column)

    def _texts(self) -> Iterator[str]:
        """The rows, column by column, some hundreds of kilobytes at a time."""
        number = 0
        for rows in chunks(self.job.source.encoded(Encoder(self.table, each(_CONVERTS))), _MOST_ROWS, _MOST_CHARACTERS):
            numbers = range(number, number + len(rows))
            number += len(rows)
            given = dict(zip(("stage_row", *self.table.names), (list(numbers), *zip(*rows, strict=True)), strict=True))
            yield json.dumps(given, ensure_ascii=False, separators=(",", ":"))
