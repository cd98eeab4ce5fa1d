"""What the page shows of loads, transactional mail and pushed events."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from airflow_provider_mail._config import ReceiverSettings, configured_inbox
from airflow_provider_mail.api._core.fields import without_addresses
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.events import EventCode
from airflow_provider_mail.plugin import campaigns
from airflow_provider_mail.plugin.access import step_name
from airflow_provider_mail.plugin.reader import Reader, Row, TtlCache, day, public_message
from airflow_provider_mail.plugin.render import Cell, Column, Grid, Task, rate
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.rows import moment
from airflow_provider_mail.webhook.health import ReceiverStatus, receiver_status
from airflow_provider_mail.webhook.inbox import open_inbox

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

OLD = datetime.timedelta(days=2)
"""After this time numbers count as old: most loads are daily."""

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True)
class Loaded:
    """What is loaded of one table and account, or of one list of contacts.

    :param title: what the table has, for a person who does not know its name.
    :param list_name: the list; empty for a whole table.
    :param task: the task instance that loaded it last; ``None`` where that is not recorded.
    :param missing: of a table that is loaded by days, those between the first and the last one that were not loaded.
    :param behind: of such a table, while it is old, how many days up to yesterday follow the last one.
    """

    title: str
    account: str
    list_name: str
    at: datetime.datetime
    task: Task | None = None
    missing: Sequence[datetime.date] | None = None
    behind: int | None = None

    @property
    def old_since(self) -> datetime.datetime | None:
        """Since when it is old; ``None`` while it is not."""
        return self.at + OLD if datetime.datetime.now(datetime.UTC) - self.at > OLD else None


_CONTACTS = "Contacts"
"""The title of a table whose parts are lists, which may be named as days are."""


def loads(reader: Reader) -> Sequence[Loaded]:
    loads: list[Loaded] = []
    if reader.has("loads"):
        rows = reader.rows(
            "SELECT table_name, mail_conn_id, part, observed_at, dag_id, task_id, run_id, map_index "
            f"FROM {reader['loads'].spelled} ORDER BY table_name, mail_conn_id, part"
        )
        for (table, account), group in groupby(rows, lambda row: (str(row["table_name"]), str(row["mail_conn_id"]))):
            title = _title(reader, table)
            days, lists = list[Row](), list[Row]()
            for row in group:
                (days if title != _CONTACTS and _DAY.fullmatch(row["part"]) else lists).append(row)
            if days:
                loads.append(_by_days(title, account, days))
            loads += [Loaded(title, account, row["part"], _time(row), _task(row)) for row in lists]
    if reader.has("campaigns"):
        # These loads are not recorded: the newest row counts.
        title = _title(reader, reader.name("campaigns"))
        loads += [Loaded(title, str(row["mail_conn_id"]), "", _time(row)) for row in campaigns.task_loads(reader)]
    return loads


def _title(reader: Reader, table: str) -> str:
    for key, words in (
        ("campaign_stats", "Results of campaigns"), ("campaigns", "Campaigns and their schedule"),
        ("contacts", _CONTACTS), ("transactional_stats", "Results of transactional mail"),
    ):  # fmt: skip
        if reader.name(key).rpartition(".")[2] == table.rpartition(".")[2]:
            return words
    return table


def _by_days(title: str, account: str, rows: Sequence[Row]) -> Loaded:
    latest = max(rows, key=lambda row: row["observed_at"])
    days = {datetime.date.fromisoformat(row["part"]) for row in rows}
    first, last = min(days), max(days)
    calendar = (first + datetime.timedelta(number) for number in range((last - first).days))
    loaded = Loaded(title, account, "", _time(latest), _task(latest), [day for day in calendar if day not in days])
    yesterday = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    return replace(loaded, behind=max(0, (yesterday - last).days) if loaded.old_since else 0)


def _time(row: Row) -> datetime.datetime:
    time = moment(row["observed_at"])
    assert time is not None
    return time


def _task(row: Row) -> Task | None:
    if not (row["dag_id"] and row["task_id"] and row["run_id"]):
        return None
    index = -1 if row["map_index"] is None else int(row["map_index"])
    return str(row["dag_id"]), str(row["task_id"]), str(row["run_id"]), index


def loads_table(loads: Sequence[Loaded]) -> Grid:
    columns = [
        Column("Numbers"), Column("List", is_below=True), Column("Account"), Column("State"),
        Column("Last update", "time"), Column("Old since", "time"), Column("Days missing", "number"),
        Column("Days behind", "number"), Column("Updated by"),
    ]  # fmt: skip
    rows = [
        (
            loaded.title, loaded.list_name, loaded.account,
            Cell("old", state="old") if loaded.old_since else Cell("fresh", state="whole"), loaded.at, loaded.old_since,
            None if loaded.missing is None else Cell(len(loaded.missing), state="missing" if loaded.missing else ""),
            Cell(loaded.behind, state="old" if loaded.behind else ""),
            Cell(step_name(loaded.task) if loaded.task else "", task=loaded.task),
        )
        for loaded in loads
    ]  # fmt: skip
    return Grid("loads", "How old the numbers are", columns, rows)


def missing_days_table(loads: Sequence[Loaded]) -> Grid:
    rows = [(day, loaded.title, loaded.account) for loaded in loads for day in reversed(loaded.missing or ())]
    return Grid("missing-days", "Missing days", [Column("Day", "day"), Column("Numbers"), Column("Account")], rows)


TRANSACTIONAL_DAYS = 90
_COUNTS = ("sent_count", "open_count", "click_count", "bounce_count", "unsent_count", "unsubscribe_count")


@dataclass(frozen=True)
class Transactional:
    """The days of one account, the latest first.

    :param days: each day with its counts, those of all teams; ``None`` for a day that is not in the table.
    """

    accounts: Sequence[str]
    account: str
    days: Sequence[tuple[datetime.date, Mapping[str, int] | None]]


def transactional(reader: Reader, account: str) -> Transactional:
    """Return the 90 days up to the last one in the table; of the first account if the given one has no rows."""
    accounts = reader.accounts("transactional_stats")
    if not accounts:
        return Transactional([], "", [])
    account = account if account in accounts else accounts[0]
    stored = reader.rows(
        f"SELECT stats_date, {', '.join(f'SUM({name}) AS {name}' for name in _COUNTS)} "
        f"FROM {reader['transactional_stats'].spelled} WHERE mail_conn_id = ? "
        "GROUP BY stats_date ORDER BY stats_date DESC",
        [account],
        limit=TRANSACTIONAL_DAYS,
    )
    rows = {day(row["stats_date"]): {name: int(row[name]) for name in _COUNTS} for row in stored}
    count = min((max(rows) - min(rows)).days + 1, TRANSACTIONAL_DAYS)
    days = [max(rows) - datetime.timedelta(days=number) for number in range(count)]
    return Transactional(accounts, account, [(date, rows.get(date)) for date in days])


def transactional_table(statistics: Transactional) -> Grid:
    columns = [
        Column("Day", "day"), Column("Sent", "number"), Column("Opened", "percent"), Column("Clicked", "percent"),
        Column("Click to open", "percent"), Column("Bounced, soft", "number"), Column("Not sent", "number"),
        Column("Unsubscribed", "number"),
    ]  # fmt: skip
    rows = [
        (date, row["sent_count"], rate(row["open_count"], row["sent_count"]),
         rate(row["click_count"], row["sent_count"]), rate(row["click_count"], row["open_count"]),
         row["bounce_count"], row["unsent_count"], row["unsubscribe_count"])
        if row else (Cell(date, note="missing"), *[None] * 7)
        for date, row in statistics.days
    ]  # fmt: skip
    return Grid("days", "Days", columns, rows)


EVENT_DAYS = 7
"""Days of events that are counted."""

SHOWN_DIFFERENCES = 100

INBOX_SECONDS = 5.0
"""How long the inbox may take, which may be in another database than the tables."""


@dataclass(frozen=True)
class Events:
    """Counts of the events of the last seven days by code, and of what could not be read by reason."""

    codes: Grid
    letters: Grid
    at: datetime.datetime


_events: TtlCache[Events] = TtlCache()


def events(reader: Reader) -> Events:
    return _events.get(reader.name("events"), lambda: _count(reader))


def _count(reader: Reader) -> Events:
    now = datetime.datetime.now(datetime.UTC)
    codes: Sequence[Row] = []
    if reader.has("events"):
        table = reader["events"]
        # A sender may push any text as a code.
        known = ", ".join(f"'{code}'" for code in EventCode)
        # For one account after the other, by the index; most events are older.
        codes = [
            row
            for account in reader.accounts("events")
            for row in reader.rows(
                "SELECT mail_conn_id, what, COUNT(*) AS total, MAX(received_at) AS latest FROM (SELECT mail_conn_id, "
                f"received_at, CASE WHEN event_code IN ({known}) THEN event_code ELSE 'Other' END AS what "
                f"FROM {table.spelled} WHERE mail_conn_id = ? AND received_at >= ?) AS a GROUP BY mail_conn_id, what "
                "ORDER BY total DESC, what",
                [account, table.parameter("received_at", now - datetime.timedelta(days=EVENT_DAYS))],
            )
        ]
    letters: Sequence[Row] = []
    if reader.has("dead_letters"):
        letters = reader.rows(
            "SELECT mail_conn_id, reason AS what, COUNT(*) AS total, MAX(received_at) AS latest "
            f"FROM {reader['dead_letters'].spelled} GROUP BY mail_conn_id, reason ORDER BY latest DESC, what"
        )
    return Events(
        _counts_table("events", "What happened", "Activity", codes),
        _counts_table("letters", "Reason", "What could not be read", letters),
        now,
    )


_HAPPENED = {
    EventCode.DROPPED: "Not sent",
    EventCode.SPAM_REPORT: "Marked as spam",
    EventCode.TASK_STATUS: "Campaign ended",
}
"""What the page calls events whose code is no plain word."""


def _counts_table(name: str, what: str, caption: str, counts: Sequence[Row]) -> Grid:
    columns = [Column(what), Column("Number", "number"), Column("Last one", "time"), Column("Account")]
    rows = [
        (_HAPPENED.get(row["what"], str(row["what"])[:200]), row["total"], moment(row["latest"]), row["mail_conn_id"])
        for row in counts
    ]
    return Grid(name, caption, columns, rows)


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


def differences(reader: Reader) -> Grid:
    columns = [
        Column("Day", "day"), Column("Count of"), Column("Result"), Column("Difference", "number"),
        Column("Email service", "number"), Column("Activity, at least", "number"),
        Column("Activity, at most", "number"), Column("Account"),
    ]  # fmt: skip
    found: Sequence[Row] = []
    if reader.has("event_differences"):
        found = reader.rows(
            "SELECT mail_conn_id, stats_date, counter, service_count, events_least, events_most, difference, tolerated "
            f"FROM {reader['event_differences'].spelled} ORDER BY stats_date DESC, mail_conn_id, counter",
            limit=SHOWN_DIFFERENCES,
        )
    rows = [
        (day(row["stats_date"]), str(row["counter"]).removesuffix("_count"),
         Cell("agrees", state="whole") if row["tolerated"] else Cell("differs", state="differs"),
         row["difference"], row["service_count"], row["events_least"], row["events_most"], row["mail_conn_id"])
        for row in found
    ]  # fmt: skip
    return Grid("differences", "Activity compared with the numbers of the email service", columns, rows)
