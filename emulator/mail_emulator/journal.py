"""The journal: every request with its outcome, and the number in flight."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

#: How many of the last responses are kept, and how many bytes of each.
RESPONSES, RESPONSE_BYTES = 1000, 16_384


@dataclass(slots=True)
class Entry:
    """A request as the service received it."""

    sequence: int
    #: The path, which names the operation: ``/v5/contacts/upsert``.
    operation: str
    method: str
    #: Real and virtual time of arrival, milliseconds since the epoch.
    real_ms: int
    virtual_ms: int
    #: Number of the connection; requests over one kept-alive connection share it.
    connection: int
    headers: dict[str, str]
    #: The decoded body, summarized when long; None when it was not read or is not JSON.
    body: Any = None
    body_bytes: int = 0
    #: "api_key", "oauth", "none" or "invalid".
    auth: str = "none"
    http_status: int | None = None
    code: int | None = None
    message: str | None = None
    #: Name of the fault that applied.
    fault: str | None = None
    #: Whether the request took effect (a sandboxed or rejected one does not).
    processed: bool = False
    #: Whether a complete response was written to the connection.
    answered: bool = False
    #: Real seconds from arrival to the end; None while in progress.
    seconds: float | None = None


class Journal:
    """The received requests."""

    def __init__(self, limit: int, body_limit: int) -> None:
        self.entries: deque[Entry] = deque(maxlen=limit)
        self._body_limit = body_limit
        self._sequence = 0
        self.counts: Counter[str] = Counter()
        self.in_flight = 0
        #: Maximum number of requests in flight so far.
        self.most_in_flight = 0
        #: The beginning of each of the last responses, by sequence number of the request.
        self.responses: dict[int, bytes] = {}

    def open(self, operation: str, method: str, headers: dict[str, str], virtual_ms: int, connection: int) -> Entry:
        self._sequence += 1
        entry = Entry(self._sequence, operation, method, int(time.time() * 1000), virtual_ms, connection, headers)
        self.entries.append(entry)
        self.counts[operation] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return entry

    def note_body(self, entry: Entry, body: Any, size: int) -> None:
        entry.body_bytes = size
        entry.body = _summary(body) if size > self._body_limit else body

    def note_response(self, entry: Entry, body: bytes) -> None:
        """Keep the beginning of a response for a while."""
        self.responses[entry.sequence] = body[:RESPONSE_BYTES]
        if len(self.responses) > RESPONSES:
            del self.responses[next(iter(self.responses))]

    def progress(self) -> tuple[int, int]:
        """Return the number of requests so far, and of those in flight."""
        return self._sequence, self.in_flight

    def close(self, entry: Entry, *, answered: bool = False) -> None:
        """End the request; only the first call for an entry counts."""
        if entry.seconds is None:
            self.in_flight -= 1
            entry.seconds = time.time() - entry.real_ms / 1000
            entry.answered = answered

    def clear(self) -> None:
        """Remove entries, counts and the maximum; sequence numbers continue."""
        self.responses.clear()
        self.entries.clear()
        self.counts.clear()
        self.most_in_flight = self.in_flight


def _summary(body: Any) -> Any:
    """Summarize a long body: arrays as their length, long strings as their size."""
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
