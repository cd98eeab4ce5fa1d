"""What the page shows of pushed events: counts, differences to the statistics, and what could not be read."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_mail._task.exceptions import without_addresses
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.plugin.reader import Reader, Row, day, moment, public_message
from airflow_provider_mail.plugin.remember import Remembered
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.webhook.settings import ReceiverSettings, configured_inbox
from airflow_provider_mail.webhook.status import ReceiverStatus, receiver_status

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

DAYS = 7
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


_remembered: Remembered[Events] = Remembered()


def get(reader: Reader) -> Events:
    """Return the counts, as they were at most ten minutes ago, since this reads the whole table."""
    return _remembered.get(reader.identity("events"), lambda: _count(reader))


def _count(reader: Reader) -> Events:
    now = datetime.datetime.now(datetime.UTC)
    codes: Sequence[Row] = []
    if reader.has("events"):
        table = reader["events"]
        codes = reader.rows(
            "SELECT mail_conn_id, event_code AS what, COUNT(*) AS found, MAX(received_at) AS latest "
            f"FROM {table.spelled} WHERE received_at >= ? GROUP BY mail_conn_id, event_code "
            "ORDER BY mail_conn_id, found DESC, what",
            [table.parameter("received_at", now - datetime.timedelta(days=DAYS))],
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
        hook = settings.inbox().hook
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
