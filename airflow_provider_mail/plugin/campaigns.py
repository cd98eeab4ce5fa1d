"""What the page shows of campaigns."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.plugin.charts import Point
from airflow_provider_mail.plugin.reader import Reader, Row, day, decoded, moment

PAGE_SIZE = 50

SORTS: Mapping[str, str] = {
    "sent_at": "DESC",
    "mail_name": "ASC",
    "sent_count": "DESC",
    "open_rate": "DESC",
    "click_rate": "DESC",
    "bounce_rate": "DESC",
    "unsubscribe_rate": "DESC",
}
"""Columns to sort by, with the direction; a campaign without a value comes last."""

EARLIER, MIN_EARLIER = 20, 3
"""How many earlier campaigns the median is of, at most and at least."""

CURVE_DAYS = 30
"""Days after the sending that the curve of opens shows."""

_STATES = {-1: "draft", 1: "sending", 2: "sent", 4: "failed"}
_COUNTS = ("sent_count", "open_count", "click_count", "hard_bounce", "soft_bounce", "unsent_count", "unsubscribe_count")


@dataclass(frozen=True)
class Found:
    """One page of campaigns.

    :param total: how many there are on all pages.
    :param accounts: the connections of all accounts with a campaign that the text matches.
    :param text: the text that was searched for.
    :param account: the account that was searched; empty for all.
    :param page: the number of the page, from 1.
    """

    rows: Sequence[Row]
    total: int
    accounts: Sequence[str]
    text: str
    account: str
    sort: str
    page: int

    @property
    def pages(self) -> int:
        """The number of pages."""
        return max(1, -(-self.total // PAGE_SIZE))

    def query(self, **changes: object) -> dict[str, object]:
        """Return the query of this page with other values; the defaults are left out."""
        default = {"q": "", "account": "", "sort": "sent_at", "page": 1}
        parameters = {"q": self.text, "account": self.account, "sort": self.sort, "page": self.page, **changes}
        return {name: value for name, value in parameters.items() if value != default[name]}


@dataclass(frozen=True)
class Curve:
    """How the opens of a campaign grew, in percent of the mails that were sent, by days since the sending.

    :param opens: of the campaign.
    :param median: of earlier campaigns of the account, as far as three of them were observed.
    :param earlier: how many earlier campaigns there are.
    """

    opens: Sequence[Point]
    median: Sequence[Point]
    earlier: int


@dataclass(frozen=True)
class Campaign:
    """One campaign.

    :param account: the connection of its account.
    :param guid: its identifier at the service; empty when it is not in the tables.
    :param sent_at: when it was or will be sent.
    :param state: its state in words.
    :param subject: its subject, if it is in the tables.
    :param lists: the lists that it was sent to, if they are in the tables.
    :param counts: the counts by name; ``None`` where the tables have none.
    :param observed_at: when the counts were first observed.
    :param curve: the growth of its opens; ``None`` without snapshots.
    """

    name: str
    account: str
    guid: str
    sent_at: datetime.datetime | None
    state: str
    subject: str
    lists: Sequence[str]
    counts: Mapping[str, int | None]
    observed_at: datetime.datetime | None
    curve: Curve | None


def state(mail_status: Any, sent_at: datetime.datetime | None) -> str:
    """Name the state of a campaign.

    :param mail_status: its status, as the service has it; ``None`` when only its statistics are known.
    :param sent_at: when it was or will be sent.
    """
    if mail_status is None:
        return "sent"
    if mail_status == 1 and sent_at and sent_at > datetime.datetime.now(datetime.UTC):
        return "scheduled"
    return _STATES.get(int(mail_status), f"status {mail_status}")


def search(reader: Reader, *, text: str, account: str, sort: str, page: int) -> Found:
    """Return the campaigns whose name contains a text.

    :param text: the text; upper and lower case are equal.
    :param account: the connection of an account; empty for all.
    :param sort: one of `SORTS`; the default for another value.
    :param page: the number of the page, from 1.
    """
    sort = sort if sort in SORTS else "sent_at"
    source = _source(reader)
    if not source:
        return Found([], 0, [], text, account, sort, page)
    conditions, values = [], []
    if text:
        escaped = "".join(f"!{letter}" if letter in "!%_" else letter for letter in text.lower())
        conditions.append("LOWER(mail_name) LIKE ? ESCAPE '!'")
        values.append(f"%{escaped}%")
    condition = _where(conditions)
    counted = reader.rows(
        f"SELECT mail_conn_id, COUNT(*) AS found FROM ({source}) AS a{condition} GROUP BY mail_conn_id", values
    )
    totals = {str(row["mail_conn_id"]): int(row["found"]) for row in counted}
    if account:
        condition = _where([*conditions, "mail_conn_id = ?"])
        values.append(account)
    order = f"CASE WHEN {sort} IS NULL THEN 1 ELSE 0 END, {sort} {SORTS[sort]}, mail_name, mail_conn_id"
    statement = reader.limited(
        f"SELECT * FROM ({source}) AS a{condition} ORDER BY {order}", PAGE_SIZE, (page - 1) * PAGE_SIZE
    )
    rows = [{**row, "sent_at": moment(row["sent_at"])} for row in reader.rows(statement, values)]
    states = _task_states(reader, [str(row["mail_name"]) for row in rows])
    with_states = [{**row, "state": _state_of(row, states)} for row in rows]
    total = totals.get(account, 0) if account else sum(totals.values())
    return Found(with_states, total, sorted({*totals, *filter(None, [account])}), text, account, sort, page)


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _source(reader: Reader) -> str:
    """The statement for all campaigns: those with statistics, and tasks without."""
    parts, stats = [], ""
    if reader.has("campaign_stats"):
        stats = reader["campaign_stats"].spelled
        parts.append(
            "SELECT mail_conn_id, team, mail_name, mail_send_date AS sent_at, sent_count, open_rate, click_rate, "
            f"bounce_rate, unsubscribe_rate, NULL AS mail_status FROM {stats} WHERE gone_at IS NULL"
        )
    if reader.has("campaigns"):
        rates = (
            ("open_count", "open_rate"),
            ("click_count", "click_rate"),
            ("hard_bounce + soft_bounce", "bounce_rate"),
            ("unsubscribe_count", "unsubscribe_rate"),
        )
        rated = ", ".join(f"100.0 * ({count}) / NULLIF(sent_count, 0) AS {name}" for count, name in rates)
        without = (
            f" AND NOT EXISTS (SELECT 1 FROM {stats} AS s WHERE s.mail_conn_id = c.mail_conn_id "
            "AND s.mail_name = c.mail_name AND s.gone_at IS NULL)"
        )
        parts.append(
            f"SELECT mail_conn_id, team_name AS team, mail_name, send_by_date_time AS sent_at, sent_count, {rated}, "
            f"mail_status FROM {reader['campaigns'].spelled} AS c WHERE gone_at IS NULL{without if stats else ''}"
        )
    return " UNION ALL ".join(parts)


def _task_states(reader: Reader, names: Sequence[str]) -> Mapping[tuple[str, str], Sequence[Row]]:
    """The send tasks with these names, by account and name."""
    if not names or not reader.has("campaigns"):
        return {}
    tasks: dict[tuple[str, str], list[Row]] = {}
    marks = ", ".join("?" for _ in names)
    for row in reader.rows(
        f"SELECT mail_conn_id, mail_name, team_name, mail_status FROM {reader['campaigns'].spelled} "
        f"WHERE gone_at IS NULL AND mail_name IN ({marks})",
        names,
    ):
        tasks.setdefault((str(row["mail_conn_id"]), str(row["mail_name"])), []).append(row)
    return tasks


def _state_of(row: Row, tasks: Mapping[tuple[str, str], Sequence[Row]]) -> str:
    status = row["mail_status"]
    if status is None:
        task = _only(tasks.get((str(row["mail_conn_id"]), str(row["mail_name"])), ()), row["team"])
        status = task["mail_status"] if task else None
    return state(status, row["sent_at"])


def _only(tasks: Sequence[Row], team: Any) -> Row | None:
    """The task that the statistics belong to: names are unique within a team."""
    same = [task for task in tasks if team is None or task["team_name"] == team]
    return same[0] if len(same) == 1 else None


def get(reader: Reader, *, account: str, name: str) -> Campaign | None:
    """Return one campaign; ``None`` when the tables have none.

    :param account: the connection of its account.
    """
    stats: Row | None = None
    if reader.has("campaign_stats"):
        columns = ", ".join(("team", "mail_send_date", "observed_at", *_COUNTS))
        statement = f"SELECT {columns} FROM {reader['campaign_stats'].spelled} WHERE mail_conn_id = ? AND mail_name = ?"
        stats = next(iter(reader.rows(f"{statement} AND gone_at IS NULL", [account, name])), None)
    task: Row | None = None
    if reader.has("campaigns"):
        columns = ", ".join(
            ("guid", "team_name", "subject", "rcpt_list_names", "send_by_date_time", "mail_status", "observed_at")
        )
        tasks = reader.rows(
            f"SELECT {columns}, delivered_count, {', '.join(_COUNTS)} FROM {reader['campaigns'].spelled} "
            "WHERE mail_conn_id = ? AND mail_name = ? AND gone_at IS NULL",
            [account, name],
        )
        task = _only(tasks, stats["team"] if stats else None)
    counted = stats or task
    if counted is None:
        return None
    sent_at = moment(stats["mail_send_date"] if stats else counted["send_by_date_time"])
    return Campaign(
        name=name,
        account=account,
        guid=str(task["guid"]) if task else "",
        sent_at=sent_at,
        state=state(task["mail_status"] if task else None, sent_at),
        subject=str(task["subject"] or "") if task else "",
        lists=_names(task["rcpt_list_names"]) if task else (),
        counts={
            "delivered_count": task["delivered_count"] if task else None,
            **{count: counted[count] for count in _COUNTS},
        },
        observed_at=moment(counted["observed_at"]),
        curve=_curve(reader, account, name, sent_at) if stats and sent_at else None,
    )


def _names(value: Any) -> Sequence[str]:
    return [str(name) for name in decoded(value) or ()]


def _curve(reader: Reader, account: str, name: str, sent_at: datetime.datetime) -> Curve | None:
    if not reader.has("snapshots"):
        return None
    table = reader["campaign_stats"]
    earlier = reader.rows(
        reader.limited(
            f"SELECT mail_name, mail_send_date FROM {table.spelled} WHERE mail_conn_id = ? AND mail_send_date < ? "
            "AND sent_count > 0 AND gone_at IS NULL ORDER BY mail_send_date DESC",
            EARLIER,
        ),
        [account, table.parameter("mail_send_date", sent_at)],
    )
    sent = {str(row["mail_name"]): moment(row["mail_send_date"]) or sent_at for row in earlier} | {name: sent_at}
    rates = _open_rates(reader, account, {mail_name: at.date() for mail_name, at in sent.items()})
    own_rates = rates.pop(name, {})
    if not own_rates:
        return None
    median = _median(list(rates.values()), max(own_rates))
    return Curve(sorted(own_rates.items()), median, len(rates))


def _open_rates(reader: Reader, account: str, sent: Mapping[str, datetime.date]) -> dict[str, dict[float, float]]:
    """The open rate of campaigns by days since the sending."""
    table = reader["snapshots"]
    # Each condition is a range of the table's key, so that a year of snapshots costs no more than these days.
    condition = "(mail_conn_id = ? AND mail_name = ? AND observed_day BETWEEN ? AND ?)"
    values: list[Any] = []
    for name, first in sent.items():
        last = first + datetime.timedelta(days=CURVE_DAYS)
        values += [account, name, table.parameter("observed_day", first), table.parameter("observed_day", last)]
    rates: dict[str, dict[float, float]] = {}
    for row in reader.rows(
        f"SELECT mail_name, observed_day, sent_count, open_count FROM {table.spelled} "
        f"WHERE {' OR '.join(condition for _ in sent)} ORDER BY mail_name, observed_day",
        values,
    ):
        if row["sent_count"]:
            name = str(row["mail_name"])
            age = (day(row["observed_day"]) - sent[name]).days
            rates.setdefault(name, {})[float(age)] = 100.0 * row["open_count"] / row["sent_count"]
    return rates


def _median(curves: Sequence[Mapping[float, float]], last: float) -> Sequence[Point]:
    """The median by day, of the curves that reach the day; between two observations, the earlier one counts.

    Where enough curves reach the last day, the others are left out: a curve that ends would bend the median.
    """
    whole = [curve for curve in curves if max(curve) >= last]
    curves = whole if len(whole) >= MIN_EARLIER else curves
    points = []
    for age in map(float, range(int(last) + 1)):
        values = []
        for curve in curves:
            if min(curve) <= age <= max(curve):
                latest = max(observed_age for observed_age in curve if observed_age <= age)
                values.append(curve[latest])
        if len(values) >= MIN_EARLIER:
            points.append((age, statistics.median(values)))
    return points
