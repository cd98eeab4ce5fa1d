"""The service's clock, derived from the ``Date`` headers of its responses. No I/O."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RESOLUTION = 1.0
"""Resolution of the ``Date`` header in seconds."""

SLOW = 2.0
"""Seconds. The ``Date`` of a response that takes longer may be much later than its data."""

MAX_OFFSET = 10 * 366 * 86_400.0
"""Seconds. A header that is further away from the local time (such as 1970) is ignored."""


NEW_SECONDS = 15 * 60.0
"""Seconds after its creation or send time during which the state of a campaign is not final: the specification does not
say which state a new campaign shows."""


class ServiceClock:
    """The service's time: the local time plus an offset from the last response with a ``Date`` header.

    Without such a response it is the local time. The header has a resolution of one second, and time passes between the
    request and its response: the offset is the smallest that explains the header, so it is 0 for clocks that agree.
    """

    def __init__(self) -> None:
        self.offset = 0.0
        """Seconds by which the service's clock is ahead of the local one."""
        self.asked_at: datetime | None = None
        """When the first request since `restart` was sent, by the service's clock: its data is not older.

        Accurate to a second when the local clock is wrong. ``None``: no response had a plausible ``Date`` header.
        """
        self.asked_at_local = 0.0
        """When that request was sent, by the local clock, as Unix time."""

    def restart(self) -> None:
        """Reset `asked_at`."""
        self.asked_at = None

    def observe(self, headers: Mapping[str, str], sent: float, received: float) -> None:
        """Update the offset from a response. One without a plausible ``Date`` header is ignored.

        :param headers: of the response, with lower-case names or case-insensitive.
        :param sent: local Unix time at which the request was sent.
        :param received: local Unix time at which its response had been read.
        """
        date = http_date(headers.get("date", ""))
        if date is None:
            return
        header_time = date.timestamp()
        # The service set the header between `sent` and `received`, at some fraction of the second that it shows.
        smallest, largest = header_time - received, header_time + RESOLUTION - sent
        offset = min(max(0.0, smallest), largest)
        if abs(offset) > MAX_OFFSET:
            return
        self.offset = offset
        # With a wrong local clock, only the header is known: it is later than the request if the response was slow.
        asked_time = sent if offset == 0.0 else min(header_time, header_time + SLOW - (received - sent))
        asked_at = datetime.fromtimestamp(asked_time, UTC)
        self.asked_at_local = sent if self.asked_at is None else min(sent, self.asked_at_local)
        self.asked_at = min(asked_at, self.asked_at or asked_at)

    def time(self) -> float:
        """Return the service's time as Unix time."""
        return time.time() + self.offset

    def now(self) -> datetime:
        """Return the service's time as a datetime in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)


def http_date(text: str) -> datetime | None:
    """Parse the date of an HTTP header such as ``Date`` or ``Retry-After``; ``None`` when it is not a date."""
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
