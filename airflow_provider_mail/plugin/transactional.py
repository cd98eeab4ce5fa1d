"""What the page shows of transactional mail."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_mail.plugin.reader import Reader, Row, day

DAYS = 90


@dataclass(frozen=True)
class Transactional:
    """The days of one account, the latest first.

    :param accounts: the connections of all accounts.
    :param account: the connection of this account.
    :param days: each day with its row, ``None`` for a day that is not in the table.
    """

    accounts: Sequence[str]
    account: str
    days: Sequence[tuple[datetime.date, Row | None]]


def get(reader: Reader, account: str) -> Transactional:
    """Return the 90 days up to the last one in the table.

    :param account: the connection of an account; the first one if it has no rows.
    """
    if not reader.has("transactional_stats"):
        return Transactional([], "", [])
    table = reader["transactional_stats"]
    spans = {
        str(row["mail_conn_id"]): (day(row["first_day"]), day(row["last_day"]))
        for row in reader.rows(
            "SELECT mail_conn_id, MIN(stats_date) AS first_day, MAX(stats_date) AS last_day "
            f"FROM {table.spelled} GROUP BY mail_conn_id ORDER BY mail_conn_id"
        )
    }
    if not spans:
        return Transactional([], "", [])
    account = account if account in spans else next(iter(spans))
    first, last = spans[account]
    first = max(first, last - datetime.timedelta(days=DAYS - 1))
    rows = {
        day(row["stats_date"]): row
        for row in reader.rows(
            "SELECT stats_date, sent_count, open_count, click_count, bounce_count, unsent_count, unsubscribe_count, "
            f"open_rate, click_rate FROM {table.spelled} WHERE mail_conn_id = ? AND stats_date >= ?",
            [account, table.parameter("stats_date", first)],
        )
    }
    days = [last - datetime.timedelta(days=number) for number in range((last - first).days + 1)]
    return Transactional(list(spans), account, [(date, rows.get(date)) for date in days])
