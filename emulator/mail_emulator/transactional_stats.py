"""Transactional statistics, one record per calendar day."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from mail_emulator import codec
from mail_emulator.campaigns import period
from mail_emulator.clock import from_ms
from mail_emulator.fields import Body, window
from mail_emulator.operations import Context, Operation

_DAY = 86_400_000
#: Per counter: the condition on deliveries, and the column with the time.
COUNTERS = (
    ("sentCount", "dropped IS NULL", "send_at"),
    ("openCount", "true", "opened_at"),
    ("clickCount", "true", "clicked_at"),
    ("bounceCount", "bounce = 'soft'", "send_at"),
    ("unsentCount", "dropped IS NOT NULL", "send_at"),
    ("unsubscribeCount", "true", "unsubscribed_at"),
)


def _stats_get(context: Context, body: Body) -> dict[str, Any]:
    begin, end = period(context, body)
    offset = int(context.settings.stats_utc_offset_hours * 3_600_000)
    days: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys((name for name, *_ in COUNTERS), 0))
    for name, condition, happened in COUNTERS:
        counted_on = happened if context.settings.stats_day == "event" else "send_at"
        for row in context.store.rows(
            f"SELECT ({counted_on} + ?) / {_DAY} AS day, count(*) AS number FROM deliveries "
            f"WHERE {condition} AND {happened} <= ? AND {counted_on} >= ? AND {counted_on} < ? GROUP BY 1",
            [offset, context.now, begin, end],
        ):
            days[row["day"]][name] = row["number"]
    for row in context.store.rows("SELECT * FROM fixed_days"):
        day = int(row["day"])
        if begin <= day * _DAY - offset < end:
            days[day].update(codec.decode(row["stats"]))
    if context.settings.stats_empty_days:
        for day in range((max(begin, 0) + offset) // _DAY, (min(end - 1, context.now) + offset) // _DAY + 1):
            days[day]
    return {"mailStatsList": [{"statsDate": f"{from_ms(day * _DAY):%Y-%m-%d}", **days[day]} for day in sorted(days)]}


OPERATIONS = (Operation("/v5/transactional/mail/stats/get", window(), _stats_get),)
