"""The page that opens first: what is going on, what needs attention, the last thirty days, and how lists grow."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from airflow_provider_mail.plugin import campaigns, views
from airflow_provider_mail.plugin.access import Wait, token_warning
from airflow_provider_mail.plugin.campaign import campaign_state, list_names
from airflow_provider_mail.plugin.reader import Reader, Row, kept_for
from airflow_provider_mail.plugin.render import Cell, Column, Grid, Kind, address, plural, rate
from airflow_provider_mail.warehouse.rows import moment
from airflow_provider_mail.warehouse.time_limit import read_within

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


def counted_lists(reader: Reader) -> Sequence[views.ContactList] | None:
    """Return all lists; ``None`` without lists, or when counting takes too long for this page."""
    if not reader.has("contacts"):
        return None
    try:
        return read_within(partial(views.contact_lists, reader), GROWTH_SECONDS)[0]
    except TimeoutError:
        return None


def largest(entries: Sequence[views.ContactList]) -> Grid:
    return views.lists_table(sorted(entries, key=lambda entry: (-entry.contacts, entry.name))[:SHOWN_LISTS])


_CURRENT = (
    Column("Campaign"),
    Column("Name", is_below=True),
    Column("Lists", is_below=True),
    Column("State"),
    Column("Time of sending", "time"),
    Column("Recipients, at most", "number"),
)


def current(reader: Reader, counted: Sequence[views.ContactList] | None) -> tuple[Grid, int]:
    """Return what goes out next, with the number of people whom it reaches at most, and how many campaigns these are.

    :param counted: the lists; without them the number of people is that of the last import of the audience, if any.
    """
    if not reader.has("campaigns"):
        return Grid("current", "Campaigns that go out next", _CURRENT, []), 0
    matching = f"FROM {reader['campaigns'].spelled} WHERE mail_status = 1 AND gone_at IS NULL"
    (total,) = reader.rows(f"SELECT COUNT(*) AS total {matching}")
    statement = (
        f"SELECT mail_conn_id, team_name, mail_name, guid, subject, rcpt_list_names, send_by_date_time {matching} "
        "ORDER BY send_by_date_time, mail_name, mail_conn_id, guid"
    )
    shown = partial(_current, sizes=_sizes(reader, counted or ()))
    rows = [shown(row) for row in reader.rows(statement, limit=SHOWN_CAMPAIGNS)]

    def all_rows() -> Iterator[Sequence[Any]]:
        return map(shown, chain.from_iterable(reader.batches(statement)))

    return Grid("current", "Campaigns that go out next", _CURRENT, rows, all_rows=all_rows), int(total["total"])


def _sizes(reader: Reader, counted: Sequence[views.ContactList]) -> Mapping[tuple[str, str], int]:
    """The number of people by account and list; the larger one where two teams have a list of that name."""
    sizes: dict[tuple[str, str], int] = {}
    if reader.has("audience_runs"):
        for run in reversed(views.audience_sizes(reader)):
            if run["send_list_name"]:
                sizes[run["mail_conn_id"], run["send_list_name"]] = int(run["size"] or 0)
    for entry in counted:
        key = entry.account, entry.name
        sizes[key] = max(sizes.get(key, 0), entry.contacts)
    return sizes


def _current(row: Row, sizes: Mapping[tuple[str, str], int]) -> Sequence[Any]:
    at, names = moment(row["send_by_date_time"]), list_names(row["rcpt_list_names"])
    state = campaign_state(1, at)
    people = [sizes.get((row["mail_conn_id"], name)) for name in names]
    known = [count for count in people if count is not None]
    title, name = campaigns.titles(row, row)
    reached = sum(known) if known and len(known) == len(people) else None
    return campaigns.titled(row, title), name, ", ".join(names), Cell(state, state=state), at, reached


class Finding(NamedTuple):
    """Something that needs attention.

    :param state: the class of its label: what failed, or what is late.
    """

    state: str
    label: str
    text: str
    href: str
    since: datetime.datetime | None = None


_STOPPED = "{n} import{s} of an audience stopped: more people would have changed than is allowed"
_UNREADABLE = "{n} report{s} about single mails could not be read in the last seven days"
_DIFFERS = "{n} number{s} of the last seven days differ{v} from what the email service counts"
_NOT_NEW = "The activity of single mails is not up to date. For your engineers:"
_LOGIN_ENDS = "Airflow has to log in to the email service again"


def findings(reader: Reader, waits: Sequence[Wait]) -> Sequence[Finding]:
    """Return what needs attention, what failed first; of tasks that wait, those of DAGs that the user may read."""
    now = datetime.datetime.now(datetime.UTC)
    problems = chain(_late(waits), _recent(reader, now), _rejected(reader, now), _inbox(), _loads(reader, now))
    return sorted(problems, key=lambda finding: finding.state != "failed")


def _late(waits: Sequence[Wait]) -> Iterator[Finding]:
    if late := [wait.deadline for wait in waits if wait.deadline and wait.is_late]:
        text = plural("{n} step{s} wait{v} longer than allowed", len(late))
        yield Finding("failed", "late", text, "waits", min(late))


def _recent(reader: Reader, now: datetime.datetime) -> Iterator[Finding]:
    """Yield what rows need attention for some time."""
    month, week = now - datetime.timedelta(days=DAYS), now - RECENT
    failed = address("campaigns", state="failed", **{"from": month.date()})
    for what, column, first, condition, state, label, text, href in (
        ("campaigns", "send_by_date_time", month, "mail_status = 4 AND gone_at IS NULL",
         "failed", "failed", "{n} campaign{s} failed", failed),
        ("imports", "finished_at", week, "state = 'failed' AND sandbox = FALSE",
         "failed", "failed", "{n} import{s} failed in the last seven days", "imports"),
        ("audience_runs", "finished_at", week, "state = 'stopped'",
         "failed", "stopped", _STOPPED, "audiences#audience-runs"),
        ("dead_letters", "received_at", week, "1 = 1", "old", "unreadable", _UNREADABLE, "events#letters"),
        ("event_differences", "stats_date", week.date(), "tolerated = FALSE",
         "old", "differs", _DIFFERS, "events#differences"),
    ):  # fmt: skip
        row = reader.since(what, column, first, condition, f"COUNT(*) AS total, MIN({column}) AS earliest")
        if row["total"]:
            since = moment(row["earliest"]) if isinstance(first, datetime.datetime) else None
            yield Finding(state, label, plural(text, row["total"]), href, since)


def _rejected(reader: Reader, now: datetime.datetime) -> Iterator[Finding]:
    """Yield how many people were rejected; a check in sandbox mode does not count."""
    condition, sums = "rows_rejected > 0 AND sandbox = FALSE", "COUNT(*) AS total, SUM(rows_rejected) AS people"
    row = reader.since("imports", "finished_at", now - RECENT, condition, sums)
    if row["total"]:
        people = "1 person was" if row["people"] == 1 else f"{row['people']:,} people were"
        text = f"{people} rejected in the last seven days, in {plural('{n} import{s}', row['total'])}"
        yield Finding("old", "rejected", text, "imports")


def _inbox() -> Iterator[Finding]:
    inbox = views.inbox()
    for problem in [inbox] if isinstance(inbox, str) else [problem for problem, _ in inbox.problems] if inbox else ():
        yield Finding("failed", "activity", f"{_NOT_NEW} {problem}", "events")


@kept_for(60)
def _token_warning(account: str) -> str:
    """Return what is wrong with the token of a connection, which a secrets backend may take long to return."""
    return token_warning(account)


def _loads(reader: Reader, now: datetime.datetime) -> Iterator[Finding]:
    loads = views.loads(reader)
    accounts = sorted({loaded.account for loaded in loads})
    shown = {account: f" (account {account})" if len(accounts) > 1 else "" for account in accounts}
    for account in accounts:
        if warning := _token_warning(account):
            text = f"{_LOGIN_ENDS}{shown[account]}. For your engineers: {warning}"
            yield Finding("failed", "login", text, "loads")
    for (title, account), group in groupby(loads, lambda loaded: (loaded.title, loaded.account)):
        parts = list(group)
        old = [part for part in parts if part.old_since]
        if len(old) == len(parts):
            age = plural("{n} day{s}", (now - max(part.at for part in parts)).days)
            yield Finding("old", "old", f"{title} were last updated {age} ago{shown[account]}", "loads")
        elif old:
            of_lists = f"{title} of {len(old)} of {plural('{n} list{s}', len(parts))}"
            text = f"{of_lists} were not updated for two days{shown[account]}"
            yield Finding("old", "old", text, "loads", min(part.at for part in old))
        if missing := sum(len(part.missing or ()) for part in parts):
            text = f"{title}: {plural('{n} day{s}', missing)} missing{shown[account]}"
            yield Finding("old", "missing", text, "loads#missing-days")


_RATES = [(label, count, whole) for name, label, count, whole in campaigns.RATES if name != "click_rate"]


@dataclass(frozen=True)
class Measure:
    """One chart.

    :param weeks: by the first day of each week, its value and that of the year before.
    """

    label: str
    kind: Kind
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
    is_shown = "{0} >= ? AND {0} < ? OR {0} >= ? AND {0} < ?"
    ends = [times[0], times[len(starts)], times[len(bounds)], times[-1]]
    weekly = " UNION ALL ".join(
        f"SELECT CASE {cases} END AS week, {', '.join(campaigns.COUNTS)} FROM ({part}) AS a "
        f"WHERE sent_count > 0 AND ({is_shown.format('sent_at')})"
        for part in parts
    )
    tables = campaigns.common_tables(reader, among=is_shown.format("send_by_date_time"))
    rows = reader.rows(
        f"{tables} SELECT week, {', '.join(f'SUM({name}) AS {name}' for name in campaigns.COUNTS)} "
        f"FROM ({weekly}) AS b GROUP BY week",
        [*(ends if campaigns.has_states(reader) else ()), *[*times[1:], *ends] * len(parts)],
    )
    if not rows:
        return []
    sums = {int(row["week"]): Counter({name: int(row[name] or 0) for name in campaigns.COUNTS}) for row in rows}
    then, now = ([sums.get(first + n, Counter()) for n in range(len(starts))] for first in (0, len(bounds)))
    # Of each measure: its value, that of the year before, and both by week.
    totals = zip(*(_values(sum(weeks, Counter())) for weeks in (now, then)), strict=True)
    by_week = zip(*(zip(*map(_values, weeks), strict=True) for weeks in (now, then)), strict=True)
    kinds: list[tuple[str, Kind]] = [("Sent", "number"), *((label, "percent") for label, _, _ in _RATES)]
    return [
        Measure(label, kind, value, before, list(zip(starts, *weeks, strict=True)))
        for (label, kind), (value, before), weeks in zip(kinds, totals, by_week, strict=True)
    ]


def _values(sums: Mapping[str, int]) -> Sequence[float | None]:
    return [sums["sent_count"], *(rate(sums[count], sums[whole]) for _, count, whole in _RATES)]


def _weeks(today: datetime.date) -> Sequence[datetime.date]:
    """The first days of the weeks of the last thirty days; the first week begins with the first of these days."""
    first = today - datetime.timedelta(days=DAYS - 1)
    days = [first + datetime.timedelta(days=number) for number in range(DAYS)]
    return [day for day in days if day == first or day.weekday() == 0]


def month_table(measures: Sequence[Measure]) -> Grid:
    columns = [Column("Week from", "day")]
    for measure in measures:
        columns += [Column(measure.label, measure.kind), Column(f"{measure.label}, year before", measure.kind)]
    weeks = zip(*(measure.weeks for measure in measures), strict=True) if measures else ()
    rows = [(week[0][0], *(value for _, *pair in week for value in pair)) for week in weeks]
    return Grid("weeks", "The last thirty days by week", columns, rows)
