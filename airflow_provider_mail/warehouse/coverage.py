"""Coverage of a load: for which parts of a table it has every row, so that unchanged rows are not written again.

A row has the time at which its content was first observed (``observed_at``). That a later load found it unchanged is
recorded once for a whole part of the table, in ``mail_loads`` in the same schema: a day of statistics, a list of
contacts. Together, they tell a late load of old data from new data.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.warehouse.table import (
    BIGINT,
    DATE,
    INTEGER,
    LOAD_COLUMNS,
    TIMESTAMP,
    Column,
    NamePart,
    Table,
    TableName,
    text,
)

_MAX_PART_CHARACTERS = 250

LOADS = Table(
    comment="When each part of the tables beside this one was last read whole from the mail service",
    key=("table_name", "mail_conn_id", "part"),
    columns=(
        Column("table_name", text(64), "Name of the table as the database spells it, without its schema"),
        Column("mail_conn_id", text(250), "Airflow connection of the account that was read"),
        Column(
            "part",
            text(_MAX_PART_CHARACTERS),
            "What of the table: a day (YYYY-MM-DD), or a list, behind its team and a slash where there is one",
        ),
        Column("observed_at", TIMESTAMP, "When it was last read", observed=True),
    ),
    load_columns=(
        *LOAD_COLUMNS,
        Column("dag_id", text(250), "DAG of the task that read it; null outside of a task", nullable=True),
        Column("task_id", text(250), "That task", nullable=True),
        Column("map_index", INTEGER, "Index of a mapped task, otherwise -1", nullable=True),
        Column("try_number", INTEGER, "Number of the task's try, from 1", nullable=True),
        Column("load_rows", BIGINT, "Rows of the whole load, which may have read other parts too", nullable=True),
    ),
)
LOADS_NAME = "mail_loads"


@dataclass(frozen=True)
class Between:
    """Values from ``low`` to ``high``, both inclusive."""

    low: Any
    high: Any


@dataclass(frozen=True)
class OneOf:
    """Some values, at least one."""

    values: Sequence[Any]


@dataclass(frozen=True)
class Coverage:
    """The parts of a table for which a load has every row of the service, as of one time.

    The load may also have rows outside of all parts.

    :param observed_at: the time at which reading began, with a zone; the rows have the same.
    :param parts: the rows of each part, as conditions (by column, a value or `Between`), by its name in ``mail_loads``.
    :param whole: the condition for the rows of all parts.
    """

    mail_conn_id: str
    observed_at: datetime.datetime
    parts: Mapping[str, Mapping[str, Any]]
    whole: Mapping[str, Any]

    @classmethod
    def days(
        cls,
        column: Column,
        first: datetime.date,
        last: datetime.date,
        *,
        mail_conn_id: str,
        observed_at: datetime.datetime,
        only: Collection[datetime.date] | None = None,
    ) -> Coverage:
        """Cover days in UTC of one account; none when ``last`` lies before ``first``.

        :param column: the date or timestamp that decides to which day a row belongs.
        :param last: the last day, included.
        :param only: the days that are covered; the load has no rows of the others. Default: all.
        """
        account = {"mail_conn_id": mail_conn_id}
        count = (last - first).days + 1
        days = (first + datetime.timedelta(days=number) for number in range(count))
        parts = {
            day.isoformat(): {**account, column.name: _span(column, day, day)}
            for day in days
            if only is None or day in only
        }
        return cls(mail_conn_id, observed_at, parts, {**account, column.name: _span(column, first, last)})

    @classmethod
    def one(cls, part: str, where: Mapping[str, Any], *, mail_conn_id: str, observed_at: datetime.datetime) -> Coverage:
        """Cover one part.

        :param part: its name; a long one is cut and gets a digest.
        :param where: the values that its rows have, by column, among them ``mail_conn_id``.
        """
        if len(part) > _MAX_PART_CHARACTERS:
            digest = hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()[:16]
            part = f"{part[: _MAX_PART_CHARACTERS - 17]} {digest}"
        return cls(mail_conn_id, observed_at, {part: where}, where)

    def rows(self, name: TableName) -> Iterator[tuple[Any, ...]]:
        """Return the rows of `LOADS` for a load."""
        for part in self.parts:
            yield table_name(name), self.mail_conn_id, part, self.observed_at


@dataclass(frozen=True)
class MarkGone:
    """Rows that the service does not have any more: those in a window that a load does not have.

    :param observed_at: the time at which reading began, with a zone; only rows that were observed earlier can be gone.
    :param windows: called when all rows have been read; returns the windows for which they are complete, as conditions
        (by column, a value, ``None`` or `Between`). Without a window, no row is marked.
    :param exists: returns those of these values of the key's last column that the service still has, outside of the
        windows: their rows are not marked. Default: the windows are all that it has.
    """

    observed_at: datetime.datetime
    windows: Callable[[], Sequence[Mapping[str, Any]]]
    exists: Callable[[Sequence[str]], Collection[str]] | None = None


def table_name(name: TableName) -> str:
    """Return the name of a table as ``mail_loads`` has it.

    :param name: the name, whose schema is left out.
    """
    last = name.parts[-1]
    return last.text if last.quoted else last.text.lower()


def loads_beside(name: TableName) -> TableName:
    """Return the name of ``mail_loads`` in the schema of a table."""
    return name.beside(TableName((NamePart(LOADS_NAME, False),)))


def _span(column: Column, first: datetime.date, last: datetime.date) -> Between:
    if column.type == DATE:
        return Between(first, last)
    return Between(
        datetime.datetime.combine(first, datetime.time.min, datetime.UTC),
        datetime.datetime.combine(last, datetime.time.max, datetime.UTC),
    )
