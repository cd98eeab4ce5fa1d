"""What the page shows of loads: how fresh and how complete the tables are."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from airflow_provider_mail.plugin.reader import Reader, Row, moment

OLD = datetime.timedelta(days=2)
"""A table that was loaded longer ago counts as old: most loads are daily."""

SHOWN_DAYS = 60

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Loaded:
    """What is loaded of one table and account.

    :param account: the connection of the account.
    :param at: when it was last loaded.
    :param is_old: whether that is longer ago than two days.
    :param days: the last 60 days up to the last loaded one, each with whether it was loaded; empty without days.
    :param missing: the days that were not loaded, between the first and the last one that were.
    :param lists: lists of contacts with the time of their last load.
    """

    table: str
    account: str
    at: datetime.datetime | None
    is_old: bool
    days: Sequence[tuple[datetime.date, bool]]
    missing: Sequence[datetime.date]
    lists: Sequence[tuple[str, datetime.datetime | None]]


def get(reader: Reader) -> Sequence[Loaded]:
    """Return the loads by table and account."""
    loads: list[Loaded] = []
    if reader.has("loads"):
        rows = reader.rows(
            f"SELECT table_name, mail_conn_id, part, observed_at FROM {reader['loads'].spelled} "
            "ORDER BY table_name, mail_conn_id, part"
        )
        for (table, account), group in groupby(rows, lambda row: (str(row["table_name"]), str(row["mail_conn_id"]))):
            loads.append(_loaded(table, account, list(group)))
    if reader.has("campaigns"):
        # These loads are not recorded: the newest row counts.
        for row in reader.rows(
            f"SELECT mail_conn_id, MAX(observed_at) AS observed_at FROM {reader['campaigns'].spelled} "
            "GROUP BY mail_conn_id ORDER BY mail_conn_id"
        ):
            at = moment(row["observed_at"])
            loads.append(Loaded(reader.name("campaigns"), str(row["mail_conn_id"]), at, _is_old(at), [], [], []))
    return loads


def _loaded(table: str, account: str, rows: Sequence[Row]) -> Loaded:
    times = {str(row["part"]): moment(row["observed_at"]) for row in rows}
    at = max(filter(None, times.values()), default=None)
    days = sorted(datetime.date.fromisoformat(part) for part in times if _DAY.fullmatch(part))
    lists = [(part, time) for part, time in times.items() if not _DAY.fullmatch(part)]
    loaded_days, missing, shown_days = set(days), [], []
    if days:
        count = (days[-1] - days[0]).days + 1
        calendar = [days[0] + datetime.timedelta(days=number) for number in range(count)]
        missing = [day for day in calendar if day not in loaded_days]
        shown_days = [(day, day in loaded_days) for day in calendar[-SHOWN_DAYS:]]
    return Loaded(table, account, at, _is_old(at), shown_days, missing, lists)


def _is_old(at: datetime.datetime | None) -> bool:
    return at is None or datetime.datetime.now(datetime.UTC) - at > OLD
