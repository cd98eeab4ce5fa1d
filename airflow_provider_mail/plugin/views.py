"""What the page shows of loads, transactional mail and pushed events."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from airflow_provider_mail._config import ReceiverSettings, configured_inbox
from airflow_provider_mail._task.exceptions import without_addresses
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.plugin.reader import Reader, Row, TtlCache, day, moment, public_message
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.webhook.inbox import open_inbox
from airflow_provider_mail.webhook.status import ReceiverStatus, receiver_status

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

OLD = datetime.timedelta(days=2)
"""A table that was loaded longer ago counts as old: most loads are daily."""

STRIP_DAYS = 60

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


def loads(reader: Reader) -> Sequence[Loaded]:
    """Return the loads by table and account."""
    found: list[Loaded] = []
    if reader.has("loads"):
        rows = reader.rows(
            f"SELECT table_name, mail_conn_id, part, observed_at FROM {reader['loads'].spelled} "
            "ORDER BY table_name, mail_conn_id, part"
        )
        for (table, account), group in groupby(rows, lambda row: (str(row["table_name"]), str(row["mail_conn_id"]))):
            found.append(_loaded(table, account, list(group)))
    if reader.has("campaigns"):
        # These loads are not recorded: the newest row counts.
        for row in reader.rows(
            f"SELECT mail_conn_id, MAX(observed_at) AS observed_at FROM {reader['campaigns'].spelled} "
            "GROUP BY mail_conn_id ORDER BY mail_conn_id"
        ):
            at = moment(row["observed_at"])
            found.append(Loaded(reader.name("campaigns"), str(row["mail_conn_id"]), at, _is_old(at), [], [], []))
    return found


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
        shown_days = [(day, day in loaded_days) for day in calendar[-STRIP_DAYS:]]
    return Loaded(table, account, at, _is_old(at), shown_days, missing, lists)


def _is_old(at: datetime.datetime | None) -> bool:
    return at is None or datetime.datetime.now(datetime.UTC) - at > OLD


TRANSACTIONAL_DAYS = 90


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


def transactional(reader: Reader, account: str) -> Transactional:
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
    first = max(first, last - datetime.timedelta(days=TRANSACTIONAL_DAYS - 1))
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


EVENT_DAYS = 7
"""Days of events that are counted."""

SHOWN_DIFFERENCES = 100

INBOX_SECONDS = 5.0
"""How long the inbox may take, which may be in another database than the tables."""


@dataclass(frozen=True)
class Events:
    """Counts of events.

    :param codes: account, code, number and time of the last one of the events of the last seven days.
    :param letters: account, reason, number and time of the last one of what could not be read.
    :param at: when they were counted.
    """

    codes: Sequence[tuple[str, str, int, datetime.datetime | None]]
    letters: Sequence[tuple[str, str, int, datetime.datetime | None]]
    at: datetime.datetime


_events: TtlCache[Events] = TtlCache()


def events(reader: Reader) -> Events:
    """Return the counts, as they were at most ten minutes ago, since this reads the whole table."""
    return _events.get(reader.identity("events"), lambda: _count(reader))


def _count(reader: Reader) -> Events:
    now = datetime.datetime.now(datetime.UTC)
    codes: Sequence[Row] = []
    if reader.has("events"):
        table = reader["events"]
        codes = reader.rows(
            "SELECT mail_conn_id, event_code AS what, COUNT(*) AS found, MAX(received_at) AS latest "
            f"FROM {table.spelled} WHERE received_at >= ? GROUP BY mail_conn_id, event_code "
            "ORDER BY mail_conn_id, found DESC, what",
            [table.parameter("received_at", now - datetime.timedelta(days=EVENT_DAYS))],
        )
    letters: Sequence[Row] = []
    if reader.has("dead_letters"):
        letters = reader.rows(
            "SELECT mail_conn_id, reason AS what, COUNT(*) AS found, MAX(received_at) AS latest "
            f"FROM {reader['dead_letters'].spelled} GROUP BY mail_conn_id, reason ORDER BY latest DESC, what"
        )
    return Events([_counted(row) for row in codes], [_counted(row) for row in letters], now)


def _counted(row: Row) -> tuple[str, str, int, datetime.datetime | None]:
    return str(row["mail_conn_id"]), str(row["what"]), int(row["found"]), moment(row["latest"])


def inbox() -> ReceiverStatus | str | None:
    """Return the state of the inbox, or why it cannot be read; ``None`` where no inbox is configured."""
    if configured_inbox() is None:
        return None
    hook: DbApiHook | None = None
    try:
        settings = ReceiverSettings.from_airflow()
        hook = open_inbox().hook
        return receiver_status(settings, seconds=INBOX_SECONDS)
    except (MailConfigError, WarehouseError) as error:
        message = without_addresses(str(error))
        return public_message(message, hook) if hook else message


def differences(reader: Reader) -> Sequence[Row]:
    """Return the latest 100 differences between events and statistics, the latest day first."""
    if not reader.has("event_differences"):
        return []
    statement = (
        "SELECT mail_conn_id, stats_date, counter, service_count, events_least, events_most, difference, tolerated "
        f"FROM {reader['event_differences'].spelled} ORDER BY stats_date DESC, mail_conn_id, counter"
    )
    return [
        {**row, "stats_date": day(row["stats_date"]), "tolerated": bool(row["tolerated"])}
        for row in reader.rows(reader.limited(statement, SHOWN_DIFFERENCES))
    ]
