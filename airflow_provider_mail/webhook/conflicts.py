"""Finds events that have the identity of a stored one, but other fields: the first one stays in the table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_mail.warehouse.read import StoredTable
from airflow_provider_mail.warehouse.rows import json_text
from airflow_provider_mail.webhook.events import DeadLetter, Origin, Row, read_push

if TYPE_CHECKING:
    from airflow_provider_mail.webhook.inbox import StoredPush

CONFLICT = "an event with the same identity and other fields was stored before"
"""The reason of a dead letter that can be read, but not stored beside an event with the same identity."""

_MAX_IDS = 1000
"""Events of one query."""


class Seen(NamedTuple):
    """An event that was loaded: stored, or a duplicate of a stored one."""

    mail_conn_id: str
    event_id: str
    push_id: int
    position: int

    @classmethod
    def of(cls, row: Row) -> Seen:
        """Return what is kept of a row of `EVENTS`."""
        return cls(row[0], row[1], row[-2], row[-1])


def conflicts(stored: StoredTable, pushes: Sequence[StoredPush], seen: Sequence[Seen]) -> Iterator[DeadLetter]:
    """Yield a dead letter for each event that was not stored because one with its identity has other fields.

    :param seen: their events, in the same order, after they were loaded.
    """
    pushes_by_id = {push.id: push for push in pushes}
    for part in _chunks(list(_duplicates(stored, seen))):
        stored_raw = {(conn_id, event_id): _decoded(raw) for conn_id, event_id, raw in _rows(stored, part, "raw")}
        positions = {(event.push_id, event.position) for event in part}
        for push_id in dict.fromkeys(event.push_id for event in part):
            push = pushes_by_id[push_id]
            origin = Origin(push.mail_conn_id, push.received_at, push.id)
            for row in read_push(push.body, origin, lambda letter: None):
                own, raw = Seen.of(row), row[-4]
                if (push_id, own.position) in positions and stored_raw.get(own[:2], raw) != raw:
                    yield DeadLetter(origin, own.position, CONFLICT, json_text(raw))


def _duplicates(stored: StoredTable, seen: Sequence[Seen]) -> Iterator[Seen]:
    """Those in whose place the table has another event with the same identity."""
    for part in _chunks(seen):
        places = {row[:2]: row[2:] for row in _rows(stored, part, "push_id", "push_index")}
        yield from (event for event in part if places.get(event[:2], event[2:]) != event[2:])


def _rows(stored: StoredTable, part: Sequence[Seen], *columns: str) -> Iterator[tuple[Any, ...]]:
    names = ", ".join(map(stored.column, ("mail_conn_id", "event_id", *columns)))
    ids = ", ".join(
        f"'{event_id}'" for event_id in {event.event_id for event in part}
    )  # digests, in hexadecimal digits
    yield from map(tuple, stored.select(names, f"{stored.column('event_id')} IN ({ids})"))


def _chunks(seen: Sequence[Seen]) -> Iterator[Sequence[Seen]]:
    yield from (seen[start : start + _MAX_IDS] for start in range(0, len(seen), _MAX_IDS))


def _decoded(raw: Any) -> Any:
    return json.loads(raw) if isinstance(raw, str | bytes) else raw
