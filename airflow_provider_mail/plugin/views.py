"""What the page shows of all but campaigns: numbers and reasons; no row, no person, not even as a digest."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._config import ReceiverSettings, configured_inbox
from airflow_provider_mail.api._core.fields import without_addresses
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.api.events import EventCode
from airflow_provider_mail.plugin import campaigns
from airflow_provider_mail.plugin.access import step_name, task_named
from airflow_provider_mail.plugin.reader import Reader, Row, kept_for, public_message
from airflow_provider_mail.plugin.render import Cell, Column, Grid, Task, day, label, rate, ratio
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.rows import decoded, moment
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

_TITLES = {
    "campaign_stats": "Results of campaigns",
    "campaigns": "Campaigns and their schedule",
    "contacts": _CONTACTS,
    "transactional_stats": "Results of transactional mail",
}


def loads(reader: Reader) -> Sequence[Loaded]:
    loads: list[Loaded] = []
    if reader.has("loads"):
        titles = {reader.names[what].rpartition(".")[2]: title for what, title in _TITLES.items()}
        rows = reader.rows(f"SELECT * FROM {reader['loads'].spelled} ORDER BY table_name, mail_conn_id, part")
        for (table, account), group in groupby(rows, itemgetter("table_name", "mail_conn_id")):
            title = titles.get(table.rpartition(".")[2], table)
            days, lists = list[Row](), list[Row]()
            for row in group:
                (days if title != _CONTACTS and _DAY.fullmatch(row["part"]) else lists).append(row)
            if days:
                loads.append(_by_days(title, account, days))
            loads += [_loaded(title, row) for row in lists]
    if reader.has("campaigns"):
        # These loads are not recorded: the newest row counts.
        loads += [_loaded(_TITLES["campaigns"], row) for row in campaigns.task_loads(reader)]
    return loads


def _loaded(title: str, row: Row) -> Loaded:
    time, task = moment(row["observed_at"]), None
    assert time is not None
    if row.get("dag_id") and row["task_id"] and row["run_id"]:
        task = row["dag_id"], row["task_id"], row["run_id"], -1 if row["map_index"] is None else int(row["map_index"])
    return Loaded(title, row["mail_conn_id"], row.get("part", ""), time, task)


def _by_days(title: str, account: str, rows: Sequence[Row]) -> Loaded:
    latest = max(rows, key=itemgetter("observed_at"))
    days = {datetime.date.fromisoformat(row["part"]) for row in rows}
    first, last = min(days), max(days)
    calendar = (first + datetime.timedelta(number) for number in range((last - first).days))
    loaded = replace(_loaded(title, latest), list_name="", missing=[day for day in calendar if day not in days])
    yesterday = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    return replace(loaded, behind=max(0, (yesterday - last).days) if loaded.old_since else 0)


def _missing(loaded: Loaded) -> Cell | None:
    return None if loaded.missing is None else Cell(len(loaded.missing), state="missing" if loaded.missing else "")


_LOADS = (
    Column("Numbers", value="title"),
    Column("List", value="list_name", is_below=True),
    Column("Account", value="account"),
    Column("State", value=lambda it: Cell("old", state="old") if it.old_since else Cell("fresh", state="whole")),
    Column("Last update", "time", "at"),
    Column("Old since", "time", "old_since"),
    Column("Days missing", "number", _missing),
    Column("Days behind", "number", lambda it: Cell(it.behind, state="old" if it.behind else "")),
    Column("Updated by", value=lambda it: Cell(step_name(it.task) if it.task else "", task=it.task)),
)


def loads_table(loads: Sequence[Loaded]) -> Grid:
    return Grid.of("loads", "How old the numbers are", _LOADS, loads, _FRESHNESS)


SHOWN_DAYS = 400

_FRESHNESS = (
    "Airflow copies the numbers from the email service. Two days later they count as old. Missing days lie between the "
    "first and the last day with numbers; the days behind follow the last one, up to yesterday."
)
_AGAIN = (
    "For your engineers: load these days again, with one day before and after them, since only days that were read "
    "completely count."
)


def missing_days_table(loads: Sequence[Loaded]) -> Grid:
    columns = [Column("Day", "day"), Column("Numbers"), Column("Account")]
    rows = [(day, loaded.title, loaded.account) for loaded in loads for day in reversed(loaded.missing or ())]
    return Grid("missing-days", "Missing days", columns, rows[:SHOWN_DAYS], note=_AGAIN, all_rows=lambda: rows)


TRANSACTIONAL_DAYS = 90
_COUNTS = ("sent_count", "open_count", "click_count", "bounce_count", "unsent_count", "unsubscribe_count")
_TRANSACTIONAL = (
    Column("Day", "day", lambda row: Cell(row["stats_date"], note="missing" if row["sent_count"] is None else "")),
    Column("Sent", "number", "sent_count"),
    Column("Opened", "percent", ratio("open_count", "sent_count")),
    Column("Clicked", "percent", ratio("click_count", "sent_count")),
    Column("Click to open", "percent", ratio("click_count", "open_count")),
    Column("Bounced, soft", "number", "bounce_count"),
    Column("Not sent", "number", "unsent_count"),
    Column("Unsubscribed", "number", "unsubscribe_count"),
)


def transactional(reader: Reader, account: str) -> Sequence[Row]:
    """Return the 90 days up to the last one in the table, the latest first.

    :return: the counts of each day, those of all teams; ``None`` for a day that is not in the table.
    """
    stored = reader.rows(
        f"SELECT stats_date, {', '.join(f'SUM({name}) AS {name}' for name in _COUNTS)} "
        f"FROM {reader['transactional_stats'].spelled} WHERE mail_conn_id = ? "
        "GROUP BY stats_date ORDER BY stats_date DESC",
        [account],
        limit=TRANSACTIONAL_DAYS,
    )
    rows = {day(row["stats_date"]): {name: int(row[name]) for name in _COUNTS} for row in stored}
    count = min((max(rows) - min(rows)).days + 1, TRANSACTIONAL_DAYS) if rows else 0
    days = [max(rows) - datetime.timedelta(days=number) for number in range(count)]
    return [{**rows.get(date, dict.fromkeys(_COUNTS)), "stats_date": date} for date in days]


def transactional_table(days: Sequence[Row]) -> Grid:
    note = "A missing day has not been copied from the email service, or it has no numbers of that day."
    return Grid.of("days", "Days", _TRANSACTIONAL, days, note)


EVENT_DAYS = 7
"""Days of events that are counted."""

SHOWN_DIFFERENCES = 100

INBOX_SECONDS = 5.0
"""How long the inbox may take, which may be in another database than the tables."""

_HAPPENED = {
    EventCode.DROPPED: "Not sent",
    EventCode.SPAM_REPORT: "Marked as spam",
    EventCode.TASK_STATUS: "Campaign ended",
}
"""What the page calls events whose code is no plain word."""

_COUNTED = (
    Column("Number", "number", "total"),
    Column("Last one", "time", "latest"),
    Column("Account", value="mail_conn_id"),
)
_CODES = (Column("What happened", value=lambda row: _HAPPENED.get(row["what"], row["what"])), *_COUNTED)
_LETTERS = (Column("Reason", value=lambda row: row["what"][:200]), *_COUNTED)


@kept_for(600)
def events(reader: Reader) -> tuple[Grid, Grid, datetime.datetime]:
    """Count the events of the last seven days by code, and what could not be read by reason; with the time of that."""
    now = datetime.datetime.now(datetime.UTC)
    counted = "COUNT(*) AS total, MAX(received_at) AS latest"
    codes: list[Row] = []
    if reader.has("events"):
        table = reader["events"]
        # A sender may push any text as a code.
        known = ", ".join(f"'{code}'" for code in EventCode)
        # For one account after the other, by the index; most events are older.
        for account in reader.accounts("events"):
            codes += reader.rows(
                f"SELECT mail_conn_id, what, {counted} FROM (SELECT mail_conn_id, "
                f"received_at, CASE WHEN event_code IN ({known}) THEN event_code ELSE 'Other' END AS what "
                f"FROM {table.spelled} WHERE mail_conn_id = ? AND received_at >= ?) AS a GROUP BY mail_conn_id, what "
                "ORDER BY total DESC, what",
                [account, table.parameter("received_at", now - datetime.timedelta(days=EVENT_DAYS))],
            )
    letters: Sequence[Row] = []
    if reader.has("dead_letters"):
        letters = reader.rows(
            f"SELECT mail_conn_id, reason AS what, {counted} FROM {reader['dead_letters'].spelled} "
            "GROUP BY mail_conn_id, reason ORDER BY latest DESC, what"
        )
    return (
        Grid.of("events", "Activity", _CODES, codes),
        Grid.of("letters", "What could not be read", _LETTERS, letters),
        now,
    )


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


def _result(row: Row) -> Cell:
    return Cell("agrees", state="whole") if row["tolerated"] else Cell("differs", state="differs")


_DIFFERENCES = (
    Column("Day", "day", "stats_date"),
    Column("Count of", value=lambda row: row["counter"].removesuffix("_count")),
    Column("Result", value=_result),
    Column("Difference", "number", "difference"),
    Column("Email service", "number", "service_count"),
    Column("Activity, at least", "number", "events_least"),
    Column("Activity, at most", "number", "events_most"),
    Column("Account", value="mail_conn_id"),
)


def differences(reader: Reader) -> Grid:
    found: Sequence[Any] = ()
    if reader.has("event_differences"):
        table = reader["event_differences"].spelled
        order = "stats_date DESC, mail_conn_id, counter"
        found = reader.rows(f"SELECT * FROM {table} ORDER BY {order}", limit=SHOWN_DIFFERENCES)
    return Grid.of("differences", "Activity compared with the numbers of the email service", _DIFFERENCES, found)


SHOWN_RUNS = 50

LATEST_RUNS = 10_000
"""Runs among which the last success of each audience is looked for."""

_BRAKE = re.compile(r"^max_\w+: ", re.ASCII)
"""The argument in front of what a brake says."""


def _step(row: Row) -> Cell:
    """Return the step of an import, as far as its name shows one."""
    task = task_named(str(row["import_id"]))
    return Cell(step_name(task), task=task) if task else Cell(row["import_id"])


def _run(row: Row) -> str:
    task = task_named(str(row["import_id"]))
    return task[2] if task else ""


_NAME = (Column("Import", value=_step), Column("Run", value=_run, is_below=True))

_IMPORTS = (
    *_NAME,
    Column("State", value=label("state", "sandbox", "only checked")),
    Column("People", "number", "rows_read"),
    Column("Accepted", "number", "rows_accepted"),
    Column("Rejected", "number", lambda row: Cell(row["rows_rejected"], href="#reasons" if row["reasons"] else "")),
    Column("Lost", "percent", lambda row: rate(row["rows_read"] - row["rows_accepted"], row["rows_read"])),
    Column("Ended", "time", "finished_at"),
    Column("List", value="list_name"),
    Column("Account", value="mail_conn_id"),
)
_REASONS = (
    *_NAME,
    Column("Field", value=lambda row: row["field"] or "all fields"),
    Column("Reason", value="reason"),
    Column("People", "number", "rows"),
    Column("Ended", "time", "finished_at"),
)


_LOST = "One that was tried again counts once. Lost: the share of people whom the email service did not accept."
_FIELDS = "A person with several invalid fields counts for each of them."
_STOPPED = (
    "one that was tried again counts once. Everybody: all people were imported, not only those who joined, changed or "
    "left. Stopped: more people would have changed than is allowed, so nobody was imported or removed; the numbers are "
    "what would have changed."
)


def imports(reader: Reader) -> tuple[Grid, Grid]:
    """Return the 50 latest imports, the latest first, and why rows of them were rejected, the most frequent first."""
    stored = reader.rows(
        f"SELECT * FROM {reader['imports'].spelled} ORDER BY finished_at DESC, import_id",
        limit=SHOWN_RUNS,
    )
    rows = [{**row, "reasons": decoded(row["reasons"])} for row in stored]
    reasons = [{**row, **reason} for row in rows for reason in row["reasons"]]
    return (
        Grid.of("imports", "Imports", _IMPORTS, rows, f"The latest {len(rows)} imports. {_LOST}"),
        Grid.of("reasons", "Why people were rejected", _REASONS, reasons, _FIELDS),
    )


_AUDIENCES = (
    Column("Audience", value=lambda row: _audience(str(row["audience"]))),
    Column("Size", "number", "size"),
    Column("Last success", "time", "finished_at"),
    Column("List", value="send_list_name"),
    Column("Exclusion list", value="repel_list_name"),
    Column("Account", value="mail_conn_id"),
)
_RUNS = (
    *_NAME,
    Column("Reason", value=lambda row: _BRAKE.sub("", row["reason"] or ""), is_below=True),
    Column("State", value=label("state", "everybody", "everybody")),
    Column("Size", "number", lambda row: row["size"] if row["state"] == "success" else None),
    Column("Joined", "number", "joined_count"),
    Column("Changed", "number", "changed_count"),
    Column("Left", "number", "left_count"),
    Column("Left out", "number", "rows_suppressed"),
    Column("Rejected", "number", "rows_rejected"),
    Column("Ended", "time", "finished_at"),
)


def _audience(name: str) -> str:
    """Return the step that imports an audience, which is called DAG/step."""
    dag_id, slash, step = name.partition("/")
    return f"{step} of {dag_id}" if slash else name


def audience_sizes(reader: Reader) -> Sequence[Row]:
    """Return the last successful run of each audience: a run that failed has no size."""
    order = "ORDER BY finished_at DESC, import_id DESC"
    successes = f"SELECT * FROM {reader['audience_runs'].spelled} WHERE state = 'success' {order}"
    return reader.rows(
        f"SELECT * FROM (SELECT b.*, ROW_NUMBER() OVER (PARTITION BY audience {order}) AS place "
        f"FROM ({successes} LIMIT {LATEST_RUNS}) AS b) AS a WHERE place = 1 "
        "ORDER BY finished_at DESC, audience",
        limit=SHOWN_RUNS,
    )


def audiences(reader: Reader) -> tuple[Grid, Grid]:
    """Return the audiences, and the latest 50 runs of them."""
    runs = reader.rows(
        f"SELECT * FROM {reader['audience_runs'].spelled} ORDER BY finished_at DESC, import_id", limit=SHOWN_RUNS
    )
    return (
        Grid.of("audiences", "Audiences", _AUDIENCES, audience_sizes(reader)),
        Grid.of(
            "audience-runs",
            "Imports of audiences",
            _RUNS,
            runs,
            f"The latest {len(runs)} imports of audiences; {_STOPPED}",
        ),
    )


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


@kept_for(600)
def contact_lists(reader: Reader) -> tuple[Sequence[ContactList], datetime.datetime]:
    """Return the lists by account and team, the largest first, with the time of that: this reads the whole table."""
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
    return lists, datetime.datetime.now(datetime.UTC)


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


_LISTS = (
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
    return Grid.of("lists", "Lists", _LISTS, entries, note)
