"""What the page shows of contact lists: counts only, no contact."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from airflow_provider_mail.plugin.reader import Reader, Row, kept_for
from airflow_provider_mail.plugin.render import Column, Grid


@dataclass(frozen=True)
class ContactList:
    """One list.

    :param month: the last month (``2026-03``) in which contacts were created who are on it, and how many these are.
    :param growth: its contacts at the end of each such month; those without a date count in all.
    """

    account: str
    team: str
    name: str
    contacts: int
    month: tuple[str, int | None]
    growth: Sequence[int]


@dataclass(frozen=True)
class Lists:
    """The lists by account and team, the largest first, as they were counted at a time."""

    entries: Sequence[ContactList]
    at: datetime.datetime


@kept_for(600)
def counted(reader: Reader) -> Lists:
    """Return the lists, as they were at most ten minutes ago, since this reads the whole table."""
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
    months = sorted((_month(row["created"]), int(row["contacts"])) for row in rows)
    growth = list(accumulate(count for _, count in months))
    created = [month for month, _ in months if month]
    month = months[-1] if created else ("", None)
    account, team, name = map(str, named)
    return ContactList(account, team, name, growth[-1], month, growth[len(growth) - len(created) :])


def _month(created: Any) -> str:
    """Return a month as ``2026-03``; empty for contacts without a date."""
    text = str(created or "")
    return text[:7] if "-" in text or not text else f"{text[:4]}-{text[4:6]}"


_COLUMNS = (
    Column("List", value="name"),
    Column("Contacts", "number", "contacts"),
    Column("New in the month", "number", lambda entry: entry.month[1]),
    Column("Latest month", value=lambda entry: entry.month[0]),
    Column("Growth by month", "drawing", "growth"),
    Column("Account", value="account"),
    Column("Team", value="team"),
)


GROWTH = (
    "Growth counts the contacts that are on the list now, by the month in which they were created. Contacts that have "
    "left it are not counted."
)


def lists_table(entries: Sequence[ContactList], note: str = "") -> Grid:
    return Grid.of("lists", "Lists", _COLUMNS, entries, note)
