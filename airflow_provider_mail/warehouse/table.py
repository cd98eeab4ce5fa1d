"""Tables declared as data, from which every dialect makes its DDL."""

from __future__ import annotations

import datetime
import re
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from airflow_provider_mail.warehouse.errors import WarehouseError


@dataclass(frozen=True)
class Type:
    """A portable type.

    :param name: its name here; every dialect maps it to a type of its own.
    :param length: length of text in characters, for databases that cannot index text without a limit.
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
"""A point in time. Values are datetimes with a zone; a database without such a type stores UTC."""
JSON = Type("json")
"""A JSON value. Values are Python objects, not JSON text."""


def text(length: int) -> Type:
    """Return the type of text that may be part of a key; databases that need no limit set none."""
    return Type("text", length)


@dataclass(frozen=True)
class Column:
    """One column.

    :param name: a plain lower-case name, which needs no quotes in any database.
    :param comment: its meaning, with the unit; stored in databases that have comments.
    :param observed: the column holds the time at which the service was asked. A later observation replaces an earlier
        one, never the other way round, and a row in which nothing else differs does not count as changed.
    :param gone: the column holds the time since which the service does not have the row any more. Loads set and clear
        it; loaded rows have none.
    :param least: the smallest number that can be true, such as 0 for a count.
    """

    name: str
    type: Type
    comment: str
    nullable: bool = False
    observed: bool = False
    gone: bool = False
    least: int | None = None


LOAD_COLUMNS = (
    Column("loaded_at", TIMESTAMP, "When the row was last written", nullable=True),
    Column("run_id", text(250), "Airflow run that wrote it; null outside of a task", nullable=True),
)
"""Columns that every load sets in the rows that it writes, and does not compare."""


CONNECTION = Column("mail_conn_id", text(250), "Airflow connection of the account that the row came from")
# Part of keys, so never null; with this length MySQL can index the longest of them.
TEAM = Column("team_name", text(150), "Team of the account, as set on that connection; empty when it names none")
OBSERVED = Column(
    "observed_at",
    TIMESTAMP,
    "When these values were first observed, or later; mail_loads has when they were last confirmed",
    observed=True,
)
GONE = Column(
    "gone_at",
    TIMESTAMP,
    "When it was first observed to be missing at the service; null while it exists",
    nullable=True,
    gone=True,
)
OTHER_FIELDS = Column(
    "other_fields",
    JSON,
    "Fields of the service's record that have no column, as it names them; null if there are none",
    nullable=True,
)
LAST_SEEN = Column("observed_at", TIMESTAMP, "When the service last returned it", observed=True)


@dataclass(frozen=True)
class Table:
    """A table without its name, which the user chooses.

    :param key: names of the columns that identify a row; not nullable, and with a length if they are text.
    :param insert_only: whether rows are never updated: of all rows with one key, the first one stays.
    :param counted_by: name of the column by whose values the inserted rows of such a table are counted.
    :param indexes: names of the columns by which rows are found besides their key, as a table with years of rows needs.
    :param load_columns: further columns, which hold when and by what a row was written.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    comment: str
    insert_only: bool = False
    counted_by: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()
    load_columns: tuple[Column, ...] = LOAD_COLUMNS

    def __getitem__(self, name: str) -> Column:
        for column in self.stored_columns:
            if column.name == name:
                return column
        raise ValueError(f"there is no column {name}")

    @cached_property
    def stored_columns(self) -> tuple[Column, ...]:
        return (*self.columns, *self.load_columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def load_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.load_columns)

    @cached_property
    def stored_names(self) -> tuple[str, ...]:
        return (*self.names, *self.load_names)

    @cached_property
    def as_stored(self) -> Table:
        """The table as files have it: all columns are those of a row."""
        return replace(self, columns=self.stored_columns, load_columns=())

    @cached_property
    def observed(self) -> str | None:
        return next((column.name for column in self.columns if column.observed), None)

    @cached_property
    def gone(self) -> str | None:
        return next((column.name for column in self.columns if column.gone), None)

    @cached_property
    def updated(self) -> tuple[str, ...]:
        """Names of the columns that a load updates in an existing row, besides those of ``load_columns``."""
        if self.insert_only:
            return ()
        return tuple(name for name in self.names if name not in self.key)

    @cached_property
    def content(self) -> tuple[str, ...]:
        """Names of the columns whose difference is a change: neither key nor time of observation."""
        return tuple(name for name in self.names if name not in self.key and name != self.observed)


@dataclass(frozen=True)
class NamePart:
    """One part of a table's name.

    :param quoted: whether it was quoted and keeps its case; otherwise the database folds its case as usual.
    """

    text: str
    quoted: bool


# "%" would be a placeholder to some drivers; 63 bytes is where Postgres silently cuts.
_NAME_PART = re.compile(r'"((?:[^"%\x00]|"")+)"|([^\W\d][\w$]*)')
_NAME = re.compile(rf"(?:{_NAME_PART.pattern})(?:\.(?:{_NAME_PART.pattern})){{0,2}}")
_FOLDED = re.compile(r"[a-z_][a-z0-9_]*")
MAX_PART_BYTES = 63


@dataclass(frozen=True)
class TableName:
    """The name of a table, optionally with its schema and catalog."""

    parts: tuple[NamePart, ...]

    @classmethod
    def parse(cls, name: str | TableName) -> TableName:
        """Parse ``orders``, ``crm.orders``, ``crm."Orders 2026"`` or ``catalog.crm.orders``, quoted as in standard SQL.

        :raises WarehouseError: when it is none of these, or a part is longer than 63 bytes.
        """
        if isinstance(name, TableName):
            return name
        parts: list[NamePart] = []
        if _NAME.fullmatch(name):
            for quoted, plain in _NAME_PART.findall(name):
                parts.append(NamePart(plain or quoted.replace('""', '"'), bool(quoted)))
        if not parts or any(len(part.text.encode()) > MAX_PART_BYTES for part in parts):
            raise WarehouseError(
                f'`table` must be a name such as orders, crm.orders or crm."Orders 2026" '
                f"(each part at most {MAX_PART_BYTES} bytes, without '%'), not {name!r}"
            )
        return cls(tuple(parts))

    @classmethod
    def exact(cls, *parts: str | None) -> TableName:
        """Make a name of what the database calls the table, its schema and its catalog.

        :param parts: the parts as the database spells them, the table's own name last; ``None`` is left out.
        """
        return cls(tuple(NamePart(part, not _FOLDED.fullmatch(part)) for part in parts if part is not None))

    def beside(self, name: TableName) -> TableName:
        """Return the name of a table in the schema of this one, unless the name has a schema of its own."""
        return name if len(name.parts) > 1 else TableName((*self.parts[:-1], *name.parts))

    def __str__(self) -> str:
        return ".".join(quoted(part.text) if part.quoted else part.text for part in self.parts)


def derived_name(table: str, suffix: str) -> str:
    name = TableName.parse(table)
    last = replace(name.parts[-1], text=f"{name.parts[-1].text}{suffix}")
    return str(TableName((*name.parts[:-1], last)))


def other_name(argument: str, table: str, suffix: str, chosen: str | None) -> str:
    """Name a table that belongs to another one.

    :param argument: the argument that chooses the name, for errors.
    :raises WarehouseError: when it is not a valid name, or is that of ``table``.
    """
    name = chosen or derived_name(table, suffix)
    try:
        if TableName.parse(name) == TableName.parse(table):
            raise WarehouseError("it is that of `table`")
    except WarehouseError as error:
        raise WarehouseError(f"{argument}: {name!r} cannot be its name: {error}") from None
    return name


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class TaskRun:
    """The try of a task that loads rows; outside of a task, all are ``None``.

    :param map_index: the index of a mapped task, otherwise -1.
    """

    run_id: str | None = None
    dag_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None

    def values(self, table: Table, loaded_at: datetime.datetime, rows: int | None = None) -> tuple[Any, ...]:
        values_by_name = {**asdict(self), "loaded_at": loaded_at, "load_rows": rows}
        return tuple(values_by_name[name] for name in table.load_names)
