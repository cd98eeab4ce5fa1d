"""The marts of the dbt package, calculated by hand: in Python, from what the loader of `sixty_days` keeps.

No SQL is shared with the models. Rates are exact fractions.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from tests.machines.sixty_days import COUNTS, World
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


def rate(part: float, whole: float) -> Fraction | None:
    return Fraction(100 * part, whole) if whole else None  # type: ignore[arg-type]


class Marts:
    """The rows of each mart."""

    def __init__(self, world: World) -> None:
        self._events = [(account.conn_id, event) for account in world.accounts for event in account.events]
        self._rows = world.loader.rows
        columns = f"conn, team, name, sent_at, {', '.join(COUNTS)}"
        found = self._rows(f"SELECT {columns}, day FROM snapshots")
        self._curves: dict[tuple[str, str, str, str], list[Counted]] = defaultdict(list)
        for row in sorted(Counted(*row) for row in found):
            self._curves[row[:4]].append(row)
        for curve in self._curves.values():
            curve.sort(key=lambda row: row.day)

    def campaign_days(self) -> Rows:
        """The growth of each campaign by day."""
        for key, curve in self._curves.items():
            for before, row in zip([None, *curve], curve, strict=False):
                counts = row.sent, row.opens, row.clicks, row.bounces, row.unsubscribed
                old = (before.sent, before.opens, before.clicks, before.bounces, before.unsubscribed) if before else ()
                growth = (new - past for new, past in zip(counts, old or (0,) * 5, strict=True))
                yield (*key, row.day, before and before.day, *counts, *growth)

    def campaign_results(self) -> Rows:
        """The latest counts of each campaign."""
        for *values, gone in self._rows(f"SELECT conn, team, name, sent_at, {', '.join(COUNTS)}, gone FROM stats"):
            row = Counted(*values)
            rates = [rate(part, row.sent) for part in (row.opens, row.clicks, row.bounces, row.unsubscribed)]
            yield (*row[:4], row.sent, max(row.sent - row.bounces, 0), row.opens, row.clicks, row.bounces,
                   row.unsubscribed, *rates, gone is not None)  # fmt: skip

    def event_days(self) -> Rows:
        """The events of each day, code and campaign."""
        days = defaultdict(list)
        for conn, event in self._events:
            days[conn, event["triggered_time"].date(), event["event_code"], event["guid"] or ""].append(event)
        for key, events in days.items():
            yield (*key, len(events), len({event["unique_msg_id"] for event in events}))


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
