"""The head of an answer has to come in time.

httpx limits the wait for each read, so a peer that sends a byte now and then could hold a request for ever. The body's
time is kept by :class:`.answers.Collector`; before that there is nothing of ours to keep it but what httpx tells while
it works (its extension ``trace``).
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from math import inf
from typing import Any

_until: ContextVar[float] = ContextVar("_until", default=inf)
"""When the head that is being read must be there; ``inf`` while none is."""

SHORTEST = 0.001
"""Seconds. What has arrived by then is still read: a head is bounded in size anyway."""


class HeadTime:
    """Gives each head so many seconds from the moment at which it is waited for.

    ``trace`` and ``atrace`` are for the two clients of httpx.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """What httpx calls at every step of a request."""
        stream = self._note(event, info)
        if stream is not None:
            read = stream.read
            stream.read = lambda max_bytes, timeout=None: read(max_bytes, _left(timeout))

    async def atrace(self, event: str, info: dict[str, Any]) -> None:
        """The same for the asynchronous client; reading gives something to await there."""
        self.trace(event, info)

    def _note(self, event: str, info: dict[str, Any]) -> Any:
        """A connection that has just been made."""
        if event.endswith(".receive_response_headers.started"):
            _until.set(time.monotonic() + self._seconds)
        elif ".receive_response_headers." in event:
            _until.set(inf)
        elif event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            return info["return_value"]
        return None


def _left(timeout: float | None) -> float | None:
    until = _until.get()
    if until == inf:
        return timeout
    left = max(until - time.monotonic(), SHORTEST)
    return left if timeout is None else min(timeout, left)
