"""Tables declared once, as data: what every database of a user is asked to hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from airflow_provider_mail.warehouse.errors import WarehouseError


@dataclass(frozen=True)
class Type:
    """A type that every database has under some name.

    :param length: of text, in characters; for databases that cannot index text without one.
    """

    name: str
    length: int | None = None


TEXT = Type("text")
BIGINT = Type("bigint")
INTEGER = Type("integer")
DOUBLE = Type("double")
BOOLEAN = Type("boolean")
DATE = Type("date")
TIMESTAMP = Type("timestamp")
"""A point in time. Rows give aware datetimes; a database without such a type holds UTC."""
JSON = Type("json")
"""Anything that JSON can say. Rows give the Python value, not its text."""


def text(length: int) -> Type:
    """Text of at most `length` characters, as a key must be; databases that need no limit set none."""
    return Type("text", length)


@dataclass(frozen=True)
class Column:
    """One column.

    :param comment: what it means, with the unit; kept in the database where that has comments.
    :param observed: the column says when the service was asked. A newer observation replaces an older one, never the
        other way round, and a row in which nothing else is new does not count as changed.
    :param least: the smallest number that can be true, such as 0 for a count.
    :param gone: the column says since when the service does not have the row any more. Loads set and clear it; the rows
        that they bring have none.
    """

    name: str
    type: Type
    comment: str
    nullable: bool = False
    observed: bool = False
    gone: bool = False
    least: int | None = None

    def __post_init__(self) -> None:
        # Plain names need no quotes anywhere, and cannot break out of a statement.
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", self.name):
            raise ValueError(f"column name {self.name!r} is not a plain lower-case name")
        if "*/" in self.comment:
            raise ValueError(f"the comment of column {self.name} must not contain '*/'")
        if self.observed and (self.type != TIMESTAMP or self.nullable):
            raise ValueError(f"column {self.name} says when something was observed: a timestamp that is not nullable")
        if self.gone and (self.type != TIMESTAMP or not self.nullable):
            raise ValueError(f"column {self.name} says since when a row is gone: a timestamp that may be null")


@dataclass(frozen=True)
class Table:
    """A table without its name, which the user chooses.

    :param key: names of the columns that identify a row; not nullable, text among them with a length.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    comment: str

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError("two columns have the same name")
        if not self.key or len(set(self.key)) != len(self.key):
            raise ValueError("a table needs a key of different columns")
        if sum(column.observed for column in self.columns) > 1:
            raise ValueError("only one column can say when a row was observed")
        if sum(column.gone for column in self.columns) > (1 if self.observed else 0):
            raise ValueError(
                "only one column can say since when a row is gone, beside one that says when it was observed"
            )
        for name in self.key:
            column = self[name]
            if column.nullable or column.observed or column.type in (TEXT, JSON):
                raise ValueError(f"key column {name} must not be nullable, observed, JSON or text without a length")

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(f"there is no column {name}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All columns, in the order of the values of a row."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def observed(self) -> str | None:
        """The column that says when a row was observed."""
        return next((column.name for column in self.columns if column.observed), None)

    @cached_property
    def gone(self) -> str | None:
        """The column that says since when the service does not have a row any more."""
        return next((column.name for column in self.columns if column.gone), None)

    @cached_property
    def content(self) -> tuple[str, ...]:
        """The columns in which a difference is a change: neither key nor time of observation."""
        return tuple(name for name in self.names if name not in self.key and name != self.observed)


@dataclass(frozen=True)
class Part:
    """One part of a table's name; `quoted` keeps its case, otherwise the database folds it as it folds any name."""

    text: str
    quoted: bool


# "%" would be a placeholder to some drivers; 63 bytes is where Postgres silently cuts.
_PART = re.compile(r'"((?:[^"%\x00]|"")+)"|([^\W\d][\w$]*)')
_MOST_BYTES = 63


@dataclass(frozen=True)
class TableName:
    """The table that a user named, perhaps with its schema."""

    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, name: str) -> TableName:
        """Read `orders`, `crm.orders`, `crm."Orders 2026"` or `catalog.crm.orders`, quoted as in standard SQL.

        :raises WarehouseError: when it is none of these, or a part is longer than 63 bytes.
        """
        parts: list[Part] = []
        position = 0
        while match := _PART.match(name, position):
            quoted, plain = match.groups()
            parts.append(Part(plain or quoted.replace('""', '"'), quoted is not None))
            position = match.end()
            if position == len(name) or name[position] != ".":
                break
            position += 1
        complete = bool(parts) and position == len(name) and not name.endswith(".")
        if not complete or len(parts) > 3 or any(len(part.text.encode()) > _MOST_BYTES for part in parts):
            raise WarehouseError(
                f'`table` must be a name such as orders, crm.orders or crm."Orders 2026" '
                f"(each part at most {_MOST_BYTES} bytes, without '%'), not {name!r}"
            )
        return cls(tuple(parts))

    def __str__(self) -> str:
        return ".".join(quoted(part.text) if part.quoted else part.text for part in self.parts)


def quoted(identifier: str) -> str:
    """Quote an identifier as standard SQL does."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text as standard SQL does."""
    return "'" + text.replace("'", "''") + "'"
