"""The journal: every request that came in, what became of it, and how many were under way at once."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Entry:
    """One request as the service saw it."""

    sequence: int
    #: The path, which names the operation: ``/v5/contacts/upsert``.
    operation: str
    method: str
    #: Real and virtual time of arrival, milliseconds since the epoch.
    real_ms: int
    virtual_ms: int
    #: Which connection brought it; requests of one number came over one kept-alive connection.
    connection: int
    headers: dict[str, str]
    #: The parsed body; long ones are summarised; None when it was not read or is no JSON.
    body: Any = None
    body_bytes: int = 0
    #: "api_key", "oauth", "none" or "invalid".
    auth: str = "none"
    http_status: int | None = None
    code: int | None = None
    message: str | None = None
    #: Name of the fault that struck.
    fault: str | None = None
    #: Whether the service carried the request out (a sandboxed or refused one takes no effect).
    processed: bool = False
    #: Whether a complete answer was handed to the connection.
    answered: bool = False
    #: Real seconds from arrival to the end; None while it is under way.
    seconds: float | None = None


class Journal:
    def __init__(self, limit: int, body_limit: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._body_limit = body_limit
        self._sequence = 0
        self.counts: Counter[str] = Counter()
        self.in_flight = 0
        #: The most requests ever under way at once.
        self.most_in_flight = 0

    def open(self, operation: str, method: str, headers: dict[str, str], virtual_ms: int, connection: int) -> Entry:
        self._sequence += 1
        entry = Entry(self._sequence, operation, method, int(time.time() * 1000), virtual_ms, connection, headers)
        self._entries.append(entry)
        self.counts[operation] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return entry

    def note_body(self, entry: Entry, body: Any, size: int) -> None:
        entry.body_bytes = size
        entry.body = summary(body) if size > self._body_limit else body

    def close(self, entry: Entry, *, answered: bool = False) -> None:
        """The request is over; only the first call for an entry counts."""
        if entry.seconds is None:
            self.in_flight -= 1
            entry.seconds = time.time() - entry.real_ms / 1000
            entry.answered = answered

    def entries(self, operation: str | None = None, since: int = 0) -> list[dict[str, Any]]:
        """Entries with a sequence number over ``since``, oldest first, optionally of one operation."""
        return [
            dataclasses.asdict(entry)
            for entry in self._entries
            if entry.sequence > since and operation in (None, entry.operation)
        ]

    def clear(self) -> None:
        """Forget entries, counts and the high-water mark; sequence numbers go on."""
        self._entries.clear()
        self.counts.clear()
        self.most_in_flight = self.in_flight


def summary(body: Any) -> Any:
    """A long body in short: arrays as their row count, long texts as their size."""
    if not isinstance(body, dict):
        return {"rows": len(body)} if isinstance(body, list) else None
    short: dict[str, Any] = {}
    for name, value in body.items():
        if isinstance(value, list) and len(value) > 20:
            short[name] = {"rows": len(value)}
        elif isinstance(value, str) and len(value) > 1000:
            short[name] = {"bytes": len(value.encode())}
        else:
            short[name] = value
    return short
