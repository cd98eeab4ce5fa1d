"""The rows of an audience: who each is, as lines of a state, and whom the user's tables leave out."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_mail._task.imports import usual_text
from airflow_provider_mail.api._core.addresses import address_key
from airflow_provider_mail.api.flows.import_contacts import SelectedRows
from airflow_provider_mail.warehouse.rows import batched

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

Rows = Iterable[Sequence[Sequence[Any]]]

Line = tuple[str, bytes, int]
"""The membership of a line, the line, and the checksum of its person."""

_ENCODER = msgspec.json.Encoder()
_OTHER_SPACES = "\t\r\x0b\x0c\x1c\x1d\x1e\x1f"
"""White space of ASCII but the space and the line break."""

UNCHANGED, JOINED, RETURNED, CHANGED = "", "joined", "returned", "changed"
"""What a row is, beside the members before."""

SUPPRESSING_EVENTS = """
SELECT email FROM {table} WHERE email IS NOT NULL AND event_code IN ('Unsubscribed', 'SpamReport', 'Dropped')
UNION
SELECT bounced.email FROM {table} bounced
WHERE bounced.email IS NOT NULL AND bounced.event_code = 'Bounced' AND NOT EXISTS (
    SELECT 1 FROM {table} delivered
    WHERE delivered.email = bounced.email AND delivered.event_code = 'Delivered'
    AND delivered.triggered_time > bounced.triggered_time)
GROUP BY bounced.email HAVING COUNT(DISTINCT bounced.unique_msg_id) >= 3
"""
"""Addresses that must not get campaigns, by the events that the service pushed.

It does not show whether a bounce is permanent. Three mails that bounced since the last delivery are taken for that.
"""


class Identity:
    """The values of a row that identify the person: the address, or the phone number of a row without one.

    :param properties: the property of each value of a row, by position.
    """

    def __init__(self, properties: Sequence[str]) -> None:
        self.email = properties.index("email") if "email" in properties else None
        self.phone = properties.index("phoneNumber") if "phoneNumber" in properties else None
        self._width = len(properties)

    def key(self, row: Sequence[Any]) -> str | None:
        """Return the key by which people are compared; ``None`` for a row that the import will reject."""
        if len(row) != self._width:
            return None
        if self.email is not None:
            value = row[self.email]
            if isinstance(value, str) and value:
                return address_key(value)
            if value not in (None, ""):
                return None
        if self.phone is not None and (value := row[self.phone]) not in (None, ""):
            return f"tel:{value}" if isinstance(value, str | int) else None
        return None


class AudienceRows(SelectedRows):
    """Rows with what the state needs of them.

    :param keys: the key of the person of each row; empty for a row that the import will reject.
    :param texts: each row as a line of the state.
    :param operations: what each row is.
    """

    def __init__(self, rows: SelectedRows, keys: list[str], texts: list[bytes], operations: list[str]) -> None:
        super().__init__(rows, rows.numbers, rows.lines)
        self.keys = keys
        self.texts = texts
        self.operations = operations

    @classmethod
    def unchanged(cls, rows: SelectedRows) -> AudienceRows:
        """Return rows of which the state needs nothing."""
        return cls(rows, [""] * len(rows), [b""] * len(rows), [UNCHANGED] * len(rows))


def packed(spool: Iterable[AudienceRows], size: int) -> Iterator[AudienceRows]:
    """Yield the rows that are to be sent, in lists of one size."""
    # Each row with what belongs to it. Only rows of files have lines, which are numbered from 1.
    columns = (
        (rows, rows.numbers, rows.lines or [0] * len(rows), rows.keys, rows.texts, rows.operations) for rows in spool
    )
    every = (record for of_rows in columns for record in zip(*of_rows, strict=True))
    changed = (record for record in every if record[-1] != UNCHANGED)
    for chunk in batched(changed, size):
        rows, numbers, lines, keys, texts, operations = map(list, zip(*chunk, strict=True))
        selected = SelectedRows(rows, numbers, lines if lines[0] else ())
        yield AudienceRows(selected, keys, texts, operations)


def picked_rows(rows: SelectedRows, places: Sequence[int]) -> SelectedRows:
    """Return the rows at some places."""
    return SelectedRows(
        [rows[place] for place in places],
        [rows.numbers[place] for place in places],
        [rows.lines[place] for place in places] if rows.lines else (),
    )


def encoded(rows: Sequence[Sequence[Any]]) -> bytes:
    """Return rows as lines, which are the same for the same values."""
    try:
        return _ENCODER.encode_lines(rows)
    except (TypeError, ValueError, OverflowError):
        return b"".join(map(_encoded_row, rows))


def _encoded_row(row: Sequence[Any]) -> bytes:
    try:
        return _ENCODER.encode(row) + b"\n"
    except (TypeError, ValueError, OverflowError):
        # Such values are rejected by the import, or converted to the same text.
        texts = [value if value is None else str(value).encode("utf-8", "replace").decode() for value in row]
        return _ENCODER.encode(texts) + b"\n"


def decoded(line: bytes) -> list[Any]:
    """Return the values of a line, as JSON has them."""
    row: list[Any] = msgspec.json.decode(line)
    return row


def checksum(key: str | None) -> int:
    """Return a number that is the same for the same person; now and then also for others."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) if key else 0


def checksums(rows: Sequence[Sequence[Any]], identity: Identity) -> array[int]:
    """Return the checksums of the people of rows."""
    try:
        addresses = [] if identity.email is None else list(map(itemgetter(identity.email), rows))
    except IndexError:
        addresses = []
    # An address in its usual spelling is its key.
    if addresses and all(addresses) and (text := usual_text(addresses)):
        keys = text.encode().split(b"\n")
        if len(keys) == len(rows) and not any(space in text for space in _OTHER_SPACES):
            return array("I", map(zlib.crc32, keys))
    return array("I", [checksum(identity.key(row)) for row in rows])


def lines_of(membership: str, people: Iterable[tuple[str | None, bytes]]) -> Iterator[Line]:
    """Return the lines of people, from key and line of each."""
    return ((membership, line, checksum(key)) for key, line in people)


def suppressed_people(hook: DbApiHook, *, events: str | None, sql: str | None, table: str | None) -> frozenset[int]:
    """Return the people whom the user's tables leave out, each as the hash of the key.

    Python's hash of a key differs in every process, so it identifies nobody.

    :param events: the table of events.
    :param sql: a query whose first column has addresses.
    :param table: a table with a column ``email``.
    :raises WarehouseError: when a query fails; never with values.
    """
    from airflow_provider_mail.warehouse.read import StoredTable, stream_rows
    from airflow_provider_mail.warehouse.tables.events import EVENTS

    queries = [SUPPRESSING_EVENTS.format(table=StoredTable(hook, EVENTS, events).spelled)] if events else []
    if table:
        queries.append(f"SELECT email FROM {StoredTable(hook, EVENTS, table).spelled}")
    queries += [sql] if sql else []
    people = set[int]()
    for query in queries:
        with stream_rows(hook, query) as (_, streamed):
            for rows in streamed:
                people.update(hash(address_key(address)) for address, *_ in rows if isinstance(address, str))
    return frozenset(people)
