"""What the page shows of all campaigns: those that match a filter, and their totals."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from airflow_provider_mail.plugin.campaign import (
    campaign_state,
    choice_of,
    list_names,
    own_task,
    subject_of,
    task_columns,
)
from airflow_provider_mail.plugin.reader import Reader, Row, kept_for
from airflow_provider_mail.plugin.render import Cell, Column, Grid, Kind, address, rate
from airflow_provider_mail.warehouse.rows import decoded, moment

PAGE_SIZE = 50

MOST_PAGES = 20
"""Whoever looks for more chooses days: databases sort all rows that precede a page. The CSV has all campaigns."""

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

_SUMS = f"COUNT(*) AS total, {', '.join(f'SUM({name}) AS all_{name}' for name in COUNTS)}"

_COLUMNS: Sequence[tuple[str, str, Kind, str]] = (
    ("mail_name", "Campaign", "text", "mail_name"),
    ("name", "Name", "text", ""),
    ("lists", "Lists", "text", ""),
    ("sent_at", "Date", "time", "CASE WHEN sent_at IS NULL THEN 1 ELSE 0 END, sent_at DESC"),
    ("state", "State", "text", ""),
    ("sent_count", "Sent", "number", "COALESCE(sent_count, -1) DESC"),
    *(
        # Postgres divides decimal numbers in twice the time.
        (name, label, "percent", f"COALESCE(CAST({count} AS FLOAT) / NULLIF({whole}, 0), -1) DESC")
        for name, label, count, whole in RATES
    ),
)
"""Name, heading and kind of each column, and the order by it, if it sorts: a campaign without a value comes last."""

SORTS = {name: order for name, _, _, order in _COLUMNS if order}

# MySQL puts null first, as one of the rows without a guid; Postgres puts it last, whichever these are.
_TIES = "mail_name, mail_conn_id, team_name, COALESCE(guid, '')"

STATES: Mapping[str, tuple[int, str]] = {
    "scheduled": (1, "sent_at > ?"),
    "sending": (1, "(sent_at IS NULL OR sent_at <= ?)"),
    "failed": (4, ""),
    "draft": (-1, ""),
}
"""Status of a send task, and when it is to be sent, by the name of the state; the other campaigns are sent."""

MANY, MANY_ALONE = 10_000, 500
"""Of more tasks than this, what reads all of them is known for a minute: the totals of a view without a filter, and
which were sent and have no statistics, unless these are many."""

# No database has a text with a NUL.
Text = Annotated[str, StringConstraints(max_length=400, pattern=r"^[^\x00]*$")]
# What databases can compare. The day after it and its beginning in another time zone exist as well.
EARLIEST, LATEST = datetime.date(1000, 1, 1), datetime.date(9999, 12, 29)


def _day(text: str | None) -> datetime.date | None:
    """Read a day as a form sends it, which is empty if none is chosen."""
    if not text:
        return None
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise ValueError("not a day")
    return min(max(datetime.date.fromisoformat(text), EARLIEST), LATEST)


Day = Annotated[datetime.date | None, BeforeValidator(_day)]


class Filter(BaseModel):
    """What the address asks for.

    :param q: part of the name or of the subject; upper and lower case are equal.
    :param last: the last day, included.
    :param state: one of the states that a campaign can have.
    :param sort: what there is to sort by; for any other text, the time of sending.
    """

    model_config = ConfigDict(frozen=True)

    q: Text = ""
    list_name: Text = Field("", alias="list")
    first: Day = Field(None, alias="from")
    last: Day = Field(None, alias="to")
    state: Text = ""
    account: Text = ""
    sort: Annotated[Text, AfterValidator(lambda sort: sort if sort in SORTS else "sent_at")] = "sent_at"
    page: int = Field(1, ge=1, le=MOST_PAGES)

    @property
    def is_narrow(self) -> bool:
        """Whether some campaigns are left out."""
        return self.model_copy(update={"sort": "sent_at", "page": 1}) != Filter()

    def address(self, **changes: Any) -> str:
        query = self.model_copy(update=changes).model_dump(by_alias=True, exclude_defaults=True)
        return address("campaigns", **query)


@dataclass(frozen=True)
class Matches:
    """One page of campaigns."""

    table: Grid
    total: int
    accounts: Sequence[str]
    lists: Sequence[str]
    wanted: Filter

    @property
    def pages(self) -> int:
        return min(max(1, -(-self.total // PAGE_SIZE)), MOST_PAGES)

    @property
    def is_cut(self) -> bool:
        return self.total > MOST_PAGES * PAGE_SIZE


def search(reader: Reader, wanted: Filter, zone: ZoneInfo) -> Matches:
    """Return the campaigns that match a filter, whose days begin in a zone."""
    tables = [what for what in ("campaign_stats", "campaigns") if reader.has(what)]
    known = {account for what in tables for account in reader.accounts(what)}
    accounts = sorted({*known, wanted.account} - {""})
    has_accounts = len(accounts) > 1 and not wanted.account
    matching = _Matching(reader, wanted, zone)
    order = f"{SORTS[wanted.sort]}, {_TIES}"
    # A search takes most of the time, so it is done once for rows and sums.
    stored = matching.rows(order, (wanted.page - 1) * PAGE_SIZE, has_sums=wanted.is_narrow)
    if wanted.is_narrow:
        sums = stored[0] if stored else matching.sums()
    else:
        sums = (_kept_sums if _has_many(reader) else _all_sums)(reader)
    total = int(sums["total"])
    table = Grid(
        "campaigns",
        "Campaigns",
        [_column(wanted, *column) for column in _COLUMNS],
        [_shown_row(*pair, has_accounts) for pair in _with_tasks(stored)],
        _total(sums, total) if total > 1 else (),
        all_rows=lambda: (values for _, values in _with_tasks(matching.all_rows(order))),
    )
    return Matches(table, total, accounts, lists(reader), wanted)


def _column(wanted: Filter, name: str, label: str, kind: Kind, order: str) -> Column:
    if not order:
        return Column(label, kind, is_below=name in ("name", "lists"))
    sort = wanted.address(sort=name, page=1)
    if name != wanted.sort:
        return Column(label, kind, sort=sort)
    return Column(label, kind, sort=sort, sorted="descending" if order.endswith("DESC") else "ascending")


def _total(row: Row, total: int) -> Sequence[Any]:
    counts = {name: int(row[f"all_{name}"] or 0) for name in COUNTS}
    return (f"All {total:,}", "", "", "", "", counts["sent_count"], *_rates(counts))


def _rates(counts: Mapping[str, Any]) -> Sequence[float | None]:
    return [rate(counts[count], counts[whole]) for _, _, count, whole in RATES]


class _Matching:
    """The campaigns that match a filter, whose days begin in a zone."""

    def __init__(self, reader: Reader, wanted: Filter, zone: ZoneInfo) -> None:
        self.reader = reader
        self.conditions: list[str] = []
        self.parameters: list[Any] = []
        # Tables of the WITH that the conditions look into, which have parameters of their own.
        self.found: list[str] = []
        self.found_parameters: list[Any] = []
        has_tasks = reader.has("campaigns")
        if not has_tasks and (wanted.list_name or wanted.state in STATES):
            self.where("1 = 0")
        if wanted.q:
            pattern = f"%{_escaped(wanted.q.lower())}%"
            of_name, of_subject = (f"LOWER({column}) LIKE ? ESCAPE '!'" for column in ("mail_name", "subject"))
            of_task = self.of_tasks(of_subject, pattern) if has_tasks else "1 = 0"
            self.where(f"({of_name} OR {of_task})", pattern)
        if wanted.list_name and has_tasks:
            # Databases write letters beyond ASCII as they are, or as JSON escapes them.
            names = sorted({json.dumps(wanted.list_name, ensure_ascii=is_ascii) for is_ascii in (False, True)})
            lists_as_text = reader["campaigns"].as_text("rcpt_list_names")
            condition = " OR ".join(f"{lists_as_text} LIKE ? ESCAPE '!'" for _ in names)
            self.where(self.of_tasks(condition, *(f"%{_escaped(name)}%" for name in names)))
        if wanted.state in STATES:
            status, when = STATES[wanted.state]
            self.where("mail_status = ?", status)
            if when:
                self.where(when, _time(reader, datetime.datetime.now(datetime.UTC)))
        elif wanted.state == "sent":
            self.where("COALESCE(mail_status, 2) NOT IN (-1, 1, 4)")
        if wanted.first:
            self.where("sent_at >= ?", start_of_day(reader, wanted.first, zone))
        if wanted.last:
            self.where("sent_at < ?", start_of_day(reader, wanted.last + datetime.timedelta(days=1), zone))
        if wanted.account:
            self.where("mail_conn_id = ?", wanted.account)
        campaigns = parts(reader, has_states=has_states(reader) and bool(wanted.state))
        condition = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        self.parts = [f"SELECT * FROM ({part}) AS a{condition}" for part in campaigns]

    def where(self, condition: str, *parameters: Any) -> None:
        self.conditions.append(condition)
        self.parameters.extend(parameters)

    def of_tasks(self, condition: str, *parameters: Any) -> str:
        """Return the condition for campaigns whose send task fulfills a condition."""
        name = f"found_{len(self.found)}"
        tasks = f"FROM {self.reader['campaigns'].spelled} WHERE gone_at IS NULL AND ({condition})"
        self.found.append(f"{name} AS (SELECT mail_conn_id, team_name, mail_name {tasks})")
        self.found_parameters.extend(parameters)
        # The second one is for statistics of a connection that names no team. With IS TRUE, Postgres looks the
        # identities up in a hash table instead of a loop: it takes a pattern for much rarer than it is.
        return (
            f"((mail_conn_id, team_name, mail_name) IN (SELECT mail_conn_id, team_name, mail_name FROM {name} "
            f"UNION ALL SELECT mail_conn_id, '', mail_name FROM {name})) IS TRUE"
        )

    def rows(self, order: str, start: int, *, has_sums: bool) -> Sequence[Row]:
        """Read one page.

        :param has_sums: whether its rows have what `sums` returns, too.
        """
        found, parts = self.found, self.parts
        if has_sums:
            found = [*found, f"matching AS ({' UNION ALL '.join(parts)})", f"sums AS (SELECT {_SUMS} FROM matching)"]
            parts = ["SELECT * FROM matching"]
        # The parts are sorted one by one, since SQLite takes twice as long to sort a union.
        parts = [f"{part} ORDER BY {order} LIMIT {start + PAGE_SIZE}" for part in parts]
        union = " UNION ALL ".join(f"SELECT * FROM ({part}) AS b" for part in parts)
        page = f"SELECT * FROM ({union}) AS b ORDER BY {order} LIMIT {PAGE_SIZE} OFFSET {start}"
        return self.reader.rows(self._statement(page, order, found, has_sums=has_sums), self._all_parameters)

    def all_rows(self, order: str) -> Iterator[Row]:
        statement = self._statement(" UNION ALL ".join(self.parts), order, self.found)
        return chain.from_iterable(self.reader.batches(statement, self._all_parameters))

    def _statement(self, campaigns: str, order: str, found: Sequence[str], *, has_sums: bool = False) -> str:
        """Return the SELECT of campaigns with the tasks of their names, a row for each task."""
        shown, joined = "c.*", ""
        if has_sums:
            shown, joined = "c.*, sums.*", " CROSS JOIN sums"
        if self.reader.has("campaigns"):
            shown += ", task_guid, task_team, task_status, subject, rcpt_list_names"
            joined += (
                f" LEFT JOIN (SELECT mail_conn_id AS task_account, mail_name AS task_name, {task_columns()} "
                f"FROM {self.reader['campaigns'].spelled} WHERE gone_at IS NULL) AS t "
                "ON task_account = mail_conn_id AND task_name = mail_name"
            )
        return f"{common_tables(self.reader, *found)} SELECT {shown} FROM ({campaigns}) AS c{joined} ORDER BY {order}"

    def sums(self) -> Row:
        """Read the number of campaigns, and the sums of their counts."""
        statement = (
            f"{common_tables(self.reader, *self.found)} SELECT {_SUMS} FROM ({' UNION ALL '.join(self.parts)}) AS a"
        )
        return self.reader.rows(statement, self._all_parameters)[0]

    @property
    def _all_parameters(self) -> Sequence[Any]:
        return [*self.found_parameters, *self.parameters * len(self.parts)]


def _all_sums(reader: Reader) -> Row:
    return _Matching(reader, Filter(), ZoneInfo("UTC")).sums()


_kept_sums = kept_for(60)(_all_sums)


def start_of_day(reader: Reader, day: datetime.date, zone: ZoneInfo) -> Any:
    return _time(reader, datetime.datetime.combine(day, datetime.time.min, zone))


def _time(reader: Reader, time: datetime.datetime) -> Any:
    what, column = ("campaign_stats", "mail_send_date"), ("campaigns", "send_by_date_time")
    table, name = what if reader.has("campaign_stats") else column
    return reader[table].parameter(name, time.astimezone(datetime.UTC))


def _escaped(text: str) -> str:
    return "".join(f"!{letter}" if letter in "!%_" else letter for letter in text)


def has_states(reader: Reader) -> bool:
    return reader.has("campaign_stats") and reader.has("campaigns")


def common_tables(reader: Reader, *more: str, among: str = "") -> str:
    """Return the WITH that `parts` needs; empty unless there are statistics and tasks, or more tables.

    A name is unique within a team, and statistics belong to a task that was sent. So the state of a campaign with
    statistics is that of a task which was not sent only if no other task of its name and team was. The statistics of a
    connection that names no team, whose team is empty, belong to a task of any team.

    :param among: a condition for the tasks that were sent, which spares a look at all of them.
    """
    if not has_states(reader):
        return f"WITH {', '.join(more)}" if more else ""
    tasks = f"FROM {reader['campaigns'].spelled} WHERE gone_at IS NULL AND"

    def without_sent(team: str) -> str:
        return (
            f"WHERE NOT EXISTS (SELECT 1 FROM sent WHERE sent.mail_conn_id = unsent.mail_conn_id{team} "
            "AND sent.mail_name = unsent.mail_name)"
        )

    columns = f"mail_conn_id, team_name, mail_name, guid, send_by_date_time AS sent_at, {_SUMMED}, mail_status"
    with_state = f" JOIN states AS x ON {_same('s')}"
    tables = [
        # One look at the table for both that follow. Databases use an index for these two ranges, but not for <>.
        f"not_sent AS (SELECT {columns} {tasks} (mail_status < 2 OR mail_status > 2))",
        "unsent AS (SELECT mail_conn_id, team_name, mail_name, MAX(mail_status) AS mail_status FROM not_sent "
        "GROUP BY mail_name, team_name, mail_conn_id)",
        f"sent AS (SELECT mail_conn_id, team_name, mail_name {tasks} mail_status = 2 "
        "AND mail_name IN (SELECT mail_name FROM unsent))",
        "states AS (SELECT mail_conn_id AS account, team_name AS team, mail_name AS name, mail_status AS status "
        f"FROM unsent {without_sent(' AND sent.team_name = unsent.team_name')} "
        "UNION ALL SELECT mail_conn_id, '', mail_name, MAX(mail_status) FROM unsent "
        f"{without_sent('')} GROUP BY mail_conn_id, mail_name HAVING MIN(team_name) <> '')",
        f"alone AS (SELECT {columns} FROM {reader['campaigns'].spelled} AS c WHERE gone_at IS NULL AND mail_status = 2"
        f" AND ({among or _known_alone(reader)}) AND {_without_stats(reader)} "
        f"UNION ALL SELECT * FROM not_sent AS c WHERE {_without_stats(reader, with_state)})",
        *more,
    ]
    return f"WITH {', '.join(tables)}"


def _same(table: str) -> str:
    return f"x.account = {table}.mail_conn_id AND x.team = {table}.team_name AND x.name = {table}.mail_name"


def _without_stats(reader: Reader, joined: str = "") -> str:
    """Return the condition for tasks, called ``c``, that have no statistics."""
    # For the two teams one after the other: SQLite is slower with IN.
    return " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM {reader['campaign_stats'].spelled} AS s{joined} "
        f"WHERE s.mail_conn_id = c.mail_conn_id AND s.team_name = {team} AND s.mail_name = c.mail_name "
        "AND s.gone_at IS NULL)"
        for team in ("c.team_name", "''")
    )


def _has_many(reader: Reader) -> bool:
    return reader.has("campaigns") and sum(int(row["total"]) for row in task_loads(reader)) > MANY


@kept_for(60)
def _known_alone(reader: Reader) -> str:
    """Return a condition that spares a look for the statistics of each task that was sent, where there are many.

    Of more than `MANY` tasks, those without statistics are as they were at most a minute ago, and looked up again.
    """
    if not _has_many(reader):
        return "1 = 1"
    rows = reader.rows(
        f"SELECT guid FROM {reader['campaigns'].spelled} AS c WHERE gone_at IS NULL AND mail_status = 2 "
        f"AND {_without_stats(reader)} ORDER BY guid",
        limit=MANY_ALONE + 1,
    )
    guids = [str(row["guid"]) for row in rows]
    if len(guids) > MANY_ALONE or not all(_PLAIN.fullmatch(guid) for guid in guids):
        return "1 = 1"
    return f"guid IN ({', '.join(map(repr, guids))})" if guids else "1 = 0"


_PLAIN = re.compile(r"[A-Za-z0-9-]+", re.ASCII)

_SUMMED = "sent_count, open_count, click_count, hard_bounce + soft_bounce AS bounce_count, unsubscribe_count"


def parts(reader: Reader, *, has_states: bool = False) -> Sequence[str]:
    """Return the statements for all campaigns: those with statistics, and tasks without; none without tables.

    Behind `common_tables`. What has statistics has no ``guid``.

    :param has_states: whether those with statistics have a ``mail_status``; it is null if they were sent.
    """
    statements = []
    if reader.has("campaign_stats"):
        status, joined = ("x.status", f" LEFT JOIN states AS x ON {_same('s')}") if has_states else ("NULLIF(0, 0)", "")
        statements.append(
            "SELECT s.mail_conn_id, s.team_name, s.mail_name, NULL AS guid, mail_send_date AS sent_at, "
            f"{_SUMMED}, {status} AS mail_status FROM {reader['campaign_stats'].spelled} AS s{joined} "
            "WHERE gone_at IS NULL"
        )
    if reader.has("campaigns"):
        statements.append(
            "SELECT * FROM alone"
            if reader.has("campaign_stats")
            else f"SELECT mail_conn_id, team_name, mail_name, guid, send_by_date_time AS sent_at, {_SUMMED}, "
            f"mail_status FROM {reader['campaigns'].spelled} WHERE gone_at IS NULL"
        )
    return statements


def _with_tasks(rows: Iterable[Row]) -> Iterator[tuple[Row, Sequence[Any]]]:
    """Yield each campaign, of the rows with its tasks the first one, and the values of its columns."""
    for _, same in groupby(rows, itemgetter("mail_conn_id", "team_name", "mail_name", "guid")):
        rows_of_one = list(same)
        row, tasks = rows_of_one[0], [task for task in rows_of_one if task.get("task_guid")]
        task = own_task(tasks, str(row["team_name"]), str(row["guid"] or ""))
        sent_at = moment(row["sent_at"])
        status = task["task_status"] if task and row["mail_status"] is None else row["mail_status"]
        yield (
            row,
            (
                *titles(row, task),
                ", ".join(list_names(task["rcpt_list_names"])) if task else "",
                sent_at,
                campaign_state(status, sent_at),
                row["sent_count"],
                *_rates(row),
            ),
        )


def _shown_row(row: Row, values: Sequence[Any], has_accounts: bool) -> Sequence[Any]:
    """Return the values with links and notes, which would make a CSV of many campaigns slow."""
    title, name, lists, sent_at, state, *others = values
    account, team = str(row["mail_conn_id"]), str(row["team_name"])
    note = " ".join(filter(None, [account, team])) if has_accounts or team else ""
    return (titled(row, title, note), name, lists, sent_at, Cell(state, state=state.split()[0]), *others)


def titles(row: Row, task: Row | None) -> tuple[str, str]:
    """Return what a campaign is called, its subject, and its name; without a subject, the name alone."""
    name, subject = str(row["mail_name"]), subject_of(task)
    return (subject, name) if subject else (name, "")


def titled(row: Row, title: str, note: str = "") -> Cell:
    """Return the title of a campaign with the link to it."""
    account, team, name = (str(row[column]) for column in ("mail_conn_id", "team_name", "mail_name"))
    href = address("campaign", account=account, team=team, name=name, guid=row["guid"])
    return Cell(title, href=href, note=note, choice=choice_of(account, team, name))


@kept_for(60)
def task_loads(reader: Reader) -> Sequence[Row]:
    """Return the number of tasks of each account, and when they were loaded, as it was at most a minute ago."""
    return reader.rows(
        "SELECT mail_conn_id, MAX(observed_at) AS observed_at, COUNT(*) AS total "
        f"FROM {reader['campaigns'].spelled} GROUP BY mail_conn_id ORDER BY mail_conn_id"
    )


@kept_for(600)
def lists(reader: Reader) -> Sequence[str]:
    """Return the lists that campaigns were sent to, as they were at most ten minutes ago."""
    if not reader.has("campaigns"):
        return []
    text = reader["campaigns"].as_text("rcpt_list_names")
    statement = (
        f"SELECT lists FROM (SELECT {text} AS lists, MAX(send_by_date_time) AS latest "
        f"FROM {reader['campaigns'].spelled} WHERE gone_at IS NULL GROUP BY {text}) AS a ORDER BY latest DESC"
    )
    rows = reader.rows(statement, limit=SHOWN_LISTS)
    return sorted({str(name) for row in rows for name in decoded(row["lists"]) or ()}, key=str.casefold)
