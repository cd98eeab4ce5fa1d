"""What a load knows whole, so that rows that did not change need not be written again.

A row says when the service was first seen to say so (`observed_at`). That a later load found it unchanged is written
down once for a whole part of the table, in `mail_loads` beside it: a day of statistics, a list of contacts. Both
together tell an observation that arrives late from news.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.warehouse.table import DATE, TIMESTAMP, Column, Part, Table, TableName, text

_LONGEST_PART = 250

LOADS = Table(
    comment="When each part of the tables beside this one was last read whole from the mail service",
    key=("table_name", "mail_conn_id", "part"),
    columns=(
        Column("table_name", text(64), "Name of the table, without its schema"),
        Column("mail_conn_id", text(250), "Airflow connection of the account that was read"),
        Column(
            "part",
            text(_LONGEST_PART),
            "What of the table: a day (YYYY-MM-DD), or a list, behind its team and a slash where there is one",
        ),
        Column("observed_at", TIMESTAMP, "When the service was last asked for it", observed=True),
    ),
)
LOADS_NAME = "mail_loads"


@dataclass(frozen=True)
class Between:
    """Values from `low` to `high`, both inclusive."""

    low: Any
    high: Any


@dataclass(frozen=True)
class Coverage:
    """Parts of a table of which a load brings every row that the service has, as it was at one time.

    Rows of the load that are in no part may come too.

    :param mail_conn_id: the account that was read.
    :param observed_at: when reading began, with a zone; the rows say the same.
    :param parts: by the name that `mail_loads` has for it, which rows it is: by column a value or `Between`.
    :param whole: which rows all parts together are.
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
        """Days in UTC of one account, `first` to `last`; there are none when `last` lies before `first`.

        :param column: says which day a row belongs to: a date or a timestamp.
        :param only: those of them that are parts; of the others no rows come. `None`: all.
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
        """One part: the rows `where` columns have these values, among them `mail_conn_id`.

        :param part: its name; of a long one the beginning is kept.
        """
        if len(part) > _LONGEST_PART:
            digest = hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()[:16]
            part = f"{part[: _LONGEST_PART - 17]} {digest}"
        return cls(mail_conn_id, observed_at, {part: where}, where)

    def rows(self, name: TableName) -> Iterator[tuple[Any, ...]]:
        """Rows of `LOADS`, for a load of the table `name`."""
        for part in self.parts:
            yield table_name(name), self.mail_conn_id, part, self.observed_at


@dataclass(frozen=True)
class MarkGone:
    """Rows that the service does not have any more: those in a window that a load does not bring.

    :param observed_at: when reading began, with a zone; only what was observed before can be gone.
    :param windows: called when all rows have been read: the windows that they are the whole of, by column a value,
        ``None`` or `Between`. No window: nothing is marked.
    """

    observed_at: datetime.datetime
    windows: Callable[[], Sequence[Mapping[str, Any]]]


def table_name(name: TableName) -> str:
    """What `mail_loads` calls a table."""
    last = name.parts[-1]
    return last.text if last.quoted else last.text.lower()


def loads_beside(name: TableName) -> TableName:
    """The `mail_loads` in the schema of a table."""
    return TableName((*name.parts[:-1], Part(LOADS_NAME, False)))


def _span(column: Column, first: datetime.date, last: datetime.date) -> Between:
    if column.type == DATE:
        return Between(first, last)
    return Between(
        datetime.datetime.combine(first, datetime.time.min, datetime.UTC),
        datetime.datetime.combine(last, datetime.time.max, datetime.UTC),
    )
