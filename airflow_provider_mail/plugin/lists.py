"""What the page shows of contact lists: counts only, no contact."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any, Generic, TypeVar

from airflow_provider_mail.plugin.charts import trend
from airflow_provider_mail.plugin.reader import Reader, Row, TtlCache
from airflow_provider_mail.plugin.render import Cell, Column, Grid, rate

T = TypeVar("T")

COMPARED = 6
"""How many lists of a team are compared with each other: the largest ones."""


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
class Overlap:
    """The larger and the smaller of two lists, and how many contacts are in both."""

    one: ContactList
    other: ContactList
    contacts: int


@dataclass(frozen=True)
class Counted(Generic[T]):
    """What was counted at a time."""

    entries: Sequence[T]
    at: datetime.datetime


_lists: TtlCache[Counted[ContactList]] = TtlCache()
_overlaps: TtlCache[Counted[Overlap]] = TtlCache()


def get(reader: Reader) -> Counted[ContactList]:
    """Return the lists, as they were at most ten minutes ago, since this reads the whole table."""
    return _lists.get(reader.identity("contacts"), lambda: _count(reader))


def compare(reader: Reader) -> Counted[Overlap]:
    """Return how many contacts two lists have in common, as it was at most ten minutes ago."""
    return _overlaps.get(reader.identity("contacts"), lambda: _compare(reader))


def _count(reader: Reader) -> Counted[ContactList]:
    month = reader.dialect.month("create_date")
    # SQLite sorts the rows to group them, which is fastest if their first column differs most.
    rows = reader.rows(
        f"SELECT mail_conn_id, team_name, list_name, created, COUNT(*) AS contacts FROM "
        f"(SELECT mail_conn_id, team_name, list_name, {month} AS created FROM {reader['contacts'].spelled}) AS a "
        "GROUP BY created, list_name, team_name, mail_conn_id"
    )
    return Counted(_largest_first(rows), datetime.datetime.now(datetime.UTC))


def _largest_first(rows: Sequence[Row]) -> Sequence[ContactList]:
    """The lists by account and team, from rows with the number of their contacts, by month if that is known."""

    def identity(row: Row) -> tuple[str, str, str]:
        return str(row["mail_conn_id"]), str(row["team_name"]), str(row["list_name"])

    lists = [_list(*named, list(group)) for named, group in groupby(sorted(rows, key=identity), identity)]
    return sorted(lists, key=lambda entry: (entry.account, entry.team, -entry.contacts, entry.name))


def _list(account: str, team: str, name: str, rows: Sequence[Row]) -> ContactList:
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


def _compare(reader: Reader) -> Counted[Overlap]:
    table = reader["contacts"].spelled
    rows = reader.rows(
        f"SELECT mail_conn_id, team_name, list_name, NULL AS created, COUNT(*) AS contacts FROM {table} "
        "GROUP BY mail_conn_id, team_name, list_name"
    )
    by_team = groupby(_largest_first(rows), lambda entry: (entry.account, entry.team))
    teams = [list(team)[:COMPARED] for _, team in by_team]
    teams = [lists for lists in teams if len(lists) > 1]
    overlaps: list[Overlap] = []
    # A few teams at a time, so that the statement stays short.
    for start in range(0, len(teams), 15):
        overlaps += _overlaps_of(reader, teams[start : start + 15])
    overlaps.sort(key=lambda overlap: (-overlap.contacts, overlap.one.name, overlap.other.name))
    return Counted(overlaps, datetime.datetime.now(datetime.UTC))


def _overlaps_of(reader: Reader, teams: Sequence[Sequence[ContactList]]) -> Iterator[Overlap]:
    """Read each contact once: the lists that it is in are the bits of a number."""
    statements, values = [], []
    for number, lists in enumerate(teams):
        bits = " ".join(f"WHEN ? THEN {1 << place}" for place in range(len(lists)))
        names = [contact_list.name for contact_list in lists]
        statements.append(
            f"SELECT {number} AS team_number, bits, COUNT(*) AS contacts FROM "
            f"(SELECT id, SUM(CASE list_name {bits} END) AS bits FROM {reader['contacts'].spelled} "
            f"WHERE mail_conn_id = ? AND team_name = ? AND list_name IN ({', '.join('?' for _ in lists)}) "
            "GROUP BY id HAVING COUNT(*) > 1) AS a GROUP BY bits"
        )
        values += [*names, lists[0].account, lists[0].team, *names]
    counts: Counter[tuple[int, int, int]] = Counter()
    for row in reader.rows(" UNION ALL ".join(statements), values):
        places = [place for place in range(COMPARED) if int(row["bits"]) >> place & 1]
        for larger, smaller in combinations(places, 2):
            counts[int(row["team_number"]), larger, smaller] += int(row["contacts"])
    for (number, larger, smaller), contacts in counts.items():
        yield Overlap(teams[number][larger], teams[number][smaller], contacts)


def lists_table(counted: Counted[ContactList]) -> Grid:
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


def overlaps_table(counted: Counted[Overlap]) -> Grid:
    columns = [
        Column("List"), Column("Other list"), Column("In both", "number"), Column("Of the first", "percent"),
        Column("Of the other", "percent"), Column("Account"),
    ]  # fmt: skip
    rows = [
        (pair.one.name, pair.other.name, pair.contacts, rate(pair.contacts, pair.one.contacts),
         rate(pair.contacts, pair.other.contacts), pair.one.account)
        for pair in counted.entries
    ]  # fmt: skip
    return Grid("overlaps", "Contacts in two lists", columns, rows)
