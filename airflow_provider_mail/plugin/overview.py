"""The page that opens first: what is going on, what needs attention, the last thirty days, and how lists grow."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo

from airflow_provider_mail.plugin import campaigns, imports, lists, views
from airflow_provider_mail.plugin.access import Wait, token_warning
from airflow_provider_mail.plugin.campaign import campaign_state, list_names
from airflow_provider_mail.plugin.reader import Reader, Row, TtlCache
from airflow_provider_mail.plugin.render import Cell, Column, Grid, address, rate
from airflow_provider_mail.warehouse.rows import moment
from airflow_provider_mail.warehouse.time_limit import Reading

DAYS = 30
"""The days that the charts show, today included."""

YEAR = datetime.timedelta(weeks=52)
"""The year before: the same days of the week."""

RECENT = datetime.timedelta(days=7)
"""How long an import, an event or a difference counts as something that needs attention."""

SHOWN_CAMPAIGNS = 10
SHOWN_LISTS = 8

GROWTH_SECONDS = 5.0
"""How long the lists may be counted for this page."""

_tokens: TtlCache[str] = TtlCache(60.0)
"""What is wrong with the token of a connection, which a secrets backend may take long to return."""

MEASURES: Sequence[tuple[str, str, Callable[[Mapping[str, int]], float | None]]] = (
    ("Sent", "number", lambda sums: float(sums["sent_count"])),
    ("Opened", "percent", lambda sums: rate(sums["open_count"], sums["sent_count"])),
    ("Click to open", "percent", lambda sums: rate(sums["click_count"], sums["open_count"])),
    ("Bounced", "percent", lambda sums: rate(sums["bounce_count"], sums["sent_count"])),
    ("Unsubscribed", "percent", lambda sums: rate(sums["unsubscribe_count"], sums["sent_count"])),
)
"""What the charts show: label, kind, and its value from the sums of counts."""


@dataclass(frozen=True)
class Finding:
    """Something that needs attention.

    :param state: the class of its label: what failed, or what is late.
    """

    state: str
    label: str
    text: str
    href: str
    since: datetime.datetime | None = None


@dataclass(frozen=True)
class Measure:
    """One chart.

    :param value: of the thirty days.
    :param before: of the same days of the year before.
    :param weeks: by the first day of each week, its value and that of the year before.
    """

    label: str
    kind: str
    value: float | None
    before: float | None
    weeks: Sequence[tuple[datetime.date, float | None, float | None]]

    @property
    def change(self) -> str:
        """The difference from the year before, with its sign; empty without one."""
        if self.value is None or not self.before:
            return ""
        if self.kind == "percent":
            return f"{_signed(self.value - self.before, 1)} points"
        return f"{_signed(100 * (self.value - self.before) / self.before, 0)} %"


def _signed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:+,.{digits}f}"  # no negative zero


@contextmanager
def counting_lists(reader: Reader) -> Iterator[Callable[[], lists.Lists | None]]:
    """Count all lists while the page reads other tables; yield what returns them with their sizes.

    It returns ``None`` without lists, or when counting takes too long for this page.
    """
    if not reader.has("contacts"):
        yield lambda: None
        return
    reading = Reading(lambda: lists.get(reader), GROWTH_SECONDS)

    def counted() -> lists.Lists | None:
        try:
            return reading.result.result(GROWTH_SECONDS)
        except TimeoutError:
            return None

    try:
        yield counted
    finally:
        reading.end()


def current(reader: Reader, counted: lists.Lists | None) -> tuple[Grid, int]:
    """Return what goes out next, with the number of people whom it reaches at most, and how many campaigns these are.

    :param counted: the lists; without them the number of people is that of the last import of the audience, if any.
    """
    below = [Column(label, is_below=True) for label in ("Name", "Lists")]
    columns = [
        Column("Campaign"), *below, Column("State"), Column("Time of sending", "time"),
        Column("Recipients, at most", "number"),
    ]  # fmt: skip
    if not reader.has("campaigns"):
        return Grid("current", "Campaigns that go out next", columns, []), 0
    matching = f"FROM {reader['campaigns'].spelled} WHERE mail_status = 1 AND gone_at IS NULL"
    (total,) = reader.rows(f"SELECT COUNT(*) AS total {matching}")
    statement = (
        f"SELECT mail_conn_id, team_name, mail_name, guid, subject, rcpt_list_names, send_by_date_time {matching} "
        "ORDER BY send_by_date_time, mail_name, mail_conn_id, guid"
    )
    sizes = _sizes(reader, counted)
    rows = [_current(row, sizes) for row in reader.rows(statement, limit=SHOWN_CAMPAIGNS)]

    def all_rows() -> Iterator[Sequence[Any]]:
        for batch in reader.batches(statement):
            yield from (_current(row, sizes) for row in batch)

    return Grid("current", "Campaigns that go out next", columns, rows, all_rows=all_rows), int(total["total"])


def _sizes(reader: Reader, counted: lists.Lists | None) -> Mapping[tuple[str, str], int]:
    """The number of people by account and list; the larger one where two teams have a list of that name."""
    sizes: dict[tuple[str, str], int] = {}
    if reader.has("audience_runs"):
        for name, size, _, list_name, _, account in reversed(imports.audiences(reader).rows):
            if name and list_name:
                sizes[str(account), str(list_name)] = int(size or 0)
    for entry in counted.entries if counted else ():
        key = entry.account, entry.name
        sizes[key] = max(sizes.get(key, 0), entry.contacts)
    return sizes


def _current(row: Row, sizes: Mapping[tuple[str, str], int]) -> Sequence[Any]:
    account, at, names = str(row["mail_conn_id"]), moment(row["send_by_date_time"]), list_names(row["rcpt_list_names"])
    state = campaign_state(1, at)
    people = [sizes.get((account, name)) for name in names]
    known = [count for count in people if count is not None]
    title, name = campaigns.titles(row, row)
    return (
        campaigns.titled(row, title),
        name,
        ", ".join(names),
        Cell(state, state=state),
        at,
        sum(known) if known and len(known) == len(people) else None,
    )


def findings(reader: Reader, waits: Sequence[Wait]) -> Sequence[Finding]:
    """Return what needs attention, what failed first; of tasks that wait, those of DAGs that the user may read."""
    now = datetime.datetime.now(datetime.UTC)
    problems = [
        *_failed_campaigns(reader, now),
        *_late_waits(waits),
        *_imports(reader, now),
        *_audiences(reader, now),
        *_events(reader, now),
        *_loads(reader),
    ]
    return sorted(problems, key=lambda finding: finding.state != "failed")


def _failed_campaigns(reader: Reader, now: datetime.datetime) -> Sequence[Finding]:
    first = now - datetime.timedelta(days=DAYS)
    count, earliest = reader.since("campaigns", "send_by_date_time", first, " AND mail_status = 4 AND gone_at IS NULL")
    if not count:
        return []
    href = address("campaigns", state="failed", **{"from": first.date()})
    return [Finding("failed", "failed", f"{_of(count, 'campaign')} failed", href, moment(earliest))]


def _late_waits(waits: Sequence[Wait]) -> Sequence[Finding]:
    late = [wait for wait in waits if wait.is_late]
    if not late:
        return []
    since = min(wait.deadline for wait in late if wait.deadline)
    verb = "waits" if len(late) == 1 else "wait"
    return [Finding("failed", "late", f"{_of(len(late), 'step')} {verb} longer than allowed", "waits", since)]


def _imports(reader: Reader, now: datetime.datetime) -> Sequence[Finding]:
    """What imports failed or rejected rows; a check in sandbox mode does not count."""
    if not reader.has("imports"):
        return []
    table = reader["imports"]
    (row,) = reader.rows(
        "SELECT SUM(CASE WHEN state = 'failed' THEN 1 ELSE 0 END) AS failed, SUM(rows_rejected) AS rejected, "
        f"SUM(CASE WHEN rows_rejected > 0 THEN 1 ELSE 0 END) AS with_rejects FROM {table.spelled} "
        "WHERE finished_at >= ? AND sandbox = ?",
        [table.parameter("finished_at", now - RECENT), table.parameter("sandbox", False)],
    )
    problems = []
    if row["failed"]:
        problems.append(
            Finding("failed", "failed", f"{_of(row['failed'], 'import')} failed in the last seven days", "imports")
        )
    if row["rejected"]:
        imports = _of(row["with_rejects"], "import")
        people = "1 person was" if row["rejected"] == 1 else f"{row['rejected']:,} people were"
        text = f"{people} rejected in the last seven days, in {imports}"
        problems.append(Finding("old", "rejected", text, "imports"))
    return problems


def _audiences(reader: Reader, now: datetime.datetime) -> Sequence[Finding]:
    count, earliest = reader.since("audience_runs", "finished_at", now - RECENT, " AND state = 'stopped'")
    if not count:
        return []
    text = f"{_of(count, 'import')} of an audience stopped: more people would have changed than is allowed"
    return [Finding("failed", "stopped", text, "audiences#runs", moment(earliest))]


_NOT_NEW = "The activity of single mails is not up to date. For your engineers:"


def _events(reader: Reader, now: datetime.datetime) -> Sequence[Finding]:
    problems = []
    inbox = views.inbox()
    if isinstance(inbox, str):
        problems.append(Finding("failed", "activity", f"{_NOT_NEW} {inbox}", "events"))
    elif inbox:
        problems += [Finding("failed", "activity", f"{_NOT_NEW} {problem}", "events") for problem, _ in inbox.problems]
    count, earliest = reader.since("dead_letters", "received_at", now - RECENT)
    if count:
        text = f"{_of(count, 'report')} about single mails could not be read in the last seven days"
        problems.append(Finding("old", "unreadable", text, "events#letters", moment(earliest)))
    count, _ = reader.since("event_differences", "stats_date", (now - RECENT).date(), " AND tolerated = FALSE")
    if count:
        verb = "differs" if count == 1 else "differ"
        text = f"{_of(count, 'number')} of the last seven days {verb} from what the email service counts"
        problems.append(Finding("old", "differs", text, "events#differences"))
    return problems


_LOGIN_ENDS = "Airflow has to log in to the email service again"


def _loads(reader: Reader) -> Sequence[Finding]:
    now = datetime.datetime.now(datetime.UTC)
    loads = views.loads(reader)
    accounts = sorted({loaded.account for loaded in loads})

    def shown(account: str) -> str:
        return f" (account {account})" if len(accounts) > 1 else ""

    problems = [
        Finding("failed", "login", f"{_LOGIN_ENDS}{shown(account)}. For your engineers: {warning}", "loads")
        for account in accounts
        if (warning := _tokens.get(account, partial(token_warning, account)))
    ]
    for (title, account), group in groupby(loads, lambda loaded: (loaded.title, loaded.account)):
        parts = list(group)
        old = [part for part in parts if part.old_since]
        if len(old) == len(parts):
            age = _of((now - max(part.at for part in parts)).days, "day")
            problems.append(Finding("old", "old", f"{title} were last updated {age} ago{shown(account)}", "loads"))
        elif old:
            text = f"{title} of {len(old)} of {_of(len(parts), 'list')} were not updated for two days{shown(account)}"
            problems.append(Finding("old", "old", text, "loads", min(part.at for part in old)))
        if missing := [day for part in parts for day in part.missing or ()]:
            text = f"{title}: {_of(len(missing), 'day')} missing{shown(account)}"
            problems.append(Finding("old", "missing", text, "loads#missing-days"))
    return problems


def _of(count: Any, what: str) -> str:
    return f"{int(count):,} {what}{'' if int(count) == 1 else 's'}"


def month(reader: Reader, zone: ZoneInfo) -> Sequence[Measure]:
    """Return the charts of the last thirty days; none without a campaign in them or in those of the year before."""
    parts = campaigns.parts(reader)
    if not parts:
        return []
    today = datetime.datetime.now(zone).date()
    starts = _weeks(today)
    bounds = [*starts, today + datetime.timedelta(days=1)]
    # The weeks of the year before, the time between that is not read, and the weeks of now.
    times = [
        campaigns.start_of_day(reader, day - shift, zone) for shift in (YEAR, datetime.timedelta()) for day in bounds
    ]
    cases = " ".join(f"WHEN sent_at < ? THEN {number}" for number in range(len(times) - 1))
    sums = ", ".join(f"SUM({name}) AS {name}" for name in campaigns.COUNTS)
    is_shown = "{0} >= ? AND {0} < ? OR {0} >= ? AND {0} < ?"
    ends = [times[0], times[len(starts)], times[len(bounds)], times[-1]]
    weekly = " UNION ALL ".join(
        f"SELECT CASE {cases} END AS week, {', '.join(campaigns.COUNTS)} FROM ({part}) AS a "
        f"WHERE sent_count > 0 AND ({is_shown.format('sent_at')})"
        for part in parts
    )
    tables = campaigns.common_tables(reader, among=is_shown.format("send_by_date_time"))
    rows = reader.rows(
        f"{tables} SELECT week, {sums} FROM ({weekly}) AS b GROUP BY week",
        [*(ends if campaigns.has_states(reader) else ()), *[*times[1:], *ends] * len(parts)],
    )
    by_week = {int(row["week"]): Counter({name: int(row[name] or 0) for name in campaigns.COUNTS}) for row in rows}
    before = [by_week.get(number, Counter()) for number in range(len(starts))]
    weeks = [by_week.get(len(bounds) + number, Counter()) for number in range(len(starts))]
    return [_measure(*measure, starts, weeks, before) for measure in MEASURES] if by_week else []


def _weeks(today: datetime.date) -> Sequence[datetime.date]:
    """The first days of the weeks of the last thirty days; the first week begins with the first of these days."""
    first = today - datetime.timedelta(days=DAYS - 1)
    days = [first + datetime.timedelta(days=number) for number in range(DAYS)]
    return [day for day in days if day == first or day.weekday() == 0]


def _measure(
    label: str,
    kind: str,
    value: Callable[[Mapping[str, int]], float | None],
    starts: Sequence[datetime.date],
    weeks: Sequence[Counter[str]],
    before: Sequence[Counter[str]],
) -> Measure:
    total, total_before = (value(sum(counts, Counter())) for counts in (weeks, before))
    by_week = zip(starts, map(value, weeks), map(value, before), strict=True)
    return Measure(label, kind, total, total_before, list(by_week))


def month_table(measures: Sequence[Measure]) -> Grid:
    columns = [Column("Week from", "day")]
    for measure in measures:
        kind: Any = measure.kind
        columns += [Column(measure.label, kind), Column(f"{measure.label}, year before", kind)]
    weeks = zip(*(measure.weeks for measure in measures), strict=True) if measures else ()
    rows = [(week[0][0], *(value for _, *pair in week for value in pair)) for week in weeks]
    return Grid("weeks", "The last thirty days by week", columns, rows)


def growth(counted: lists.Lists) -> Grid:
    """Return the largest lists."""
    largest = sorted(counted.entries, key=lambda entry: (-entry.contacts, entry.name))[:SHOWN_LISTS]
    return lists.lists_table(replace(counted, entries=largest))
