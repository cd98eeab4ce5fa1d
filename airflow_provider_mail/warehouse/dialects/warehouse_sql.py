"""How warehouses that are loaded by merging spell names, types and values, and create tables.

Values are literals, since the statements also run where there are no parameters, such as in scripts of BigQuery.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.table import Column, Table, TableName


class WarehouseSql:
    """The spelling of a warehouse."""

    types: ClassVar[Mapping[str, str]]
    """The type of a column, by the name of the portable type."""
    parse_json: ClassVar[str] = "PARSE_JSON({})"
    """Converts text to the type of JSON."""
    primary_key: ClassVar[str | None] = "PRIMARY KEY ({})"
    """Declares the key, which is not enforced."""
    quote: ClassVar[str] = '"'
    """Quotes a name."""

    def name(self, name: TableName) -> str:
        """Spell the name of a table.

        :raises WarehouseError: when it cannot be quoted.
        """
        if any(self.quote in part.text and part.quoted for part in name.parts):
            raise WarehouseError(f"`table` must not contain {self.quote}: {str(name)!r}")
        return ".".join(f"{self.quote}{part.text}{self.quote}" if part.quoted else part.text for part in name.parts)

    def column(self, name: str) -> str:
        """Spell a column."""
        return name

    def columns(self, names: Iterable[str], alias: str = "") -> str:
        """Spell columns, separated by commas.

        :param alias: prefix of each, such as ``t.``.
        """
        return ", ".join(f"{alias}{self.column(name)}" for name in names)

    def column_type(self, column: Column) -> str:
        """Return the type with which a column is declared."""
        return self.types[column.type.name]

    def value(self, column: Column, value: Any) -> str:
        """Return a value of a column as a literal.

        :param value: the value, JSON as text.
        """
        if value is None:
            return "NULL"
        type_name = column.type.name
        if type_name == "timestamp":
            return self.timestamp(value)
        if type_name == "date":
            return f"DATE '{value.isoformat()}'"
        if type_name == "boolean":
            return "TRUE" if value else "FALSE"
        return self.text(value) if type_name in ("text", "json") else repr(value)

    def text(self, text: str) -> str:
        """Return a text as a literal: the backslash escapes in these warehouses."""
        for character, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
            text = text.replace(character, escaped)
        return f"'{text}'"

    def timestamp(self, value: datetime.datetime) -> str:
        """Return a point in time as a literal.

        :param value: a datetime with a zone.
        """
        return f"TIMESTAMP '{utc_literal(value)}+00:00'"

    def create(self, name: str, table: Table) -> str:
        """Return CREATE TABLE for a table that may exist.

        :param name: the name of the table, as spelled.
        """
        lines = [
            f"{self.column(column.name)} {self.column_type(column)}{'' if column.nullable else ' NOT NULL'}"
            for column in table.stored_columns
        ]
        if self.primary_key:
            lines.append(self.primary_key.format(self.columns(table.key)))
        body = ",\n  ".join(lines)
        return f"CREATE TABLE IF NOT EXISTS {name} (\n  {body}\n){self.clustering(table)}"

    def clustering(self, table: Table) -> str:
        """Return the clause that stores the rows of a day together; empty without one."""
        return ""

    def addition(self, name: str, column: Column) -> str:
        """Return ALTER TABLE for a column of a later version.

        :param name: the name of the table, as spelled.
        """
        return f"ALTER TABLE {name} ADD COLUMN {self.column(column.name)} {self.column_type(column)}"


def utc_literal(value: datetime.datetime) -> str:
    """Format a point in time as ``2026-03-01 12:30:00.000000``, in UTC.

    :param value: a datetime with a zone.
    """
    return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
