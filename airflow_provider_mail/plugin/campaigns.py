"""What the page shows of all campaigns: those that match a filter, and their totals."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from zoneinfo import ZoneInfo

from airflow_provider_mail.plugin.campaign import campaign_state, list_names, only_task
from airflow_provider_mail.plugin.reader import Reader, Row, TtlCache
from airflow_provider_mail.plugin.render import CSV_ROWS, Cell, Column, Grid, address, rate
from airflow_provider_mail.warehouse.read import decoded, moment

PAGE_SIZE = 50

SHOWN_LISTS = 2_000
"""Of how many different sets of lists the filter offers the names."""

COUNTS = ("sent_count", "open_count", "click_count", "bounce_count", "unsubscribe_count")

RATES = (
    ("open_rate", "Opened", "open_count", "sent_count"),
    ("click_rate", "Clicked", "click_count", "sent_count"),
    ("click_to_open", "Click to open", "click_count", "open_count"),
    ("bounce_rate", "Bounced", "bounce_count", "sent_count"),
    ("unsubscribe_rate", "Unsubscribed", "unsubscribe_count", "sent_count"),
)
"""Name and heading of each rate, the count that it is of, and the count that is the whole."""

SORTS: Mapping[str, tuple[str, str]] = {
    "sent_at": ("sent_at", "DESC"),
    "mail_name": ("mail_name", "ASC"),
    "sent_count": ("sent_count", "DESC"),
    **{name: (f"100.0 * {count} / NULLIF({whole}, 0)", "DESC") for name, _, count, whole in RATES},
}
"""Expressions to sort by, with the direction; a campaign without a value comes last."""

COLUMNS = (
    ("mail_name", "Campaign", "text"),
    ("subject", "Subject", "text"),
    ("lists", "Lists", "text"),
    ("sent_at", "Sent", "time"),
    ("state", "State", "text"),
    ("sent_count", "Mails", "number"),
    *((name, label, "percent") for name, label, _, _ in RATES),
)

STATES: Mapping[str, tuple[int, str]] = {
    "scheduled": (1, "sent_at > ?"),
    "sending": (1, "(sent_at IS NULL OR sent_at <= ?)"),
    "failed": (4, ""),
    "draft": (-1, ""),
}
"""Status of a send task, and when it is to be sent, by the name of the state; the other campaigns are sent."""

_accounts: TtlCache[Sequence[str]] = TtlCache()
_lists: TtlCache[Sequence[str]] = TtlCache()


@dataclass(frozen=True)
class Filter:
    """What the address asks for.

    :param q: part of the name or of the subject; upper and lower case are equal.
    :param list_name: a list that the campaign was sent to.
    :param first: the first day.
    :param last: the last day, included.
    :param state: one of the states that a campaign can have.
    :param account: the connection of an account.
    :param sort: one of `SORTS`.
    :param page: the number of the page, from 1.
    """

    q: str = ""
    list_name: str = ""
    first: datetime.date | None = None
    last: datetime.date | None = None
    state: str = ""
    account: str = ""
    sort: str = "sent_at"
    page: int = 1

    @property
    def query(self) -> dict[str, object]:
        """The query of the address; what is not asked for is left out."""
        names = {"list_name": "list", "first": "from", "last": "to"}
        return {
            names.get(part.name, part.name): getattr(self, part.name)
            for part in fields(self)
            if getattr(self, part.name) != part.default
        }

    @property
    def is_narrow(self) -> bool:
        """Whether some campaigns are left out."""
        return replace(self, sort="sent_at", page=1) != Filter()

    def address(self, **changes: Any) -> str:
        return address("campaigns", **replace(self, **changes).query)


@dataclass(frozen=True)
class Matches:
    """One page of campaigns.

    :param total: how many there are on all pages.
    :param accounts: the connections of all accounts.
    :param lists: the lists that the filter offers.
    """

    table: Grid
    total: int
    accounts: Sequence[str]
    lists: Sequence[str]
    wanted: Filter

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE_SIZE))


def search(reader: Reader, wanted: Filter, zone: ZoneInfo) -> Matches:
    """Return the campaigns that match a filter, whose days begin in a zone."""
    wanted = wanted if wanted.sort in SORTS else replace(wanted, sort="sent_at")
    accounts = sorted({*_known_accounts(reader), *filter(None, [wanted.account])})
    has_accounts = len(accounts) > 1 and not wanted.account
    matching = _matching(reader, wanted, zone)
    expression, direction = SORTS[wanted.sort]
    order = f"CASE WHEN {expression} IS NULL THEN 1 ELSE 0 END, {expression} {direction}, mail_name, mail_conn_id"
    names = ", ".join(("mail_conn_id", "team", "mail_name", "sent_at", "mail_status", *COUNTS))

    matches = f"WITH matches AS (SELECT {names} {matching.sql})"
    sums = "".join(f", SUM({name}) AS total_{name}" for name in COUNTS)
    # With the page, in one statement. No `OVER ()`, in which DuckDB 1.4 and 1.5 fail now and then.
    totals = f" CROSS JOIN (SELECT COUNT(*) AS total{sums} FROM matches) AS totals"

    def read(count: int, offset: int = 0, totals: str = "") -> Sequence[Row]:
        statement = f"{matches} SELECT * FROM matches{totals} ORDER BY {order}"
        return reader.rows(statement, matching.parameters, limit=count, offset=offset)

    rows = read(PAGE_SIZE, (wanted.page - 1) * PAGE_SIZE, totals)
    counted = rows[:1] or (read(1, 0, totals) if wanted.page > 1 else [])
    total = int(counted[0]["total"]) if counted else 0
    table = Grid(
        "campaigns",
        "Campaigns",
        [_column(wanted, *column) for column in COLUMNS],
        _with_tasks(reader, rows, has_accounts),
        _total(counted[0], total) if total > 1 else (),
        lambda: _with_tasks(reader, read(CSV_ROWS), has_accounts),
    )
    return Matches(table, total, accounts, lists(reader), wanted)


def _column(wanted: Filter, name: str, label: str, kind: Any) -> Column:
    if name not in SORTS:
        return Column(label, kind, is_below=name in ("subject", "lists"))
    direction: Any = "ascending" if SORTS[name][1] == "ASC" else "descending"
    return Column(label, kind, sort=wanted.address(sort=name, page=1), sorted=direction if name == wanted.sort else "")


def _total(row: Row, total: int) -> Sequence[Any]:
    counts = {name: int(row[f"total_{name}"] or 0) for name in COUNTS}
    return (f"All {total:,}", "", "", "", "", counts["sent_count"], *_rates(counts))


def _rates(counts: Mapping[str, Any]) -> Sequence[float | None]:
    return [rate(counts[count], counts[whole]) for _, _, count, whole in RATES]


@dataclass
class _Matching:
    """What follows SELECT for the campaigns that match a filter.

    :param in_joins: the parameters of the joins.
    :param in_conditions: the parameters of the conditions, which come behind them.
    """

    reader: Reader
    joins: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    in_joins: list[Any] = field(default_factory=list)
    in_conditions: list[Any] = field(default_factory=list)

    @property
    def sql(self) -> str:
        condition = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return f"FROM ({source(self.reader)}) AS a{''.join(self.joins)}{condition}"

    @property
    def parameters(self) -> Sequence[Any]:
        return [*self.in_joins, *self.in_conditions]

    def where(self, condition: str, *parameters: Any) -> None:
        self.conditions.append(condition)
        self.in_conditions.extend(parameters)

    def join_tasks(self, name: str, condition: str, *parameters: Any, side: str = "") -> None:
        """Join the names of the campaigns whose send task fulfills a condition.

        :param name: the name of the join, different for each.
        """
        self.joins.append(
            f" {side}JOIN (SELECT DISTINCT mail_conn_id AS {name}_account, mail_name AS {name}_name "
            f"FROM {self.reader['campaigns'].spelled} WHERE gone_at IS NULL AND {condition}) AS {name} "
            f"ON {name}_account = mail_conn_id AND {name}_name = mail_name"
        )
        self.in_joins.extend(parameters)


def _matching(reader: Reader, wanted: Filter, zone: ZoneInfo) -> _Matching:
    matching = _Matching(reader)
    if wanted.q:
        _by_text(matching, wanted.q)
    if reader.has("campaigns"):
        _by_task(matching, wanted)
    elif wanted.list_name or wanted.state in STATES:
        matching.where("1 = 0")
    if wanted.first:
        matching.where("sent_at >= ?", start_of_day(reader, wanted.first, zone))
    if wanted.last:
        matching.where("sent_at < ?", start_of_day(reader, wanted.last + datetime.timedelta(days=1), zone))
    if wanted.account:
        matching.where("mail_conn_id = ?", wanted.account)
    return matching


def _by_text(matching: _Matching, text: str) -> None:
    pattern = f"%{_escaped(text.lower())}%"
    of_name = "LOWER(mail_name) LIKE ? ESCAPE '!'"
    if matching.reader.has("campaigns"):
        matching.join_tasks("subjects", "LOWER(subject) LIKE ? ESCAPE '!'", pattern, side="LEFT ")
        of_name = f"({of_name} OR subjects_name IS NOT NULL)"
    matching.where(of_name, pattern)


def _by_task(matching: _Matching, wanted: Filter) -> None:
    if wanted.list_name:
        # Databases write letters beyond ASCII as they are, or as JSON escapes them.
        names = sorted({json.dumps(wanted.list_name, ensure_ascii=is_ascii) for is_ascii in (False, True)})
        lists_as_text = matching.reader["campaigns"].as_text("rcpt_list_names")
        condition = " OR ".join(f"{lists_as_text} LIKE ? ESCAPE '!'" for _ in names)
        matching.join_tasks("sent_lists", f"({condition})", *(f"%{_escaped(name)}%" for name in names))
    if wanted.state in STATES:
        status, when = STATES[wanted.state]
        matching.join_tasks("states", "mail_status = ?", status)
        if when:
            matching.where(when, _time(matching.reader, datetime.datetime.now(datetime.UTC)))
    elif wanted.state == "sent":
        matching.join_tasks("states", "mail_status IN (-1, 1, 4)", side="LEFT ")
        matching.where("states_name IS NULL")


def start_of_day(reader: Reader, day: datetime.date, zone: ZoneInfo) -> Any:
    return _time(reader, datetime.datetime.combine(day, datetime.time.min, zone))


def _time(reader: Reader, time: datetime.datetime) -> Any:
    what, column = ("campaign_stats", "mail_send_date"), ("campaigns", "send_by_date_time")
    table, name = what if reader.has("campaign_stats") else column
    return reader[table].parameter(name, time.astimezone(datetime.UTC))


def _escaped(text: str) -> str:
    return "".join(f"!{letter}" if letter in "!%_" else letter for letter in text)


def source(reader: Reader) -> str:
    """Return the statement for all campaigns: those with statistics, and tasks without; empty without tables."""
    parts, stats = [], ""
    if reader.has("campaign_stats"):
        stats = reader["campaign_stats"].spelled
        parts.append(
            "SELECT mail_conn_id, team_name AS team, mail_name, mail_send_date AS sent_at, sent_count, open_count, "
            "click_count, hard_bounce + soft_bounce AS bounce_count, unsubscribe_count, NULL AS mail_status "
            f"FROM {stats} WHERE gone_at IS NULL"
        )
    if reader.has("campaigns"):
        without = (
            f" AND NOT EXISTS (SELECT 1 FROM {stats} AS s WHERE s.mail_conn_id = c.mail_conn_id "
            "AND s.mail_name = c.mail_name AND s.gone_at IS NULL)"
        )
        parts.append(
            "SELECT mail_conn_id, team_name AS team, mail_name, send_by_date_time AS sent_at, sent_count, open_count, "
            "click_count, hard_bounce + soft_bounce AS bounce_count, unsubscribe_count, mail_status "
            f"FROM {reader['campaigns'].spelled} AS c WHERE gone_at IS NULL{without if stats else ''}"
        )
    return " UNION ALL ".join(parts)


def _with_tasks(reader: Reader, rows: Sequence[Row], has_accounts: bool) -> Sequence[Sequence[Any]]:
    tasks = _tasks(reader, [str(row["mail_name"]) for row in rows])
    return [_row(row, tasks, has_accounts) for row in rows]


def _row(row: Row, tasks: Mapping[tuple[str, str], Sequence[Row]], has_accounts: bool) -> Sequence[Any]:
    account, name, sent_at = str(row["mail_conn_id"]), str(row["mail_name"]), moment(row["sent_at"])
    task = only_task(tasks.get((account, name), ()), row["team"])
    status = row["mail_status"] if row["mail_status"] is not None or not task else task["mail_status"]
    state = campaign_state(status, sent_at)
    return (
        Cell(
            name,
            href=address("campaign", account=account, name=name),
            note=account if has_accounts else "",
            choice=f"{account} {name}",
        ),
        str(task["subject"] or "") if task else "",
        ", ".join(list_names(task["rcpt_list_names"])) if task else "",
        sent_at,
        Cell(state, state=state.split()[0]),
        row["sent_count"],
        *_rates(row),
    )


def _tasks(reader: Reader, names: Sequence[str]) -> Mapping[tuple[str, str], Sequence[Row]]:
    tasks: dict[tuple[str, str], list[Row]] = {}
    if not reader.has("campaigns"):
        return tasks
    for start in range(0, len(names), 500):  # a statement has room for some hundred parameters
        some = names[start : start + 500]
        marks = ", ".join("?" for _ in some)
        for row in reader.rows(
            "SELECT mail_conn_id, mail_name, team_name, mail_status, subject, rcpt_list_names "
            f"FROM {reader['campaigns'].spelled} WHERE gone_at IS NULL AND mail_name IN ({marks})",
            some,
        ):
            tasks.setdefault((str(row["mail_conn_id"]), str(row["mail_name"])), []).append(row)
    return tasks


def _known_accounts(reader: Reader) -> Sequence[str]:
    """The accounts of all campaigns, as they were at most ten minutes ago."""

    def read() -> Sequence[str]:
        return [
            str(row["mail_conn_id"])
            for row in reader.rows(f"SELECT DISTINCT mail_conn_id FROM ({source(reader)}) AS a")
        ]

    tables = [reader.identity(what) for what in ("campaign_stats", "campaigns") if reader.has(what)]
    return _accounts.get(tuple(tables), read)


def lists(reader: Reader) -> Sequence[str]:
    """Return the lists that campaigns were sent to, as they were at most ten minutes ago."""
    if not reader.has("campaigns"):
        return []

    def read() -> Sequence[str]:
        text = reader["campaigns"].as_text("rcpt_list_names")
        statement = (
            f"SELECT lists FROM (SELECT {text} AS lists, MAX(send_by_date_time) AS latest "
            f"FROM {reader['campaigns'].spelled} WHERE gone_at IS NULL GROUP BY {text}) AS a ORDER BY latest DESC"
        )
        rows = reader.rows(statement, limit=SHOWN_LISTS)
        return sorted({str(name) for row in rows for name in decoded(row["lists"]) or ()}, key=str.casefold)

    return _lists.get(reader.identity("campaigns"), read)
