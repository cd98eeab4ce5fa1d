"""The table of differences between the events that were received and the statistics of the service.

For each counter of the daily statistics of transactional mail (document, "Transactional daily statistics record") the
events give a number, or a range where the document leaves open what the counter counts.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.warehouse.table import BIGINT, BOOLEAN, DATE, TEXT, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION, LAST_SEEN

EVENT_DIFFERENCES = Table(
    comment="Daily statistics of transactional mail, compared with the events that were received",
    key=("mail_conn_id", "stats_date", "counter"),
    by_day="stats_date",
    columns=(
        CONNECTION,
        Column("stats_date", DATE, "Calendar day of the service"),
        Column("counter", text(40), "Counter of the service's statistics, such as sent_count"),
        Column("service_count", BIGINT, "What the service counted; null if its response leaves out the day", True),
        Column("events_least", BIGINT, "The smallest count that agrees with the events"),
        Column("events_most", BIGINT, "The largest count that agrees with the events"),
        Column(
            "difference",
            BIGINT,
            "service_count minus the nearest count that agrees: more than 0 if events are missing, less if there are "
            "too many; null without service_count",
            True,
        ),
        Column("tolerated", BOOLEAN, "Whether the difference is within the tolerance of the comparison"),
        Column("counted_on", TEXT, "Day to which events counted: that of the sending (send) or their own (event)"),
        Column("time_zone", TEXT, "Time zone in which the day begins"),
        LAST_SEEN,
    ),
)


@dataclass(frozen=True)
class EventCounts:
    """How often events of some codes were received.

    :param mails: the number of mails with such an event; a mail has one recipient.
    :param events: the number of events.
    """

    mails: int
    events: int


@dataclass(frozen=True)
class Rule:
    """What events say about one counter.

    :param codes: the codes that are counted, of which each mail counts once.
    :param repeated: whether the service may count each event instead of each mail.
    :param partly: whether the service counts only some of these mails, which the events do not tell.
    """

    codes: tuple[str, ...]
    repeated: bool = False
    partly: bool = False

    def span(self, counts: EventCounts) -> tuple[int, int]:
        """Return the smallest and the largest count that agree with the events.

        :param counts: the received events of these codes.
        """
        least = 0 if self.partly else counts.mails
        return least, counts.events if self.repeated else counts.mails


RULES: Mapping[str, Rule] = {
    # A mail that was sent ends as delivered or as bounced, or as both one after the other.
    "sent_count": Rule(("Delivered", "Bounced")),
    # The document does not show whether a mail that is opened twice counts twice.
    "open_count": Rule(("Opened",), repeated=True),
    "click_count": Rule(("Clicked",), repeated=True),
    # The statistics count soft bounces; the events do not show which bounces are soft.
    "bounce_count": Rule(("Bounced",), partly=True),
    "unsent_count": Rule(("Dropped",)),
    "unsubscribe_count": Rule(("Unsubscribed",)),
}
"""By the counter of the statistics. Spam reports have no counter."""


@dataclass(frozen=True)
class Difference:
    """The comparison of one counter on one day.

    :param stats_date: the day.
    :param counter: the counter.
    :param service_count: what the service counted; ``None`` if its response leaves out the day.
    :param least: the smallest count that agrees with the events.
    :param most: the largest count that agrees with the events.
    """

    stats_date: datetime.date
    counter: str
    service_count: int | None
    least: int
    most: int

    @property
    def difference(self) -> int | None:
        """The distance of the service's count from what the events allow: more than 0 if events are missing."""
        if self.service_count is None:
            return None
        return self.service_count - min(max(self.service_count, self.least), self.most)

    def is_tolerated(self, tolerance: int, tolerance_fraction: float) -> bool:
        """Return whether the difference is small enough.

        A day that the service leaves out is compared as if the service had counted nothing.

        :param tolerance: the largest difference that always is.
        :param tolerance_fraction: the largest ratio of the difference to the service's count that is as well.
        """
        distance = self.least if self.difference is None else abs(self.difference)
        return distance <= max(tolerance, tolerance_fraction * (self.service_count or 0))

    def __str__(self) -> str:
        events = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        service = "no record" if self.service_count is None else self.service_count
        difference = "" if self.difference is None else f" ({self.difference:+})"
        return f"{self.stats_date} {self.counter}: service {service}, events {events}{difference}"


def difference_row(
    difference: Difference,
    *,
    mail_conn_id: str,
    tolerated: bool,
    counted_on: str,
    time_zone: str,
    observed_at: datetime.datetime,
) -> tuple[Any, ...]:
    """Build a row of `EVENT_DIFFERENCES`.

    :param difference: the comparison.
    :param mail_conn_id: the Airflow connection of the account.
    :param tolerated: whether the difference is small enough.
    :param counted_on: to which day events were counted.
    :param time_zone: the time zone of the days.
    :param observed_at: the time at which the service was asked, with a zone.
    """
    return (
        mail_conn_id,
        difference.stats_date,
        difference.counter,
        difference.service_count,
        difference.least,
        difference.most,
        difference.difference,
        tolerated,
        counted_on,
        time_zone,
        observed_at,
    )
