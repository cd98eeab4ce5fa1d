"""What the warehouses that are loaded by merging spell differently."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mail.warehouse.dialects.base import STANDARD_TYPES
from airflow_provider_mail.warehouse.dialects.merge_sql import utc_literal
from airflow_provider_mail.warehouse.dialects.merging import Merging
from airflow_provider_mail.warehouse.request import LOADS
from airflow_provider_mail.warehouse.table import Column, Table, literal


def day_column(table: Table) -> Column | None:
    return table[table.by_day] if table.by_day else None


class Snowflake(Merging):
    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "VARCHAR",
        "double": "DOUBLE",
        "timestamp": "TIMESTAMP_TZ",
        "json": "VARIANT",
    }
    transaction = ("BEGIN TRANSACTION", "COMMIT", "ROLLBACK")
    has_lock = True

    def timestamp(self, value: datetime.datetime) -> str:
        return f"'{utc_literal(value)}+00:00'::TIMESTAMP_TZ"

    def clustering(self, table: Table) -> str:
        column = day_column(table)
        if column is None:
            return ""
        day = f"TO_DATE({column.name})" if column.type.name == "timestamp" else column.name
        return f" CLUSTER BY ({day}, mail_conn_id)"


class BigQuery(Merging):
    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "STRING",
        "bigint": "INT64",
        "integer": "INT64",
        "double": "FLOAT64",
        "boolean": "BOOL",
        "json": "JSON",
    }
    primary_key = "PRIMARY KEY ({}) NOT ENFORCED"
    transaction = ("BEGIN TRANSACTION", "COMMIT TRANSACTION", "ROLLBACK TRANSACTION")
    has_lock = True
    is_script = True
    quote = "`"

    def clustering(self, table: Table) -> str:
        column = day_column(table)
        if column is None:
            return " CLUSTER BY mail_conn_id" if table is not LOADS else ""
        day = f"DATE({column.name})" if column.type.name == "timestamp" else column.name
        return f" PARTITION BY {day} CLUSTER BY mail_conn_id"


class Databricks(Merging):
    """Tables of Delta Lake."""

    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "STRING",
        "integer": "INT",
        "double": "DOUBLE",
        "json": "VARIANT",
    }
    primary_key = None  # only in Unity Catalog
    quote = "`"

    def clustering(self, table: Table) -> str:
        column = day_column(table)
        return f" CLUSTER BY ({column.name}, mail_conn_id)" if column else ""


class Trino(Merging):
    """With a connector that has MERGE and detects conflicts, such as Iceberg or Delta Lake."""

    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "VARCHAR",
        "double": "DOUBLE",
        "timestamp": "TIMESTAMP(6) WITH TIME ZONE",
        "json": "VARCHAR",
    }
    parse_json = "{}"
    primary_key = None

    @classmethod
    def limited(cls, sql: str, count: int, offset: int) -> str:
        return f"{sql} OFFSET {offset} ROWS FETCH NEXT {count} ROWS ONLY"

    def text(self, text: str) -> str:
        return literal(text)

    def timestamp(self, value: datetime.datetime) -> str:
        return f"TIMESTAMP '{utc_literal(value)} UTC'"

    def value(self, column: Column, value: Any) -> str:
        # A number with a point is a decimal of its own precision.
        return (
            f"DOUBLE '{float(value)!r}'"
            if column.type.name == "double" and value is not None
            else super().value(column, value)
        )


class Redshift(Merging):
    """Its MERGE has no conditions: rows are deleted and inserted, in a transaction that locks the table."""

    types: ClassVar[Mapping[str, str]] = {
        **STANDARD_TYPES,
        "text": "VARCHAR(65535)",
        "timestamp": "TIMESTAMPTZ",
        "json": "SUPER",
    }
    parse_json = "JSON_PARSE({})"
    transaction = ("BEGIN", "COMMIT", "ROLLBACK")

    def _column(self, name: str) -> str:
        return f'"{name}"'  # RAW and others are reserved

    def _column_type(self, column: Column) -> str:
        # The length is one of bytes.
        return f"VARCHAR({4 * column.type.length})" if column.type.length else super()._column_type(column)

    def timestamp(self, value: datetime.datetime) -> str:
        return f"CAST('{utc_literal(value)}+00' AS TIMESTAMPTZ)"

    def clustering(self, table: Table) -> str:
        column = day_column(table)
        return f' SORTKEY ("{column.name}")' if column else ""

    def _lock(self) -> list[str]:
        return [f"LOCK TABLE {name}" for name in (self.target, *([self.loads] if self.request.covers else ()))]

    def _record(self, loads: str) -> list[str]:
        if not (record := self._to_record()):
            return []
        rows = self._loads_rows()
        return [
            f"DELETE FROM {loads} USING ({rows}) AS s WHERE {self._same_part(loads, 's')} "
            f"AND {loads}.observed_at <= s.observed_at",
            f"INSERT INTO {loads} ({self._columns_list(LOADS.stored_names)}) "
            f"SELECT {', '.join([self._columns_list(LOADS.names, 's.'), *self._load_literals(record)])} "
            f"FROM ({rows}) AS s WHERE NOT EXISTS (SELECT 1 FROM {loads} AS t WHERE {self._same_part('t', 's')})",
        ]

    def _merge(self) -> list[str]:
        names, target, stage = self.table.names, self.target, self.stage
        statements = []
        if window := self._windows("r."):
            keys = self._columns_list(self.table.key, "r.")
            inner = self._with_part(keys, target, "r.")
            stale = (
                f"(SELECT * FROM {inner} WHERE {window}) AS g WHERE {self._not_late('g.')} AND NOT EXISTS "
                f"(SELECT 1 FROM {stage} AS k WHERE {self._same_key('k.', 'g.')})) AS x"
            )
            same = self._same_key(f"{target}.", "x.")
            if self.request.replace_where:
                statements.append(f"DELETE FROM {target} USING {stale} WHERE {same}")
            else:
                removal = self._removal().removeprefix("UPDATE ")
                statements.append(f"UPDATE {target} {removal} FROM {stale} WHERE {same}")
        inner = self._with_part(self._columns_list(names, "r."), stage, "r.")
        source = f"(SELECT * FROM {inner}) AS g WHERE {self._not_late('g.')}) AS s"
        if self.table.updated:
            newer = f" AND s.{self._column(str(self.table.observed))} >= {self._last_observed(f'{target}.')}"
            statements.append(
                f"DELETE FROM {target} USING {source} WHERE {self._same_key(f'{target}.', 's.')}"
                f"{newer if self.table.observed else ''}"
            )
        native = ", ".join([*(self._native(name, "s.") for name in names), *self._load_literals(self.request)])
        statements.append(
            f"INSERT INTO {target} ({self._columns_list(self.table.stored_names)}) SELECT {native} "
            f"FROM {source} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {target} AS t WHERE {self._same_key('t.', 's.')})"
        )
        return statements
