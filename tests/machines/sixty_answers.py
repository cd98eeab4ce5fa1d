"""The questions of `docs/questions.md`, answered by hand: in Python, from what the loader of `sixty_days` keeps.

No SQL is shared with the questions. Rates are exact fractions.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from tests.machines.sixty_days import COUNTS, World
from tests.support.env import ROOT
from tests.warehouse.test_questions import shown

Rows = Iterable[tuple[Any, ...]]


class Counted(NamedTuple):
    """The counts of one campaign."""

    conn: str
    team: str
    name: str
    sent_at: str
    sent: int
    opens: int
    clicks: int
    hard: int
    soft: int
    unsubscribed: int
    day: str = ""

    @property
    def bounces(self) -> int:
        return self.hard + self.soft

    @property
    def time(self) -> datetime.datetime:
        return datetime.datetime.fromisoformat(self.sent_at)


def rate(part: float, whole: float, times: int = 100) -> Fraction | None:
    return Fraction(times * part, whole) if whole else None  # type: ignore[arg-type]


class Answers:
    """The rows of each question."""

    def __init__(self, world: World) -> None:
        self._events = [(account.conn_id, event) for account in world.accounts for event in account.events]
        self._rows = world.loader.rows
        columns = f"conn, team, name, sent_at, {', '.join(COUNTS)}"
        self._living = [Counted(*row) for row in self._rows(f"SELECT {columns} FROM stats WHERE gone IS NULL")]
        found = self._rows(f"SELECT {columns}, day FROM snapshots")
        self._curves: dict[tuple[str, str, str, str], list[Counted]] = defaultdict(list)
        for row in sorted(Counted(*row) for row in found):
            self._curves[row[:4]].append(row)
        for curve in self._curves.values():
            curve.sort(key=lambda row: row.day)

    def open_curves(self) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
        """By connection and name."""
        curves = defaultdict(list)
        for (conn, team, name, sent_at), curve in self._curves.items():
            most = max(row.opens for row in curve)
            for before, row in zip([None, *curve], curve, strict=False):
                new = row.opens - before.opens if before else None
                rates = rate(row.opens, row.sent), rate(row.opens, most)
                curves[conn, name].append((team, sent_at, row.day, row.sent, row.opens, new, *rates))
        return curves

    def still_moving(self) -> Rows:
        living = {row[:4] for row in self._living}
        for key, curve in self._curves.items():
            if key in living and len(curve) > 1:
                old, new = curve[-2:]
                growth = (new.opens - old.opens, new.clicks - old.clicks, new.bounces - old.bounces,
                          new.unsubscribed - old.unsubscribed)  # fmt: skip
                if any(growth):
                    yield (*key, old.day, new.day, *growth)

    def worse_than_usual(self) -> Rows:
        accounts = defaultdict(list)
        for row in sorted((row for row in self._living if row.sent), key=lambda row: (row.sent_at, row.name)):
            accounts[row.conn, row.team].append(row)
        for (conn, team), sends in accounts.items():
            for place, row in enumerate(sends):
                before = sends[max(0, place - 10) : place]
                sent = sum(one.sent for one in before)
                yield (conn, team, row.sent_at, row.name, row.sent, rate(row.bounces, row.sent),
                       rate(sum(one.bounces for one in before), sent), rate(row.unsubscribed, row.sent),
                       rate(sum(one.unsubscribed for one in before), sent))  # fmt: skip

    def open_rate_by_week(self) -> Rows:
        weeks = defaultdict(list)
        for row in self._living:
            weeks[row.conn, row.time.date() - datetime.timedelta(days=row.time.weekday())].append(row)
        for key, rows in weeks.items():
            sent, opens = sum(row.sent for row in rows), sum(row.opens for row in rows)
            delivered = sum(max(row.sent - row.bounces, 0) for row in rows)
            yield (*key, len(rows), sent, rate(opens, sent), rate(opens, delivered))

    def send_time(self) -> Rows:
        hours = defaultdict(list)
        for row in self._living:
            hours[row.conn, row.time.isoweekday(), row.time.hour].append(row)
        return self._rates(hours)

    def subject_lines(self) -> Rows:
        named = defaultdict(list)
        for conn, team, name, subject, kind in self._rows(
            "SELECT conn, team, name, subject, kind FROM campaigns WHERE gone IS NULL"
        ):
            named[conn, name].append((team, subject, kind))
        subjects = defaultdict(list)
        for row in self._living:
            matching = [one for one in named[row.conn, row.name] if row.team in ("", one[0])]
            if len(matching) == 1 and matching[0][2] != "ABTest":
                subjects[row.conn, matching[0][1]].append(row)
        return self._rates(subjects)

    def _rates(self, groups: dict[Any, list[Counted]]) -> Rows:
        for key, rows in groups.items():
            if (sent := sum(row.sent for row in rows)) >= 1000:
                opens, clicks = sum(row.opens for row in rows), sum(row.clicks for row in rows)
                yield (*key, len(rows), sent, rate(opens, sent), rate(clicks, sent))

    def _lists(self) -> dict[tuple[str, str, str], dict[str, str]]:
        lists: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
        for conn, team, name, identifier, created in self._rows("SELECT conn, team, list, id, created FROM people"):
            lists[conn, team, name][identifier] = created
        return lists

    def list_overlap(self) -> Rows:
        lists = self._lists()
        for (conn, team, one), ids in lists.items():
            for (other_conn, other_team, other), other_ids in lists.items():
                both = len(ids.keys() & other_ids.keys())
                if (conn, team) == (other_conn, other_team) and one < other and both:
                    yield conn, team, one, other, both, rate(both, len(ids)), rate(both, len(other_ids))

    def list_growth(self) -> Rows:
        for key, ids in self._lists().items():
            total = 0
            for month, count in sorted(Counter(created[:7] for created in ids.values()).items()):
                total += count
                yield (*key, month, count, total)

    def list_churn(self) -> Rows:
        known = set()
        for conn, team, list_id, name, at, contacts, joined, departed in self._rows(
            "SELECT * FROM readings ORDER BY at"
        ):
            if (conn, team, list_id) in known:
                state = "list" if contacts else "ended or empty"
                churn = rate(departed, contacts - joined + departed)
                yield conn, team, list_id, name, at, contacts, joined, departed, churn, state
            known.add((conn, team, list_id))

    def transactional_days(self) -> Rows:
        accounts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for conn, team, day, sent in self._rows("SELECT conn, team, day, sent FROM mails"):
            accounts[conn, team][day] = sent
        for key, days in accounts.items():
            day, first = (datetime.date.fromisoformat(pick(days)) for pick in (max, min))
            for _ in range(90):
                sent = days.get(f"{day}")
                if sent is None:
                    yield (*key, day, "missing", None, None, None, None)
                else:
                    yield (*key, day, "sent" if sent else "none sent", sent, 0, 0, rate(0, sent))
                if day == first:
                    break
                day -= datetime.timedelta(days=1)

    def spam_reports(self) -> Rows:
        codes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for conn, event in self._events:
            if event["guid"]:
                codes[conn, event["guid"]][event["event_code"]] += 1
        for (conn, guid), count in codes.items():
            if (delivered := count["Delivered"]) >= 100:
                spam, left = count["SpamReport"], count["Unsubscribed"]
                rates = rate(spam, delivered, 1000), rate(left, delivered, 1000)
                yield conn, f"of {guid}", delivered, spam, left, *rates

    def suppressed(self) -> Rows:
        people = defaultdict(list)
        for conn, event in self._events:
            people[conn, event["email"].lower()].append(event)
        reasons: Counter[tuple[str, str]] = Counter()
        for (conn, _), events in people.items():
            codes = {event["event_code"] for event in events}
            delivered = max(
                (event["triggered_time"] for event in events if event["event_code"] == "Delivered"), default=None
            )
            bounced = {
                event["unique_msg_id"]
                for event in events
                if event["event_code"] == "Bounced" and (delivered is None or event["triggered_time"] > delivered)
            }
            for code, reason in (
                ("SpamReport", "spam report"),
                ("Unsubscribed", "unsubscribed"),
                ("Dropped", "dropped"),
            ):
                if code in codes:
                    reasons[conn, reason] += 1
                    break
            else:
                reasons[conn, "bounced"] += len(bounced) >= 3
        return [(*key, count) for key, count in reasons.items() if count]

    def campaign_days(self) -> Rows:
        """The growth of each campaign by day; dbt alone has it."""
        for key, curve in self._curves.items():
            for before, row in zip([None, *curve], curve, strict=False):
                counts = row.sent, row.opens, row.clicks, row.bounces, row.unsubscribed
                old = (before.sent, before.opens, before.clicks, before.bounces, before.unsubscribed) if before else ()
                growth = (new - past for new, past in zip(counts, old or (0,) * 5, strict=True))
                yield (*key, row.day, before and before.day, *counts, *growth)

    def campaign_results(self) -> Rows:
        """The latest counts of each campaign; dbt alone has them."""
        for *values, gone in self._rows(f"SELECT conn, team, name, sent_at, {', '.join(COUNTS)}, gone FROM stats"):
            row = Counted(*values)
            rates = [rate(part, row.sent) for part in (row.opens, row.clicks, row.bounces, row.unsubscribed)]
            yield (*row[:4], row.sent, max(row.sent - row.bounces, 0), row.opens, row.clicks, row.bounces,
                   row.unsubscribed, *rates, gone is not None)  # fmt: skip

    def event_days(self) -> Rows:
        """The events of each day, code and campaign; dbt alone has them."""
        days = defaultdict(list)
        for conn, event in self._events:
            days[conn, event["triggered_time"].date(), event["event_code"], event["guid"] or ""].append(event)
        for key, events in days.items():
            yield (*key, len(events), len({event["unique_msg_id"] for event in events}))

    def freshness(self) -> Rows:
        return self._rows("SELECT name, conn, team, list, at FROM asked")


def differences(found: Rows, expected: Rows) -> list[tuple[Any, Any]]:
    """Rows that differ; times within two minutes and rates within a hundredth are equal."""

    def cell(value: Any) -> Any:
        text = shown(value)
        if value is not None and "-" in text[1:] and ":" in text:
            return datetime.datetime.fromisoformat(text)
        return value if isinstance(value, Fraction) else text

    def is_same(one: Any, other: Any) -> bool:
        if isinstance(other, Fraction):
            return one != "-" and abs(Fraction(one) - other) <= Fraction("0.005")
        if isinstance(other, datetime.datetime):
            return isinstance(one, datetime.datetime) and abs(one - other) < datetime.timedelta(minutes=2)
        return bool(one == other)

    exact = [[cell(value) for value in row] for row in expected]
    rates = {place for row in exact for place, value in enumerate(row) if isinstance(value, Fraction)}
    pairs = [
        sorted(rows, key=lambda row: (
            [f"{value}" for place, value in enumerate(row)
             if place not in rates and not isinstance(value, datetime.datetime)],
            [value for value in row if isinstance(value, datetime.datetime)],
        ))
        for rows in ([[cell(value) for value in row] for row in found], exact)
    ]  # fmt: skip
    if len(pairs[0]) != len(pairs[1]):
        return [(len(pairs[0]), len(pairs[1])), *(pairs[0][:3], pairs[1][:3])]
    return [
        (one, other)
        for one, other in zip(*pairs, strict=True)
        if len(one) != len(other) or not all(map(is_same, one, other))
    ]


def check(world: World, ask: Callable[[str, str], Rows], kind: str, *, curves: bool = True) -> int:
    """Compare the answers to all questions; return the number of rows.

    :param ask: gets the name of a question and its statement, and returns its rows.
    :param kind: the database, as the files of questions call it.
    :param curves: whether to ask for the curve of each campaign.
    """
    answers, count = Answers(world), 0
    by_hand: dict[str, list[tuple[Any, ...]]] = {
        name: list(getattr(answers, name)())
        for name in ("still_moving", "worse_than_usual", "open_rate_by_week", "send_time", "subject_lines",
                     "list_overlap", "list_growth", "list_churn", "transactional_days", "spam_reports", "suppressed",
                     "freshness")
    }  # fmt: skip
    folder = ROOT / "docs" / "sql"
    assert {path.name.split(".")[0] for path in folder.iterdir()} == {*by_hand, "open_curve"}

    def statement(question: str) -> str:
        own = folder / f"{question}.{kind}.sql"
        return (own if own.exists() else folder / f"{question}.sql").read_text()

    for question, expected in by_hand.items():
        assert expected, question
        found = list(ask(question, statement(question)))
        assert not (wrong := differences(found, expected)), (question, wrong[:5])
        count += len(expected)
    for (conn_id, name), expected in answers.open_curves().items() if curves else ():
        asked = statement("open_curve").replace("mail_default", conn_id).replace("spring-sale", name)
        assert not (wrong := differences(ask("open_curve", asked), expected)), ("open_curve", name, wrong[:5])
        count += len(expected)
    return count
