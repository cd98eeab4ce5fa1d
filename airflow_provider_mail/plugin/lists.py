"""What the page shows of contact lists: counts only, no contact."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from airflow_provider_mail.plugin.charts import trend
from airflow_provider_mail.plugin.reader import Reader, Row, TtlCache
from airflow_provider_mail.plugin.render import Cell, Column, Grid


@dataclass(frozen=True)
class ContactList:
    """One list. Each month (``2026-03``) has the contacts until its end; those without a date count in all."""

    account: str
    team: str
    name: str
    contacts: int
    months: Sequence[tuple[str, int]]

    @property
    def last_month(self) -> tuple[str, int | None]:
        if not self.months:
            return "", None
        month, count = self.months[-1]
        without_date = self.contacts - count
        return month, count - (self.months[-2][1] if len(self.months) > 1 else without_date)


@dataclass(frozen=True)
class Lists:
    """The lists by account and team, the largest first, as they were counted at a time."""

    entries: Sequence[ContactList]
    at: datetime.datetime


_lists: TtlCache[Lists] = TtlCache()


def get(reader: Reader) -> Lists:
    """Return the lists, as they were at most ten minutes ago, since this reads the whole table."""
    return _lists.get(reader.name("contacts"), lambda: _count(reader))


def _count(reader: Reader) -> Lists:
    month = reader.dialect.month("create_date")
    # SQLite sorts the rows to group them, which is fastest if their first column differs most.
    rows = reader.rows(
        f"SELECT mail_conn_id, team_name, list_name, created, COUNT(*) AS contacts FROM "
        f"(SELECT mail_conn_id, team_name, list_name, {month} AS created FROM {reader['contacts'].spelled}) AS a "
        "GROUP BY created, list_name, team_name, mail_conn_id"
    )
    identity = itemgetter("mail_conn_id", "team_name", "list_name")
    lists = [_list(named, list(group)) for named, group in groupby(sorted(rows, key=identity), identity)]
    lists.sort(key=lambda entry: (entry.account, entry.team, -entry.contacts, entry.name))
    return Lists(lists, datetime.datetime.now(datetime.UTC))


def _list(named: Sequence[Any], rows: Sequence[Row]) -> ContactList:
    account, team, name = map(str, named)
    count = sum(int(row["contacts"]) for row in rows if row["created"] is None)
    months = []
    for month, contacts in sorted(
        (_month(row["created"]), int(row["contacts"])) for row in rows if row["created"] is not None
    ):
        count += contacts
        months.append((month, count))
    return ContactList(account, team, name, count, months)


def _month(created: Any) -> str:
    text = str(created)
    return text[:7] if "-" in text else f"{text[:4]}-{text[4:6]}"


def lists_table(counted: Lists) -> Grid:
    columns = [
        Column("List"), Column("Contacts", "number"), Column("New in the month", "number"), Column("Latest month"),
        Column("Growth by month", "drawing"), Column("Account"), Column("Team"),
    ]  # fmt: skip
    rows = []
    for entry in counted.entries:
        month, added = entry.last_month
        drawing = Cell(trend([count for _, count in entry.months]))
        rows.append((entry.name, entry.contacts, added, month, drawing, entry.account, entry.team))
    return Grid("lists", "Lists", columns, rows)
