"""What the page shows of one campaign, and of several side by side."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from airflow_provider_mail.plugin.reader import Reader, Row
from airflow_provider_mail.plugin.render import Cell, Column, Grid, address, day, rate
from airflow_provider_mail.warehouse.rows import decoded, moment

EARLIER, MIN_EARLIER = 20, 3
"""How many earlier campaigns the median is of, at most and at least."""

CURVE_DAYS = 30
"""Days after the sending that the curve of opens shows."""

COMPARED = 6
"""Maximum number of campaigns side by side."""

Point: TypeAlias = tuple[float, float]

Identity: TypeAlias = tuple[str, str, str]
"""The connection of the account, the team or an empty text, and the name: names are unique within a team."""

_STATES = {-1: "draft", 1: "sending", 2: "sent", 4: "failed"}
PARTS = (
    ("Sent", "sent_count"),
    ("Delivered", "delivered_count"),
    ("Opened", "open_count"),
    ("Clicked", "click_count"),
    ("Unsubscribed", "unsubscribe_count"),
    ("Bounced, hard", "hard_bounce"),
    ("Bounced, soft", "soft_bounce"),
    ("Not sent", "unsent_count"),
)
"""What can happen to the mails of a campaign, with the count of each."""
_COUNTS = [count for _, count in PARTS]


@dataclass(frozen=True)
class Curve:
    """How the opens of a campaign grew, in percent of the mails that were sent, by days since the sending.

    :param median: of earlier campaigns of the account, as far as three of them were observed.
    """

    opens: Sequence[Point]
    median: Sequence[Point]
    earlier: int


@dataclass(frozen=True)
class Campaign:
    """One campaign.

    :param team: its team; empty when neither the connection nor the service names one.
    :param guid: its identifier at the service; empty when it is not in the tables.
    :param curve: the growth of its opens; ``None`` without snapshots.
    """

    name: str
    account: str
    team: str
    guid: str
    sent_at: datetime.datetime | None
    state: str
    subject: str
    lists: Sequence[str]
    counts: Mapping[str, int | None]
    observed_at: datetime.datetime | None
    curve: Curve | None

    @property
    def identity(self) -> Identity:
        return self.account, self.team, self.name

    @property
    def title(self) -> str:
        """What it is called: its subject, and without one its name."""
        return self.subject or self.name

    @property
    def label(self) -> str:
        return labeled(self.subject, self.name)


def labeled(subject: str, name: str) -> str:
    """Return what a campaign is called where its name has no place of its own."""
    return f"{subject} ({name})" if subject else name


def subject_of(task: Row | None) -> str:
    return str(task["subject"] or "").strip() if task else ""


def subjects(reader: Reader, names: Collection[str]) -> Mapping[tuple[str, str], str]:
    """Return the subjects of campaigns by account and name, of those that only one campaign has."""
    if not names or not reader.has("campaigns"):
        return {}
    rows = reader.rows(
        "SELECT mail_conn_id, mail_name, MIN(subject) AS subject, COUNT(*) AS total "
        f"FROM {reader['campaigns'].spelled} WHERE gone_at IS NULL AND mail_name IN ({', '.join('?' * len(names))}) "
        "GROUP BY mail_conn_id, mail_name",
        [*names],
    )
    return {(row["mail_conn_id"], row["mail_name"]): subject_of(row) for row in rows if row["total"] == 1}


def campaign_state(mail_status: Any, sent_at: datetime.datetime | None) -> str:
    """Name the state of a campaign, whose status is ``None`` when only its statistics are known."""
    if mail_status is None:
        return "sent"
    if mail_status == 1 and sent_at and sent_at > datetime.datetime.now(datetime.UTC):
        return "scheduled"
    return _STATES.get(int(mail_status), f"status {mail_status}")


def choice_of(account: str, team: str, name: str) -> str:
    """Return an identity as one text, for a box to choose it."""
    return "/".join(quote(part, safe="") for part in (account, team, name))


def chosen(choices: Sequence[str]) -> Sequence[Identity]:
    """Return the identities of some choices, without those that are none."""
    parts = [[unquote(part) for part in choice.split("/")] for choice in dict.fromkeys(choices)]
    return [(part[0], part[1], part[2]) for part in parts if len(part) == 3 and "\0" not in "".join(part)]


def task_columns() -> str:
    """Return what `own_task` needs of a send task, and what is shown of it."""
    return "guid AS task_guid, team_name AS task_team, mail_status AS task_status, subject, rcpt_list_names"


def own_task(tasks: Sequence[Row], team: str, guid: str = "") -> Row | None:
    """Return the send task of a campaign, of those with its account and name; ``None`` if that is not known.

    :param team: of its statistics; empty, it may be of any team.
    :param guid: of a campaign without statistics.
    """
    if guid:
        return next((task for task in tasks if str(task["task_guid"]) == guid), None)
    same = [task for task in tasks if str(task["task_team"]) == team] or ([] if team else tasks)
    same = [task for task in same if task["task_status"] == 2] or same  # who has statistics was sent
    return same[0] if len(same) == 1 else None


def get(reader: Reader, identity: Identity, guid: str = "") -> Campaign | None:
    """Return one campaign with its curve; ``None`` when the tables have none.

    :param guid: of one without statistics, which has a name like another one.
    """
    campaign = _find(reader, identity, guid)
    return replace(campaign, curve=_curve(reader, campaign)) if campaign else None


def _find(reader: Reader, identity: Identity, guid: str = "") -> Campaign | None:
    account, team, name = identity
    stats: Sequence[Row] = ()
    if reader.has("campaign_stats") and not guid:
        condition = "mail_conn_id = ? AND team_name = ? AND mail_name = ? AND gone_at IS NULL"
        stats = reader.rows(f"SELECT * FROM {reader['campaign_stats'].spelled} WHERE {condition}", identity)
    tasks: Sequence[Row] = ()
    if reader.has("campaigns"):
        tasks = reader.rows(
            f"SELECT {task_columns()}, send_by_date_time, observed_at, {', '.join(_COUNTS)} "
            f"FROM {reader['campaigns'].spelled} WHERE mail_conn_id = ? AND mail_name = ? AND gone_at IS NULL",
            [account, name],
        )
    if not stats and not guid:  # it is that of its team
        tasks = [task for task in tasks if task["task_team"] == team]
    task = own_task(tasks, team, guid)
    if not stats and not task:
        return None
    found = {**(task or {}), **(stats[0] if stats else {})}
    sent_at = moment(found["mail_send_date"] if stats else found["send_by_date_time"])
    return Campaign(
        name=name,
        account=account,
        team=team,
        guid=str(task["task_guid"]) if task else "",
        sent_at=sent_at,
        state=campaign_state(task["task_status"] if task else None, sent_at),
        subject=subject_of(task),
        lists=list_names(task["rcpt_list_names"]) if task else (),
        counts={count: found.get(count) for count in _COUNTS},
        observed_at=moment(found["observed_at"]),
        curve=None,
    )


def list_names(value: Any) -> Sequence[str]:
    return [str(name) for name in decoded(value) or ()]


def _curve(reader: Reader, campaign: Campaign) -> Curve | None:
    if not campaign.sent_at or not reader.has("campaign_stats") or not reader.has("snapshots"):
        return None
    table = reader["campaign_stats"]
    earlier = reader.rows(
        f"SELECT mail_name, mail_send_date FROM {table.spelled} WHERE mail_conn_id = ? AND team_name = ? "
        "AND mail_send_date < ? AND sent_count > 0 AND gone_at IS NULL ORDER BY mail_send_date DESC",
        [campaign.account, campaign.team, table.parameter("mail_send_date", campaign.sent_at)],
        limit=EARLIER,
    )
    sent = {
        (campaign.account, campaign.team, str(row["mail_name"])): moment(row["mail_send_date"]) or campaign.sent_at
        for row in earlier
    }
    rates = _open_rates(reader, {**sent, campaign.identity: campaign.sent_at})
    own_rates = rates.pop(campaign.identity, {})
    if not own_rates:
        return None
    median = _median(list(rates.values()), max(own_rates))
    return Curve(sorted(own_rates.items()), median, len(rates))


def compare(reader: Reader, chosen: Sequence[Identity]) -> Sequence[Campaign]:
    """Return campaigns with the curves of their opens; those that the tables do not have are left out."""
    campaigns = [campaign for identity in chosen if (campaign := _find(reader, identity))]
    sent = {campaign.identity: campaign.sent_at for campaign in campaigns if campaign.sent_at}
    rates = _open_rates(reader, sent) if sent and reader.has("snapshots") else {}
    curves = {identity: Curve(sorted(of_one.items()), [], 0) for identity, of_one in rates.items()}
    return [replace(campaign, curve=curves.get(campaign.identity)) for campaign in campaigns]


def _open_rates(reader: Reader, sent: Mapping[Identity, datetime.datetime]) -> dict[Identity, dict[float, float]]:
    table = reader["snapshots"]
    # Each condition is a range of the table's key, so that a year of snapshots costs no more than these days.
    condition = "(mail_conn_id = ? AND team_name = ? AND mail_name = ? AND observed_day BETWEEN ? AND ?)"
    values: list[Any] = []
    for identity, sent_at in sent.items():
        first = sent_at.date()
        last = datetime.date.fromordinal(min(first.toordinal() + CURVE_DAYS, datetime.date.max.toordinal()))
        values += [*identity, table.parameter("observed_day", first), table.parameter("observed_day", last)]
    rates: dict[Identity, dict[float, float]] = {}
    for row in reader.rows(
        f"SELECT mail_conn_id, team_name, mail_name, observed_day, sent_count, open_count FROM {table.spelled} "
        f"WHERE {' OR '.join(condition for _ in sent)} ORDER BY mail_conn_id, team_name, mail_name, observed_day",
        values,
    ):
        if row["sent_count"]:
            of_row: Identity = str(row["mail_conn_id"]), str(row["team_name"]), str(row["mail_name"])
            age = (day(row["observed_day"]) - sent[of_row].date()).days
            rates.setdefault(of_row, {})[float(age)] = 100.0 * row["open_count"] / row["sent_count"]
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


def counts_table(campaign: Campaign) -> Grid:
    counts, sent = campaign.counts, campaign.counts["sent_count"]
    rows: list[Sequence[Any]] = [
        (label, counts[name], rate(counts[name], sent)) for label, name in PARTS if counts[name] is not None
    ]
    columns = [Column("Result"), Column("Mails", "number"), Column("Share of sent", "percent")]
    return Grid("counts", "What happened to its mails", columns, rows)


def comparison(campaigns: Sequence[Campaign]) -> Grid:
    rates = [(label, name) for label, name in PARTS if name != "sent_count"]
    columns = [Column("Campaign"), Column("Name", is_below=True), Column("Date", "time"), Column("Sent", "number")]
    columns += [Column(label, "percent") for label, _ in rates] + [Column("Click to open", "percent")]
    return Grid("comparison", "Campaigns side by side", columns, [_compared(campaign, rates) for campaign in campaigns])


def _compared(campaign: Campaign, rates: Sequence[tuple[str, str]]) -> Sequence[Any]:
    counts, sent = campaign.counts, campaign.counts["sent_count"]
    link = address("campaign", account=campaign.account, team=campaign.team, name=campaign.name)
    return (
        Cell(campaign.title, href=link, note=campaign.team),
        campaign.name if campaign.subject else "",
        campaign.sent_at,
        sent,
        *(rate(counts[name], sent) for _, name in rates),
        rate(counts["click_count"], counts["open_count"]),
    )


def curves_table(lines: Sequence[tuple[str, str, Sequence[Point]]]) -> Grid:
    """Return the points of the lines of a chart, a day in a row.

    :param lines: of each its class in the style sheet, its name and its points.
    """
    points = [dict(line) for _, _, line in lines]
    ages = sorted({age for line in points for age in line})
    columns = [Column("Days since the sending", "number"), *(Column(name, "percent") for _, name, _ in lines)]
    rows = [(int(age), *(line.get(age) for line in points)) for age in ages]
    return Grid("opens", "Opens by days since the sending", columns, rows)
