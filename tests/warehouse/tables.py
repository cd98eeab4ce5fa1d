"""Tables for the tests, with every type, and rows for them."""

from __future__ import annotations

import datetime
from typing import Any

from airflow_provider_mail.warehouse.table import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    JSON,
    TEXT,
    TIMESTAMP,
    Column,
    Table,
    text,
)

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
LATER = NOON + datetime.timedelta(hours=1)
TOKYO = datetime.timezone(datetime.timedelta(hours=9))

_COLUMNS = (
    Column("account", text(50), "Whose thing it is"),
    Column("number", BIGINT, "Its number"),
    Column("name", TEXT, "What it's called", nullable=True),
    Column("size", INTEGER, "How large", nullable=True),
    Column("ratio", DOUBLE, "In percent", nullable=True),
    Column("good", BOOLEAN, "Or bad", nullable=True),
    Column("day", DATE, "Of its making", nullable=True),
    Column("sold_at", TIMESTAMP, "When it was sold", nullable=True),
    Column("extra", JSON, "All the rest", nullable=True),
)

PLAIN = Table(_COLUMNS, ("account", "number"), "Things")
THINGS = Table(
    (*_COLUMNS, Column("observed_at", TIMESTAMP, "When it was looked at", observed=True)),
    ("account", "number"),
    "Things, and when they were seen",
)

MARKED = Table(
    (*THINGS.columns, Column("gone_at", TIMESTAMP, "Since when it is gone", nullable=True, gone=True)),
    ("account", "number"),
    "Things, and since when they are gone",
)


def thing(table: Table, number: int, *, at: datetime.datetime = NOON, **values: Any) -> tuple[Any, ...]:
    """A row of `THINGS` or `PLAIN`; what is not given is NULL."""
    given = {"account": "a", "number": number, "observed_at": at, **values}
    return tuple(given.get(name) for name in table.names)


def numbers(kind: str, most: int, *columns: str) -> str:
    """A SELECT of these expressions over `i` from 1 to `most`, for this kind of warehouse."""
    selected = ", ".join(columns)
    if kind == "mysql":  # has a table for each such range
        return f"SELECT {selected} FROM (SELECT seq AS i FROM seq_1_to_{most}) AS n"
    if kind == "duckdb":  # keeps all rounds of a recursion
        return f"SELECT {selected} FROM range(1, {most} + 1) AS n(i)"
    return f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {most}) SELECT {selected} FROM n"
