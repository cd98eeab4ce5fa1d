"""Finds events that have the identity of a stored one, but other fields: the first one stays in the table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from airflow_provider_mail.warehouse.read import StoredTable
from airflow_provider_mail.warehouse.request import OneOf
from airflow_provider_mail.warehouse.rows import json_text
from airflow_provider_mail.warehouse.tables.events import EVENTS
from airflow_provider_mail.webhook.events import DeadLetter, Origin, Row

Key = tuple[str, str]
"""The identity of an event in the table: the account and the digest."""

CONFLICT = "an event with the same identity and other fields was stored before"
"""The reason of a dead letter that can be read, but not stored beside an event with the same identity."""

_MAX_IDS = 800


_RAW = EVENTS.names.index("raw")
_PLACE = EVENTS.names.index("push_id")
"""The first of two columns."""


def conflicts(stored: StoredTable, rows: Sequence[Row], existing: Collection[Key] | None) -> Iterator[DeadLetter]:
    """Yield a dead letter for each event that was not stored because one with its identity has other fields.

    :param existing: identities that were stored before; ``None`` if they are unknown.
    """
    candidates = _not_stored(stored, rows) if existing is None else _known_or_different(rows, existing)
    for part in _chunks([*candidates]):
        stored_raw = {(conn_id, event_id): _decoded(raw) for conn_id, event_id, raw in _select(stored, part, "raw")}
        for row in part:
            if stored_raw.get(row[:2], row[_RAW]) != row[_RAW]:
                conn_id, received_at, push_id, index = row[0], *row[_RAW + 1 :]
                yield DeadLetter(Origin(conn_id, received_at, push_id), index, CONFLICT, json_text(row[_RAW]))


def _known_or_different(rows: Sequence[Row], existing: Collection[Key]) -> Iterator[Row]:
    """Those whose identity was stored before, or that differ from the first row with their identity."""
    first: dict[Key, Row] = {}
    for row in rows:
        if row[:2] in existing or first.setdefault(row[:2], row)[_RAW] != row[_RAW]:
            yield row


def _not_stored(stored: StoredTable, rows: Sequence[Row]) -> Iterator[Row]:
    """Those in whose place the table has another event with the same identity."""
    for part in _chunks(rows):
        places = {row[:2]: row[2:] for row in _select(stored, part, "push_id", "push_index")}
        yield from (row for row in part if places.get(row[:2], row[_PLACE:]) != row[_PLACE:])


def _select(stored: StoredTable, part: Sequence[Row], *columns: str) -> Iterator[tuple[Any, ...]]:
    conn_ids, event_ids = ({row[index] for row in part} for index in (0, 1))
    conditions = {"mail_conn_id": OneOf([*conn_ids]), "event_id": OneOf([*event_ids])}
    yield from stored.rows(("mail_conn_id", "event_id", *columns), conditions)


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    yield from (rows[start : start + _MAX_IDS] for start in range(0, len(rows), _MAX_IDS))


def _decoded(raw: Any) -> Any:
    return json.loads(raw) if isinstance(raw, str | bytes) else raw
