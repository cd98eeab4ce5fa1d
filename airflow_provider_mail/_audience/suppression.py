"""Whom the user's tables leave out of an import."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.addresses import address_key

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

BOUNCES = 3
"""Mails that bounced since the last delivery, from which a person is left out: an event does not show whether a bounce
is permanent."""

_EVENTS = """
SELECT email, event_code, COALESCE(unique_msg_id, event_id), triggered_time FROM {table}
WHERE email IS NOT NULL AND event_code IN ('Unsubscribed', 'SpamReport', 'Dropped', 'Bounced')
"""
_DELIVERIES = """
SELECT email, MAX(triggered_time) FROM {table} WHERE event_code = 'Delivered' AND email IS NOT NULL GROUP BY email
"""


def suppressed_people(hook: DbApiHook, *, events: str | None, sql: str | None, table: str | None) -> frozenset[int]:
    """Return the people whom the user's tables leave out, each as the hash of the key.

    Python's hash of a key differs in every process, so it identifies nobody.

    :param sql: a query whose first column has addresses.
    :param table: a table with a column ``email``.
    :raises WarehouseError: when a query fails; never with values.
    """
    from airflow_provider_mail.warehouse.read import StoredTable, stream_rows
    from airflow_provider_mail.warehouse.tables.events import EVENTS

    people = set[int]()
    if events:
        people |= _suppressed_by_events(hook, StoredTable(hook, EVENTS, events).spelled)
    queries = [f"SELECT email FROM {StoredTable(hook, EVENTS, table).spelled}"] if table else []
    for query in [*queries, sql] if sql else queries:
        with stream_rows(hook, query) as (_, streamed):
            for rows in streamed:
                people.update(hash(address_key(address)) for address, *_ in rows if isinstance(address, str))
    return frozenset(people)


def _suppressed_by_events(hook: DbApiHook, table: str) -> set[int]:
    """Return people who unsubscribed, complained, were dropped, or bounced too often, in whatever spelling."""
    from airflow_provider_mail.warehouse.read import stream_rows

    people = set[int]()
    bounces: dict[int, dict[Any, Any]] = defaultdict(dict)
    with stream_rows(hook, _EVENTS.format(table=table)) as (_, streamed):
        for rows in streamed:
            for address, code, message, time in rows:
                person = hash(address_key(address))
                if code == "Bounced":
                    bounces[person][message] = time
                else:
                    people.add(person)
    if not bounces:
        return people
    delivered: dict[int, Any] = {}
    with stream_rows(hook, _DELIVERIES.format(table=table)) as (_, streamed):
        for rows in streamed:
            for address, time in rows:
                person = hash(address_key(address))
                if person in bounces and time is not None:
                    delivered[person] = max(time, delivered.get(person, time))
    for person, times in bounces.items():
        last = delivered.get(person)
        # A bounce without a time counts: it may be the latest.
        if sum(last is None or time is None or time >= last for time in times.values()) >= BOUNCES:
            people.add(person)
    return people
