"""Counts the events of a period for the comparison with the service's statistics."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from airflow_provider_mail.warehouse.database import StoredTable, stream_rows
from airflow_provider_mail.warehouse.table import literal
from airflow_provider_mail.warehouse.tables.events import EVENTS, RULES, EventCounts

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

CountedOn: TypeAlias = Literal["send", "event"]
"""The time that decides to which day an event belongs: that of the sending of its mail, or its own."""

CLOCK_TOLERANCE = datetime.timedelta(days=1)
"""How much earlier than it happened an event may have been received, by clocks that differ."""

_SENT = ("Bounced", "Delivered")
"""The codes of mails that were sent."""

_TIMES: Mapping[CountedOn, str] = {
    # Only Delivered events are known to carry the time of submission.
    "send": "COALESCE(e.submit_time, d.submit_time, e.triggered_time, e.received_at)",
    "event": "COALESCE(e.triggered_time, e.received_at)",
}


def event_counts(
    hook: DbApiHook,
    name: str,
    *,
    mail_conn_id: str,
    begin: datetime.datetime,
    end: datetime.datetime,
    counted_on: CountedOn,
    event_types: Collection[str] | None = None,
    undated: bool = False,
) -> dict[str, EventCounts]:
    """Count the events of transactional mail in a period, by the counter of the statistics that counts the same.

    A mail is identified by ``unique_msg_id`` and the address, since the recipients of one request may share the id. An
    event without an id counts as a mail of its own.

    :param event_types: count only events of these types. Default: those without the ``guid`` of a campaign.
    :param undated: count only events of mails for which no event has the time of sending.
    """
    table = StoredTable(hook, EVENTS, name)
    mark, when = hook.placeholder, _TIMES[counted_on]
    codes = sorted({code for rule in RULES.values() for code in rule.codes})
    type_condition = "(e.guid IS NULL OR e.guid = '')"
    types = list(event_types or ())
    if event_types is not None:
        type_condition = f"e.event_type IN ({', '.join([mark] * len(types))})"
    # A mail has at most one Delivered event: its code belongs to the key. Without GROUP BY, SQLite would compare each
    # event with all others of the account.
    sql = f"""
SELECT {", ".join(f"SUM(CASE WHEN {name} > 0 THEN 1 ELSE 0 END), SUM({name})" for name in RULES)}
FROM (
    SELECT {", ".join(f"SUM({_is_one(rule.codes)}) AS {name}" for name, rule in RULES.items())}
    FROM {table.spelled} AS e
    LEFT JOIN (
        SELECT unique_msg_id, email, MIN(submit_time) AS submit_time FROM {table.spelled}
        WHERE mail_conn_id = {mark} AND event_code = 'Delivered' AND submit_time IS NOT NULL
        GROUP BY unique_msg_id, email
    ) AS d ON d.unique_msg_id = e.unique_msg_id AND d.email = e.email AND e.submit_time IS NULL
    WHERE e.mail_conn_id = {mark} AND e.event_code IN ({_listed(codes)}) AND {type_condition}
        {"AND e.submit_time IS NULL AND d.submit_time IS NULL" if undated else ""}
        AND e.received_at >= {mark} AND {when} >= {mark} AND {when} < {mark}
    GROUP BY e.unique_msg_id, e.email, CASE WHEN e.unique_msg_id IS NULL THEN e.event_id END
) AS mails"""
    times = [table.parameter("received_at", moment) for moment in (begin - CLOCK_TOLERANCE, begin, end)]
    with stream_rows(hook, sql, [mail_conn_id, mail_conn_id, *types, *times]) as (_, batches):
        numbers: list[Any] = [int(number or 0) for batch in batches for row in batch for number in row]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return {counter: EventCounts(*pair) for counter, pair in zip(RULES, pairs, strict=True)}


class CampaignEvents(NamedTuple):
    """The events of a campaign.

    :param sent: recipients to whom a mail was sent: delivered or bounced.
    :param by_code: recipients with an event of each code.
    """

    total: int
    sent: int
    by_code: Mapping[str, int]


def campaign_event_counts(
    hook: DbApiHook,
    name: str,
    codes: Collection[str],
    *,
    mail_conn_id: str,
    mail_name: str,
    since: datetime.datetime,
) -> CampaignEvents:
    """Count the events of a campaign, and their recipients.

    :param since: when it was sent. Events that were received before belong to an earlier campaign of this name.
    """
    table, mark = StoredTable(hook, EVENTS, name), hook.placeholder
    # A mail may bounce softly first, and be delivered later: it was sent once.
    counted = [_SENT, *([code] for code in codes)]
    recipients = (f"COUNT(DISTINCT CASE WHEN event_code IN ({_listed(group)}) THEN email END)" for group in counted)
    sql = (
        f"SELECT COUNT(*), {', '.join(recipients)} FROM {table.spelled} "
        f"WHERE mail_conn_id = {mark} AND mail_name = {mark} AND received_at >= {mark}"
    )
    received_from = table.parameter("received_at", since - CLOCK_TOLERANCE)
    with stream_rows(hook, sql, [mail_conn_id, mail_name, received_from]) as (_, batches):
        total, sent, *by_code = (int(number) for batch in batches for row in batch for number in row)
    return CampaignEvents(total, sent, dict(zip(codes, by_code, strict=True)))


def _is_one(codes: Collection[str]) -> str:
    return f"CASE WHEN e.event_code IN ({_listed(codes)}) THEN 1 ELSE 0 END"


def _listed(codes: Collection[str]) -> str:
    return ", ".join(map(literal, codes))
