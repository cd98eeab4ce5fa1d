"""What the page shows of contact lists: counts only, no contact."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

from airflow_provider_mail.plugin.reader import Reader, Row
from airflow_provider_mail.plugin.remember import Remembered

COMPARED = 6
"""How many lists of a team are compared with each other: the largest ones."""

_IN_UTC = "100 * EXTRACT(YEAR FROM create_date AT TIME ZONE 'UTC') + EXTRACT(MONTH FROM create_date AT TIME ZONE 'UTC')"
_MONTHS = {
    "sqlite": "CAST(SUBSTR(create_date, 1, 4) || SUBSTR(create_date, 6, 2) AS INTEGER)",
    "postgresql": _IN_UTC,
    "postgres": _IN_UTC,
}
"""The month as a number such as 202603, by the kind of database."""
_MONTH = "100 * EXTRACT(YEAR FROM create_date) + EXTRACT(MONTH FROM create_date)"


@dataclass(frozen=True)
class ContactList:
    """One list.

    :param account: the connection of its account.
    :param team: its team; empty without one.
    :param name: its name.
    :param contacts: how many contacts it has.
    :param months: by month (``2026-03``) how many of its contacts were created until its end; contacts without a date
        count in all months.
    """

    account: str
    team: str
    name: str
    contacts: int
    months: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Overlap:
    """Two lists with contacts in common.

    :param one: the larger list.
    :param other: the smaller list.
    :param contacts: how many contacts are in both.
    """

    one: ContactList
    other: ContactList
    contacts: int


@dataclass(frozen=True)
class Lists:
    """All lists.

    :param lists: by account and team, the largest first.
    :param at: when they were counted.
    """

    lists: Sequence[ContactList]
    at: datetime.datetime


@dataclass(frozen=True)
class Overlaps:
    """The lists that have contacts in common.

    :param overlaps: the largest first.
    :param at: when they were counted.
    """

    overlaps: Sequence[Overlap]
    at: datetime.datetime


_lists: Remembered[Lists] = Remembered()
_overlaps: Remembered[Overlaps] = Remembered()


def get(reader: Reader) -> Lists:
    """Return the lists, as they were at most ten minutes ago, since this reads the whole table.

    :param reader: the tables, among them that of contacts.
    """
    return _lists.get(reader.identity("contacts"), lambda: _count(reader))


def compare(reader: Reader) -> Overlaps:
    """Return how many contacts two lists have in common, as it was at most ten minutes ago.

    :param reader: the tables, among them that of contacts.
    """
    return _overlaps.get(reader.identity("contacts"), lambda: _compare(reader, get(reader).lists))


def _count(reader: Reader) -> Lists:
    month = _MONTHS.get(reader.kind, _MONTH)
    rows = reader.rows(
        f"SELECT mail_conn_id, team, list_name, created, COUNT(*) AS contacts FROM "
        f"(SELECT mail_conn_id, team, list_name, {month} AS created FROM {reader['contacts'].spelled}) AS a "
        "GROUP BY mail_conn_id, team, list_name, created ORDER BY mail_conn_id, team, list_name, created"
    )
    lists = [
        _list(account, team, name, list(each))
        for (account, team, name), each in groupby(
            rows, lambda row: (str(row["mail_conn_id"]), str(row["team"]), str(row["list_name"]))
        )
    ]
    lists.sort(key=lambda each: (each.account, each.team, -each.contacts, each.name))
    return Lists(lists, datetime.datetime.now(datetime.UTC))


def _list(account: str, team: str, name: str, rows: Sequence[Row]) -> ContactList:
    count = sum(int(row["contacts"]) for row in rows if row["created"] is None)
    months = []
    for row in rows:
        if row["created"] is not None:
            count += int(row["contacts"])
            months.append(("{}-{:02}".format(*divmod(int(row["created"]), 100)), count))
    return ContactList(account, team, name, count, months)


def _compare(reader: Reader, lists: Sequence[ContactList]) -> Overlaps:
    pairs = [
        pair
        for _, each in groupby(lists, lambda one: (one.account, one.team))
        for pair in combinations(list(each)[:COMPARED], 2)
    ]
    found: list[Overlap] = []
    table = reader["contacts"].spelled
    # Each pair by the table's key; so many at once that the statement stays short.
    for start in range(0, len(pairs), 30):
        some = pairs[start : start + 30]
        statements = [
            f"SELECT {number} AS pair, COUNT(*) AS contacts FROM {table} AS b JOIN {table} AS a "
            "ON a.mail_conn_id = b.mail_conn_id AND a.team = b.team AND a.list_name = ? AND a.id = b.id "
            "WHERE b.mail_conn_id = ? AND b.team = ? AND b.list_name = ?"
            for number in range(len(some))
        ]
        values = [value for a, b in some for value in (a.name, b.account, b.team, b.name)]
        counted = reader.rows(" UNION ALL ".join(statements), values)
        found += [Overlap(*some[int(row["pair"])], int(row["contacts"])) for row in counted if row["contacts"]]
    found.sort(key=lambda each: (-each.contacts, each.one.name, each.other.name))
    return Overlaps(found, datetime.datetime.now(datetime.UTC))
