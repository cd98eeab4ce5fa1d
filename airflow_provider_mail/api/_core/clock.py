"""The service's clock, as far as the ``Date`` headers of its responses show it. No I/O."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RESOLUTION = 1.0
"""Seconds: a ``Date`` header shows whole seconds."""

SLOW = 2.0
"""Seconds. A response that takes longer may have been stamped long after the service looked its data up."""

MAX_OFFSET = 10 * 366 * 86_400.0
"""Seconds. A header that is further away from the local time (such as 1970) is ignored."""


class ServiceClock:
    """Tells the service's time: the local time plus an offset taken from the last response with a ``Date`` header.

    Without such a response it tells the local time. A response shows the service's time only to the second, and some
    time passes between the request and its response; the offset is the smallest that explains the header, so it is 0
    for clocks that agree.
    """

    def __init__(self) -> None:
        self.offset = 0.0
        """Seconds by which the service's clock is ahead of the local one."""
        self.asked_at: datetime | None = None
        """When the earliest of the requests was sent whose responses have come since `restart`, by the service's clock.

        What they say is not older than that. Exact to the second where the local clock is wrong. ``None``: no response
        had a plausible ``Date`` header.
        """

    def restart(self) -> None:
        """Forget `asked_at`."""
        self.asked_at = None

    def observe(self, headers: Mapping[str, str], sent: float, received: float) -> None:
        """Take the offset from a response; one without a plausible ``Date`` header changes nothing.

        :param headers: of the response, with lower-case names or case-insensitive.
        :param sent: local Unix time at which the request was sent.
        :param received: local Unix time at which its response had been read.
        """
        date = http_date(headers.get("date", ""))
        if date is None:
            return
        shown = date.timestamp()
        # The service stamped the response between `sent` and `received`, at a fraction of the second that it shows.
        least, most = shown - received, shown + RESOLUTION - sent
        offset = min(max(0.0, least), most)
        if abs(offset) > MAX_OFFSET:
            return
        self.offset = offset
        asked = sent if offset == 0.0 else min(shown, shown + SLOW - (received - sent))
        asked_at = datetime.fromtimestamp(asked, UTC)
        self.asked_at = min(asked_at, self.asked_at or asked_at)

    def time(self) -> float:
        """The service's time as Unix time."""
        return time.time() + self.offset

    def now(self) -> datetime:
        """The service's time as a datetime in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)


def http_date(text: str) -> datetime | None:
    """The moment in an HTTP header such as ``Date`` or ``Retry-After``; ``None`` when it is not a date."""
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
