"""Whom the user's tables leave out of an import."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from logging import getLogger
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.warehouse.rows import moment

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

    from airflow_provider_mail.arguments import Suppress

log = getLogger(__name__)

BOUNCES = 3
"""Mails that bounced since the last delivery, from which a person is left out: an event does not show whether a bounce
is permanent."""

_BETWEEN = re.compile(r'[\s<>()\[\],;:"]+')
"""What is around addresses in a text, and in none."""

_AROUND = re.compile(r"[^\w.@+&'-]+")
"""What is around addresses in a text, and in few: not all of what an address may have."""

_EVENTS = """
SELECT email, event_code, COALESCE(NULLIF(unique_msg_id, ''), event_id), triggered_time FROM {table}
WHERE mail_conn_id = {mark} AND email IS NOT NULL
AND event_code IN ('Unsubscribed', 'SpamReport', 'Dropped', 'Bounced')
"""
_DELIVERIES = """
SELECT email, MAX(triggered_time) FROM {table}
WHERE mail_conn_id = {mark} AND event_code = 'Delivered' AND email IS NOT NULL GROUP BY email
"""
_ACCOUNTS = "SELECT DISTINCT mail_conn_id FROM {table}"


def suppressed_people(hook: DbApiHook, suppress: Suppress, mail_conn_id: str) -> frozenset[int]:
    """Return the people whom the user's tables leave out, each as the hash of the key.

    Python's hash of a key differs in every process, so it identifies nobody.

    :param mail_conn_id: the account whose events count.
    :raises WarehouseError: when a query fails; never with values.
    :raises MailValidationError: a query has no addresses, or ``opted_in_sql`` no times.
    """
    from airflow_provider_mail.warehouse.database import StoredTable
    from airflow_provider_mail.warehouse.tables.events import EVENTS

    people = set[int]()
    if suppress.events_table:
        table = StoredTable(hook, EVENTS, str(suppress.events_table)).spelled
        opted_in = _opted_in(hook, str(suppress.opted_in_sql)) if suppress.opted_in_sql else {}
        people |= _suppressed_by_events(hook, table, mail_conn_id, opted_in)
    if suppress.sql:
        people |= _listed(hook, str(suppress.sql), "sql")
    if suppress.table:
        table = StoredTable(hook, EVENTS, str(suppress.table)).spelled
        people |= _listed(hook, f"SELECT email FROM {table}", "table")
    return frozenset(people)


def _listed(hook: DbApiHook, query: str, argument: str) -> set[int]:
    """Return the people whose addresses are the first column of a query; one of ids would leave out nobody."""
    from airflow_provider_mail.warehouse.database import stream_rows

    people, others = set[int](), 0
    with stream_rows(hook, query) as (_, streamed):
        for value, *_ in chain.from_iterable(streamed):
            if isinstance(value, str) and "@" in value:
                people.update(map(hash, _people_in(value)))
            else:
                others += value not in (None, "")
    if others and not people:
        raise MailValidationError(
            f"suppress: {argument}: none of the {others:,} values of the first column is an address, so nobody would "
            "be left out: select the addresses, such as SELECT email FROM no_mail"
        )
    if others:
        log.warning("suppress: %s: %s values of the first column are no addresses.", argument, f"{others:,}")
    return people


def _people_in(value: str) -> set[str]:
    """Return the people whom a value means: one address, or those in ``Ada <ada@example.com>``, a link or a list.

    A text with other characters than most addresses may mean one person or another; then both are left out.
    """
    if _AROUND.search(value) is None:
        return {address_key(value.strip("'"))}
    # No address has invisible characters.
    text = "".join(letter for letter in unicodedata.normalize("NFC", value) if unicodedata.category(letter) != "Cf")
    parts = (*_BETWEEN.split(text), *_AROUND.split(text))
    return {address_key(part.strip("'")) for part in (value, text, *parts) if "@" in part}


def _read(hook: DbApiHook, query: str, parameters: Sequence[Any] | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query whose first column has addresses, with the person in its place."""
    from airflow_provider_mail.warehouse.database import stream_rows

    with stream_rows(hook, query, parameters) as (_, streamed):
        for rows in streamed:
            for address, *values in rows:
                if isinstance(address, str):
                    yield hash(address_key(address)), *values


def _opted_in(hook: DbApiHook, query: str) -> Mapping[int, datetime]:
    """Return when people last opted in."""
    times: dict[int, datetime] = {}
    try:
        for person, value, *_ in _read(hook, query):
            if (time := moment(value)) is not None:
                times[person] = max(time, times.get(person, time))
    except ValueError:
        raise MailValidationError(
            "suppress: opted_in_sql: the first column must have addresses and the second one times, such as "
            "SELECT email, opted_in_at FROM consents"
        ) from None
    return times


def _suppressed_by_events(hook: DbApiHook, table: str, mail_conn_id: str, opted_in: Mapping[int, datetime]) -> set[int]:
    """Return people who unsubscribed, complained, were dropped, or bounced too often, in whatever spelling."""
    people = set[int]()
    bounces: dict[int, dict[Any, Any]] = defaultdict(dict)
    fields = {"table": table, "mark": hook.placeholder}
    found = False
    for person, code, message, time in _read(hook, _EVENTS.format(**fields), [mail_conn_id]):
        found = True
        # An event without a time counts: it may be the latest.
        if person in opted_in and (at := moment(time)) is not None and at < opted_in[person]:
            continue
        if code == "Bounced":
            bounces[person][message] = time
        else:
            people.add(person)
    if not found:
        _warn_of_other_accounts(hook, table, mail_conn_id)
    if not bounces:
        return people
    delivered: dict[int, Any] = {}
    for person, time in _read(hook, _DELIVERIES.format(**fields), [mail_conn_id]):
        if person in bounces and time is not None:
            delivered[person] = max(time, delivered.get(person, time))
    for person, times in bounces.items():
        last = delivered.get(person)
        if sum(last is None or time is None or time >= last for time in times.values()) >= BOUNCES:
            people.add(person)
    return people


def _warn_of_other_accounts(hook: DbApiHook, table: str, mail_conn_id: str) -> None:
    from airflow_provider_mail.warehouse.database import stream_rows

    with stream_rows(hook, _ACCOUNTS.format(table=table)) as (_, streamed):
        accounts = sorted(str(account) for rows in streamed for (account,) in rows)
    if accounts and mail_conn_id not in accounts:
        log.warning(
            "Table %s has no event of connection %r, only of %s: nobody is left out by events. If these are the same "
            "account, use one connection.",
            table,
            mail_conn_id,
            ", ".join(accounts),
        )
