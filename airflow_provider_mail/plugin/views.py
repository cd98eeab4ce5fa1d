"""What the page shows of loads, transactional mail and pushed events."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, groupby
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

STALE = datetime.timedelta(days=2)
"""A table that was loaded longer ago counts as stale: most loads are daily."""

STRIP_DAYS = 60

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True)
class Part:
    """What a load recorded: of a whole table, or of one list of contacts.

    :param task: the task instance that did; ``None`` where that is not recorded.
    """

    name: str
    at: datetime.datetime | None
    task: Task | None = None

    @property
    def stale_since(self) -> datetime.datetime | None:
        """Since when it is stale; ``None`` while it is not, or when it is not known."""
        if self.at is None or datetime.datetime.now(datetime.UTC) - self.at <= STALE:
            return None
        return self.at + STALE

    @property
    def is_stale(self) -> bool:
        return self.at is None or self.stale_since is not None


@dataclass(frozen=True)
class Loaded:
    """What is loaded of one table and account.

    :param title: what the table has, for a person who does not know its name.
    :param days: the last 60 days up to the last loaded one, each with whether it was loaded; empty without days.
    :param missing: the days that were not loaded, between the first and the last one that were.
    :param behind: while it is stale, how many days up to yesterday follow the last one that was loaded.
    """

    title: str
    account: str
    latest: Part
    days: Sequence[tuple[datetime.date, bool]] = ()
    missing: Sequence[datetime.date] = ()
    behind: int = 0
    lists: Sequence[Part] = ()


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
            loads.append(_loaded(title, account, list(group), has_days=title != _CONTACTS))
    if reader.has("campaigns"):
        # These loads are not recorded: the newest row counts.
        for row in campaigns.task_loads(reader):
            latest = Part("", moment(row["observed_at"]))
            loads.append(Loaded(_title(reader, reader.name("campaigns")), str(row["mail_conn_id"]), latest))
    return loads


def _title(reader: Reader, table: str) -> str:
    for key, words in (
        ("campaign_stats", "Results of campaigns"), ("campaigns", "Campaigns and their schedule"),
        ("contacts", _CONTACTS), ("transactional_stats", "Results of transactional mail"),
    ):  # fmt: skip
        if reader.name(key).rpartition(".")[2] == table.rpartition(".")[2]:
            return words
    return table


def _loaded(title: str, account: str, rows: Sequence[Row], *, has_days: bool) -> Loaded:
    latest = replace(_part(max(rows, key=lambda row: row["observed_at"])), name="")
    of_days = [has_days and bool(_DAY.fullmatch(row["part"])) for row in rows]
    days = sorted({datetime.date.fromisoformat(row["part"]) for row in compress(rows, of_days)})
    lists = [_part(row) for row, is_day in zip(rows, of_days, strict=True) if not is_day]
    if not days:
        return Loaded(title, account, latest, lists=lists)
    loaded_days = set(days)
    calendar = [days[0] + datetime.timedelta(number) for number in range((days[-1] - days[0]).days + 1)]
    missing = [day for day in calendar if day not in loaded_days]
    strip = [(day, day in loaded_days) for day in calendar[-STRIP_DAYS:]]
    yesterday = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    behind = max(0, (yesterday - days[-1]).days) if latest.is_stale else 0
    return Loaded(title, account, latest, strip, missing, behind, lists)


def _part(row: Row) -> Part:
    return Part(str(row["part"]), moment(row["observed_at"]), _task(row))


def _task(row: Row) -> Task | None:
    if not (row["dag_id"] and row["task_id"] and row["run_id"]):
        return None
    index = -1 if row["map_index"] is None else int(row["map_index"])
    return str(row["dag_id"]), str(row["task_id"]), str(row["run_id"]), index


def loads_table(loads: Sequence[Loaded]) -> Grid:
    columns = [
        Column("Numbers"), Column("Account"), Column("State"), Column("Last update", "time"),
        Column("Old since", "time"), Column("Days missing", "number"), Column("Days behind", "number"),
        Column("Updated by"),
    ]  # fmt: skip
    rows = [
        (
            loaded.title, loaded.account,
            _freshness(loaded.latest), loaded.latest.at, loaded.latest.stale_since,
            Cell(len(loaded.missing), state="missing" if loaded.missing else "") if loaded.days else None,
            Cell(loaded.behind, state="old" if loaded.behind else "") if loaded.days else None,
            _run(loaded.latest),
        )
        for loaded in loads
    ]  # fmt: skip
    return Grid("loads", "How old the numbers are", columns, rows)


def list_loads_table(loads: Sequence[Loaded]) -> Grid:
    columns = [
        Column("List"), Column("State"), Column("Last update", "time"), Column("Old since", "time"),
        Column("Updated by"), Column("Account"),
    ]  # fmt: skip
    rows = [
        (part.name, _freshness(part), part.at, part.stale_since, _run(part), loaded.account)
        for loaded in loads
        for part in loaded.lists
    ]
    return Grid("list-loads", "Lists of contacts", columns, rows)


def missing_days_table(loads: Sequence[Loaded]) -> Grid:
    rows = [(day, loaded.title, loaded.account) for loaded in loads for day in reversed(loaded.missing)]
    return Grid("missing-days", "Missing days", [Column("Day", "day"), Column("Numbers"), Column("Account")], rows)


def _freshness(part: Part) -> Cell:
    return Cell("old", state="old") if part.is_stale else Cell("fresh", state="whole")


def _run(part: Part) -> Cell:
    return Cell(step_name(part.task) if part.task else "", task=part.task)


TRANSACTIONAL_DAYS = 90


@dataclass(frozen=True)
class Transactional:
    """The days of one account, the latest first.

    :param days: each day with its row, ``None`` for a day that is not in the table.
    """

    accounts: Sequence[str]
    account: str
    days: Sequence[tuple[datetime.date, Row | None]]


def transactional(reader: Reader, account: str) -> Transactional:
    """Return the 90 days up to the last one in the table; of the first account if the given one has no rows."""
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


def transactional_table(statistics: Transactional) -> Grid:
    columns = [
        Column("Day", "day"), Column("Sent", "number"), Column("Opened", "percent"), Column("Clicked", "percent"),
        Column("Click to open", "percent"), Column("Bounced, soft", "number"), Column("Not sent", "number"),
        Column("Unsubscribed", "number"),
    ]  # fmt: skip
    rows = [
        (date, row["sent_count"], row["open_rate"], row["click_rate"], rate(row["click_count"], row["open_count"]),
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
    return _events.get(reader.identity("events"), lambda: _count(reader))


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


def differences(reader: Reader) -> Sequence[Row]:
    if not reader.has("event_differences"):
        return []
    statement = (
        "SELECT mail_conn_id, stats_date, counter, service_count, events_least, events_most, difference, tolerated "
        f"FROM {reader['event_differences'].spelled} ORDER BY stats_date DESC, mail_conn_id, counter"
    )
    return [
        {**row, "stats_date": day(row["stats_date"]), "tolerated": bool(row["tolerated"])}
        for row in reader.rows(statement, limit=SHOWN_DIFFERENCES)
    ]


def differences_table(rows: Sequence[Row]) -> Grid:
    columns = [
        Column("Day", "day"), Column("Count of"), Column("Result"), Column("Difference", "number"),
        Column("Email service", "number"), Column("Activity, at least", "number"),
        Column("Activity, at most", "number"), Column("Account"),
    ]  # fmt: skip
    cells = [
        (row["stats_date"], str(row["counter"]).removesuffix("_count"),
         Cell("agrees", state="whole") if row["tolerated"] else Cell("differs", state="differs"),
         row["difference"], row["service_count"], row["events_least"], row["events_most"], row["mail_conn_id"])
        for row in rows
    ]  # fmt: skip
    return Grid("differences", "Activity compared with the numbers of the email service", columns, cells)
